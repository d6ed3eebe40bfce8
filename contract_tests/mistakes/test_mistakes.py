"""Each mistake of mistakes.toml fails the test that is there for it: made in a copy, at night."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("mistakes.toml")
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "site", "dist", "node_modules")


@dataclass(frozen=True)
class Mistake:
    """Text of one file written in another way, the test that must fail, and what it must say."""

    name: str
    where: str
    old: str
    new: str
    test: str
    says: str

    def file(self, root: Path) -> Path:
        """The one that has the text, once: files may be moved, and the table stays as it is."""
        found = {path: path.read_text().count(self.old) for path in root.glob(self.where)}
        assert sum(found.values()) == 1, (
            f"{self.old!r} is {sum(found.values())} times in {self.where}"
        )
        return next(path for path, count in found.items() if count)

    def tests(self, root: Path) -> str:
        """The test as pytest is told it; its file is known by name, and by folders above it."""
        path, _, case = self.test.partition("::")
        *folders, name = path.split("/")
        files = (root / "contract_tests").rglob(name)
        (file,) = (each for each in files if {*folders} <= {*each.parts})
        assert f"def {case}" in file.read_text()
        return "::".join([str(file), *([case] if case else [])])

    @contextmanager
    def made(self, root: Path) -> Iterator[None]:
        file = self.file(root)
        right = file.read_text()
        file.write_text(right.replace(self.old, self.new))
        try:
            yield
        finally:
            file.write_text(right)


def _read(one: dict[str, str]) -> Mistake:
    return Mistake(where=one.pop("in"), **one)


MISTAKES = [_read(one) for one in tomllib.loads(TABLE.read_text())["mistake"]]
each = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.name)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = shutil.copytree(ROOT, tmp_path_factory.mktemp("copy") / "it", ignore=NOT_COPIED)
    # Some tests ask git which files there are.
    subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)
    return copy


@each
def test_a_mistake_can_still_be_made(mistake: Mistake) -> None:
    assert mistake.old != mistake.new
    assert mistake.file(ROOT)
    assert mistake.tests(ROOT)


@pytest.mark.nightly
@each
def test_a_mistake_fails_the_test_that_is_there_for_it(checkout: Path, mistake: Mistake) -> None:
    with mistake.made(checkout):
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0"]
        # What judges may itself be left to the night.
        command += ["-m", "", mistake.tests(checkout)]
        # Where the product's own word excuses nothing, or some would be skipped.
        surroundings = {**os.environ, "CI": "true"}
        done = subprocess.run(
            command, cwd=checkout, env=surroundings, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1, done.stdout + done.stderr
    assert mistake.says in done.stdout, done.stdout

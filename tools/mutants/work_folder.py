"""The folder where mutants are made and tried: a copy of the code, and what is known of them."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Final

import mutmut.configuration
from mutmut.mutation.data import MutantLineSpans, SourceFileMutationData
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name, mangled_name_from_mutant_name

from contract_tests.databases import migrate
from tools.mutants import reach
from tools.mutants.results import KILLED, Mutant
from tools.mutants.rooms import Room
from tools.mutants.trying import NAMES, REACH, VERDICTS

_LEFT_OUT: Final = {"build", "dist", "site"}
_LOG_LINES: Final = 40
# A test that waits for what a mutant does not do has failed then.
_WAITS_MAX_S: Final = 60


class WorkFolder:
    """Is kept, so that a run that was ended goes on; git ignores it."""

    def __init__(self, root: Path, name: str, room: Room) -> None:
        self.root = root
        self.path = root / ".mutants" / name
        self._copy = self.path / "mutants"
        self._room = room

    def make(self, *, anew: bool) -> None:
        """Make mutants of the code as it is now, and forget what the tests may notice by now."""
        if anew:
            shutil.rmtree(self.path, ignore_errors=True)
        verdicts = self._verdicts()
        kept = {path: killed for path in self._metas() if (killed := _killed(path, verdicts))}
        shutil.rmtree(self.path, ignore_errors=True)
        for entry in self._entries():
            _copy(self.root / entry, self._copy / entry)
        for path, text in kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.path / "setup.cfg").write_text(self._settings())
        with chdir(self.path):
            mutmut.configuration.reset_config()
            for path in self._room.files(self.root):
                _mutate(self.root, path)

    def names(self, files: Collection[str] = ()) -> list[str]:
        """Of all mutants, or of those of files of these names."""
        return [each.name for each in self.mutants() if not files or Path(each.path).name in files]

    def run(self, names: Sequence[str], jobs: int) -> None:
        """Try these mutants, or all that are not known to be killed. Raises SystemExit."""
        known = {each.name for each in self.mutants() if each.code in KILLED}
        tried = [name for name in names or self.names() if name not in known]
        # The few that were tried before a run was ended are to tell something of all.
        random.Random(0).shuffle(tried)  # noqa: S311
        (self.path / NAMES).write_text("\n".join(tried))
        log = self.path / "log"
        with tempfile.TemporaryDirectory() as temporary, log.open("w") as file:
            template = Path(temporary) / "migrated.db"
            migrate(f"sqlite:///{template}")
            out = None if sys.stdout.isatty() else file
            done = subprocess.run(
                self._command(jobs),
                check=False,
                cwd=self._copy,
                env=_around(Path(temporary), template),
                stdout=out,
                stderr=out,
            )
        if done.returncode:
            told = [*log.read_text().splitlines()[-_LOG_LINES:], *self._failures()]
            raise SystemExit("\n".join([*told, f"pytest ended with {done.returncode}"]))

    def mutants(self) -> list[Mutant]:
        """All there are, with what became of them."""
        verdicts = self._verdicts()
        found = []
        for meta in sorted(self._metas()):
            path = meta.relative_to(self._copy).with_suffix("")
            codes = json.loads(meta.read_text())["exit_code_by_key"]
            found += [
                Mutant(name, str(path), verdicts.get(name, code)) for name, code in codes.items()
            ]
        return found

    def _verdicts(self) -> dict[str, int]:
        """Of those that were tried since the mutants were made."""
        path = self.path / VERDICTS
        lines = path.read_text().splitlines() if path.exists() else []
        return {name: int(code) for code, name in map(str.split, lines)}

    def _failures(self) -> list[str]:
        """The last lines about each test that fails without any mutant."""
        path = self.path / REACH
        told = reach.read(path).failures if path.exists() else []
        return [line for each in told for line in each.splitlines()[-_LOG_LINES:]]

    def _metas(self) -> Iterator[Path]:
        return self._copy.rglob("*.py.meta")

    def _entries(self) -> list[str]:
        names = (entry.name for entry in self.root.iterdir())
        return sorted(name for name in names if name[0] != "." and name not in _LEFT_OUT)

    def _command(self, jobs: int) -> list[str]:
        return [
            *(sys.executable, "-m", "pytest", "--rootdir=.", "-q"),
            *("-p", "tools.mutants.judging", "-p", "tools.mutants.trying"),
            *(f"--mutants-folder={self.path}", f"--mutants-jobs={jobs}"),
            *("-p", "no:xdist", "-p", "timeout", f"--timeout={_WAITS_MAX_S}"),
            # A fork closes the files that pytest would capture; and a traceback is read by nobody.
            *("--capture=sys", "--tb=native"),
            *("-m", "not nightly and not exclusive"),
            *(f"--deselect={each}" for each in self._room.no_judges),
            *self._room.tests,
        ]

    def _settings(self) -> str:
        patterns = "".join(f"\n    {each}" for each in self._room.unmutated)
        told = f"do_not_mutate_patterns ={patterns}\n" if patterns else ""
        return f"[mutmut]\nsource_paths =\n    {self._room.folder}\n{told}"


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _mutate(root: Path, path: Path) -> None:
    """Is called in the folder. Keeps what is known of mutants whose function is the same."""
    made = mutate_file_contents(str(path), (root / path).read_text())
    (Path("mutants") / path).write_text(made.code)
    MutantLineSpans(path=path, span_by_function_name=made.line_span_by_function_name).save()
    data = SourceFileMutationData(path=path)
    data.load()
    before, hashes = data.hash_by_function_name, dict(made.hash_by_function_name)
    known, data.exit_code_by_key = data.exit_code_by_key, {}
    for mutant in made.mutant_names:
        name, function = get_mutant_name(path, mutant), mangled_name_from_mutant_name(mutant)
        is_same = function in before and before[function] == hashes.get(function)
        data.exit_code_by_key[name] = known.get(name) if is_same else None
    data.hash_by_function_name = hashes
    data.save()


def _around(temporary: Path, template: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": ".",
        "TMPDIR": str(temporary),
        "CONTRACT_TESTS_DATABASES": "sqlite",
        "CONTRACT_TESTS_TEMPLATE": str(template),
    }


def _killed(meta: Path, verdicts: Mapping[str, int]) -> str:
    """The verdicts of a file that last: what was killed. Empty if there are none."""
    told = json.loads(meta.read_text())
    codes = {name: verdicts.get(name, code) for name, code in told["exit_code_by_key"].items()}
    told["exit_code_by_key"] = {
        name: code if code in KILLED else None for name, code in codes.items()
    }
    return json.dumps(told) if codes else ""

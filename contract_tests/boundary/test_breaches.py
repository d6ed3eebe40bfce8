"""Passwords known from breaches: those of the package, and of an operator's file of any size."""

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from control.boundary import breaches
from control.boundary.breaches import BreachedPasswords, check_file
from menagerie.errors import SettingsError
from menagerie.settings import load

KNOWN = ["correcthorsebatterystaple", "whenyoulookmeintheeyes", "youwillneverguessthis1103"]
UNKNOWN = [
    "correct-horse-battery",
    "staple-of-nine-oaks",
    "xK9#vQ2$mLp7",
    "漢字漢字漢字漢字漢字漢字",
    "\0" * 256,
]


def sha1(password: str) -> str:
    return hashlib.sha1(password.encode(), usedforsecurity=False).hexdigest().upper()


def written(folder: Path, passwords: list[str], *, end: str = "\r\n", last: bool = True) -> Path:
    """A file as Have I Been Pwned gives it, with or without an end of its last line."""
    path = folder / "pwned.txt"
    lines = [f"{each}:{7 * number}" for number, each in enumerate(sorted(map(sha1, passwords)))]
    path.write_bytes((end.join(lines) + (end if last else "")).encode())
    return path


@pytest.mark.parametrize("password", KNOWN)
def test_those_of_the_package_are_known(password: str) -> None:
    assert BreachedPasswords().knows(password)
    assert not BreachedPasswords().knows(password[::-1])


@pytest.mark.parametrize("password", UNKNOWN)
def test_others_are_not(password: str) -> None:
    assert not BreachedPasswords().knows(password)


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 500])
def test_each_of_a_file_is_found_and_no_other(
    tmp_path: Path, end: str, last: bool, count: int
) -> None:
    names = [f"password number {number}" for number in range(count)]
    path = written(tmp_path, names, end=end, last=last)
    check_file(path)
    known = BreachedPasswords(path)
    assert all(known.knows(each) for each in names)
    assert not any(known.knows(f"{each}!") for each in names)


def test_a_file_of_gigabytes_is_searched_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line in twice as many costs one more look."""
    names = [f"password number {number}" for number in range(20_000)]
    known = BreachedPasswords(written(tmp_path, names))
    read: list[int] = []
    pread = os.pread

    def counted(opened: int, length: int, place: int) -> bytes:
        read.append(length)
        return pread(opened, length, place)

    monkeypatch.setattr(os, "pread", counted)
    for each in (names[0], names[-1], "none of them"):
        read.clear()
        known.knows(each)
        assert 0 < len(read) <= 20
        assert max(read) <= 256


def test_what_is_no_such_file_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "pwned.txt"
    for content, told in (
        (b"", "no line such as SHA1:COUNT"),
        (b"password1234\n", "no line such as SHA1:COUNT"),
        (b"\n".join([b"F" * 40 + b":1", b"0" * 40 + b":1"]), "not in the order of its hashes"),
        (b"0" * 40 + b":1\n" + b"x" * 1_000_000, "no line such as SHA1:COUNT"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=told):
            check_file(path)
    with pytest.raises(ValueError, match="cannot be read"):
        check_file(tmp_path)


def test_the_setting_is_checked(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="breached_passwords_file"):
        load(home=tmp_path, breached_passwords_file=str(tmp_path / "missing"))
    path = written(tmp_path, KNOWN)
    assert load(home=tmp_path, breached_passwords_file=str(path)).breached_passwords_file == str(
        path
    )


def test_a_file_that_is_lost_later_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(breaches._log, "error", lambda *_what, **more: told.append(more))
    path = written(tmp_path, ["staple-of-nine-oaks"])
    known = BreachedPasswords(path)
    assert known.knows("staple-of-nine-oaks")
    path.write_text("half a file")
    assert not known.knows("staple-of-nine-oaks")
    path.unlink()
    assert not known.knows("staple-of-nine-oaks")
    assert [each["file"] for each in told] == [str(path)] * 2
    assert known.knows(KNOWN[0]), "those of the package still are"


def test_to_look_takes_little_time(tmp_path: Path) -> None:
    known = BreachedPasswords(written(tmp_path, [f"number {n}" for n in range(20_000)]))
    known.knows("warm as the first one is")
    started = time.process_time()
    for number in range(20):
        known.knows(f"{number}" * 100)
    assert time.process_time() - started < 1

"""Whose the entries of a home are: what another user made, or may change, is not used."""

import errno
import os
import pwd
import stat
from pathlib import Path

from menagerie.errors import SettingsError

_ROOT_UID = 0


def require_ours(path: Path, *, may_link: bool = False) -> None:
    """Raise SettingsError with what to do, where others made what is there or can change it.

    `may_link` is for places where a link is ours. Nothing there at all is nobody else's.
    """
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if reason := _reason(path, found, may_link=may_link):
        raise SettingsError(reason)


def _reason(path: Path, found: os.stat_result, *, may_link: bool) -> str | None:
    mode, us = found.st_mode, user(os.geteuid())
    if found.st_uid not in {os.geteuid(), _ROOT_UID}:
        owner = user(found.st_uid)
        return (
            f"{path} belongs to {owner}, so it is not used: remove it, or, if you know what it"
            f" holds, `chown -h {us} {path}`"
        )
    if stat.S_ISLNK(mode):
        return None if may_link else f"{path} is a symbolic link: put what it leads to in its place"
    if stat.S_ISDIR(mode) or stat.S_ISSOCK(mode):
        return None  # that it is closed to others is seen to elsewhere
    if not stat.S_ISREG(mode):
        return f"{path} is not a regular file: remove it"
    by_group = mode & stat.S_IWGRP and found.st_gid != os.getegid()
    if mode & stat.S_IWOTH or by_group:
        return (
            f"{path} can be written by other users: check what it holds, then `chmod go-w {path}`"
        )
    return None


def user(uid: int) -> str:
    """The name, where there is one."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def open_regular(path: Path) -> int:
    """A descriptor to read from; OSError for a link, a FIFO, a device: a home may be anybody's."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return descriptor

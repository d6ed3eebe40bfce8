"""Owns where ext4 puts the folders of tests: each apart, so that to make files in one is quick.

It gives out no inode again for minutes after what had it was deleted, and looks at all such of its
part of the disk whenever it makes a file there. Tests make and delete a hundred thousand files in
minutes: in one part of the disk, each new one cost them thirty times what it costs in another.
"""

import contextlib
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

# Of linux/fs.h; what they take is an `int`, whatever they say.
_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_TOP: Final = 0x00020000


def spread(folder: Path) -> None:
    """Have the folders made in this one lie apart from each other, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("i", _flags(descriptor) | _TOP))
    finally:
        os.close(descriptor)


def is_spread(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return bool(_flags(descriptor) & _TOP)
    finally:
        os.close(descriptor)


def _flags(descriptor: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("i", 0)))[0])

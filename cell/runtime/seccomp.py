"""The filter of system calls that every engine runs under: what is refused, and its program.

What is refused and why is told in docs/decisions/0024-what-engines-may-ask-of-the-kernel.md.
"""

import errno
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# By name, the number on x86_64 and on aarch64; None where the machine never had the call.
Numbers = tuple[int | None, int | None]
# No engine needs these: the kernel's attack surface, and ways to other processes and namespaces.
REFUSED: dict[str, Numbers] = {
    # Mounts and roots.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # Namespaces.
    "unshare": (272, 97),
    "setns": (308, 268),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # The kernel and its modules.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "lookup_dcookie": (212, 18),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    # Keys of the kernel's keyring, which no namespace parts.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # The clock of the machine.
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    # Files without their path, and the watching of a whole mount.
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    # Memory in ways that exploits of the kernel like.
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "migrate_pages": (256, 238),
    "memfd_secret": (447, 447),
    # Hardware, and what is old.
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "vhangup": (153, 58),
    "personality": (135, 92),
    "nfsservctl": (180, 42),
    "create_module": (174, None),
    "get_kernel_syms": (177, None),
    "query_module": (178, None),
}
# Answered as by a kernel that lacks them, for which callers have another way: clone3's flags lie
# in memory, where no filter looks, and a ring of io_uring does what no filter sees.
LACKING: dict[str, Numbers] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
# Judged by one argument.
CLONE: Numbers = (56, 220)
IOCTL: Numbers = (16, 29)
SOCKETS: tuple[Numbers, ...] = ((41, 198), (53, 199))
NAMESPACE_FLAGS = 0x7E02_0000
# What types into a terminal in the place of whoever sits there.
TERMINAL_REQUESTS = (0x5412, 0x541C)
# Clients come over a unix socket; every engine's suite passes without any other family.
UNIX_FAMILY = 1
# Calls that came later, and those of the x32 ABI, are answered as by a kernel without them.
NEWEST = 462

_MACHINES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}
_ALLOW, _ERRNO, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16


@dataclass(frozen=True)
class _Instruction:
    """One of the kernel's classic filter machine; the jumps count instructions to skip."""

    code: int
    operand: int
    if_true: int = 0
    if_false: int = 0

    def packed(self) -> bytes:
        return struct.pack("=HBBI", self.code, self.if_true, self.if_false, self.operand)


def known(machine: str | None = None) -> bool:
    """Whether there is a filter for this kind of machine."""
    return (machine or platform.machine()) in _MACHINES


def program(machine: str | None = None) -> bytes:
    """The filter as the kernel takes it, and bubblewrap too."""
    column, architecture = _MACHINES[machine or platform.machine()]
    words = [
        _Instruction(_LOAD, _ARCHITECTURE_AT),
        _Instruction(_EQUAL, architecture, 1, 0),
        # Calls of a 32-bit program have other numbers, so that no list would fit them.
        _Instruction(_RETURN, _KILL),
        _Instruction(_LOAD, _NUMBER_AT),
        _Instruction(_AT_LEAST, NEWEST + 1, 0, 1),
        _refusal(errno.ENOSYS),
    ]
    for numbers, error in _by_number():
        number = numbers[column]
        if number is not None:
            words += [_Instruction(_EQUAL, number, 0, 1), _refusal(error)]
    for numbers, judgement in _by_argument():
        number = numbers[column]
        if number is not None:
            words += [_Instruction(_EQUAL, number, 0, len(judgement)), *judgement]
    words.append(_Instruction(_RETURN, _ALLOW))
    return b"".join(word.packed() for word in words)


@contextmanager
def opened() -> Iterator[int]:
    """A descriptor from which the program can be read, once."""
    descriptor = os.memfd_create("seccomp")
    try:
        os.write(descriptor, program())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _by_number() -> Iterator[tuple[Numbers, int]]:
    for numbers in REFUSED.values():
        yield numbers, errno.EPERM
    for numbers in LACKING.values():
        yield numbers, errno.ENOSYS


def _by_argument() -> Iterator[tuple[Numbers, list[_Instruction]]]:
    allow = _Instruction(_RETURN, _ALLOW)
    refuse = _refusal(errno.EPERM)
    yield CLONE, [_argument(0), _Instruction(_ANY_BIT, NAMESPACE_FLAGS, 0, 1), refuse, allow]
    terminal = [_argument(1)]
    for request in TERMINAL_REQUESTS:
        terminal += [_Instruction(_EQUAL, request, 0, 1), refuse]
    yield IOCTL, [*terminal, allow]
    other = _refusal(errno.EAFNOSUPPORT)
    for numbers in SOCKETS:
        yield numbers, [_argument(0), _Instruction(_EQUAL, UNIX_FAMILY, 0, 1), allow, other]


def _argument(index: int) -> _Instruction:
    """Loads the lower half of an argument, which is all that the kernel looks at in these."""
    return _Instruction(_LOAD, _ARGUMENTS_AT + 8 * index)


def _refusal(error: int) -> _Instruction:
    return _Instruction(_RETURN, _ERRNO | error)

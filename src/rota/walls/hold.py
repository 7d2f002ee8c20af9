"""The programs that Rota brings into each container, which may have nothing else in it.

`hold` is a container's first process: it stays, and lets the kernel bury what dies. `term` and
`kill` send their signal to all processes but the first and themselves that their user may signal:
an engine can only signal the first.

Each is a few instructions, written down here: no compiler is needed, and no library in an image.
"""

from __future__ import annotations

import platform
import signal
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("hold", "term", "kill")
_MODE = 0o755
_BASE = 0x400000  # where the kernel loads a program
_HEADERS = 64 + 56  # bytes: the header of the file, and of its only segment
_EXECUTABLE, _VERSION, _LOADED, _READ_AND_EXECUTE, _PAGE = 2, 1, 1, 5, 4096
# What the kernel takes for "SIGCHLD is ignored": SIG_IGN without flags, restorer and mask.
_IGNORED = struct.pack("<4Q", 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Machine:
    number: int  # of the kind of processor, in the header
    hold: bytes
    before: bytes  # of a program that sends a signal: up to its number
    after: bytes
    shift: int = 0  # of the number within its instruction, which then has four bytes
    instruction: int = 0  # that loads a number


_X86_64 = _Machine(
    number=62,
    hold=bytes.fromhex(
        "b80d000000"  # mov  eax, 13            rt_sigaction
        "bf11000000"  # mov  edi, 17            SIGCHLD
        "488d3513000000"  # lea rsi, [rip+0x13] _IGNORED
        "31d2"  # xor  edx, edx
        "41ba08000000"  # mov r10d, 8
        "0f05"  # syscall
        "b822000000"  # mov  eax, 34            pause
        "0f05"  # syscall
        "ebf7"  # jmp  back to pause
    ),
    before=bytes.fromhex("48c7c7ffffffffbe"),  # mov rdi, -1; mov esi, …
    after=bytes.fromhex(
        "b83e000000"  # mov  eax, 62            kill
        "0f05"  # syscall
        "31ff"  # xor  edi, edi
        "b83c000000"  # mov  eax, 60            exit
        "0f05"  # syscall
    ),
)
_AARCH64 = _Machine(
    number=183,
    hold=struct.pack(
        "<13I",
        0xD2800220,  # mov  x0, #17             SIGCHLD
        0x10000181,  # adr  x1, …               _IGNORED
        0xD2800002,  # mov  x2, #0
        0xD2800103,  # mov  x3, #8
        0xD28010C8,  # mov  x8, #134            rt_sigaction
        0xD4000001,  # svc  #0
        0xD2800000,  # mov  x0, #0
        0xD2800001,  # mov  x1, #0
        0xD2800002,  # mov  x2, #0
        0xD2800003,  # mov  x3, #0
        0xD2800928,  # mov  x8, #73             ppoll
        0xD4000001,  # svc  #0
        0x17FFFFFA,  # b    back to the first after rt_sigaction
    ),
    before=struct.pack("<I", 0x92800000),  # mov x0, #-1
    after=struct.pack(
        "<5I",
        0xD2801028,  # mov  x8, #129            kill
        0xD4000001,  # svc  #0
        0xD2800000,  # mov  x0, #0
        0xD2800BA8,  # mov  x8, #93             exit
        0xD4000001,  # svc  #0
    ),
    shift=5,
    instruction=0xD2800001,  # mov x1, #…
)
_MACHINES: Mapping[str, _Machine] = {"x86_64": _X86_64, "aarch64": _AARCH64}


def why_not_here(machine: str = "") -> str:
    """Return why these programs cannot be made for this machine; "": they can."""
    kind = machine or platform.machine()
    return "" if kind in _MACHINES else f"Rota has no programs for containers on {kind}"


def write_programs(folder: Path, machine: str = "") -> None:
    """Write the programs into a folder that containers may have."""
    folder.mkdir(exist_ok=True)
    folder.chmod(_MODE)
    for name in PROGRAMS:
        path = folder / name
        temporary = folder / f"{name}.new"
        temporary.write_bytes(program(name, machine or platform.machine()))
        temporary.chmod(_MODE)
        temporary.replace(path)


def program(name: str, machine: str) -> bytes:
    """Return one of the programs as the file of it."""
    kind = _MACHINES[machine]
    match name:
        case "hold":
            return _file(kind, kind.hold + _IGNORED)
        case "term":
            return _file(kind, _signalling(kind, signal.SIGTERM))
        case _:
            return _file(kind, _signalling(kind, signal.SIGKILL))


def _signalling(kind: _Machine, number: int) -> bytes:
    return kind.before + struct.pack("<I", kind.instruction | number << kind.shift) + kind.after


def _file(kind: _Machine, code: bytes) -> bytes:
    """Return an executable file with one segment: its headers, and the code right after them."""
    magic = b"\x7fELF" + bytes([2, 1, _VERSION]) + bytes(9)  # 64 bits, little-endian
    entry, size = _BASE + _HEADERS, _HEADERS + len(code)
    header = struct.pack(
        "<HHIQQQIHHHHHH",
        *(_EXECUTABLE, kind.number, _VERSION, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0),
    )
    segment = struct.pack(
        "<IIQQQQQQ", _LOADED, _READ_AND_EXECUTE, 0, _BASE, _BASE, size, size, _PAGE
    )
    return magic + header + segment + code

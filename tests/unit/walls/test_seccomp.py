from __future__ import annotations

import errno
import os
import platform
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rota.walls import seccomp

X86_64, AARCH64, I386 = 0xC000003E, 0xC00000B7, 0x40000003
ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, EAFNOSUPPORT = (0x00050000 | n for n in (errno.EPERM, errno.ENOSYS, 97))
MACHINES = {"x86_64": X86_64, "aarch64": AARCH64}

# Of the kernel's own tables, not of the module under test.
NUMBERS = {
    "x86_64": {
        "read": 0, "ioctl": 16, "socket": 41, "clone": 56, "fork": 57, "execve": 59, "ptrace": 101,
        "syslog": 103, "personality": 135, "socketpair": 53, "kcmp": 312,
        "pivot_root": 155, "acct": 163, "mount": 165,
        "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "init_module": 175,
        "delete_module": 176, "quotactl": 179, "futex": 202, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "openat": 257, "unshare": 272,
        "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
        "userfaultfd": 323,
    },
    "aarch64": {
        "ioctl": 29, "umount2": 39, "mount": 40, "pivot_root": 41, "openat": 56, "quotactl": 60,
        "read": 63, "acct": 89, "personality": 92, "socketpair": 199, "kcmp": 272, "unshare": 97,
        "futex": 98, "kexec_load": 104,
        "init_module": 105, "delete_module": 106, "syslog": 116, "ptrace": 117, "reboot": 142,
        "socket": 198, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220,
        "execve": 221, "swapon": 224, "swapoff": 225, "perf_event_open": 241,
        "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271,
        "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
    },
}  # fmt: skip
EVERYWHERE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "clone3": 435, "openat2": 437, "pidfd_getfd": 438, "mount_setattr": 442,
    "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip
HARMLESS = {"read", "execve", "futex", "openat", "fork", "openat2"}
WITHOUT = {"io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"}
BY_ARGUMENT = {"ioctl", "socket", "socketpair", "clone", "personality"}


def answer(program: bytes, call: int, *arguments: int, architecture: int) -> int:
    """Interpret the program, as the kernel does."""
    data = struct.pack("=IIQ6Q", call, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    steps = list(struct.iter_unpack("=HBBI", program))
    at, word = 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:
                [word] = struct.unpack_from("=I", data, value)
            case 0x15:
                at += if_true if word == value else if_false
            case 0x35:
                at += if_true if word >= value else if_false
            case 0x45:
                at += if_true if word & value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"an instruction that nobody needs: {code:#x}")


def numbers(machine: str) -> dict[str, int]:
    return NUMBERS[machine] | EVERYWHERE


CALLS = [(machine, name) for machine in MACHINES for name in numbers(machine)]


@pytest.mark.parametrize(("machine", "name"), [c for c in CALLS if c[1] not in BY_ARGUMENT])
def test_calls_that_a_job_does_not_need_are_refused(machine: str, name: str) -> None:
    program = seccomp.program(machine)

    told = answer(program, numbers(machine)[name], architecture=MACHINES[machine])

    assert told == (ALLOW if name in HARMLESS else ENOSYS if name in WITHOUT else EPERM)


@pytest.mark.parametrize("machine", MACHINES)
class TestArguments:
    def ask(self, machine: str, name: str, *arguments: int) -> int:
        program = seccomp.program(machine)
        return answer(program, numbers(machine)[name], *arguments, architecture=MACHINES[machine])

    @pytest.mark.parametrize(
        "flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
    )
    def test_a_child_gets_no_namespace_of_its_own(self, machine: str, flag: int) -> None:
        assert self.ask(machine, "clone", flag | 0x11) == EPERM

    @pytest.mark.parametrize("flags", [0x11, 0x1200011, 0x3D0F00])
    def test_processes_and_threads_can_be_started(self, machine: str, flags: int) -> None:
        assert self.ask(machine, "clone", flags) == ALLOW

    @pytest.mark.parametrize("wish", [0x5412, 0x541C, 0x5423])
    def test_nothing_is_typed_into_a_terminal_nor_is_it_changed(
        self, machine: str, wish: int
    ) -> None:
        assert self.ask(machine, "ioctl", 0, wish) == EPERM

    def test_upper_half_of_a_request_does_not_hide_it(self, machine: str) -> None:
        assert self.ask(machine, "ioctl", 0, 0xDEAD_0000_5412) == EPERM

    def test_other_requests_to_devices_pass(self, machine: str) -> None:
        assert self.ask(machine, "ioctl", 0, 0x5401) == ALLOW

    @pytest.mark.parametrize("family", [1, 2, 10, 16])
    def test_sockets_of_usual_families_can_be_opened(self, machine: str, family: int) -> None:
        assert self.ask(machine, "socket", family) == ALLOW

    @pytest.mark.parametrize("family", [17, 29, 31, 38, 40, 44, 2**32 - 1])
    def test_those_of_others_cannot(self, machine: str, family: int) -> None:
        """Packets, CAN, Bluetooth, the kernel's ciphers, vsock, XDP."""
        assert self.ask(machine, "socket", family) == EAFNOSUPPORT

    @pytest.mark.parametrize("family", [2, 10, 16, 30, 40])
    def test_pairs_of_sockets_are_of_the_one_family_that_needs_no_module(
        self, machine: str, family: int
    ) -> None:
        """TIPC has them, too: its module would be loaded for whoever asks."""
        assert self.ask(machine, "socketpair", 1) == ALLOW
        assert self.ask(machine, "socketpair", family) == EAFNOSUPPORT

    def test_only_the_usual_personality_can_be_had(self, machine: str) -> None:
        assert self.ask(machine, "personality", 0) == ALLOW
        assert self.ask(machine, "personality", 0x0040000) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_programs_of_another_architecture_are_killed(machine: str) -> None:
    program = seccomp.program(machine)
    others = {*MACHINES.values(), I386} - {MACHINES[machine]}

    assert {answer(program, 0, architecture=other) for other in others} == {KILL}


@pytest.mark.parametrize("call", [0x40000000, 0x40000000 | 165, 0x40000000 | 545])
def test_calls_of_x32_are_killed(call: int) -> None:
    assert answer(seccomp.program("x86_64"), call, architecture=X86_64) == KILL


def test_machine_of_an_unknown_kind_has_no_program() -> None:
    with pytest.raises(KeyError):
        seccomp.program("riscv64")


HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


@pytest.mark.skipif(not HEADER.exists(), reason="no header files of the kernel here")
def test_numbers_are_those_of_this_machines_headers() -> None:
    told = dict(re.findall(r"#define __NR_(\w+) (\d+)", HEADER.read_text()))
    known = {name: number for name, number in numbers("x86_64").items() if name in told}

    assert known == {name: int(told[name]) for name in known}


# Loads the program into itself, then makes calls; only what libc itself has, no C of ours.
PROBE = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
program = bytes.fromhex(sys.argv[1])
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("at", ctypes.c_char_p)]
told = Filter(len(program) // 8, program)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(told), 0, 0) == 0, ctypes.get_errno()
for call in sys.argv[2:]:
    number, *arguments = map(int, call.split(","))
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    print("ok" if result >= 0 else errno.errorcode[ctypes.get_errno()], flush=True)
"""


@pytest.mark.skipif(platform.machine() not in NUMBERS, reason="of a machine of another kind")
class TestKernel:
    def run(self, *calls: tuple[int, ...]) -> list[str]:
        texts = [",".join(map(str, call)) for call in calls]
        code = seccomp.program().hex()
        done = subprocess.run(
            [sys.executable, "-I", "-c", PROBE, code, *texts],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def test_kernel_takes_the_program_and_obeys_it(self) -> None:
        number = numbers(platform.machine())
        calls = {
            (number["socket"], 1, 1, 0): "ok",
            (number["socket"], 40, 1, 0): "EAFNOSUPPORT",
            (number["socket"], 38, 5, 0): "EAFNOSUPPORT",
            (number["socketpair"], 2, 1, 0, 0): "EAFNOSUPPORT",
            (number["socketpair"], 30, 5, 0, 0): "EAFNOSUPPORT",
            (number["unshare"], 0): "EPERM",
            (number["keyctl"], 0, -3, 0): "EPERM",
            (number["ptrace"], 0, 0, 0, 0): "EPERM",
            (number["mount"], 0, 0, 0, 0, 0): "EPERM",
            (number["bpf"], 0, 0, 0): "EPERM",
            (number["userfaultfd"], 0): "EPERM",
            (number["io_uring_setup"], 1, 0): "ENOSYS",
            (number["clone3"], 0, 0): "ENOSYS",
            (number["personality"], 0): "ok",
            (number["personality"], 0x40000): "EPERM",
        }

        assert self.run(*calls) == list(calls.values())

    def test_processes_and_threads_still_start_below_it(self) -> None:
        code = (
            "import subprocess, threading; t = threading.Thread(target=lambda: None); t.start();"
            " t.join(); print(subprocess.run(['true']).returncode)"
        )
        probe = PROBE.replace("for call in sys.argv[2:]:", "exec(sys.argv[2])\nfor call in ():")

        done = subprocess.run(
            [sys.executable, "-I", "-c", probe, seccomp.program().hex(), code],
            capture_output=True,
            text=True,
            check=False,
        )

        assert (done.stdout, done.returncode) == ("0\n", os.EX_OK), done.stderr

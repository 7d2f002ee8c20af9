"""What makes sure that no process outlives the guardian."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum

from rota.guardian import NamespaceWish, linux, processes
from rota.guardian.options import ExitCode, Over


class Mode(StrEnum):
    """How firmly descendants are held, as told to the worker."""

    NAMESPACE = "namespace"  # the inner process is pid 1: its end is the end of all, by the kernel
    USER_NAMESPACE = "user-namespace"  # the same without root; other users' files look foreign
    SUBREAPER = "subreaper"  # outer and inner each kill what the other leaves; lost if both die


# Not "auto" without root: in a user namespace sudo fails, and ssh refuses its own configuration
# because root's files seem to belong to nobody. That would surprise the jobs of most people.
_CANDIDATES: Mapping[tuple[NamespaceWish, bool], tuple[Mode, ...]] = {
    ("auto", True): (Mode.NAMESPACE, Mode.SUBREAPER),
    ("auto", False): (Mode.SUBREAPER,),
    ("require", True): (Mode.NAMESPACE,),
    ("require", False): (Mode.USER_NAMESPACE,),
    ("off", True): (Mode.SUBREAPER,),
    ("off", False): (Mode.SUBREAPER,),
}


def choose(wish: NamespaceWish) -> Mode:
    """The firmest mode that the wish allows and the machine permits."""
    if not processes.is_supported():
        raise Over(ExitCode.CANNOT_START, "this kernel was built without CONFIG_PROC_CHILDREN")
    for mode in _CANDIDATES[wish, os.geteuid() == 0]:
        if is_possible(mode):
            return mode
    raise Over(
        ExitCode.CANNOT_START,
        "this machine permits no pid namespace (a container needs CAP_SYS_ADMIN for it, a user"
        " other than root needs user namespaces); '--namespace auto' does without",
    )


def is_possible(mode: Mode) -> bool:
    """Rehearses in a process of its own, since nobody can come back from a namespace."""
    pid = os.fork()
    if pid == 0:
        os._exit(_rehearse(mode))
    return os.waitpid(pid, 0)[1] == 0


def _rehearse(mode: Mode) -> int:
    try:
        prepare(mode)
        inner = os.fork()
        if inner == 0:
            enter(mode)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
    except OSError:
        return 1


def prepare(mode: Mode) -> None:
    """The outer process's part, before it forks the inner one."""
    match mode:
        case Mode.NAMESPACE:
            linux.unshare(linux.CLONE_NEWPID)
        case Mode.USER_NAMESPACE:
            _enter_user_namespace()
        case Mode.SUBREAPER:
            linux.become_subreaper()


def enter(mode: Mode) -> None:
    """The inner process's part, right after the fork."""
    os.setsid()  # the terminal's Ctrl-C is for the launcher, who knows how to stop cleanly
    if mode is Mode.SUBREAPER:
        linux.become_subreaper()
        return
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount_own_proc()
    linux.die_with_parent()


def _enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWPID)
    _tell_kernel("/proc/self/setgroups", "deny")  # or the kernel refuses a gid_map without root
    _tell_kernel("/proc/self/uid_map", f"{uid} {uid} 1")
    _tell_kernel("/proc/self/gid_map", f"{gid} {gid} 1")


def _tell_kernel(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)

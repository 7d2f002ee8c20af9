"""From a step to the argument list that executes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rota.adapters.executors.work_folder import WorkFolder
from rota.domain.spec import Step

_INLINE_LIMIT = 100_000  # characters; longer scripts go through a file (the kernel takes 128 KiB)


@dataclass(frozen=True, slots=True)
class _Shell:
    """How a shell takes a script. Shells stop at the first command that fails: a step that failed
    half-way must not look well."""

    by_file: tuple[str, ...]
    suffix: str = ""
    inline: tuple[str, ...] = ()  # empty: only from a file


_SHELLS: Mapping[str, _Shell] = {
    "sh": _Shell(("sh", "-e"), ".sh", ("sh", "-ec")),
    "bash": _Shell(("bash", "-eo", "pipefail"), ".sh", ("bash", "-eo", "pipefail", "-c")),
    "python": _Shell(("python3",), ".py"),
    "node": _Shell(("node",), ".js"),
}


def command_of(step: Step, number: int, folder: WorkFolder) -> tuple[str, ...]:
    """The argument list; writes the script to a file where one is needed."""
    if isinstance(step.run, tuple):
        return step.run
    shell = _SHELLS.get(step.shell, _Shell((step.shell,)))
    if shell.inline and not step.interpreter and len(step.run) <= _INLINE_LIMIT:
        return (*shell.inline, step.run)
    path = folder.write_script(number, shell.suffix, step.run)
    return (*(step.interpreter or shell.by_file), str(path))

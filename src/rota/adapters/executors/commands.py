"""From a step to the argument list that executes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rota.domain.spec import Step

_INLINE_LIMIT = 100_000  # bytes; longer scripts go through a file (the kernel's limit is 128 KiB)
# Shells stop at the first failing command, as a step that failed half-way must not look well.
_INLINE: Mapping[str, tuple[str, ...]] = {
    "sh": ("sh", "-ec"),
    "bash": ("bash", "-eo", "pipefail", "-c"),
}
_BY_FILE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "sh": (("sh", "-e"), ".sh"),
    "bash": (("bash", "-eo", "pipefail"), ".sh"),
    "python": (("python3",), ".py"),
    "node": (("node",), ".js"),
}


def command_of(step: Step, script_file: Path) -> tuple[str, ...]:
    """The argument list; writes the script to a file beside `script_file` where one is needed."""
    if isinstance(step.run, tuple):
        return step.run
    if not step.interpreter and step.shell in _INLINE and len(step.run) <= _INLINE_LIMIT:
        return (*_INLINE[step.shell], step.run)
    command, suffix = _BY_FILE.get(step.shell, ((step.shell,), ""))
    path = script_file.with_name(script_file.name + suffix)
    path.write_text(step.run, "utf-8")
    path.chmod(0o700)
    return (*(step.interpreter or command), str(path))

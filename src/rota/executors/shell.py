"""Job type `shell`: steps, one process tree after another."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rota.domain.ids import instant
from rota.domain.spec import JobSpec, Step, without_reserved
from rota.executors.steps import Attempt, RunningStep, StepExecutor
from rota.executors.work_folder import Pipe, Pipes, WorkFolder, WorkFolders
from rota.ports.clock import Clock
from rota.ports.executor import Assignment, AttemptReports, Process, Spawner

_INLINE_LIMIT = 100_000  # characters; longer scripts go through a file (the kernel takes 128 KiB)


@dataclass(frozen=True, slots=True)
class _Shell:
    """Way to run a script in a shell. Shells stop at the first command that fails: a step that
    failed half-way must not look successful.
    """

    by_file: tuple[str, ...]
    suffix: str = ""
    inline: tuple[str, ...] = ()  # empty: only from a file
    name: tuple[str, ...] = ()  # what an inline script is to see as `$0`, if not its shell


# Where nearly all systems have it. To look along the PATH at each start takes a third of what the
# guardian needs, and would let the PATH of a job decide in which shell it runs.
_SH = "/bin/sh" if os.access("/bin/sh", os.X_OK) else "sh"
_SHELLS: Mapping[str, _Shell] = {
    "sh": _Shell((_SH, "-e"), ".sh", (_SH, "-ec"), ("sh",)),
    "bash": _Shell(("bash", "-eo", "pipefail"), ".sh", ("bash", "-eo", "pipefail", "-c")),
    "python": _Shell(("python3",), ".py"),
    "node": _Shell(("node",), ".js"),
}


def command_of(step: Step, number: int, folder: WorkFolder) -> tuple[str, ...]:
    """Return the argument list; write the script to a file where one is needed."""
    if isinstance(step.run, tuple):
        return step.run
    shell = _SHELLS.get(step.shell, _Shell((step.shell,)))
    if shell.inline and not step.interpreter and len(step.run) <= _INLINE_LIMIT:
        return (*shell.inline, step.run, *shell.name)
    path = folder.write_script(number, shell.suffix, step.run)
    return (*(step.interpreter or shell.by_file), str(path))


_INHERITED = ("PATH", "HOME", "LANG", "TZ")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def inherited_variables() -> dict[str, str]:
    """Return the variables that a job inherits from the worker's own environment."""
    base = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    base.setdefault("PATH", _DEFAULT_PATH)
    base.setdefault("HOME", "/")
    base.setdefault("LANG", "C.UTF-8")
    return base


def attempt_variables(
    base: Mapping[str, str], assignment: Assignment, output: Path, progress: Path
) -> dict[str, str]:
    """Return the variables that all steps of an attempt have."""
    spec = assignment.spec
    return {
        **base,
        **without_reserved(spec.env),
        **input_variables(spec, assignment.work.inputs),
        **rota_variables(assignment, output, progress),
    }


def step_variables(attempt: Mapping[str, str], step: Step) -> dict[str, str]:
    """Return the variables of the attempt and of the step.

    A server of an earlier version may send a step that sets ROTA_FENCE; Rota's own variables must
    stay true, so that is ignored.
    """
    return {**attempt, **without_reserved(step.env)}


def rota_variables(assignment: Assignment, output: Path, progress: Path) -> dict[str, str]:
    """Return the variables that identify the run, and name the files for results and progress."""
    work, spec = assignment.work, assignment.spec
    cart = {"ROTA_CART": work.cart, "ROTA_ITEM": work.item}
    return {name: value for name, value in cart.items() if value is not None} | {
        "ROTA_RUN_ID": work.run,
        "ROTA_JOB": spec.name,
        "ROTA_PROJECT": spec.project,
        "ROTA_DUE_AT": instant(work.due_at)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z"),
        "ROTA_ATTEMPT": str(work.attempt),
        "ROTA_FENCE": str(work.number),
        "ROTA_OUTPUT": str(output),
        "ROTA_PROGRESS": str(progress),
        "TRACEPARENT": traceparent(work.run, work.attempt),
    }


def input_variables(spec: JobSpec, inputs: Mapping[str, object] | None) -> dict[str, str]:
    """Return inputs as `INPUT_*` variables: never pasted into a shell line.

    A run that was not triggered by hand has the job's default inputs.
    """
    defaults = {n: each.default for n, each in spec.inputs.items() if each.default is not None}
    values = {**defaults, **(inputs or {})}
    return {f"INPUT_{name.upper()}": as_text(value) for name, value in values.items()}


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def traceparent(run: str, attempt: int) -> str:
    """Return a W3C trace context: the run is the trace, the attempt is the span."""
    trace = hashlib.blake2b(run.encode(), digest_size=16).hexdigest()
    span = hashlib.blake2b(f"{run}/{attempt}".encode(), digest_size=8).hexdigest()
    return f"00-{trace}-{span}-01"


class ShellExecutor(StepExecutor):
    """Implements `rota.ports.executor.Executor`: steps are processes under the guardian."""

    def __init__(
        self, reports: AttemptReports, spawner: Spawner, clock: Clock, work_root: Path
    ) -> None:
        super().__init__(reports, clock)
        self._spawner = spawner
        self._folders = WorkFolders(work_root, clock)
        self._pipes = Pipes()
        self._base_env = inherited_variables()

    async def close(self) -> None:
        await super().close()
        self._pipes.close()

    def _take_folder(self) -> WorkFolder:
        return self._folders.take()

    def _give_back(self, folder: WorkFolder) -> None:
        self._folders.give_back(folder)

    def _variables(self, assignment: Assignment, folder: WorkFolder) -> Mapping[str, str]:
        return attempt_variables(self._base_env, assignment, folder.output, folder.progress)

    def _begin(self, attempt: Attempt, number: int, step: Step) -> RunningStep:
        command = command_of(step, number, attempt.folder)
        stdout, stderr = self._pipes.open(attempt.open_sink, number)
        process = self._spawner.spawn(
            command,
            env=step_variables(attempt.env, step),
            cwd=attempt.assignment.spec.path or str(attempt.folder.path),
            stdout=stdout.writer,
            stderr=stderr.writer,
        )
        return _RunningProcess(process, stdout, stderr)


@dataclass(frozen=True, slots=True)
class _RunningProcess:
    """Implements `rota.executors.steps.RunningStep`."""

    process: Process
    stdout: Pipe
    stderr: Pipe

    async def finish(self) -> None:
        await self.stdout.close()
        await self.stderr.close()

    def last_line(self) -> str:
        return self.stderr.last_line or self.stdout.last_line

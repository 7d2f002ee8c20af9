"""Job type `shell`: steps, one process tree after another."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rota.domain.ids import instant
from rota.domain.spec import JobSpec, Step, without_reserved
from rota.executors.source import Sources, Workplace
from rota.executors.steps import SOURCE_STEP, Attempt, RunningStep, StepExecutor
from rota.executors.work_folder import Pipe, Pipes, RoomFolder, WorkFolder, WorkFolders
from rota.ports.clock import Clock
from rota.ports.executor import Assignment, AttemptReports, Confinement, Files, Process, Spawner
from rota.walls.disk import DiskLimited
from rota.walls.enclosing import Enclosed, Output, Walls
from rota.walls.rooms import folder_below, give_tree

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


def command_of(
    step: Step, write_script: Callable[[str, str], str], *, hides_scripts: bool = False
) -> tuple[str, ...]:
    """Return the argument list; a script that needs a file is written, by its suffix and text."""
    if isinstance(step.run, tuple):
        return step.run
    shell = _SHELLS.get(step.shell, _Shell((step.shell,)))
    is_short = len(step.run) <= _INLINE_LIMIT and not hides_scripts
    if shell.inline and not step.interpreter and is_short:
        return (*shell.inline, step.run, *shell.name)
    path = write_script(shell.suffix, step.run)
    return (*(step.interpreter or shell.by_file), path)


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
    base: Mapping[str, str], assignment: Assignment, work: str, output: Path, progress: Path
) -> dict[str, str]:
    """Return the variables that all steps of an attempt have; `work` is its own folder."""
    spec = assignment.spec
    return {
        **base,
        **without_reserved(spec.env),
        **input_variables(spec, assignment.work.inputs, work),
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
    few = {"ROTA_CART": work.cart, "ROTA_ITEM": work.item}
    fence = work.fence
    if work.probed is not None:  # a probe is told what the run that it asks about was told
        few["ROTA_PROBE"] = str(work.attempt)
        fence = work.probed
    return {name: value for name, value in few.items() if value is not None} | {
        "ROTA_RUN_ID": fence.run,
        "ROTA_JOB": spec.name,
        "ROTA_PROJECT": spec.project,
        "ROTA_DUE_AT": instant(work.due_at)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z"),
        "ROTA_ATTEMPT": str(fence.attempt),
        "ROTA_FENCE": str(fence.number),
        "ROTA_OUTPUT": str(output),
        "ROTA_PROGRESS": str(progress),
        "TRACEPARENT": traceparent(work.run, work.attempt),
    }


def input_variables(
    spec: JobSpec, inputs: Mapping[str, object] | None, work: str
) -> dict[str, str]:
    """Return inputs as `INPUT_*` variables: never pasted into a shell line. A file is its path.

    A run that was not triggered by hand has the job's default inputs.
    """
    defaults = {n: each.default for n, each in spec.inputs.items() if each.default is not None}
    values = {**defaults, **(inputs or {})}
    return {
        f"INPUT_{name.upper()}": (
            f"{work}/{value['file']}" if isinstance(value, Mapping) else as_text(value)
        )
        for name, value in values.items()
    }


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping) and "file" in value:
        return str(value["file"])  # it lies in the work folder
    return str(value)


def traceparent(run: str, attempt: int) -> str:
    """Return a W3C trace context: the run is the trace, the attempt is the span."""
    trace = hashlib.blake2b(run.encode(), digest_size=16).hexdigest()
    span = hashlib.blake2b(f"{run}/{attempt}".encode(), digest_size=8).hexdigest()
    return f"00-{trace}-{span}-01"


class ShellExecutor(StepExecutor):
    """Implements `rota.ports.executor.Executor`: steps are processes under the guardian."""

    def __init__(
        self,
        reports: AttemptReports,
        spawner: Spawner,
        clock: Clock,
        work_root: Path,
        walls: Walls | None = None,
        files: Files | None = None,
        sources: Sources | None = None,
    ) -> None:
        super().__init__(reports, clock, files)
        self._spawner = spawner
        self._walls = walls  # None: all steps are plain processes
        self._sources = sources  # None: nothing is fetched; else there are walls, too
        self._folders = WorkFolders(work_root, clock)
        self._pipes = Pipes()
        self._base_env = inherited_variables()

    async def close(self) -> None:
        await super().close()
        self._pipes.close()

    def _take_folder(self, spec: JobSpec, *, has_source: bool) -> WorkFolder:
        walls = self._walls
        if walls is None or not (
            has_source or any(walls.needs_room(spec, step) for step in spec.steps)
        ):
            return self._folders.take()
        return RoomFolder(walls.rooms.take())

    def _give_back(self, folder: WorkFolder) -> None:
        if isinstance(folder, RoomFolder):
            assert self._walls is not None
            remove = partial(self._walls.rooms.remove, folder.room)
            asyncio.get_running_loop().run_in_executor(None, remove)
        else:
            self._folders.give_back(folder)

    def _variables(self, assignment: Assignment, folder: WorkFolder) -> Mapping[str, str]:
        work = str(folder.path)
        return attempt_variables(self._base_env, assignment, work, folder.output, folder.progress)

    def _begin(self, attempt: Attempt, number: int, step: Step) -> RunningStep:
        spec, walls = attempt.assignment.spec, self._walls
        if step is SOURCE_STEP:
            return self._fetch(attempt, number)
        if walls is None:
            return self._as_process(attempt, number, step, None)
        tag = f"{attempt.fence.run}-{attempt.fence.attempt}-{number}"
        if isinstance(attempt.folder, RoomFolder) and walls.needs_room(spec, step):
            enclosed = walls.enclose(spec, step, attempt.folder.room, tag)
            running = self._behind(enclosed, attempt, number, step)
        else:
            if isinstance(attempt.folder, RoomFolder):
                attempt.folder.room.note_worker()
            confinement = walls.confinement(spec, step, tag)
            running = self._as_process(attempt, number, step, confinement)
        limit = walls.limits(spec, step).disk
        if limit is None:
            return running
        limited = DiskLimited(running.process, attempt.folder.measured, limit, self._clock)
        return replace(running, process=limited)

    def _fetch(self, attempt: Attempt, number: int) -> RunningStep:
        """Begin to fetch the source, into the very folder that the steps have."""
        sources, folder = self._sources, attempt.folder
        if sources is None or not isinstance(folder, RoomFolder):
            raise OSError(errno.EOPNOTSUPP, "this worker does not fetch sources")
        room = folder.room

        def deliver() -> None:
            owner = sources.walls.owner(attempt.assignment.spec, room)
            if room.job.lstat().st_uid != owner.user:
                give_tree(room.job, owner.user, owner.group)
            room.give_to(owner.user, owner.group)

        return sources.begin(attempt, number, Workplace(room, deliver))

    def _as_process(
        self, attempt: Attempt, number: int, step: Step, confinement: Confinement | None
    ) -> _RunningProcess:
        folder = attempt.folder
        cwd = attempt.assignment.spec.path or str(folder.path)
        if step.folder:
            cwd = f"{cwd}/{folder_below(cwd, step.folder)}"
        command = command_of(step, partial(folder.write_script, number))
        stdout, stderr = self._pipes.open(attempt.open_sink, number)
        process = self._spawner.spawn(
            command,
            env=step_variables(attempt.env, step),
            cwd=cwd,
            stdout=stdout.writer,
            stderr=stderr.writer,
            confinement=confinement,
        )
        return _RunningProcess(process, stdout, stderr)

    def _behind(
        self, enclosed: Enclosed, attempt: Attempt, number: int, step: Step
    ) -> _RunningProcess:
        """Start a step behind a wall."""
        command = command_of(step, enclosed.write_script, hides_scripts=enclosed.hides_scripts)
        variables = {**self._base_env, **enclosed.variables}
        attempt_env = attempt_variables(
            variables, attempt.assignment, enclosed.work, enclosed.output, enclosed.progress
        )
        stdout, stderr = self._pipes.open(attempt.open_sink, number)
        output = Output(stdout.writer, stderr.writer, stderr.latest_line)
        try:
            process = enclosed.start(command, step_variables(attempt_env, step), output)
        except OSError:
            stdout.discard()
            stderr.discard()
            raise
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

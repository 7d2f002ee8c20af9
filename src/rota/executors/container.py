"""Job type `container`: one container for each attempt, and its steps or its command in it.

The container stays open while steps come and go in it. What a step leaves running ends before the
next one begins, and an attempt is not over before the engine has said that its container is gone.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import structlog

from rota.domain.errors import Unavailable
from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import (
    Container,
    JobSpec,
    Mount,
    Network,
    RunLimits,
    Step,
    booked_limits,
    run_limits,
    without_reserved,
)
from rota.executors.shell import command_of, input_variables, rota_variables, step_variables
from rota.executors.source import Fetch, Sources, Workplace
from rota.executors.steps import SOURCE_STEP, Attempt, RunningStep, StepExecutor
from rota.executors.work_folder import WorkFolder, end_of, last_line_of
from rota.ports.clock import Clock
from rota.ports.executor import (
    Assignment,
    AttemptReports,
    Exit,
    Files,
    Keeper,
    OutputSink,
    Process,
)
from rota.ports.work import Fence, StepOutcome
from rota.walls.box import OUT_OF_MEMORY, Box, Command, Connect, LeaseEnded
from rota.walls.container import (
    HOME,
    JOB,
    SCRIPTS,
    TOLD,
    Frame,
    MountRefused,
    MountRoot,
    allowed_source,
    config_of,
    user_of,
    why_no_target,
)
from rota.walls.disk import DiskLimited
from rota.walls.engine import (
    ContainerEngine,
    EngineAway,
    EngineOutput,
    EngineRefused,
    Image,
    Usage,
    read_output,
)
from rota.walls.images import ImageRefused, Images
from rota.walls.leftovers import Sweeper
from rota.walls.network import NetworkFailed
from rota.walls.rooms import Room, folder_below, give_tree, remove_tree

_OPEN = 0o777  # for whatever user the job has; above it is a folder of the worker alone
_READABLE, _PRIVATE = 0o755, 0o700
_FIRST_LOOK, _LONGEST_LOOK = timedelta(milliseconds=10), timedelta(seconds=1)
_PULSE = timedelta(seconds=2)
_PATIENCE = 120.0  # seconds without an answer of the engine before a step counts as failed
_SPILLED = (
    EngineAway,
    EngineRefused,
    ImageRefused,
    MountRefused,
    NetworkFailed,
    LeaseEnded,
    Unavailable,
)
_FORGOTTEN = 5.0  # seconds for which an engine that has a container does not know its process
_KILLED = 128 + signal.SIGKILL
_BY_ENGINE = b"OCI runtime"  # in what engines print where a command cannot be executed
_FORGOTTEN_END = "the container engine has forgotten how the step ended"
_ENDED_ALONE = "the container ended while the step ran: by somebody's hand, or with its engine"
_STREAMS = {1: Stream.STDOUT, 2: Stream.STDERR}

log = structlog.get_logger()


class MountedFolder(WorkFolder):
    """Folder of an attempt: in it one to work in, one of what a job tells, one of its scripts.

    All may write to the first two, and put links there; nobody but the worker to the third.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.top = root / name
        self.top.mkdir(mode=_PRIVATE)
        super().__init__(self.top, "job")
        self.told = self.top / "told"
        self.scripts = self.top / "scripts"
        self.output = self.told / "output"
        self.progress = self.told / "progress"
        for folder, mode in ((self.path, _OPEN), (self.told, _OPEN), (self.scripts, _READABLE)):
            folder.mkdir()
            folder.chmod(mode)

    @property
    def measured(self) -> Path:
        return self.top

    def write_script(self, step: int, suffix: str, text: str) -> str:
        """Write the script of a step; return the path that it has in the container."""
        path = self.scripts / f"step{step}{suffix}"
        path.write_text(text, "utf-8")
        path.chmod(_READABLE)
        return f"{SCRIPTS}/{path.name}"


@dataclass(frozen=True, slots=True)
class ContainerGround:
    """Parts that all containers of a worker share: engine, images, folders, networks."""

    engine: ContainerEngine
    images: Images
    sweeper: Sweeper
    keeper: Keeper
    labels: Mapping[str, str]
    work_root: Path
    programs: Path
    security: tuple[str, ...]  # options for the engine
    roots: tuple[MountRoot, ...] = ()
    connect: Connect | None = None  # gives a container the way out that `outbound` is
    network_files: Mapping[str, str] = field(default_factory=dict)  # with that way: target → source
    clear: Callable[[Sequence[Path]], Awaitable[None]] | None = None  # what the worker cannot


class ContainerExecutor(StepExecutor):
    """Implements `rota.ports.executor.Executor`."""

    def __init__(
        self,
        reports: AttemptReports,
        clock: Clock,
        ground: ContainerGround,
        may_start: Callable[[], bool],
        files: Files | None = None,
    ) -> None:
        super().__init__(reports, clock, files)
        self.sources: Sources | None = None  # set once it is known what this worker can
        self._ground = ground
        self._may_start = may_start
        self._boxes: dict[Fence, Box] = {}
        self._own_commands: dict[Fence, Image] = {}  # of attempts that run what their image says
        self._numbers = 0
        self.session = "new"  # part of the names of containers

    async def close(self) -> None:
        await super().close()
        await self._ground.engine.close()

    # --- the folder

    def _take_folder(self, spec: JobSpec, *, has_source: bool) -> WorkFolder:
        self._numbers += 1
        return MountedFolder(self._ground.work_root, str(self._numbers))

    def _give_back(self, folder: WorkFolder) -> None:
        assert isinstance(folder, MountedFolder)
        task = asyncio.get_running_loop().create_task(self._remove(folder))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _remove(self, folder: MountedFolder) -> None:
        """Remove a folder; what belongs to users of containers may need a container for that."""
        await asyncio.get_running_loop().run_in_executor(None, remove_tree, folder.top)
        if folder.top.exists() and self._ground.clear is not None:
            await self._ground.clear([folder.top])

    def _variables(self, assignment: Assignment, folder: WorkFolder) -> Mapping[str, str]:
        spec, told = assignment.spec, Path(TOLD)
        return {
            "HOME": HOME,
            **without_reserved(spec.env),
            **input_variables(spec, assignment.work.inputs, JOB),
            **rota_variables(assignment, told / folder.output.name, told / folder.progress.name),
        }

    # --- the attempt

    def _steps(self, attempt: Attempt) -> Sequence[Step]:
        """Return the steps; a command is the only one."""
        container = _container(attempt)
        return attempt.assignment.spec.steps or (Step("command", container.command),)

    async def _carry_out(self, attempt: Attempt) -> None:
        ground = self._ground
        user = user_of(_container(attempt))
        name = f"rota-{attempt.fence.run}-{attempt.fence.number}-{self.session}"
        box = Box(name, ground.engine, ground.keeper, ground.sweeper, user)
        self._boxes[attempt.fence] = box
        try:
            if await self._is_opened(attempt, box):
                await self._run_steps(attempt)
                await self._find_cause(attempt, box)
            else:
                steps = self._all_steps(attempt)
                attempt.steps.extend(StepOutcome(step.name, "skipped") for step in steps)
        finally:
            await box.remove(
                lambda trouble: _tell(attempt, f"its container is not gone: {trouble}")
            )
            del self._boxes[attempt.fence]
            self._own_commands.pop(attempt.fence, None)

    async def _is_opened(self, attempt: Attempt, box: Box) -> bool:
        """Open the container; return False if it could not be, or a stop came first."""
        opening = asyncio.get_running_loop().create_task(self._open(attempt, box))
        now = self._clock.monotonic()
        left = None if attempt.deadline is None else max(attempt.deadline - now, 0)
        try:
            await asyncio.wait({opening, attempt.stop}, timeout=left, return_when="FIRST_COMPLETED")
            if opening.done():
                await opening
                return True
        except _SPILLED as error:
            attempt.result = AttemptResult.FAILED
            attempt.message = str(error)
        else:
            attempt.result = attempt.stopped_as()
            words = attempt.result.lower().replace("_", " ")
            attempt.message = f"{words} before its container was ready"
        finally:
            opening.cancel()
            with suppress(asyncio.CancelledError, *_SPILLED):
                await opening
        attempt.failure = Exit(None, None, error=attempt.message)
        _tell(attempt, attempt.message)
        return False

    async def _open(self, attempt: Attempt, box: Box) -> None:
        ground, spec = self._ground, attempt.assignment.spec
        container, folder = _container(attempt), attempt.folder
        assert isinstance(folder, MountedFolder)
        mounts = tuple((_source(each, ground.roots), each) for each in container.mounts)
        image = await ground.images.get(container, spec.project)
        if not spec.steps and not container.command:
            if not image.command:
                raise ImageRefused(f"{container.image} has no command of its own: write one")
            self._own_commands[attempt.fence] = image
        is_outbound = spec.network is Network.OUTBOUND
        if is_outbound and ground.connect is None:
            raise EngineRefused("this worker has no outbound network for containers")
        frame = Frame(
            image_id=image.id,
            volumes=image.volumes,
            user=user_of(container),
            labels={**ground.labels, **_labels(attempt)},
            job_folder=str(folder.path.absolute()),
            told_folder=str(folder.told.absolute()),
            scripts=str(folder.scripts.absolute()),
            programs=str(ground.programs.absolute()),
            mounts=mounts,
            network=spec.network,
            limits=_limits(spec),
            files=ground.network_files if is_outbound else {},
            security=ground.security,
        )
        connect = ground.connect if is_outbound else None
        await box.open(config_of(frame), may_start=self._may_start, connect=connect)

    def _begin(self, attempt: Attempt, number: int, step: Step) -> RunningStep:
        if step is SOURCE_STEP:
            return self._fetch(attempt, number)
        image = self._own_commands.get(attempt.fence)
        if image is None:
            write = partial(attempt.folder.write_script, number)
            argv, folder = command_of(step, write), JOB
            if step.folder:
                folder = f"{JOB}/{folder_below(str(attempt.folder.path), step.folder)}"
        else:
            argv, folder = image.command, image.folder
        command = Command(argv, step_variables(attempt.env, step), folder)
        box = self._boxes[attempt.fence]
        running = _StepInContainer(box, command, number, attempt.open_sink, self._clock)
        limit = _limits(attempt.assignment.spec).disk
        if limit is not None:
            measured = attempt.folder.measured
            running.process = DiskLimited(running, measured, limit, self._clock)
        return running

    def _fetch(self, attempt: Attempt, number: int) -> RunningStep:
        """Begin to fetch the source into a room, from where it moves to what the container sees."""
        if self.sources is None:
            raise OSError(errno.EOPNOTSUPP, "this worker does not fetch sources")
        rooms = self.sources.walls.rooms
        room, folder = rooms.take(), attempt.folder.path
        user, _, group = user_of(_container(attempt)).partition(":")

        def deliver() -> None:
            _hand_over(rooms.real(room) / "job", folder, user, group)

        running = self.sources.begin(attempt, number, Workplace(room, deliver))
        task = asyncio.get_running_loop().create_task(self._clear_room(running, room))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return running

    async def _clear_room(self, running: Fetch, room: Room) -> None:
        """Remove a room once nothing is fetched into it any more."""
        assert self.sources is not None
        await running.ended
        remove = self.sources.walls.rooms.remove
        await asyncio.get_running_loop().run_in_executor(None, remove, room)

    async def _find_cause(self, attempt: Attempt, box: Box) -> None:
        """Ask the engine whether a failure was for want of memory, where nobody else can tell."""
        failure = attempt.failure
        if failure is None or failure.cause or attempt.result is not AttemptResult.FAILED:
            return
        has_limit = _limits(attempt.assignment.spec).memory is not None
        if not has_limit or box.meter.out_of_memory() is not None:
            return
        with suppress(EngineAway, EngineRefused, TimeoutError):
            if await box.ended_out_of_memory():
                attempt.failure = replace(failure, cause=OUT_OF_MEMORY)


def _hand_over(top: Path, folder: Path, user: str, group: str) -> None:
    """Move what was fetched to a folder that a container has, whose user is to work in it."""
    for _, folders, files, opened in os.fwalk(top, follow_symlinks=False):
        for name in folders + files:
            mode = os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode
            if not stat.S_ISLNK(mode):
                rights = stat.S_IMODE(mode) & 0o700
                os.chmod(name, rights | rights >> 3 | rights >> 6, dir_fd=opened)
    if os.geteuid() == 0:
        are_numbers = user.isdecimal() and (not group or group.isdecimal())
        uid = int(user) if are_numbers else 0
        give_tree(top, uid, int(group) if are_numbers and group else uid)
    for entry in top.iterdir():
        entry.rename(folder / entry.name)


def _container(attempt: Attempt) -> Container:
    container = attempt.assignment.spec.container
    assert container is not None, "jobs of this type have one"
    return container


def _limits(spec: JobSpec) -> RunLimits:
    """Return what a job gives, else what it books: engines keep both."""
    return run_limits(spec).over(booked_limits(spec))


def _source(mount: Mount, roots: Sequence[MountRoot]) -> str:
    if reason := why_no_target(mount.target):
        raise MountRefused(reason)
    return allowed_source(mount, roots)


def _labels(attempt: Attempt) -> dict[str, str]:
    """Return labels for people who look at the engine."""
    spec, fence = attempt.assignment.spec, attempt.fence
    return {
        "rota.run": fence.run,
        "rota.attempt": str(fence.number),
        "rota.job": spec.name,
        "rota.project": spec.project,
    }


def _tell(attempt: Attempt, text: str) -> None:
    """Write a line of Rota's own to the output of an attempt."""
    step = max(len(attempt.steps) - 1, 0)
    attempt.open_sink().feed(Stream.ROTA, step, f"{text}\n".encode())


class _StepInContainer:
    """Implements `rota.executors.steps.RunningStep`, and the `Process` of it."""

    def __init__(
        self,
        box: Box,
        command: Command,
        number: int,
        open_sink: Callable[[], OutputSink],
        clock: Clock,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._box = box
        self._command = command
        self._number = number
        self._open_sink = open_sink
        self._clock = clock
        self._asked_to_end = asyncio.Event()
        self._id = ""  # of the process, once the engine has it
        self._ends = dict.fromkeys(_STREAMS.values(), b"")
        self._ending: asyncio.Task[None] | None = None
        self.process: Process = self
        self.ended: asyncio.Future[Exit] = loop.create_future()
        self._work = loop.create_task(self._run())

    def signal(self, number: int) -> None:
        """Send TERM; nothing else is ever sent, but KILL."""
        assert number == signal.SIGTERM
        self._asked_to_end.set()
        if self._id:
            self._ending = asyncio.get_running_loop().create_task(self._terminate())

    def kill(self) -> None:
        self._box.kill()

    async def finish(self) -> None:
        await self._work
        if self._ending is not None:
            self._ending.cancel()

    def last_line(self) -> str:
        ends = [self._ends[Stream.STDERR], self._ends[Stream.STDOUT]]
        of_engine = [each for each in b"\n".join(ends).split(b"\n") if _BY_ENGINE in each]
        return next(filter(None, map(last_line_of, [*of_engine, *ends])), "")

    async def _run(self) -> None:
        try:
            ending = await self._measured()
        except (EngineAway, EngineRefused) as error:
            ending = Exit(None, None, error=str(error))
        except Exception as error:  # whoever waits for the end must get one
            log.error("step.broken", container=self._box.name, exc_info=error)
            ending = Exit(None, None, error=f"internal error: {error!r}")
        self.ended.set_result(ending)

    async def _measured(self) -> Exit:
        before, kills = await self._usage(), self._box.meter.out_of_memory()
        ending = await self._carry_out()
        after, more_kills = await self._usage(), self._box.meter.out_of_memory()
        is_good = ending.status == 0
        was_for_memory = not is_good and (more_kills or 0) > (kills or 0)
        return replace(
            ending,
            cpu_seconds=max(after.cpu_seconds - before.cpu_seconds, 0.0),
            max_memory_bytes=after.memory_bytes,
            cause=OUT_OF_MEMORY if was_for_memory else "",
        )

    async def _usage(self) -> Usage:
        """Return what the container took so far; what was known last, once it is gone."""
        with suppress(EngineAway, EngineRefused):
            return await self._box.meter.read()
        return self._box.meter.latest

    async def _carry_out(self) -> Exit:
        box = self._box
        await box.make_room()
        process = await box.new_process(self._command)
        if self._asked_to_end.is_set():
            return Exit(None, signal.SIGTERM)
        async with box.engine.running(process) as output:
            self._id = process
            if self._asked_to_end.is_set():
                self.signal(signal.SIGTERM)
            await self._pass_on_while_alive(output)
        return await self._end_of(process)

    async def _pass_on_while_alive(self, output: EngineOutput) -> None:
        """Pass on all that is printed.

        Raise `EngineAway` if the engine is silent for too long, `EngineRefused` without a network.
        """
        loop = asyncio.get_running_loop()
        watches = self._pass_on(output), self._watch(), self._watch_network()
        tasks = [loop.create_task(each) for each in watches]
        try:
            done, _ = await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_network(self) -> None:
        reason = await self._box.network_ended()
        raise EngineRefused(f"the network of the container ended: {reason}")

    async def _pass_on(self, output: EngineOutput) -> None:
        while (piece := await read_output(output)) is not None:
            number, data = piece
            stream = _STREAMS.get(number, Stream.STDERR)
            self._ends[stream] = end_of(self._ends[stream], data)
            sink = self._open_sink()
            sink.feed(stream, self._number, data)
            if sink.is_full:
                await sink.drained()

    async def _watch(self) -> None:
        """Look after the engine from time to time: a step that prints nothing hears nothing."""
        answered_at = self._clock.monotonic()
        while True:
            await self._clock.sleep(_PULSE)
            try:
                await self._box.is_running()
                await self._usage()
            except EngineRefused:
                pass  # it answers
            except EngineAway as error:
                if self._clock.monotonic() - answered_at > _PATIENCE:
                    raise EngineAway(f"{error}, for {_PATIENCE:.0f} seconds") from error
                continue
            answered_at = self._clock.monotonic()

    async def _end_of(self, process: str) -> Exit:
        """Return how a process ended that prints nothing any more: it may go on for long."""
        box, pause, known_at = self._box, _FIRST_LOOK, self._clock.monotonic()
        while True:
            state = None
            with suppress(EngineRefused):  # the engine forgets it with its container
                state = await box.engine.process(process)
                known_at = self._clock.monotonic()
            if state is not None and state.has_ended and state.exit_code != _KILLED:
                return Exit(state.exit_code, None)
            with suppress(EngineRefused):  # it is about to forget the container, too
                if box.is_killed or not await box.is_running():
                    return Exit(None, signal.SIGKILL, error="" if box.is_killed else _ENDED_ALONE)
            if state is not None and state.has_ended:
                return Exit(state.exit_code, None)
            # Podman does so if it was frozen when the process ended.
            if self._clock.monotonic() - known_at > _FORGOTTEN:
                return Exit(None, None, error=_FORGOTTEN_END, is_lost=True)
            await self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_LOOK)

    async def _terminate(self) -> None:
        """Send TERM, once the process is there to get it; without an engine KILL has to do."""
        with suppress(EngineAway, EngineRefused):
            pause = _FIRST_LOOK
            while not (await self._box.engine.process(self._id)).has_begun:
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_LOOK)
            await self._box.terminate()

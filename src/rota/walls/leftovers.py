"""Containers that an earlier life of a worker left behind, and the journal that names them.

A container is noted before the engine is asked to create it. So the next life knows whether there
can be any, even if the engine does not answer; and it finds those that the engine made of a request
that nobody waited for any more.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from rota.ports.clock import Clock
from rota.walls.engine import ContainerEngine, EngineAway, EngineRefused
from rota.walls.usage import discard_groups

WORKER_LABEL = "rota.worker"
_FOLDER_LABEL = "rota.folder"
_SWEEPS_WITHIN = 60.0  # seconds: the worker does not say hello before
_AT_ONCE = 8
_FIRST_PAUSE = timedelta(milliseconds=50)
_LONGEST_PAUSE = timedelta(seconds=5)
_LATECOMERS = timedelta(seconds=2)  # in which an engine makes what it was asked for, or never
_QUIET = timedelta(milliseconds=500)  # of pauses about which nobody is told

log = structlog.get_logger()


def labels_of(worker: str, folder: Path) -> dict[str, str]:
    """Return what marks the containers of a worker.

    Its name is not enough: another installation on this machine may have a worker of that name.
    """
    status = folder.stat()
    place = f"{folder.absolute()} {status.st_dev} {status.st_ino}"
    digest = hashlib.blake2b(place.encode(), digest_size=16).hexdigest()
    return {WORKER_LABEL: worker, _FOLDER_LABEL: digest}


class Journal:
    """Names of the containers that may be there, with the sockets of their engines.

    It need not outlive the machine: no container does.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = _read(path)
        self._file = self._rewritten()

    @property
    def open(self) -> Mapping[str, str]:
        """Return the engines by container."""
        return self._open

    def note(self, name: str, engine: str) -> None:
        """Note a container before it is created."""
        self._open[name] = engine
        self._write({"container": name, "engine": engine})

    def forget(self, name: str) -> None:
        """Note that its engine confirmed that it is gone."""
        if self._open.pop(name, None) is not None:
            self._write({"container": name, "engine": ""})
        if not self._open and os.fstat(self._file).st_size:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, line: Mapping[str, str]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def _rewritten(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        temporary = self._path.with_name(f"{self._path.name}.new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, flags | os.O_EXCL, 0o600)
        for name, engine in self._open.items():
            line = json.dumps({"container": name, "engine": engine})
            os.write(descriptor, line.encode() + b"\n")
        temporary.replace(self._path)
        return descriptor


def _read(path: Path) -> dict[str, str]:
    """Read a journal; a last line that was cut off was written before its container was made."""
    found: dict[str, str] = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return found
    for line in lines:
        try:
            entry = json.loads(line)
            name, engine = str(entry["container"]), str(entry["engine"])
        except (LookupError, TypeError, ValueError):
            continue
        found.pop(name, None)
        if engine:
            found[name] = engine
    return found


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Removes containers, and does not say that one is gone before its engine has."""

    journal: Journal
    clock: Clock

    async def sweep(self, engine: ContainerEngine | None, labels: Mapping[str, str]) -> bool:
        """Remove what an earlier life left; return whether it is certain that nothing is left.

        `engine` is that of the settings; those in the journal are asked as well.
        """
        try:
            async with asyncio.timeout(_SWEEPS_WITHIN):
                for socket in sorted({*self.journal.open.values()}):
                    await self._sweep_noted(engine, socket)
                if engine is not None:
                    await self._remove_all(engine, await engine.names(labels))
        except (EngineAway, EngineRefused, TimeoutError) as error:
            reason = str(error) or f"it took longer than {_SWEEPS_WITHIN:.0f} seconds"
            log.warning("containers.unswept", noted=len(self.journal.open), error=reason)
        return not self.journal.open

    async def _sweep_noted(self, engine: ContainerEngine | None, socket: str) -> None:
        """Remove what the journal names at one engine, perhaps that of earlier settings."""
        own = engine if engine is not None and engine.socket == socket else ContainerEngine(socket)
        try:
            await own.facts()  # before all removals, which would go on asking
            noted = [name for name, place in self.journal.open.items() if place == socket]
            await self._remove_all(own, noted)
        except EngineAway as error:
            log.warning("containers.unswept", engine=socket, error=str(error))
        finally:
            if own is not engine:
                await own.close()

    async def _remove_all(self, engine: ContainerEngine, names: Sequence[str]) -> None:
        for some in (names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE)):
            removals = (self.remove(engine, name, is_unsure=True) for name in some)
            await asyncio.gather(*removals)
            log.info("containers.swept", containers=some)

    async def remove(
        self,
        engine: ContainerEngine,
        name: str,
        on_trouble: Callable[[str], None] | None = None,
        *,
        is_unsure: bool = False,
    ) -> None:
        """Remove a container: again and again, until its engine confirms that it is gone.

        `on_trouble` is told once what is in the way. Whoever `is_unsure` whether the engine still
        works on its creation has it looked for once more.
        """
        pause, container_id = _FIRST_PAUSE, ""
        while True:
            try:
                state = await engine.state(name)
                container_id = container_id if state is None else state.id
                await engine.remove(name)
                if is_unsure:
                    await self.clock.sleep(_LATECOMERS)
                    await engine.remove(name)
            except (EngineAway, EngineRefused) as error:
                if pause > _QUIET and on_trouble is not None:
                    on_trouble(str(error))
                    on_trouble = None
                await self.clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self.journal.forget(name)
                if is_unsure or pause > _FIRST_PAUSE:  # it may have been killed half-way
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(None, discard_groups, container_id)
                return

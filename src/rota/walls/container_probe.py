"""Trial of what a worker's engine can do for containers of jobs, when the worker starts.

The trial is a container like those of jobs, of an image that has nothing in it. The same image does
one more thing: a worker that is not root has what other users left in its folders removed by it.
"""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog

from rota.domain.errors import Unavailable
from rota.domain.spec import RunLimits
from rota.ports.executor import Keeper
from rota.walls import hold
from rota.walls.box import Box, Connect
from rota.walls.container import (
    NO_NEW_PRIVILEGES,
    Frame,
    bind_mount,
    config_of,
    security_options,
    ulimits,
    why_no_socket,
)
from rota.walls.engine import ContainerEngine, EngineAway, EngineFacts, EngineRefused
from rota.walls.leftovers import Sweeper
from rota.walls.network import NetworkFailed

_IMAGE = "rota-trial:1"
_OLDEST_API = (1, 41)  # of Docker 20.10 and Podman 4
_TRIED_WITHIN = 60.0  # seconds
_SMALL = RunLimits(cpu=1000, memory=64 << 20, processes=50, open_files=256)
_TOOLS = ("/usr", "/lib", "/lib64")  # of the machine, which has programs that the image lacks
_REMOVE = "/usr/bin/rm"
_LOOK_AGAIN = timedelta(milliseconds=50)

log = structlog.get_logger()


@dataclass(slots=True)
class ContainerTrial:
    """Trial of an engine, with a folder of the worker's own."""

    engine: ContainerEngine
    sweeper: Sweeper
    keeper: Keeper
    labels: Mapping[str, str]
    folder: Path  # to be mounted, as those of jobs are
    programs: Path
    security: tuple[str, ...] = (NO_NEW_PRIVILEGES,)  # as it turns out that the engine wants it

    async def lacks(self) -> str:
        """Return why this engine cannot have containers of jobs; "": it can."""
        if reason := hold.why_not_here() or why_no_socket(self.engine.socket):
            return reason
        try:
            async with asyncio.timeout(_TRIED_WITHIN):
                facts = await self.engine.facts()
                if reason := _unfit(facts):
                    return reason
                self.security = security_options(self.programs, is_podman=facts.is_podman)
                await self.engine.import_image(_archive(), _IMAGE)
                return await self._try(None)
        except (EngineAway, EngineRefused, Unavailable) as error:
            return f"a container could not be tried: {error}"
        except TimeoutError:
            return f"a container could not be tried within {_TRIED_WITHIN:g} s"

    async def outbound_lacks(self, connect: Connect) -> str:
        """Return why containers cannot have a way out of their own; "": they can."""
        try:
            async with asyncio.timeout(_TRIED_WITHIN):
                return await self._try(connect)
        except (EngineAway, EngineRefused, NetworkFailed, Unavailable) as error:
            return str(error)
        except TimeoutError:
            return f"it could not be tried within {_TRIED_WITHIN:g} s"

    async def _try(self, connect: Connect | None) -> str:
        self.folder.mkdir(exist_ok=True)
        user = "65534:65534"
        frame = Frame(
            image_id=await self._image(),
            volumes=(),
            user=user,
            labels=self.labels,
            job_folder=str(self.folder.absolute()),
            told_folder=str(self.folder.absolute()),
            scripts=str(self.folder.absolute()),
            programs=str(self.programs.absolute()),
            limits=_SMALL,
            security=self.security,
        )
        box = Box(self._name("trial"), self.engine, self.keeper, self.sweeper, user)
        try:
            await box.open(config_of(frame), may_start=lambda: True, connect=connect)
            # A program of our own folder: so the engine sees the folders that we see.
            await box.terminate()
            await self.engine.usage(box.name)
            return ""
        finally:
            await box.remove(lambda trouble: log.warning("trial.left", error=trouble))

    async def clear(self, folders: Sequence[Path]) -> None:
        """Remove folders that hold what other users made; what cannot be removed is told."""
        name = self._name(f"clear-{folders[0].name}")
        root = folders[0].parent
        inside = [f"/left/{each.name}" for each in folders]
        config = {
            "Image": await self._image(),
            "Entrypoint": [_REMOVE],
            "Cmd": ["-rf", "--one-file-system", "--", *inside],
            "User": "0:0",
            "Labels": dict(self.labels),
            "HostConfig": {
                "NetworkMode": "none",
                "ReadonlyRootfs": True,
                "CapDrop": ["ALL"],
                "CapAdd": ["DAC_OVERRIDE", "FOWNER"],
                "SecurityOpt": [NO_NEW_PRIVILEGES],
                "Mounts": [
                    bind_mount(str(root.absolute()), "/left", writable=True),
                    *(bind_mount(each, each, writable=False) for each in _tools()),
                ],
                "Ulimits": ulimits(RunLimits()),
            },
        }
        try:
            await self._begin(name, config)
            async with asyncio.timeout(_TRIED_WITHIN):
                while (state := await self.engine.state(name)) and state.is_running:
                    await self.sweeper.clock.sleep(_LOOK_AGAIN)
        except (EngineAway, EngineRefused, TimeoutError) as error:
            log.warning("folder.left", folder=str(folders[0]), error=str(error))
        finally:
            await self.sweeper.remove(self.engine, name)

    async def _begin(self, name: str, config: Mapping[str, Any]) -> None:
        self.sweeper.journal.note(name, self.engine.socket)
        await self.engine.create(name, config)
        await self.engine.start(name)

    async def _image(self) -> str:
        image = await self.engine.image(f"docker.io/library/{_IMAGE}")
        if image is None:
            raise EngineRefused(f"the image {_IMAGE} that was imported is not there")
        return image.id

    def _name(self, what: str) -> str:
        return f"rota-{what}-{self.labels['rota.folder'][:12]}-{os.getpid()}"


def _tools() -> list[str]:
    return [each for each in _TOOLS if Path(each).is_dir()]


def _unfit(facts: EngineFacts) -> str:
    """Return why no trial of this engine would be worth its while."""
    told = f"{facts.name} {facts.version}"
    if facts.api < _OLDEST_API:
        return f"{told} is too old: Docker 20.10 or Podman 4.0 is needed"
    if facts.is_rootless:
        return f"{told} is rootless, which this version of Rota does not support"
    if facts.lacks:
        limits = " and ".join(sorted(facts.lacks))
        return (
            f"{told} cannot limit {limits} here: the kernel lacks the cgroups (or swap accounting)"
        )
    return ""


def _archive() -> bytes:
    """Return the root folder of an image that has nothing but places for mounts."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("job", "usr", "lib", "lib64", "run", "tmp", "proc", "sys", "dev", "left"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    return archive.getvalue()

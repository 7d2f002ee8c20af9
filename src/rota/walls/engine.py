"""Client of a container engine: Docker, Podman, or another that has Docker's API on a socket.

Each question has a limit of time. There are two ways in which it can fail: the engine refused, so
nothing happened; or it is away, and nobody knows whether it did what was asked.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp
from aiodocker import Docker, DockerError
from aiodocker.stream import Stream

EngineOutput: TypeAlias = Stream

_PULL_SILENCE = 120.0  # without any news of a pull
_NO_CONNECTION = 900  # how the library says that there is no engine
_GONE = frozenset({404, 410})
_BEING_REMOVED = 409
_ANY_HOST = "http://engine"  # of addresses on a socket


class EngineAway(Exception):
    """The engine cannot be reached or does not answer."""


class EngineRefused(Exception):
    """The engine answered that it does not do what was asked."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_missing(self) -> bool:
        return self.status in _GONE


@dataclass(frozen=True, slots=True)
class EnginePatience:
    """How long an engine may take for an answer, in seconds."""

    answer: float = 30.0
    create: float = 120.0  # a layer may have to be unpacked, and discs be slow


PATIENCE = EnginePatience()


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Facts that an engine tells of itself."""

    name: str  # Docker or Podman
    version: str
    api: tuple[int, int]
    security: tuple[str, ...]  # such as seccomp, rootless, userns
    lacks: frozenset[str]  # limits that it cannot enforce, by the names of `RunLimits`

    @property
    def is_podman(self) -> bool:
        return self.name == "Podman"

    @property
    def is_rootless(self) -> bool:
        return "rootless" in self.security


@dataclass(frozen=True, slots=True)
class Image:
    """Image that an engine has."""

    id: str
    names: tuple[str, ...]  # with tag or digest, as the engine writes them
    volumes: tuple[str, ...]  # folders that it wants to have a volume for
    command: tuple[str, ...]  # of its own
    folder: str  # where that runs


@dataclass(frozen=True, slots=True)
class ContainerState:
    """State of a container, as far as it decides anything here."""

    id: str
    is_running: bool
    exit_code: int
    was_out_of_memory: bool
    pid: int  # of its first process on the engine's machine; 0: none
    error: str  # why it could not be started


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State of a process that came into a container later."""

    is_running: bool
    has_begun: bool
    exit_code: int | None  # None: not told

    @property
    def has_ended(self) -> bool:
        return not self.is_running and self.exit_code is not None


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a container's processes, so far and now."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # the most, where the kernel tells it; else now


class ContainerEngine:
    """Connection to the engine behind a socket. Containers go by the names that we gave them."""

    def __init__(self, socket: str, patience: EnginePatience = PATIENCE) -> None:
        self.socket = socket
        self._patience = patience
        # Each step that runs holds a connection: there must be no most of them.
        connector = aiohttp.UnixConnector(path=socket, limit=0)
        self._http = aiohttp.ClientSession(connector=connector)
        self._docker = Docker(f"unix://{socket}", session=self._http)

    async def close(self) -> None:
        await self._http.close()

    async def facts(self) -> EngineFacts:
        async with self._asking("tell its version"):
            version = await self._docker.version()
            info = dict(await self._docker.system.info())
            return _facts(version, info)

    # --- images

    async def image(self, name: str) -> Image | None:
        """Return an image that the engine has; None: it has none of that name."""
        try:
            async with self._asking(f"look for the image {name}"):
                return _image(await self._docker.images.inspect(name))
        except EngineRefused as error:
            if error.is_missing:
                return None
            raise

    async def pull(self, name: str, credentials: Mapping[str, str] | None) -> None:
        """Fetch an image. That this returns does not yet say that the engine has it: look."""
        loop = asyncio.get_running_loop()
        async with self._asking(f"pull {name}", math.inf):
            pulling = self._docker.images.pull(
                name, auth=dict(credentials) if credentials else None, stream=True
            )
            try:
                async with asyncio.timeout(_PULL_SILENCE) as silence:
                    async for _ in pulling:
                        silence.reschedule(loop.time() + _PULL_SILENCE)
            except TimeoutError as error:
                reason = f"nothing came for {_PULL_SILENCE:.0f} seconds"
                raise EngineRefused(reason) from error

    async def import_image(self, archive: bytes, name: str) -> None:
        """Make an image of a tar archive of its root folder; the name has a tag."""
        query = {"fromSrc": "-", "repo": name}
        async with self._asking("import an image", self._patience.create):
            await self._post("images/create", query, data=archive)

    # --- containers

    async def create(self, name: str, config: Mapping[str, Any]) -> str:
        """Create a container that does not run yet; return its id."""
        async with self._asking(f"create the container {name}", self._patience.create):
            return (await self._docker.containers.create(config, name=name)).id

    async def start(self, name: str) -> None:
        async with self._asking(f"start the container {name}", self._patience.create):
            await self._docker.containers.container(name).start()

    async def state(self, name: str) -> ContainerState | None:
        """Return the state of a container; None: there is none of that name."""
        try:
            async with self._asking(f"tell how the container {name} is"):
                return _state(await self._docker.containers.container(name).show())
        except EngineRefused as error:
            if error.is_missing:
                return None
            raise

    async def signal(self, name: str, number: int) -> None:
        """Send a signal to the first process of a container, which passes it on."""
        async with self._asking(f"send a signal to the container {name}"):
            await self._docker.containers.container(name).kill(signal=str(int(number)))

    async def remove(self, name: str) -> None:
        """Kill a container and remove all of it; once this returns, there is none of that name."""
        try:
            async with self._asking(f"remove the container {name}"):
                await self._docker.containers.container(name).delete(force=True, v=True)
        except EngineRefused as error:
            if not error.is_missing and error.status != _BEING_REMOVED:
                raise
        if await self.state(name) is not None:
            raise EngineRefused(f"the container {name} is still there", _BEING_REMOVED)

    async def names(self, labels: Mapping[str, str]) -> list[str]:
        """List the containers that have these labels, running or not."""
        wanted = json.dumps({"label": [f"{key}={value}" for key, value in labels.items()]})
        async with self._asking("list containers"):
            found = await self._docker.containers.list(all=True, filters=wanted)
            return [each["Names"][0].lstrip("/") for each in found]

    async def usage(self, name: str) -> Usage:
        """Tell what a running container took so far."""
        async with self._asking(f"tell what the container {name} uses"):
            query = {"stream": "false", "one-shot": "true"}
            return _usage(await self._get(f"containers/{name}/stats", query))

    # --- processes in a container

    async def new_process(
        self, name: str, argv: Sequence[str], *, user: str, env: Mapping[str, str], cwd: str
    ) -> str:
        """Make a process of a container, which does not run yet; return its id."""
        async with self._asking(f"make a process in the container {name}"):
            container = self._docker.containers.container(name)
            process = await container.exec(list(argv), user=user, environment=env, workdir=cwd)
            return process.id

    @asynccontextmanager
    async def running(self, process: str) -> AsyncIterator[Stream]:
        """Start a process of a container and open what it prints."""
        stream = self._docker.containers.exec(process).start(detach=False)
        async with self._opened(stream, "start a process"):
            yield stream

    async def process(self, process: str) -> ProcessState:
        async with self._asking("tell how a process is"):
            found = await self._docker.containers.exec(process).inspect()
            code = found.get("ExitCode")
            return ProcessState(
                is_running=bool(found["Running"]),
                has_begun=bool(found["Running"] or found.get("Pid")) or code is not None,
                exit_code=None if code is None else int(code),
            )

    # --- the wire

    @asynccontextmanager
    async def _opened(self, stream: Stream, what: str) -> AsyncIterator[None]:
        async with self._asking(what, self._patience.create):
            await stream.__aenter__()
        try:
            yield
        finally:
            await stream.close()

    async def _get(self, path: str, query: Mapping[str, str]) -> Any:
        async with self._http.get(f"{_ANY_HOST}/{path}", params=query) as answer:
            return await _checked(answer)

    async def _post(self, path: str, query: Mapping[str, str], data: bytes) -> None:
        headers = {"Content-Type": "application/x-tar"}
        url = f"{_ANY_HOST}/{path}"
        async with self._http.post(url, params=query, data=data, headers=headers) as answer:
            await _checked(answer)

    @asynccontextmanager
    async def _asking(self, what: str, seconds: float = 0.0) -> AsyncIterator[None]:
        """Translate the ways in which a question can fail; 0 seconds: the usual time."""
        try:
            async with asyncio.timeout(seconds or self._patience.answer):
                yield
        except TimeoutError as error:
            raise EngineAway(f"the container engine did not answer: asked to {what}") from error
        except DockerError as error:
            if error.status == _NO_CONNECTION:
                raise EngineAway(
                    f"the container engine cannot be reached at {self.socket}"
                ) from error
            raise EngineRefused(_one_line(error.message), error.status) from error
        except (aiohttp.ClientError, OSError) as error:
            reason = _one_line(str(error) or type(error).__name__)
            raise EngineAway(f"the connection to the container engine broke: {reason}") from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            reason = f"its answer makes no sense ({type(error).__name__}: {error})"
            raise EngineRefused(f"asked to {what}, {reason}") from error


async def read_output(stream: Stream) -> tuple[int, bytes] | None:
    """Return the next piece that was printed, and on which stream; None: that was all."""
    try:
        message = await stream.read_out()
    except (aiohttp.ClientError, OSError) as error:
        raise EngineAway(f"the connection to the container engine broke: {error}") from error
    return None if message is None else (message.stream, message.data)


async def _checked(answer: aiohttp.ClientResponse) -> Any:
    text = await answer.text()
    if answer.status >= 400:
        raise EngineRefused(_one_line(_message(text)), answer.status)
    last = text.strip().rpartition("\n")[2]  # a stream of news has one object in each line
    value = json.loads(last) if last else None
    if isinstance(value, dict) and value.get("error"):
        raise EngineRefused(_one_line(str(value["error"])))
    return value


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (LookupError, TypeError, ValueError):
        return text


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


_LIMITS: Mapping[str, tuple[str, ...]] = {  # and what of the engine's answer must be true for them
    "cpu": ("CpuCfsQuota", "CPUCfsQuota"),
    "memory": ("MemoryLimit", "SwapLimit"),
    "processes": ("PidsLimit",),
}


def _facts(version: Mapping[str, Any], info: Mapping[str, Any]) -> EngineFacts:
    components = [str(each.get("Name", "")) for each in version.get("Components") or []]
    is_podman = any("Podman" in name for name in components)
    major, _, minor = str(version["ApiVersion"]).partition(".")
    told = {name: [info[flag] for flag in flags if flag in info] for name, flags in _LIMITS.items()}
    return EngineFacts(
        name="Podman" if is_podman else "Docker",
        version=str(version["Version"]),
        api=(int(major), int(minor)),
        security=tuple(_option(text) for text in info.get("SecurityOptions") or []),
        lacks=frozenset(name for name, values in told.items() if not values or not all(values)),
    )


def _option(text: str) -> str:
    """Return the name of a security option: `name=seccomp,profile=default` is seccomp."""
    pairs = (part.partition("=") for part in str(text).split(","))
    return next((value for key, _, value in pairs if key == "name"), str(text))


def _image(found: Mapping[str, Any]) -> Image:
    config = found.get("Config") or {}
    return Image(
        id=str(found["Id"]),
        names=(*(found.get("RepoTags") or ()), *(found.get("RepoDigests") or ())),
        volumes=tuple(config.get("Volumes") or ()),
        command=(*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())),
        folder=str(config.get("WorkingDir") or "/"),
    )


def _state(found: Mapping[str, Any]) -> ContainerState:
    state = found["State"]
    return ContainerState(
        id=str(found["Id"]),
        is_running=bool(state["Running"]),
        exit_code=int(state.get("ExitCode") or 0),
        was_out_of_memory=bool(state.get("OOMKilled")),
        pid=int(state.get("Pid") or 0),
        error=_one_line(str(state.get("Error") or "")),
    )


def _usage(found: Mapping[str, Any]) -> Usage:
    memory = found.get("memory_stats") or {}
    return Usage(
        cpu_seconds=int(found["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9,
        memory_bytes=int(memory.get("max_usage") or memory.get("usage") or 0),
    )

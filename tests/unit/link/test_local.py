"""A worker and a server on one machine speak to processes of their own user only."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from rota.blobs.files import open_files
from rota.domain.errors import Denied, Unavailable
from rota.link.local import PROTOCOL, LocalLink, LocalLinkServer
from rota.link.parts import OUTDATED_SERVER, OUTDATED_WORKER
from rota.operations.engine import Engine
from rota.ports.work import Hello
from rota.queue.local import LocalQueue
from rota.server.dispatcher.floor import Floor, FloorConfig
from testkit.builders import hello
from testkit.new_stores import open_new_sqlite

pytestmark = pytest.mark.anyio

SOMEBODY = 65534
# Not by Popen's `user`: others may not be able to read this Python.
BECOME = f"""
import os, socket, sys
os.setgroups([])
os.setresgid({SOMEBODY}, {SOMEBODY}, {SOMEBODY})
os.setresuid({SOMEBODY}, {SOMEBODY}, {SOMEBODY})
"""
Foreign = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
async def engine(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Engine]:
    store = await open_new_sqlite(tmp_path / "rota.db")
    async with await open_files(tmp_path / "blobs") as blobs:
        yield Engine(store, LocalQueue(), blobs)
    await store.close()


@pytest.fixture
def floor(engine: Engine) -> Floor:
    return Floor(engine, FloorConfig())


@pytest.fixture
async def path(floor: Floor, tmp_path: Path) -> AsyncIterator[Path]:
    """Where a server listens, in a data folder with a path that no socket can have."""
    home = tmp_path / ("long" * 40)
    home.mkdir()
    server = LocalLinkServer(floor, home / "run" / "worker.sock")
    await server.open()
    yield home / "run" / "worker.sock"
    await server.close()


@pytest.fixture
def foreign() -> Foreign:
    """Starts a script of another user in a folder."""
    if os.geteuid() != 0:
        pytest.skip("only root can start processes of others")

    def start(script: str, folder: Path, *descriptors: int) -> subprocess.Popen[bytes]:
        where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return subprocess.Popen(
                [sys.executable, "-ISc", BECOME + dedent(script), *map(str, (where, *descriptors))],
                pass_fds=(where, *descriptors),
                stdout=subprocess.PIPE,
            )
        finally:
            os.close(where)

    return start


async def test_socket_and_its_folder_are_for_their_owner_alone(path: Path) -> None:
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)]

    assert modes == [0o700, 0o600]


async def test_worker_is_served_however_long_the_path_is(path: Path) -> None:
    link = await LocalLink.connect(path)

    welcome = await link.register(hello())

    assert welcome.session
    await link.close()


async def test_process_of_another_user_is_told_and_gets_nothing(
    path: Path, foreign: Foreign
) -> None:
    let_everybody_in(path)
    script = """
        os.fchdir(int(sys.argv[1]))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect("worker.sock")
        while data := connection.recv(65536):
            sys.stdout.buffer.write(data)
    """

    with capture_logs() as logs, foreign(script, path.parent) as process:
        said, _ = await asyncio.to_thread(process.communicate)

    assert process.returncode == 0
    assert f"for workers of uid {os.geteuid()}, not of uid {SOMEBODY}".encode() in said
    assert [(each["event"], each["uid"]) for each in logs] == [("link.foreign_process", SOMEBODY)]


async def test_worker_that_is_turned_away_knows_why(path: Path) -> None:
    """The worker's end of the same, with a server that turns everybody away."""
    message = b"\x94\x00\xa0\xc0\x93\xaeforeign_worker\xa7not you\xa6Denied"

    async def turn_away(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(len(message).to_bytes(4, "big") + message)
        writer.close()

    server = await asyncio.start_unix_server(turn_away, sock=listener_at(path))
    link = await LocalLink.connect(path)

    for _ in range(2):
        with pytest.raises(Denied, match="not you"):
            await link.register(hello())
    await link.close()
    server.close()


async def test_listener_of_another_user_is_not_spoken_to(path: Path, foreign: Foreign) -> None:
    listener = listener_at(path)
    script = """
        listener = socket.socket(fileno=int(sys.argv[2]))
        listener.listen()
        print(flush=True)
        connection, _ = listener.accept()
        sys.stdout.buffer.write(connection.recv(65536))
    """

    with foreign(script, path.parent, listener.fileno()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(Denied, match=f"belongs to uid {SOMEBODY}") as refused:
            await LocalLink.connect(path)
        heard, _ = await asyncio.to_thread(process.communicate)

    listener.close()
    assert str(path) in refused.value.message
    assert heard == b""


async def test_folder_of_another_user_is_not_used(
    floor: Floor, tmp_path: Path, foreign: Foreign
) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    os.chown(folder, SOMEBODY, SOMEBODY)

    with pytest.raises(Denied, match=f"uid {SOMEBODY} owns it"):
        await LocalLinkServer(floor, folder / "worker.sock").open()
    with pytest.raises(Denied, match=f"uid {SOMEBODY} owns it"):
        await LocalLink.connect(folder / "worker.sock")


async def test_folder_that_others_may_change_is_not_used(floor: Floor, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(Denied, match="mode 0777"):
        await LocalLinkServer(floor, folder / "worker.sock").open()


async def test_link_in_place_of_the_folder_is_not_followed(floor: Floor, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "theirs")

    with pytest.raises(Unavailable, match=r"run/worker\.sock cannot be made"):
        await LocalLinkServer(floor, tmp_path / "run" / "worker.sock").open()

    assert not list((tmp_path / "theirs").iterdir())


FORMER_HELLO = {"worker": "elder", "pool": "default", "slots": 2, "resumes": "", "version": "0.0.9"}


class TestOtherReleases:
    """Both sides are told what to do, and nothing is claimed."""

    @pytest.mark.parametrize(
        ("body", "code", "words", "logged"),
        [
            (
                FORMER_HELLO,
                "outdated_worker",
                OUTDATED_WORKER,
                ("worker.outdated", "install this release there"),
            ),
            (
                [PROTOCOL + 1, FORMER_HELLO | {"news": [1]}],
                "outdated_server",
                OUTDATED_SERVER,
                ("worker.newer", "install its release here first"),
            ),
        ],
        ids=["former", "later"],
    )
    async def test_a_worker_of_another_release_is_refused_and_gets_no_session(
        self,
        path: Path,
        engine: Engine,
        body: Any,
        code: str,
        words: str,
        logged: tuple[str, str],
    ) -> None:
        with capture_logs() as lines:
            answers = [await asked(path, [1, "register", body]) for _ in range(3)]

        assert answers == [[1, "", None, [code, words, "Unavailable"]]] * 3
        told = [(line["event"], line["hint"], line["worker"]) for line in lines]
        assert told == [(*logged, "elder")]
        assert await engine.store.sessions(alive_only=False) == []

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (
                [None, ["bad_message", "Expected `object`, got `array`", "ValidationError"]],
                OUTDATED_SERVER,
            ),
            ([[PROTOCOL - 1, {"session": "w_1"}]], OUTDATED_SERVER),
            ([[PROTOCOL + 1, {"session": "w_1"}]], OUTDATED_WORKER),
        ],
        ids=["former", "a number below", "a number above"],
    )
    async def test_a_worker_at_a_server_of_another_release_knows_why(
        self, path: Path, answer: list[Any], words: str
    ) -> None:
        heard: list[Any] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await unframed(reader))
            writer.write(framed([1, "", *answer]))
            writer.close()

        server = await asyncio.start_unix_server(serve, sock=listener_at(path))
        link = await LocalLink.connect(path)

        with pytest.raises(Unavailable) as refused:
            await link.register(hello())

        [[_, verb, body, _]] = heard
        assert refused.value.message == words
        with pytest.raises(msgspec.ValidationError):  # so a former server registers nothing
            msgspec.convert(body, Hello)
        assert verb == "register"
        await link.close()
        server.close()

    async def test_a_hello_that_cannot_be_read_is_refused_as_such(self, path: Path) -> None:
        for body in ([PROTOCOL, {"worker": 1}], [PROTOCOL, hello_with(slots=0)], "hello", [1]):
            [_, _, _, [code, _, _]] = await asked(path, [1, "register", body])
            assert code == "invalid_hello"

    async def test_there_is_one_hello_in_a_connection(self, path: Path, engine: Engine) -> None:
        body = [PROTOCOL, hello_with(slots=1)]

        first, second = await asked(path, [1, "register", body], [2, "register", body], answers=2)

        errors = {number: error for number, _, _, error in (first, second)}
        assert errors[1] is None
        assert errors[2] == ["invalid_hello", "there is one hello in a connection", "Invalid"]
        assert len(await engine.store.sessions(alive_only=False)) == 1


def hello_with(**fields: Any) -> dict[str, Any]:
    return {"worker": "worker", "pool": "default", **fields}


async def asked(path: Path, *frames: list[Any], answers: int = 1) -> Any:
    """Send frames as they are; return the answer, or as many as wanted."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)
    for frame in frames:
        writer.write(framed(frame))
    heard = [await unframed(reader) for _ in range(answers)]
    writer.close()
    return heard if answers > 1 else heard[0]


def framed(frame: list[Any]) -> bytes:
    data = msgspec.msgpack.encode(frame)
    return len(data).to_bytes(4, "big") + data


async def unframed(reader: asyncio.StreamReader) -> Any:
    length = int.from_bytes(await reader.readexactly(4), "big")
    return msgspec.msgpack.decode(await reader.readexactly(length))


def let_everybody_in(path: Path) -> None:
    path.parent.chmod(0o711)
    path.chmod(0o666)


def listener_at(path: Path) -> socket.socket:
    """A socket in place of the one there, which nobody listens at yet."""
    path.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)
    return listener

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rota.domain.spec import Network
from rota.ports.executor import Exit
from rota.walls.network import NetworkFailed, Talk, WayOut
from rota.walls.rooms import Room
from rota.walls.sandbox import Bind, Sandbox, SandboxedProcess, Script, Status, View

pytestmark = pytest.mark.anyio

ROOM = Room(Path("/var/rooms/7"))


def view(env: Mapping[str, str] | None = None, **fields: object) -> View:
    return View(ROOM, Network.NONE, env or {}, **fields)  # type: ignore[arg-type]


@pytest.fixture
def made() -> Iterator[list[Sandbox]]:
    boxes: list[Sandbox] = []
    yield boxes
    for box in boxes:
        box.close()


def arguments(box: Sandbox) -> list[str]:
    """What bubblewrap reads from the descriptor that its one argument names."""
    [_, word, number, *_] = box.argv(["true"])
    assert word == "--args"
    descriptor = box.given.numbers[int(number)]
    text = os.pread(descriptor, 1_000_000, 0).decode()
    assert text.endswith("\0")
    return text.split("\0")[:-1]


class TestArguments:
    def build(self, made: list[Sandbox], told: View) -> list[str]:
        made.append(Sandbox("/usr/bin/bwrap", told))
        return arguments(made[-1])

    def test_only_the_command_is_for_everybody_to_read(self, made: list[Sandbox]) -> None:
        self.build(made, view({"KEY": "hidden"}))

        argv = made[0].argv(["echo", "--", "hi"])
        assert argv[:2] == ["/usr/bin/bwrap", "--args"]
        assert argv[3:] == ["--", "echo", "--", "hi"]

    @pytest.mark.parametrize(
        "env", [{"A": "x\0--bind\0/\0/"}, {"A\0--bind": "x"}, {"": "x"}, {"A=B": "x"}]
    )
    def test_variables_cannot_become_arguments(
        self, made: list[Sandbox], env: dict[str, str]
    ) -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))

        with pytest.raises(OSError, match=r"zero byte|name a variable"):
            self.build(made, view(env))

        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_values_that_look_like_arguments_are_values(self, made: list[Sandbox]) -> None:
        told = self.build(made, view({"A": "--bind", "--setenv": "--args"}))

        assert told[told.index("--setenv") :][:6] == [
            "--setenv",
            "A",
            "--bind",
            "--setenv",
            "--setenv",
            "--args",
        ]

    def test_text_that_is_none_is_refused(self, made: list[Sandbox]) -> None:
        with pytest.raises(OSError, match="no text"):
            self.build(made, view({"A": "\ud800"}))

    def test_no_folder_of_the_system_is_shown_as_a_whole(self, made: list[Sandbox]) -> None:
        told = self.build(made, view())

        binds = [
            told[at + 1] for at, word in enumerate(told) if word.startswith(("--bind", "--ro"))
        ]
        assert {"/", "/etc", "/run", "/var", "/sys", "/home", "/root"}.isdisjoint(binds)

    def test_only_its_room_is_writable(self, made: list[Sandbox]) -> None:
        told = self.build(made, view(binds=(Bind(Path("/a")), Bind(Path("/b"), writable=True))))

        writable = [
            told[at + 1] for at, word in enumerate(told) if word in ("--bind", "--bind-try")
        ]
        parts = ("job", "tmp", "home", "told")
        assert writable == [*(str(ROOM.top / part) for part in parts), "/b"]
        # Later ones would be made in what is read-only by then.
        assert told.index("--remount-ro") > max(
            at for at, word in enumerate(told) if "bind" in word or word == "--file"
        )

    def test_walls_that_every_sandbox_has(self, made: list[Sandbox]) -> None:
        told = self.build(made, view())

        assert {
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-net",
            "--disable-userns",
            "--die-with-parent",
            "--new-session",
            "--clearenv",
            "--seccomp",
        } <= set(told)
        assert told[told.index("--cap-drop") + 1] == "ALL"

    def test_only_the_network_of_the_host_is_not_its_own(self, made: list[Sandbox]) -> None:
        kinds = {kind: self.build(made, View(ROOM, kind, {})) for kind in Network}

        assert {kind for kind, told in kinds.items() if "--unshare-net" not in told} == {
            Network.HOST
        }
        assert {kind for kind, told in kinds.items() if "--block-fd" in told} == {Network.OUTBOUND}

    def test_a_script_is_a_file_and_no_argument(self, made: list[Sandbox]) -> None:
        told = self.build(made, view(script=Script("/run/script.sh", "echo hidden")))

        at = told.index("/run/script.sh")
        descriptor = made[0].given.numbers[int(told[at - 1])]
        assert os.pread(descriptor, 100, 0) == b"echo hidden"
        assert not any("hidden" in word for word in told)

    def test_paths_that_are_no_utf_8_pass(self, made: list[Sandbox]) -> None:
        self.build_raw = view({"A": os.fsdecode(b"\xff")})
        made.append(Sandbox("/usr/bin/bwrap", self.build_raw))

        number = int(made[0].argv([])[2])
        assert b"\xff" in os.pread(made[0].given.numbers[number], 1_000_000, 0)


class TestStatus:
    def status(self, *texts: str) -> Status:
        reader, writer = os.pipe2(os.O_NONBLOCK)
        status = Status(reader)
        for text in texts:
            os.write(writer, text.encode())
            assert status.read()
        os.close(writer)
        assert not status.read()
        os.close(reader)
        return status

    def test_child_is_told_once_its_line_is_whole(self) -> None:
        assert self.status('{ "child-pid": 12').child is None
        assert self.status('{ "child-pid": 12', "34 }\n").child == 1234

    def test_command_that_ended_has_run(self) -> None:
        assert self.status('{ "child-pid": 12 }\n', '{ "exit-code": 0 }\n').has_run
        assert not self.status('{ "child-pid": 12 }\n').has_run
        assert not self.status("nonsense\n[1]\n").has_run


class Process:
    """Implements `rota.ports.executor.Process`."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.signals: list[int] = []

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        if not self.ended.done():
            self.ended.set_result(Exit(None, 9))


class Scene:
    """A sandbox whose process a test holds."""

    def __init__(self, network: Network = Network.NONE, refusal: str = "") -> None:
        self.box = Sandbox("/usr/bin/bwrap", View(ROOM, network, {}))
        self.given = self.box.given.hand_over()
        self.process = Process()
        self.complaint = ""
        self.helper = Process()
        self.attached_to: int | None = None
        self._refusal = refusal
        attach = self._attach if network is Network.OUTBOUND else None
        self.sandboxed = SandboxedProcess(self.box, self.process, attach, lambda: self.complaint)

    async def _attach(self, pid: int) -> WayOut:
        self.attached_to = pid
        if self._refusal:
            raise NetworkFailed(self._refusal)
        return WayOut(self.helper, -1, Talk())

    def tell(self, **facts: int) -> None:
        line = {name.replace("_", "-"): value for name, value in facts.items()}
        os.write(self.given[3], json.dumps(line).encode() + b"\n")

    async def end(self, ending: Exit) -> Exit:
        for descriptor in self.given.values():
            os.close(descriptor)
        self.given = {}
        if not self.process.ended.done():
            self.process.ended.set_result(ending)
        async with asyncio.timeout(5):
            return await self.sandboxed.ended

    def has_begun(self) -> bool:
        """Whether the gate is open; it is the last descriptor that bubblewrap was given."""
        gate = self.given[max(self.given) - 1]
        os.set_blocking(gate, False)
        try:
            return os.read(gate, 1) == b"1"
        except BlockingIOError:
            return False


async def until(claim: object) -> None:
    assert callable(claim)
    async with asyncio.timeout(5):
        while not claim():
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)


class TestProcess:
    async def test_exit_code_is_that_of_the_command(self) -> None:
        scene = Scene()
        scene.tell(child_pid=7)
        scene.tell(exit_code=3)

        assert await scene.end(Exit(3, None)) == Exit(3, None)

    async def test_what_cannot_be_executed_is_told(self) -> None:
        scene = Scene()
        scene.tell(child_pid=7)
        scene.complaint = "bwrap: execvp nothing: No such file or directory"

        ending = await scene.end(Exit(1, None))

        assert ending.error == "cannot execute nothing: No such file or directory"

    async def test_what_cannot_be_built_is_told(self) -> None:
        scene = Scene()
        scene.complaint = "bwrap: setting up uid map: Permission denied"

        ending = await scene.end(Exit(1, None))

        told = "the sandbox could not be built: setting up uid map: Permission denied"
        assert ending.error == told

    async def test_a_limit_that_ended_it_is_no_fault_of_the_sandbox(self) -> None:
        scene = Scene()

        assert (await scene.end(Exit(137, None, cause="oom"))).error == ""

    async def test_signals_go_to_the_process(self) -> None:
        scene = Scene()

        scene.sandboxed.signal(15)

        assert scene.process.signals == [15]
        await scene.end(Exit(0, None))


class TestNetworked:
    async def test_it_begins_once_it_has_its_network(self) -> None:
        scene = Scene(Network.OUTBOUND)
        assert not scene.has_begun()

        scene.tell(child_pid=77)
        await until(scene.has_begun)

        assert scene.attached_to == 77
        scene.tell(exit_code=0)
        assert await scene.end(Exit(0, None)) == Exit(0, None)
        assert scene.helper.ended.done()

    async def test_without_its_network_it_never_begins(self) -> None:
        scene = Scene(Network.OUTBOUND, refusal="no tunnels here")
        scene.tell(child_pid=77)

        async with asyncio.timeout(5):
            await scene.process.ended
        assert not scene.has_begun()
        ending = await scene.end(Exit(None, 9))

        assert ending.error == "the step has no network: no tunnels here"

    async def test_end_of_its_network_is_its_end(self) -> None:
        scene = Scene(Network.OUTBOUND)
        scene.tell(child_pid=77)
        await until(scene.has_begun)

        scene.helper.ended.set_result(Exit(None, 11))
        async with asyncio.timeout(5):
            await scene.process.ended

        ending = await scene.end(Exit(None, 9))
        told = "the network of the step ended: slirp4netns was killed by signal 11"
        assert ending.error == told

    async def test_before_it_begins_any_signal_ends_it(self) -> None:
        """There is nobody inside yet who could obey one."""
        scene = Scene(Network.OUTBOUND)

        scene.sandboxed.signal(15)

        assert scene.process.ended.done()
        assert (await scene.end(Exit(None, 9))).error == ""

    async def test_end_before_its_network_is_no_fault_of_that(self) -> None:
        scene = Scene(Network.OUTBOUND)
        scene.complaint = "bwrap: Can't chdir to /nowhere: No such file or directory"

        ending = await scene.end(Exit(1, None))

        assert "Can't chdir to /nowhere" in ending.error
        assert scene.attached_to is None

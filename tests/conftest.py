"""Settings shared by all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from testkit.servers.azurite import Azurite
    from testkit.servers.s3 import S3Server

# Before gRPC is loaded: its handlers crash processes that are forked, as by `Popen(user=…)`, while
# another thread of ours talks to a server.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A shell without job control lets what it starts in the background ignore Ctrl-C, and so would all
# that tests start, whose Ctrl-C is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SYSTEM_TESTS = Path(__file__).parent / "system"
# Fixtures, and parameters of those that know several adapters, behind which a real server runs.
SERVERS = frozenset(
    {"azure", "database", "engine_room", "nats", "notify", "postgres", "postgres_server", "s3"}
)

# A red build is about the change, so the examples are the same in every run;
# `--hypothesis-profile=explore` looks for new ones. `make check` tries the first few only.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="tests that take minutes, too")
    parser.addoption("--postgres", type=int, help="the version for all tests of the store")
    parser.addoption(
        "--renew-schemas", action="store_true", help="write the checked-in schemas of the stores"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    for item in items:
        if item.path.is_relative_to(SYSTEM_TESTS):
            item.add_marker(pytest.mark.system)
        if needs_server(item):
            item.add_marker(pytest.mark.servers)


def needs_server(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    adapters = [value.partition("-")[0] for value in values if isinstance(value, str)]
    return not SERVERS.isdisjoint([*getattr(item, "fixturenames", ()), *adapters])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server for all tests of this process: each uses a prefix of its own."""
    from testkit.servers.s3 import S3Server

    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A stand-in for Azure for all tests of this process: each uses a prefix of its own."""
    from testkit.servers.azurite import Azurite

    with Azurite(tmp_path_factory.mktemp("azure")) as server:
        yield server

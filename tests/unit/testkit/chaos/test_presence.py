"""What others tell of a node decides whether it is still there."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from rota.api.workers import Server, Worker
from rota.sdk.client import Client
from testkit.chaos.presence import Life, Session
from testkit.nodes import ServerNode, WorkerNode
from tests.unit.testkit.chaos.observers import Told, page


def server(server_id: str, left: float) -> Server:
    return Server(id=server_id, name="server-1", lease_left_seconds=left)


@pytest.fixture
def node(tmp_path: Path) -> ServerNode:
    return ServerNode("server-1", tmp_path / "server-1", (1, 2))


class TestServer:
    def test_one_that_renews_is_neither_silent_nor_over(self, node: ServerNode) -> None:
        told = Told(page(server("a", 4.9)))
        life = Life(node, told)
        life.remember()

        told.answer = page(server("a", 3.4))

        assert not life.is_silent()
        assert not life.is_over()

    def test_one_that_missed_a_renewal_is_silent(self, node: ServerNode) -> None:
        told = Told(page(server("a", 4.9)))
        life = Life(node, told)
        life.remember()

        told.answer = page(server("a", 2.4))

        assert life.is_silent()
        assert not life.is_over()

    def test_the_next_life_of_a_server_is_another(self, node: ServerNode) -> None:
        told = Told(page(server("b", 4.0), server("a", 1.0)))  # the one before it is not over yet
        life = Life(node, told)
        life.remember()
        told.answer = page(server("b", 3.0))
        assert not life.is_over()

        told.answer = page(server("c", 5.0))

        assert life.is_over()

    def test_nothing_is_said_of_one_that_nobody_knew(self, node: ServerNode) -> None:
        life = Life(node, Told(page()), patience=timedelta(0))
        life.remember()

        assert not life.is_silent()

    def test_one_that_was_just_started_is_waited_for(self, node: ServerNode) -> None:
        told = Told(page(server("a", 4.9)), away=3)
        life = Life(node, told)
        life.remember()

        told.answer = page()

        assert life.is_over()

    def test_servers_that_are_away_say_nothing(self, node: ServerNode) -> None:
        told = Told(page(server("a", 4.9)))
        life = Life(node, told)
        life.remember()

        told.away = 1

        assert not life.is_over()


def test_the_session_of_a_worker_is_over_when_nobody_lists_it(
    tmp_path: Path, node: ServerNode
) -> None:
    told = Told(page(Worker(id="s1", worker="worker-1")))
    worker = WorkerNode("worker-1", tmp_path / "worker-1", Client(node.url, "token"))
    session = Session(worker, told)
    session.remember()
    assert not session.is_over()

    told.answer = page(Worker(id="s2", worker="worker-1"))

    assert session.is_over()

"""People at the same cart at the same time: clear answers, and a state that fits together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from itertools import cycle, islice
from pathlib import Path

import pytest

from rota.sdk.client import Client
from rota.sdk.errors import Conflict, Denied
from testkit.evidence import Evidence
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.carts import (
    chains,
    check_evidence,
    databases,
    items_of,
    runs_of,
    settle,
    submit,
    upgrade,
)
from tests.system.conftest import Up
from tests.system.jobs import apply, job

PRESSES = 150  # of each operator
A_MOMENT = timedelta(seconds=10)


class People:
    """Clients with tokens of their own."""

    def __init__(self, rota: RotaUp, until: ExitStack) -> None:
        self._rota = rota
        self._until = until

    def join(self, name: str, role: str) -> Client:
        secret = self._rota.client.create_token(name, role).secret
        client = Client(self._rota.client.server.url, secret)
        self._until.callback(client.close)
        return client


@pytest.fixture
def people(rota: RotaUp) -> Iterator[People]:
    with ExitStack() as until:
        yield People(rota, until)


def press(client: Client, cart: str, verb: str) -> str:
    """What became of it: `done`, or why not."""
    presses: dict[str, Callable[[], object]] = {
        "pause": lambda: client.pause_cart(cart),
        "resume": lambda: client.resume_cart(cart),
        "retry": lambda: client.retry_cart(cart, "failed+skipped"),
    }
    try:
        presses[verb]()
    except Conflict as error:
        return error.code
    return "done"


def press_all(client: Client, cart: str, verbs: Sequence[str]) -> set[str]:
    return {press(client, cart, verb) for verb in islice(cycle(verbs), PRESSES)}


class TestTwoOperators:
    def test_pressing_everything_at_once_loses_and_repeats_nothing(
        self, rota: RotaUp, people: People, evidence: Evidence, mended: Path
    ) -> None:
        ann, bob = people.join("ann", "operator"), people.join("bob", "operator")
        apply(rota.client, upgrade(evidence, mended))
        items = databases(120, once=6)
        cart = submit(ann, items, order="groups", group_size=10, failures={"allow": 0})

        with ThreadPoolExecutor() as threads:
            answers = [
                threads.submit(press_all, ann, cart, ["pause", "resume", "retry", "resume"]),
                threads.submit(press_all, bob, cart, ["retry", "resume", "pause"]),
            ]
        told = {code for answer in answers for code in answer.result()}
        finish(ann, cart)

        clear = {"not_paused", "still_breached", "nothing_to_retry", "cart_final"}
        assert "done" in told
        assert told - {"done"} <= clear
        check_evidence(rota.client, cart, evidence)
        for key, runs in chains(rota.client, cart).items():
            is_bad = key in {item["key"] for item in items[5::6]}
            assert [run.state for run in runs] == ["FAILED"] * is_bad + ["COMPLETED"]


def finish(client: Client, cart: str) -> None:
    """Retry and resume until all of it is completed."""

    def is_completed() -> bool:
        if settle(client, cart).state == "PAUSED":
            press(client, cart, "retry")
            press(client, cart, "resume")
        return client.get_cart(cart).state == "COMPLETED"

    eventually(is_completed, timedelta(seconds=40))


class TestCancelling:
    @pytest.mark.parametrize("starts", [0, 1, 30])
    def test_cart_that_is_cancelled_while_a_wave_opens_ends_clean(
        self, up: Up, evidence: Evidence, mended: Path, starts: int
    ) -> None:
        client = up(slots="8").client
        apply(client, upgrade(evidence, mended))
        cart = submit(client, databases(2000), order="parallel")
        eventually(lambda: len(evidence.started()) >= starts)

        client.cancel_cart(cart)

        ended = settle(client, cart)
        assert (ended.state, ended.open, ended.pending) == ("CANCELLED", 0, 0)
        assert ended.skipped
        check_evidence(client, cart, evidence)
        tried = {run.item for run in runs_of(client, cart) if run.attempt}
        states = {item.key: item.state for item in items_of(client, cart)}
        assert {states[key] for key in states.keys() - tried} == {"SKIPPED"}
        assert {states[str(key)] for key in tried} <= {"COMPLETED", "CANCELLED"}
        begun = {run for run, _ in evidence.started()}
        assert begun <= {run.id for run in runs_of(client, cart) if run.attempt}


class TestGates:
    @pytest.fixture
    def waiting(self, rota: RotaUp, people: People) -> tuple[Client, str]:
        """Its submitter, and a cart whose second wave waits for an editor."""
        apply(rota.client, job("upgrade", "true"))
        ann = people.join("ann", "editor")
        items = [{"key": "db-1"}, {"key": "db-2"}, {"key": "db-3"}]
        cart = submit(ann, items, between={"approve": "editor"})
        eventually(lambda: ann.get_cart(cart).reason == "approval", A_MOMENT)
        return ann, cart

    def test_only_somebody_else_with_the_role_approves(
        self, people: People, waiting: tuple[Client, str]
    ) -> None:
        ann, cart = waiting
        bob, eve = people.join("bob", "operator"), people.join("eve", "editor")

        with pytest.raises(Denied) as too_low:
            bob.approve_cart(cart)
        with pytest.raises(Denied) as own:
            ann.approve_cart(cart)
        assert (too_low.value.status, too_low.value.code) == (403, "role_too_low")
        assert (own.value.status, own.value.code) == (403, "own_cart")
        assert ann.get_cart(cart).wave == 1

        eve.approve_cart(cart)

        eventually(lambda: ann.get_cart(cart).wave == 2, A_MOMENT)

    def test_wave_that_was_opened_is_not_edited(self, waiting: tuple[Client, str]) -> None:
        ann, cart = waiting
        before = items_of(ann, cart)

        for change in (
            {"key": "db-1", "skip": True},
            {"key": "db-1", "order": 3},
            {"key": "db-3", "order": 1},
        ):
            with pytest.raises(Conflict) as refused:
                ann.edit_cart(cart, items=[change])
            assert (refused.value.status, refused.value.code) == (409, "wave_opened")

        assert items_of(ann, cart) == before
        ann.edit_cart(cart, items=[{"key": "db-3", "skip": True}])
        assert [item.state for item in items_of(ann, cart)] == ["COMPLETED", "PENDING", "SKIPPED"]

    def test_change_of_what_somebody_else_changed_is_refused(
        self, waiting: tuple[Client, str]
    ) -> None:
        ann, cart = waiting
        seen = str(ann.get_cart(cart).version)
        ann.edit_cart(cart, max_parallel=2, if_match=seen)

        with pytest.raises(Conflict):
            ann.edit_cart(cart, max_parallel=3, if_match=seen)

        assert ann.get_cart(cart).max_parallel == 2

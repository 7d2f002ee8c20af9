"""Whatever items, people and crashes do: order, window and budget hold, and every cart ends.

More of them: `pytest --hypothesis-profile=explore tests/properties/test_carts.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain.carts import commands
from rota.domain.carts.commands import Approver
from rota.domain.carts.definition import (
    MAX_ITEMS,
    Between,
    CartRules,
    Failures,
    OnBreach,
    Order,
    Scope,
    Share,
    parse_share,
)
from rota.domain.carts.facts import (
    FINAL_ITEM_STATES,
    MAX_CAUSE,
    CartState,
    ItemState,
    Pace,
    PauseReason,
    cause_of,
    eta,
    limit_of,
)
from rota.domain.carts.intake import wave_of_each, wave_sizes
from rota.domain.errors import Conflict
from rota.domain.states import RunState
from tests.properties.cart_model import NOON, ModelCart, ModelItem

PERCENTAGES = st.decimals(0, 100, places=3).map(lambda value: Share(value, is_percent=True))
SHARES = st.integers(0, 6).map(Share) | PERCENTAGES
TIGHT = st.sampled_from([parse_share(text) for text in ("0", "1", "2", "12.5%", "30%", "100%")])
SPANS = st.sampled_from([timedelta(0), timedelta(minutes=5), timedelta(hours=2)])
ENDS = [
    RunState.COMPLETED,
    RunState.FAILED,
    RunState.TIMED_OUT,
    RunState.CANCELLED,
    RunState.SKIPPED,
    RunState.MISSED,
]
RULES = st.builds(
    CartRules,
    order=st.sampled_from(Order),
    group_sizes=st.lists(SHARES, min_size=1, max_size=4).map(tuple),
    max_parallel=st.none() | st.integers(1, 5),
    failures=st.builds(
        Failures, TIGHT, st.sampled_from(Scope), st.sampled_from(OnBreach), st.booleans()
    ),
    between=st.builds(
        Between, SPANS, st.sampled_from(["", "smoke-test"]), st.sampled_from(["", "admin"])
    ),
    calendars=st.lists(st.text(max_size=5), max_size=2).map(tuple),
)
COUNTS = st.lists(st.integers(0, 50), max_size=8)


ACTIONS = ["end"] * 4 + ["fail"] * 5 + ["lose", "end_all", "end_check"] * 3 + ["take", "wait"]
ACTIONS += [
    "approve",
    "close",
    "retry",
    "retry_all",
    "pause",
    "resume",
    "resume",
    "raise",
    "cancel",
]
MOVES = list(product(ACTIONS, range(12), [0, 1, 9, 9]))  # what, its number, steps to go on after it
HISTORIES = st.lists(st.sampled_from(MOVES), min_size=40, max_size=60)


class Play:
    """Workers and people who do something to a cart; `number` says to which item, or how much."""

    def __init__(self, cart: ModelCart) -> None:
        self.cart = cart

    def act(self, action: str, number: int) -> None:
        getattr(self, action.replace("raise", "raise_"))(number)

    def _open(self, number: int) -> list[ModelItem]:
        """One of the open items, if there are any."""
        return self.cart.open[number % len(self.cart.open) :][:1] if self.cart.open else []

    def _turn(self, number: int, run: RunState) -> None:
        for item in self._open(number):
            self.cart.turn(item, run)

    def take(self, number: int) -> None:
        if self.cart.state is CartState.RUNNING and not self.cart.ending:
            for item in self.cart.open[number % 3 :]:
                item.run = RunState.PROCESSING if item.run is RunState.QUEUED else item.run

    def end(self, number: int) -> None:
        self._turn(number, ENDS[number % len(ENDS)])

    def fail(self, number: int) -> None:
        self._turn(number, RunState.FAILED)

    def lose(self, number: int) -> None:
        self._turn(number, RunState.UNKNOWN)

    def end_all(self, number: int) -> None:
        for item in self.cart.open[number % 2 :]:
            self.cart.turn(item, RunState.FAILED if number % 5 == 0 else RunState.COMPLETED)

    def end_check(self, number: int) -> None:
        if self.cart.check in (RunState.QUEUED, RunState.UNKNOWN):
            ends = (RunState.FAILED, RunState.UNKNOWN, RunState.COMPLETED, RunState.COMPLETED)
            self.cart.check = ends[number % len(ends)]

    def wait(self, number: int) -> None:
        self.cart.pass_time(number * timedelta(minutes=15))

    def close(self, number: int) -> None:
        self.cart.closed_until = self.cart.now + number * timedelta(minutes=10)

    def approve(self, _number: int) -> None:
        with suppress(Conflict):
            commands.approve(self.cart.facts(), Approver("eve", {"admin"}), "adam")
            self.cart.approved_by = "eve"

    def pause(self, _number: int) -> None:
        with suppress(Conflict):
            if commands.pause(self.cart.facts()):
                self.cart.state, self.cart.reason = CartState.PAUSED, PauseReason.PERSON

    def resume(self, _number: int) -> None:
        with suppress(Conflict):
            self.cart.resume(commands.resume(self.cart.facts()))

    def raise_(self, number: int) -> None:
        waves = {item.wave for item in self.cart.items}
        present = max(self.cart.limit(self.cart.scope_of(wave)) for wave in waves)
        self.cart.allow(present + number % 4)
        self.resume(number)

    def retry(self, number: int) -> None:
        self._retry(self.cart.ended[number % 5 :: 3])

    def retry_all(self, _number: int) -> None:
        self._retry([item for item in self.cart.ended if item.state is not ItemState.COMPLETED])

    def _retry(self, chosen: list[ModelItem]) -> None:
        with suppress(Conflict):
            self.cart.retry(chosen, commands.retry(self.cart.facts(), len(chosen)))

    def cancel(self, number: int) -> None:
        with suppress(Conflict):
            if number % 3 == 0 and commands.cancel(self.cart.facts()):
                self.cart.ending = CartState.CANCELLED

    def help(self) -> None:
        """All do what is asked of them."""
        for item in self.cart.open:
            self.cart.turn(item, RunState.COMPLETED)
        self.end_check(2)
        self.wait(11)
        self.approve(0)
        self.raise_(3)


def assert_counted(cart: ModelCart) -> None:
    """Nothing is lost, nothing repeated: every item is in one state, and started when due."""
    facts = cart.facts()
    ended = sum(item.state in FINAL_ITEM_STATES for item in cart.items)
    assert ended + facts.open + len(cart.pending) == facts.items
    for item in cart.items:
        assert item.starts == item.due - (item.state is ItemState.PENDING)


def assert_within_budget(cart: ModelCart) -> None:
    failures = cart.rules.failures
    if failures.then is OnBreach.CONTINUE:
        return
    for scope in {cart.scope_of(item.wave) for item in cart.items}:
        limit, failed = cart.limit(scope), cart.failures(scope)
        assert failed <= max(limit, cart.bounds.get(scope, 0))
        assert failed <= limit + 1 or not failures.strict


def assert_ended(cart: ModelCart) -> None:
    is_complete = all(item.state is ItemState.COMPLETED for item in cart.items)
    usual = CartState.COMPLETED if is_complete else CartState.PARTIAL
    assert cart.state is (cart.ending or usual)
    assert not cart.open
    assert not cart.pending


@settings(max_examples=2 * settings().max_examples)
@given(RULES, st.lists(st.integers(1, 5), min_size=1, max_size=12), st.none() | SPANS, HISTORIES)
def test_a_cart_keeps_its_rules_whatever_happens_and_ends(
    rules: CartRules,
    orders: list[int],
    delay: timedelta | None,
    history: list[tuple[str, int, int]],
) -> None:
    if rules.order is not Order.EXPLICIT:
        orders = list(wave_of_each(rules.order, len(orders), rules.group_sizes))
    starts_at = None if delay is None else NOON + delay
    cart = ModelCart(rules, [ModelItem(wave) for wave in orders], starts_at)
    play = Play(cart)

    for action, number, steps in history:
        play.act(action, number)
        cart.advance(steps)
        assert_counted(cart)
        assert_within_budget(cart)

    for _ in range(10 * len(orders) + 10):
        cart.advance()
        if cart.is_final:
            break
        play.help()
    assert_ended(cart)


@given(RULES)
def test_rules_survive_their_document(rules: CartRules) -> None:
    document = json.loads(json.dumps(rules.to_document()))

    assert CartRules.from_document(document) == rules


@given(SHARES)
def test_a_share_is_read_back_as_it_is_written(share: Share) -> None:
    assert parse_share(str(share)) == share


@given(st.text(alphabet="0123456789.,%- e²", max_size=15))
def test_a_share_is_understood_or_refused_with_a_reason(text: str) -> None:
    try:
        share = parse_share(text)
    except ValueError as refused:
        message = str(refused)
    else:
        message = text
        assert share.value >= 0
        assert not share.is_percent or share.value <= 100

    assert text in message


@given(st.integers(0, 100_000), st.integers(0, MAX_ITEMS))
def test_the_limit_is_the_exact_floor(thousandths: int, items: int) -> None:
    share = Share(Decimal(thousandths) / 1000, is_percent=True)

    assert limit_of(share, items) == thousandths * items // 100_000


@given(
    st.sampled_from([Order.SERIAL, Order.PARALLEL, Order.GROUPS]),
    st.integers(0, 500),
    st.lists(SHARES, min_size=1, max_size=5),
)
def test_every_item_is_in_a_wave_and_waves_are_numbered_without_gaps(
    order: Order, total: int, sizes: list[Share]
) -> None:
    waves = list(wave_of_each(order, total, sizes))
    counted = Counter(waves)

    assert len(waves) == total
    assert waves == sorted(waves)
    assert sorted(counted) == list(range(1, len(counted) + 1))
    assert [counted[wave] for wave in sorted(counted)] == list(wave_sizes(order, total, sizes))


@given(st.integers(1, 500), st.lists(SHARES, min_size=1, max_size=5))
def test_a_ramp_repeats_its_last_size_and_only_the_last_wave_is_short(
    total: int, sizes: list[Share]
) -> None:
    wanted = [max(1, size.rounded_up(total)) for size in sizes]
    waves = list(wave_sizes(Order.GROUPS, total, sizes))
    full = wanted + [wanted[-1]] * len(waves)

    assert waves[:-1] == full[: len(waves) - 1]
    assert 1 <= waves[-1] <= full[len(waves) - 1]


@given(st.text(max_size=400))
def test_a_cause_is_one_short_line(message: str) -> None:
    cause = cause_of(message)

    assert len(cause) <= MAX_CAUSE
    assert cause == " ".join(cause.split())


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_numbers_never_tell_causes_apart(one: int, other: int) -> None:
    message = "db-{0}: {0} of {0}.5 blocks, {0}MB, {0} s, '{0}', /srv/{0}/data"

    assert cause_of(message.format(one)) == cause_of(message.format(other))


@given(COUNTS, st.integers(1, 9), st.integers(1, 9))
def test_what_is_left_takes_less_as_items_end_or_room_grows(
    left: list[int], window: int, more: int
) -> None:
    minute = timedelta(minutes=1)
    spans = [
        eta(Pace(minute, width, wait=minute), waves)
        for width in (window, window + more)
        for waves in (left, [max(0, count - 1) for count in left], left[1:], [])
    ]
    known = [span for span in spans if span is not None]

    assert len(known) == len(spans)
    assert known[0] == max(known)
    assert known[3] == timedelta(0)
    assert all(narrow >= wide for narrow, wide in zip(known[:4], known[4:], strict=True))

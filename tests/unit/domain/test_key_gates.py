from __future__ import annotations

import pytest

from rota.domain.key_gates import Kept, KeyGate, Wait, Waiters, rank_of, reasons_of, room_of
from rota.domain.keys import READERS, SECOND, Bucket, Counted, KeyState, Rate, Shortage

LICENSE, PUTS, MINE = "resource:shop/license", "rate:shop/s3-put", 'exclusive:shop/{"host":"a"}'
RATE = Rate(10, 1.0, 10)
NEW = rank_of(5, 0, 1_000)  # a run of priority 5 that comes last


def told(*short: Shortage) -> list[str]:
    return [reason.message for reason in reasons_of(short)]


def test_all_that_is_short_is_told_in_the_order_of_the_gates() -> None:
    states = {
        LICENSE: KeyState(Counted(4), held=3, queued=1),
        PUTS: KeyState(RATE, bucket=Bucket(RATE, 0.0, at=0)),
        MINE: KeyState(Counted(1), held=1),
    }

    short = KeyGate(0, states).ask(dict.fromkeys(states, 1), NEW)

    assert told(*short) == [
        "another run with host=a goes first (exclusive_by)",
        "rate limit s3-put: 0 of 10 tokens",
        "resource license: 4 of 4 in use",
    ]
    assert [reason.gate for reason in reasons_of(short)] == [
        "exclusive_by",
        "rate_limit",
        "resource",
    ]


def test_a_run_that_is_short_of_one_key_takes_nothing_of_the_others() -> None:
    states = {LICENSE: KeyState(Counted(1)), MINE: KeyState(Counted(1), held=1)}
    gate = KeyGate(0, states)

    assert gate.ask({LICENSE: 1, MINE: 1}, NEW)
    assert not gate.ask({LICENSE: 1}, NEW)
    assert gate.ask({LICENSE: 1}, NEW)


def test_what_is_queued_counts_for_who_comes_and_not_for_who_claims() -> None:
    states = {LICENSE: KeyState(Counted(2), held=1, queued=1)}

    assert KeyGate(0, states).ask({LICENSE: 1}, NEW)
    assert not KeyGate(0, states, claims=True).ask({LICENSE: 1}, NEW)


def test_nobody_passes_who_waits_but_by_the_head_start_of_priority() -> None:
    states = {LICENSE: KeyState(Counted(9))}
    waiters = {LICENSE: Waiters(first=rank_of(5, 0, 7))}

    [behind] = KeyGate(0, states, waiters).ask({LICENSE: 1}, NEW)

    assert told(behind) == ["resource license: 0 of 9 in use, others wait before it"]
    assert not KeyGate(0, states, waiters).ask({LICENSE: 1}, rank_of(9, 119 * SECOND, 1_000))
    assert KeyGate(0, states, waiters).ask({LICENSE: 1}, rank_of(9, 120 * SECOND, 1_000))
    assert not KeyGate(0, states, waiters).ask({LICENSE: 1}, rank_of(5, 0, 7))


def test_runs_that_wait_for_tokens_are_told_one_instant_after_the_other() -> None:
    gate = KeyGate(0, {PUTS: KeyState(RATE)})

    times = [
        short[0].eligible_at if short else 0
        for short in (gate.ask({PUTS: 1}, rank_of(5, 0, age)) for age in range(13))
    ]

    assert times == [0] * 10 + [SECOND // 10, SECOND // 5, SECOND * 3 // 10]


def test_a_run_that_asks_for_more_than_there_is_takes_all_of_it() -> None:
    lowered = {LICENSE: KeyState(Counted(2)), PUTS: KeyState(RATE)}

    gate = KeyGate(0, lowered, claims=True)

    assert not gate.ask({LICENSE: 5, PUTS: 50}, NEW)
    assert gate.buckets[PUTS].level == 0
    assert gate.ask({LICENSE: 1}, NEW)


@pytest.mark.parametrize("rule", [Counted(0), Rate(0, 60.0, 0)])
def test_what_nobody_may_have_nobody_gets(rule: Counted | Rate) -> None:
    [short] = KeyGate(0, {PUTS: KeyState(rule)}).ask({PUTS: 1}, NEW)

    assert short.eligible_at is None


def test_a_time_that_no_date_can_tell_is_not_told() -> None:
    gate = KeyGate(0, {PUTS: KeyState(Rate(1, 366 * 86_400.0, 200))})

    shortages = [gate.ask({PUTS: 150}, rank_of(5, 0, age)) for age in range(100)]

    assert not shortages[0]
    assert [short[0].eligible_at for short in shortages[1:]] == [None] * 99
    assert all(reasons_of(short) for short in shortages[1:])


def test_a_run_that_could_have_what_it_waited_for_is_kept_it_as_long_again() -> None:
    gate = KeyGate(10 * SECOND, {LICENSE: KeyState(Counted(3)), MINE: KeyState(Counted(1), held=1)})
    waits = rank_of(5, 0, 7)

    short = gate.ask({LICENSE: 2, MINE: 1}, waits, Wait(LICENSE, since=4 * SECOND))
    [behind] = gate.ask({LICENSE: 2}, NEW)

    assert [each.key for each in short] == [MINE]
    assert gate.kept == {LICENSE: Kept(waits, 2, until=16 * SECOND, waits_for=MINE)}
    assert told(behind) == ["resource license: 0 of 3 in use, others wait before it"]


def test_what_is_kept_for_a_run_binds_those_after_it_for_a_while() -> None:
    kept = {LICENSE: Kept(rank_of(5, 0, 7), 2, until=SECOND, waits_for=MINE)}
    states = {LICENSE: KeyState(Counted(3))}

    assert KeyGate(0, states, kept=kept).ask({LICENSE: 2}, NEW)
    assert not KeyGate(0, states, kept=kept).ask({LICENSE: 1}, NEW)
    assert not KeyGate(0, states, kept=kept).ask({LICENSE: 3}, rank_of(5, 0, 6))
    assert not KeyGate(SECOND, states, kept=kept).ask({LICENSE: 2}, NEW)


def test_who_goes_takes_what_was_kept_for_it() -> None:
    waits = rank_of(5, 0, 7)
    kept = {LICENSE: Kept(waits, 2, until=SECOND, waits_for=MINE)}
    gate = KeyGate(0, {LICENSE: KeyState(Counted(3)), MINE: KeyState(Counted(1))}, kept=kept)

    assert not gate.ask({LICENSE: 2, MINE: 1}, waits, Wait(MINE, since=0))
    assert not gate.ask({LICENSE: 1}, NEW)
    assert gate.ask({LICENSE: 1}, NEW)


def test_what_is_kept_goes_to_the_first_of_those_that_could_have_it() -> None:
    states = {LICENSE: KeyState(Counted(3)), MINE: KeyState(Counted(1), held=1)}
    older, younger = (
        Kept(rank_of(5, 0, 6), 1, SECOND, PUTS),
        Kept(rank_of(5, 0, 8), 1, SECOND, PUTS),
    )

    for known, is_kept in ((older, False), (younger, True)):
        gate = KeyGate(0, states, kept={LICENSE: known})
        gate.ask({LICENSE: 1, MINE: 1}, rank_of(5, 0, 7), Wait(LICENSE, since=-SECOND))
        assert bool(gate.kept) == is_kept


def test_a_run_waits_for_the_same_key_until_it_could_have_it() -> None:
    states = {LICENSE: KeyState(Counted(3), held=2), MINE: KeyState(Counted(1), held=1)}
    gate = KeyGate(0, states)

    short = gate.ask({LICENSE: 2, MINE: 1}, NEW, Wait(LICENSE, since=-SECOND))

    assert [each.key for each in short] == [LICENSE, MINE]
    assert not gate.kept


def test_a_key_without_a_rule_binds_nobody() -> None:
    assert not KeyGate(0, {}).ask({PUTS: 1}, NEW)


def test_readers_and_writers_are_told_who_has_it() -> None:
    assert told(
        Shortage(LICENSE, None, used=READERS, total=READERS),
        Shortage(LICENSE, None, used=3, total=READERS),
    ) == ["resource license: in use by a writer", "resource license: 3 readers have it"]


def test_room_is_what_neither_is_held_nor_queued() -> None:
    half_full = Bucket(RATE, 5.5, at=0)

    assert room_of(KeyState(Counted(4), held=1, queued=1), 0) == 2
    assert room_of(KeyState(RATE, queued=2, bucket=half_full), 0) == 3
    assert room_of(KeyState(Counted(1), held=5), 0) == 0

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.api.why import Holder, NotReason, Obstacle, OrderOfService, Why
from rota.cli.terminal import Terminal
from rota.cli.why import write_why

PRESENT = datetime(2026, 3, 1, 14, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def lines_of(**fields: Any) -> list[str]:
    target = io.StringIO()
    terminal = Terminal(target, io.StringIO(), has_colour=False, is_plain=False, width=None)
    known: dict[str, Any] = {"run": "r_8850", "job": "nightly-backup", "state": "BLOCKED"}
    write_why(terminal, Why(**known | fields), PRESENT)
    return target.getvalue().splitlines()


def test_heading_tells_how_long_it_waits_and_when_it_will_start() -> None:
    since, soon = PRESENT - timedelta(seconds=38), PRESENT + 4 * MINUTE

    assert lines_of(since=since, starts_at=soon) == [
        "r_8850 nightly-backup · blocked for 38.0 s · likely to start in about 4 m 00 s"
    ]
    assert lines_of(starts_at=PRESENT)[0].endswith("· likely to start at once")
    assert lines_of()[0].endswith("· start unknown")
    assert lines_of(state="COMPLETED", summary="it has ended: completed") == [
        "r_8850 nightly-backup · it has ended: completed"
    ]


def test_each_reason_tells_what_releases_it() -> None:
    ends = PRESENT + 3 * MINUTE
    rate = Obstacle(
        gate="rate_limit",
        message="rate limit s3-put: 0 of 10 tokens",
        eligible_at=PRESENT + timedelta(seconds=7),
        before=2,
    )
    resource = Obstacle(
        gate="resource",
        message="resource pg-license: 6 of 6 in use",
        holders=tuple(Holder(run=f"r_{n}", ends_at=ends) for n in range(6)),
        action="rota resource show pg-license",
    )
    after = Obstacle(gate="after", message="load has not completed", next_at=PRESENT + MINUTE)

    assert lines_of(reasons=(rate, resource, after))[1:] == [
        "  1 rate limit s3-put    0 of 10 tokens, next in 7.0 s · 14:02:07 UTC, 2 runs before it",
        "  2 resource pg-license  6 of 6 in use, held by r_0 r_1 r_2 r_3 …"
        " (the first ends in about 3 m 00 s)",
        "    rota resource show pg-license",
        "  3 after                load has not completed, next due in 1 m 00 s · 14:03:00 UTC",
    ]


def test_what_is_held_by_one_run_is_told_without_repeating_the_gate() -> None:
    holder = Holder(run="r_0", ends_at=PRESENT + 3 * MINUTE)
    message = "another run with host=a goes first (exclusive_by)"
    exclusive = Obstacle(gate="exclusive_by", message=message, holders=(holder,))

    assert lines_of(reasons=(exclusive,))[1] == (
        "  1 exclusive_by  another run with host=a goes first, held by r_0 (ends in about 3 m 00 s)"
    )


def test_order_of_service_is_told_in_numbers() -> None:
    order = OrderOfService(
        latest_turn=208,
        share="etl/ann",
        tag=31.25,
        virtual_time=30,
        cost=0.5,
        boost=150,
        weight=2,
        entitled=0.4,
        used=0.24,
    )

    lines = lines_of(
        state="QUEUED",
        order=order,
        passed=("time", "pause"),
        not_reasons=(NotReason(name="priority", message="nobody with a higher one goes first"),),
    )

    assert lines[1:] == [
        "  in numbers: F 31.2, V 30, cost 0.5, boost 150, weight 2,"
        " etl/ann has 24% of the pool and may have 40%,"
        " its turn comes with the next 208 starts at the latest",
        "  passed: time, pause",
        "  not a reason: priority (nobody with a higher one goes first)",
    ]


def test_text_of_strangers_does_not_steer_the_terminal() -> None:
    reason = Obstacle(gate="hold", message="\x1b[2J holds it")

    assert "\x1b" not in "".join(lines_of(job="\x1b[2J", reasons=(reason,)))

from __future__ import annotations

from rota.domain.schedule import Explanation, explain
from rota.domain.spec import Dst, Fold, Gap, Schedule
from tests.unit.domain.schedule.builders import utc


def explained(expression: str, *, key: str = "", dst: Dst | None = None) -> Explanation:
    schedule = Schedule((expression,), "Europe/Berlin", dst or Dst())
    return explain(schedule, key=key, after=utc("2027-03-27 12:00"), count=2)


def test_a_hash_is_that_of_the_job_that_is_named() -> None:
    first, second = explained("H 12 * * *", key="default/a"), explained("H 12 * * *", key="other/a")

    assert first.next != second.next
    assert first.warnings == second.warnings == ()


def test_a_hash_without_a_job_is_warned_about() -> None:
    [warning] = explained("H 12 * * *").warnings

    assert "H depends on the job's name" in warning.message
    assert warning.hint.startswith("name the job")
    assert explained("0 12 * * *").warnings == ()


def test_gap_and_fold_decide_what_a_change_of_clocks_does() -> None:
    usual = explained("30 2 * * *")
    other = explained("30 2 * * *", dst=Dst(Gap.SKIP, Fold.BOTH))

    assert [due.at.day for due in usual.next] == [28, 29]
    assert [due.at.day for due in other.next] == [29, 30]
    assert "both times" in other.clock_changes[1].text

"""The judge finds what is wrong: each invariant, broken once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.sdk.answers import Attempt, LateResult, LedgerEntry, OutputSummary, RunDetail
from testkit.chaos.history import ClientLog, Dump, Injection, Refusal, Sight, Submission, Times
from testkit.chaos.judge import LATENESS, SERVICE_WITHIN, Case, judge
from testkit.chaos.workload import Promise
from testkit.evidence import Event, Mark

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HEALED = 100.0
# Two due times, long enough after the last fault.
FIRST_DUE = HEALED + SERVICE_WITHIN.total_seconds() + 1
DUE = (FIRST_DUE, FIRST_DUE + 1)
CANARY = Promise("canary", "", interval=SECOND, catches_up=True)
ASKED = Promise("asked", "", most_at_once=1)


def instant(boot_time: float) -> datetime:
    return EPOCH + timedelta(seconds=boot_time)


def run(run_id: str, job: str = "asked", **fields: Any) -> RunDetail:
    told: dict[str, Any] = {"state": "COMPLETED", "attempt": 1, "attempts": (attempt(),)} | fields
    return RunDetail(id=run_id, job=job, **told)


def attempt(number: int = 1, result: str = "COMPLETED", **fields: Any) -> Attempt:
    return Attempt(number=number, result=result, **fields)


def life(run_id: str, start: float, end: float, job: str = "asked", attempt: int = 1) -> list[Mark]:
    return [
        Mark(job, run_id, attempt, Event.START, start),
        Mark(job, run_id, attempt, Event.END, end),
    ]


def ledger(*due: float) -> list[LedgerEntry]:
    return [
        LedgerEntry(first=instant(at), last=instant(at), run=f"due-{number}", state="COMPLETED")
        for number, at in enumerate(due)
    ]


def a_case(runs: Sequence[RunDetail] = (), marks: Sequence[Mark] = ()) -> Case:
    """Everything in order: two due times of the canary, and these runs that somebody asked for."""
    songs = [run(f"due-{number}", "canary") for number in range(2)]
    sung = [
        mark for n, at in enumerate(DUE) for mark in life(f"due-{n}", at + 0.1, at + 0.2, "canary")
    ]
    submissions = [Submission("asked", each.id, [each.id]) for each in runs]
    return Case(
        [CANARY, ASKED],
        [*sung, *marks],
        ClientLog(submissions),
        Dump({each.id: each for each in [*songs, *runs]}, {"canary": ledger(*DUE)}, {}, {}),
        Times(EPOCH, HEALED, DUE[-1] + 1),
        [Injection("server killed", "server-1", "", 1.0, was_felt=True)],
    )


def with_ledger(case: Case, *entries: LedgerEntry) -> Case:
    return replace(case, dump=replace(case.dump, ledgers={"canary": list(entries)}))


def broken(case: Case) -> set[str]:
    return {violation.invariant for violation in judge(case)}


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    case = a_case([run("r1")], life("r1", 1, 2))

    assert judge(case) == []


class TestSubmissions:
    def test_one_that_vanished(self) -> None:
        case = a_case()
        case.client.submissions.append(Submission("asked", "key", ["gone"]))

        assert broken(case) == {"I1"}

    def test_a_key_that_gave_two_runs(self) -> None:
        case = a_case([run("r1"), run("r2")], [*life("r1", 1, 2), *life("r2", 3, 4)])
        case.client.submissions[0].answers.append("r2")

        assert broken(case) == {"I1"}

    def test_more_runs_than_were_asked_for(self) -> None:
        case = a_case([run("r1")], life("r1", 1, 2))
        case.client.submissions.clear()
        case.client.submissions.append(Submission("asked", "key", ["r1"]))
        more = {**case.dump.runs, "r2": run("r2")}
        marks = [*case.marks, *life("r2", 3, 4)]

        assert broken(replace(case, dump=replace(case.dump, runs=more), marks=marks)) == {"I1"}

    def test_one_that_never_ends(self) -> None:
        assert "I1" in broken(a_case([run("r1", state="QUEUED")]))

    def test_one_that_failed_although_it_should_not(self) -> None:
        assert broken(a_case([run("r1", state="FAILED")])) == {"I1"}


class TestExecutions:
    def test_attempts_that_overlap(self) -> None:
        lost = run("r1", attempt=2, losses=1, attempts=(attempt(1, "LOST"), attempt(2)))
        marks = [*life("r1", 1, 5), *life("r1", 3, 6, attempt=2)]

        assert "I2" in broken(a_case([lost], marks))

    def test_a_completed_run_that_never_ran(self) -> None:
        case = a_case([run("r1"), run("r2")], life("r1", 1, 2))

        assert broken(case) == {"I3"}

    def test_an_at_most_once_run_that_began_again(self) -> None:
        payout = replace(ASKED, job="payout", at_most_once=True, most_at_once=None)
        twice = run("r1", "payout", attempt=2, losses=1, attempts=(attempt(1, "LOST"), attempt(2)))
        marks = [*life("r1", 1, 2, "payout"), *life("r1", 3, 4, "payout", attempt=2)]
        case = a_case([twice], marks)

        assert broken(replace(case, promises=[CANARY, ASKED, payout])) == {"I2"}

    def test_more_at_once_than_allowed(self) -> None:
        case = a_case([run("r1"), run("r2")], [*life("r1", 1, 3), *life("r2", 2, 4)])

        assert broken(case) == {"I13"}


class TestThawedMachine:
    """Its attempts are fenced, not stopped: they may write until they are killed, and no longer."""

    def case(self, last_mark: float, worker: str = "worker-1") -> Case:
        attempts = (attempt(1, "LOST", worker=worker), attempt(2, worker="worker-2"))
        lost = run("r1", attempt=2, losses=1, attempts=attempts)
        first = [
            Mark("asked", "r1", 1, Event.START, 1),
            Mark("asked", "r1", 1, Event.BEAT, last_mark),
        ]
        frozen = Injection("whole worker stopped", "worker-1", "", 2.0, was_felt=True, healed=9.0)
        case = a_case([lost], [*first, *life("r1", 8.5, 12, attempt=2)])
        return replace(case, injections=[frozen])

    def test_a_last_mark_when_it_is_thawed_is_excused(self) -> None:
        assert broken(self.case(9.1)) == set()

    def test_one_that_lives_on_is_not(self) -> None:
        assert "I2" in broken(self.case(11.0))

    def test_one_of_a_worker_that_was_not_frozen_is_not(self) -> None:
        assert "I2" in broken(self.case(9.1, worker="worker-3"))


class TestDueTimes:
    def test_one_that_is_missing(self) -> None:
        one, other = ledger(DUE[0], DUE[1] + 1)

        assert "I3" in broken(with_ledger(a_case(), one, other))

    def test_one_without_a_run_where_all_are_caught_up(self) -> None:
        one, other = ledger(*DUE)
        unanswered = LedgerEntry(first=other.first, last=other.last, state="MISSED", cause="late")

        assert "I8" in broken(with_ledger(a_case(), one, unanswered))

    def test_a_schedule_that_fell_silent(self) -> None:
        case = a_case()

        assert "I8" in broken(replace(case, times=replace(case.times, stopped=DUE[-1] + 60)))

    def test_one_that_started_early(self) -> None:
        case = a_case()
        early = [replace(mark, at=mark.at - 0.5) for mark in case.marks]

        assert broken(replace(case, marks=early)) == {"I8"}

    def test_one_that_started_late_although_all_was_healed(self) -> None:
        case = a_case()
        late = [replace(mark, at=mark.at + LATENESS.total_seconds()) for mark in case.marks]

        assert broken(replace(case, marks=late)) == {"I9"}

    def test_none_after_the_last_fault(self) -> None:
        case = a_case()

        assert broken(replace(case, times=replace(case.times, healed=DUE[-1]))) == {"I9"}


class TestAttempts:
    def test_a_stranger_s_report_that_counted(self) -> None:
        replayed = attempt(result="FAILED", message="replayed")

        assert "I4" in broken(a_case([run("r1", attempts=(replayed,))], life("r1", 1, 2)))

    def test_a_refused_report_is_fine(self) -> None:
        refused = LateResult(attempt=1, message="replayed")

        assert broken(a_case([run("r1", late_results=(refused,))], life("r1", 1, 2))) == set()

    def test_too_many_failures(self) -> None:
        failed = tuple(attempt(number, "FAILED") for number in (1, 2))
        tried = run("r1", attempt=2, failures=2, attempts=failed)

        assert "I10" in broken(a_case([tried], life("r1", 1, 2, attempt=2)))

    def test_an_attempt_that_nothing_explains(self) -> None:
        assert broken(a_case([run("r1", attempt=2)], life("r1", 1, 2, attempt=2))) == {"I10"}

    def test_a_back_off_that_was_not_waited_out(self) -> None:
        patient = replace(ASKED, max_failures=2, backoff=SECOND)
        tried = run("r1", attempt=2, failures=1, attempts=(attempt(1, "FAILED"), attempt(2)))
        marks = [Mark("asked", "r1", 1, Event.START, 1.0), *life("r1", 1.5, 2, attempt=2)]

        assert broken(replace(a_case([tried], marks), promises=[CANARY, patient])) == {"I10"}


class TestSights:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (("PROCESSING", 1), ("CLAIMED", 1)),
            (("CLAIMED", 2), ("PROCESSING", 1)),
            (("SCHEDULED", 1), ("PROCESSING", 1)),
        ],
    )
    def test_a_run_that_goes_back(self, before: tuple[str, int], after: tuple[str, int]) -> None:
        case = a_case([run("r1", attempt=2, losses=1)], life("r1", 1, 2, attempt=2))
        case.client.sights += [Sight("r1", *before, None, "a"), Sight("r1", *after, None, "b")]

        assert broken(case) == {"I16"}

    def test_an_end_that_changed(self) -> None:
        case = a_case([run("r1")], life("r1", 1, 2))
        case.client.sights += [
            Sight("r1", "COMPLETED", 1, instant(2), "a"),
            Sight("r1", "COMPLETED", 1, instant(3), "b"),
        ]

        assert broken(case) == {"I11"}

    def test_a_final_run_that_went_on(self) -> None:
        case = a_case([run("r1")], life("r1", 1, 2))
        case.client.sights.append(Sight("r1", "FAILED", 1, instant(1), "a"))

        assert broken(case) == {"I11"}


class TestCancels:
    def test_a_cancelled_run_that_ended_otherwise(self) -> None:
        case = a_case([run("r1")], life("r1", 1, 2))
        case.client.cancelled["r1"] = 1.0

        assert broken(case) == {"I12"}

    def test_a_cancelled_run_that_lived_on(self) -> None:
        case = a_case([run("r1", state="CANCELLED")], life("r1", 1, 90))
        case.client.cancelled["r1"] = 2.0

        assert "I12" in broken(case)


class TestOutput:
    @pytest.mark.parametrize("state", ["stored", "pending"])
    def test_output_that_is_not_what_was_printed_or_not_there(self, state: str) -> None:
        prints = replace(ASKED, prints=True)
        printed = attempt(output=OutputSummary(state=state))
        case = a_case([run("r1", outputs="digest", attempts=(printed,))], life("r1", 1, 2))

        assert broken(replace(case, promises=[CANARY, prints])) == {"I14"}


class TestTheRest:
    def test_a_process_that_was_left(self) -> None:
        assert broken(replace(a_case(), survivors=["4711"])) == {"I17"}

    def test_a_request_that_failed_without_an_excuse(self) -> None:
        case = a_case()
        case.client.refusals.append(Refusal("show r1", "500"))

        assert broken(case) == {"I19"}

    def test_a_node_that_ended_by_itself(self) -> None:
        assert broken(replace(a_case(), ended_nodes=["worker-1"])) == {"I20"}

    def test_a_fault_that_nobody_felt(self) -> None:
        unfelt = Injection("server killed", "server-1", "", 1.0)

        assert broken(replace(a_case(), injections=[unfelt])) == {"effect"}

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.domain import gates
from rota.domain.gates import (
    QUEUED,
    ActiveRun,
    BackfillRules,
    ClosableJob,
    Closing,
    Gate,
    JobRules,
    admit,
    backfill_room,
    closed_jobs,
    closing_reason,
    is_closing,
    job_behind,
    opens_at,
    releasable,
    waiting_reason,
)
from rota.domain.ids import BackfillId, JobId, RunId
from rota.domain.job import RunRules
from rota.domain.run import Reason, Trigger
from rota.domain.spec import Overlap
from rota.domain.states import RunState

LIVE = [RunState.QUEUED, RunState.CLAIMED, RunState.PROCESSING, RunState.UNKNOWN]


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def job(*, is_paused: bool = True, until: datetime | None = None) -> ClosableJob:
    return ClosableJob(JobId("j_1"), RunRules("backup", "default"), is_paused, until)


def closed_by(job: ClosableJob, at: datetime) -> Reason | None:
    return closed_jobs([job], at).get(job.job_id)


def rules(
    overlap: Overlap = Overlap.ALLOW, limit: int | None = None, *, is_paused: bool = False
) -> JobRules:
    closed = closed_by(job(is_paused=is_paused), NOON)
    return JobRules(JobId("j_1"), "backup", overlap, limit, closed)


def scheduled(seq: int, state: RunState = RunState.SCHEDULED, attempt: int = 0) -> ActiveRun:
    return ActiveRun(RunId(f"r_{seq}"), seq, state, Trigger.SCHEDULE, attempt)


def caught_up(seq: int, state: RunState = RunState.SCHEDULED) -> ActiveRun:
    return scheduled(seq, state)._replace(is_caught_up=True)


def manual(seq: int, state: RunState = RunState.SCHEDULED) -> ActiveRun:
    return ActiveRun(RunId(f"r_{seq}"), seq, state, Trigger.MANUAL)


def backfilled(seq: int, state: RunState = RunState.SCHEDULED, backfill: str = "b_1") -> ActiveRun:
    run_id, backfill_id = RunId(f"r_{seq}"), BackfillId(backfill)
    return ActiveRun(run_id, seq, state, Trigger.BACKFILL, backfill=backfill_id)


def limit_of(max_parallel: int) -> BackfillRules:
    return BackfillRules(BackfillId("b_1"), max_parallel)


class TestAdmission:
    @pytest.mark.parametrize("trigger", [Trigger.MANUAL, Trigger.RETRY, Trigger.AFTER])
    @pytest.mark.parametrize("overlap", Overlap)
    def test_what_somebody_asks_for_goes_however_many_there_are(
        self, overlap: Overlap, trigger: Trigger
    ) -> None:
        others = [scheduled(1, RunState.PROCESSING), manual(2, RunState.QUEUED)]

        admission = admit(rules(overlap), manual(3)._replace(trigger=trigger), others)

        assert rules(overlap).lets_any_go(trigger)
        assert admission == QUEUED

    @pytest.mark.parametrize(
        ("job", "trigger"),
        [
            (rules(limit=1), Trigger.MANUAL),
            (rules(is_paused=True), Trigger.MANUAL),
            (rules(), Trigger.SCHEDULE),
            (rules(), Trigger.BACKFILL),
        ],
    )
    def test_what_may_have_to_wait_is_admitted_one_by_one(
        self, job: JobRules, trigger: Trigger
    ) -> None:
        assert not job.lets_any_go(trigger)

    @pytest.mark.parametrize(
        ("job", "trigger", "expected"),
        [
            (rules(Overlap.QUEUE_ONE), Trigger.MANUAL, False),
            (rules(Overlap.ALLOW), Trigger.SCHEDULE, False),
            (rules(Overlap.QUEUE_ONE), Trigger.SCHEDULE, True),
            (rules(Overlap.ALLOW), Trigger.BACKFILL, True),
            (rules(Overlap.ALLOW, limit=1), Trigger.MANUAL, True),
        ],
    )
    def test_other_runs_matter_only_to_those_that_they_can_hold_back(
        self, job: JobRules, trigger: Trigger, expected: bool
    ) -> None:
        assert job.can_hold_back(trigger) is expected

    @pytest.mark.parametrize(
        ("job", "trigger", "expected"),
        [
            (rules(Overlap.QUEUE_ONE), Trigger.MANUAL, set()),
            (rules(Overlap.ALLOW, limit=1), Trigger.MANUAL, set(LIVE)),
            (rules(Overlap.ALLOW), Trigger.BACKFILL, set(LIVE)),
            (rules(Overlap.ALLOW), Trigger.SCHEDULE, set(RunState)),
        ],
    )
    def test_a_run_counts_while_later_ones_have_to_see_it(
        self, job: JobRules, trigger: Trigger, expected: set[RunState]
    ) -> None:
        assert {state for state in RunState if job.counts(trigger, state)} == expected

    @pytest.mark.parametrize("overlap", Overlap)
    def test_a_lone_run_goes(self, overlap: Overlap) -> None:
        assert admit(rules(overlap), scheduled(1), []).state is RunState.QUEUED

    @pytest.mark.parametrize("state", [*LIVE, RunState.SCHEDULED, RunState.BLOCKED])
    @pytest.mark.parametrize(
        ("overlap", "expected"),
        [
            (Overlap.SKIP, RunState.SKIPPED),
            (Overlap.QUEUE_ALL, RunState.BLOCKED),
            (Overlap.ALLOW, RunState.QUEUED),
        ],
    )
    def test_an_older_run_that_is_not_final_is_active(
        self, overlap: Overlap, expected: RunState, state: RunState
    ) -> None:
        admission = admit(rules(overlap), scheduled(2), [scheduled(1, state)])

        assert admission.state is expected

    def test_queue_one_supersedes_who_waited_before(self) -> None:
        active = [scheduled(1, RunState.PROCESSING), scheduled(2, RunState.BLOCKED)]

        admission = admit(rules(Overlap.QUEUE_ONE), scheduled(3), active)

        assert (admission.state, admission.supersedes) == (RunState.BLOCKED, ("r_2",))

    def test_who_supersedes_the_only_one_ahead_goes(self) -> None:
        admission = admit(rules(Overlap.QUEUE_ONE), scheduled(2), [scheduled(1, RunState.BLOCKED)])

        assert (admission.state, admission.supersedes) == (RunState.QUEUED, ("r_1",))

    @pytest.mark.parametrize("overlap", [Overlap.QUEUE_ONE, Overlap.CANCEL_PREVIOUS])
    def test_what_was_tried_is_not_superseded(self, overlap: Overlap) -> None:
        tried = scheduled(1, RunState.BLOCKED, attempt=1)

        admission = admit(rules(overlap), scheduled(2), [tried])

        assert (admission.state, admission.supersedes) == (RunState.BLOCKED, ())

    def test_cancel_previous_cancels_all_that_is_older(self) -> None:
        active = [
            scheduled(1, RunState.PROCESSING),
            scheduled(2, RunState.BLOCKED),
            scheduled(3, RunState.SCHEDULED, attempt=1),
        ]

        admission = admit(rules(Overlap.CANCEL_PREVIOUS), scheduled(4), active)

        assert admission.state is RunState.BLOCKED
        assert (admission.cancels, admission.supersedes) == (("r_1", "r_3"), ("r_2",))

    @pytest.mark.parametrize("overlap", [o for o in Overlap if o is not Overlap.ALLOW])
    def test_a_retry_passes_younger_runs_that_wait(self, overlap: Overlap) -> None:
        retried = scheduled(1, attempt=1)

        admission = admit(rules(overlap), retried, [scheduled(2, RunState.BLOCKED)])

        assert (admission.state, admission.supersedes) == (RunState.QUEUED, ())

    @pytest.mark.parametrize("overlap", [o for o in Overlap if o is not Overlap.ALLOW])
    @pytest.mark.parametrize("state", LIVE)
    def test_a_retry_waits_for_a_younger_run_that_is_live(
        self, overlap: Overlap, state: RunState
    ) -> None:
        admission = admit(rules(overlap), scheduled(1, attempt=1), [scheduled(2, state)])

        assert (admission.state, admission.cancels) == (RunState.BLOCKED, ())

    @pytest.mark.parametrize("overlap", Overlap)
    def test_manual_runs_neither_wait_for_others_nor_hold_them(self, overlap: Overlap) -> None:
        live = RunState.PROCESSING

        by_hand = admit(rules(overlap), manual(2), [scheduled(1, live)])
        by_schedule = admit(rules(overlap), scheduled(2), [manual(1, live)])

        assert (by_hand.state, by_schedule.state) == (RunState.QUEUED, RunState.QUEUED)

    @pytest.mark.parametrize("state", LIVE)
    def test_max_concurrency_counts_all_that_may_be_executing(self, state: RunState) -> None:
        admission = admit(rules(limit=1), manual(2), [manual(1, state)])

        assert (admission.state, admission.blocked_on) == (RunState.BLOCKED, "job:j_1")

    @pytest.mark.parametrize("state", [RunState.SCHEDULED, RunState.BLOCKED])
    def test_who_only_waits_takes_no_slot(self, state: RunState) -> None:
        assert admit(rules(limit=1), manual(2), [manual(1, state)]).state is RunState.QUEUED

    def test_a_pause_stops_everything_and_says_how_to_go_on(self) -> None:
        admission = admit(rules(is_paused=True), manual(1), [])

        [reason] = admission.reasons
        assert (admission.state, admission.blocked_on) == (RunState.BLOCKED, "pause:j_1")
        assert reason.action == "rota job resume backup"


def daily(gate: Gate, closes: int, opens: int) -> Closing:
    """A gate that closes every job each day, from one hour to another."""

    def reason(job: ClosableJob, at: datetime) -> Reason | None:
        if not closes <= at.hour < opens:
            return None
        ends = at.replace(hour=opens, minute=0)
        return closing_reason(gate, job, "too early", opens_at=ends, action="")

    return Closing(gate, lambda _: True, reason)


class TestClosing:
    def test_a_pause_closes_until_its_end_is_written_down(self) -> None:
        reason = closed_by(job(until=NOON), NOON + HOUR)

        assert reason is not None
        assert (reason.gate, reason.key, reason.eligible_at) == ("pause", "pause:j_1", NOON)
        assert closed_by(job(is_paused=False), NOON) is None

    def test_a_job_opens_at_the_end_of_its_pause_or_nobody_knows_when(self) -> None:
        assert opens_at(job(is_paused=False), NOON) == NOON
        assert opens_at(job(until=NOON + HOUR), NOON) == NOON + HOUR
        assert opens_at(job(until=NOON - HOUR), NOON) == NOON
        assert opens_at(job(), NOON) is None

    def test_the_first_closed_gate_tells_and_all_must_be_open(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        morning, noon = daily(Gate.CALENDAR, 8, 12), daily(Gate.TIME, 12, 14)
        monkeypatch.setattr(gates, "CLOSINGS", (*gates.CLOSINGS, morning, noon))
        nine = NOON - 3 * HOUR

        paused, open_job = closed_by(job(), nine), closed_by(job(is_paused=False), nine)

        assert [reason and reason.key for reason in (paused, open_job)] == [
            "pause:j_1",
            "calendar:j_1",
        ]
        assert opens_at(job(is_paused=False), nine) == NOON + 2 * HOUR

    def test_gates_that_never_open_together_are_given_up(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forever = Closing(Gate.CALENDAR, lambda _: True, _tomorrow)
        monkeypatch.setattr(gates, "CLOSINGS", (forever,))

        assert opens_at(job(), NOON) is None

    @pytest.mark.parametrize(
        ("key", "behind", "closes"),
        [
            ("job:j_1", "j_1", False),
            ("pause:j_1", "j_1", True),
            ("hold:r_1", None, False),
            ("backfill:b_1", None, False),
        ],
    )
    def test_keys_tell_their_job(self, key: str, behind: str | None, closes: bool) -> None:
        assert (job_behind(key), is_closing(key)) == (behind, closes)


def _tomorrow(job: ClosableJob, at: datetime) -> Reason:
    return closing_reason(Gate.CALENDAR, job, "never", opens_at=at + 24 * HOUR, action="")


class TestRelease:
    def test_the_oldest_go_first_as_far_as_there_is_room(self) -> None:
        waiting = [manual(seq, RunState.BLOCKED) for seq in (2, 3, 4)]

        assert releasable(rules(limit=2), waiting, []) == ["r_2", "r_3"]
        assert releasable(rules(limit=2), waiting, [manual(1, RunState.CLAIMED)]) == ["r_2"]
        assert releasable(rules(), waiting, []) == ["r_2", "r_3", "r_4"]

    def test_one_scheduled_run_goes_at_a_time(self) -> None:
        waiting = [scheduled(seq, RunState.BLOCKED) for seq in (2, 3)]

        assert releasable(rules(Overlap.QUEUE_ALL), waiting, []) == ["r_2"]
        assert releasable(rules(Overlap.QUEUE_ALL), waiting, [scheduled(1, LIVE[0])]) == []

    def test_a_run_in_back_off_keeps_its_place(self) -> None:
        back_off = scheduled(2, RunState.SCHEDULED, attempt=1)
        older, younger = scheduled(1, RunState.BLOCKED), scheduled(3, RunState.BLOCKED)

        assert releasable(rules(Overlap.QUEUE_ALL), [younger], [back_off]) == []
        assert releasable(rules(Overlap.QUEUE_ALL), [older], [back_off]) == ["r_1"]

    def test_a_manual_run_does_not_wait_behind_scheduled_ones(self) -> None:
        waiting = [scheduled(2, RunState.BLOCKED), manual(3, RunState.BLOCKED)]
        active = [scheduled(1, RunState.PROCESSING)]

        assert releasable(rules(Overlap.QUEUE_ALL, limit=2), waiting, active) == ["r_3"]

    def test_a_paused_job_releases_nothing(self) -> None:
        assert releasable(rules(is_paused=True), [manual(1, RunState.BLOCKED)], []) == []


class TestBackfill:
    @pytest.mark.parametrize("state", LIVE)
    def test_it_waits_for_its_turn_behind_all_that_may_be_executing(self, state: RunState) -> None:
        admission = admit(rules(), backfilled(2), [backfilled(1, state)], limit_of(1))

        [reason] = admission.reasons
        assert (admission.state, admission.blocked_on) == (RunState.BLOCKED, "backfill:b_1")
        assert (reason.gate, reason.key) == ("backfill", "backfill:b_1")

    @pytest.mark.parametrize("state", [RunState.SCHEDULED, RunState.BLOCKED])
    def test_who_only_waits_takes_no_turn(self, state: RunState) -> None:
        admission = admit(rules(), backfilled(2), [backfilled(1, state)], limit_of(1))

        assert admission.state is RunState.QUEUED

    def test_other_backfills_have_turns_of_their_own(self) -> None:
        other = backfilled(1, RunState.PROCESSING, backfill="b_2")

        assert admit(rules(), backfilled(2), [other], limit_of(1)).state is RunState.QUEUED

    @pytest.mark.parametrize("overlap", Overlap)
    def test_overlap_neither_holds_it_nor_is_held_by_it(self, overlap: Overlap) -> None:
        live = RunState.PROCESSING

        late = admit(rules(overlap), backfilled(2), [scheduled(1, live)], limit_of(1))
        due = admit(rules(overlap), scheduled(2), [backfilled(1, live)])

        assert (late.state, due.state) == (RunState.QUEUED, RunState.QUEUED)

    def test_the_limit_of_the_job_holds_it_on_the_same_key(self) -> None:
        active = [manual(1, RunState.PROCESSING)]

        admission = admit(rules(limit=1), backfilled(2), active, limit_of(5))

        assert (admission.state, admission.blocked_on) == (RunState.BLOCKED, "backfill:b_1")
        assert [reason.gate for reason in admission.reasons] == ["max_concurrency"]

    def test_it_counts_for_the_limit_of_the_job(self) -> None:
        active = [backfilled(1, RunState.CLAIMED)]

        assert admit(rules(limit=1), manual(2), active).state is RunState.BLOCKED

    def test_a_pause_holds_it_like_any_other(self) -> None:
        admission = admit(rules(is_paused=True), backfilled(1), [], limit_of(1))

        assert admission.blocked_on == "pause:j_1"

    @pytest.mark.parametrize(
        ("limit", "max_parallel", "room"), [(None, 5, 4), (3, 5, 1), (2, 5, 0), (None, 1, 0)]
    )
    def test_room_is_what_both_limits_leave(
        self, limit: int | None, max_parallel: int, room: int
    ) -> None:
        active = [manual(1, RunState.CLAIMED), backfilled(2, RunState.QUEUED)]

        assert backfill_room(rules(limit=limit), limit_of(max_parallel), active) == room

    def test_a_paused_job_has_no_room(self) -> None:
        assert backfill_room(rules(is_paused=True), limit_of(5), []) == 0


def test_the_reason_fits_the_gate_that_will_hold() -> None:
    gate = rules(Overlap.QUEUE_ONE, limit=3)

    assert waiting_reason(gate, Trigger.SCHEDULE).gate == "overlap"
    assert waiting_reason(gate, Trigger.MANUAL).gate == "max_concurrency"
    allowed = gate._replace(overlap=Overlap.ALLOW)
    assert waiting_reason(allowed, Trigger.SCHEDULE).gate == "max_concurrency"


@pytest.mark.parametrize("overlap", sorted(set(Overlap) - {Overlap.ALLOW}))
class TestCatchingUp:
    def test_a_run_that_is_caught_up_waits_and_disturbs_nobody(self, overlap: Overlap) -> None:
        active = [scheduled(1, RunState.PROCESSING, 1), scheduled(2, RunState.BLOCKED)]

        admission = admit(rules(overlap), caught_up(3), active)

        assert (admission.state, admission.supersedes, admission.cancels) == (
            RunState.BLOCKED,
            (),
            (),
        )

    def test_a_live_run_takes_no_place_of_one_that_is_caught_up(self, overlap: Overlap) -> None:
        active = [caught_up(1, RunState.PROCESSING), caught_up(2, RunState.BLOCKED)]

        admission = admit(rules(overlap), scheduled(3), active)

        assert (admission.supersedes, admission.cancels) == ((), ())
        assert admission.state is not RunState.QUEUED

    def test_they_go_one_after_another(self, overlap: Overlap) -> None:
        waiting = [caught_up(1, RunState.BLOCKED), caught_up(2, RunState.BLOCKED)]

        assert releasable(rules(overlap), waiting, []) == ["r_1"]

"""Work of other systems: which reports count, what silence means, and what is sent."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.errors import Invalid
from rota.domain.external import (
    Judgement,
    Notice,
    Occasion,
    Progress,
    Reported,
    ReportState,
    StatusReport,
    build_call,
    check_report,
    judge,
    next_try,
    place_of,
    secrets_of,
    share_done,
    silence,
)
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, HttpCall, HttpMethod, HttpValue

PROCESSING = ReportState.PROCESSING
MINUTES = 60_000_000
OCCASION = Occasion(
    run="r_1",
    attempt=2,
    job="build",
    project="shop",
    due_at="2030-01-01T00:00:00Z",
    inputs={"title": "Ärger", "secret": "CI_TOKEN"},
    report_url="https://rota.example.org/api/v1/runs/r_1?project=shop",
    token="rotar_x",
    heartbeat_seconds=300.0,
    ends_at="2030-01-01T01:00:00Z",
)


def said(number: int | None = None, state: ReportState = PROCESSING, **fields: Any) -> StatusReport:
    return StatusReport(state, number, **fields)


def call(**fields: Any) -> HttpCall:
    given: dict[str, Any] = {
        "url": HttpValue("https://ci.example.org/runs"),
        "method": HttpMethod.POST,
    }
    return HttpCall(**(given | fields))


numbers = st.one_of(st.none(), st.integers(1, 5))
states = st.sampled_from(ReportState)
reports = st.builds(StatusReport, states, numbers, message=st.sampled_from(["", "a"]))


class TestJudge:
    @given(st.lists(reports, max_size=30))
    def test_numbers_of_accepted_reports_grow_and_nothing_follows_an_end(
        self, sent: list[StatusReport]
    ) -> None:
        last, is_open, accepted = Reported(), True, []
        for report in sent:
            verdict = judge(report, last, is_open=is_open)
            if verdict is Judgement.ACCEPTED:
                assert is_open
                accepted.append(report)
                is_open = not report.state.is_final
                if report.number is not None:
                    last = Reported(report.number, report.digest)

        counted = [report.number for report in accepted if report.number is not None]
        assert counted == sorted(set(counted))
        assert not any(report.state.is_final for report in accepted[:-1])

    @given(reports, st.booleans())
    def test_what_was_accepted_last_is_a_repeat_whatever_came_of_it(
        self, report: StatusReport, is_open: bool
    ) -> None:
        if report.number is not None:
            last = Reported(report.number, report.digest)

            assert judge(report, last, is_open=is_open) is Judgement.REPEATED

    def test_another_report_with_the_same_number_is_none(self) -> None:
        last = Reported(3, said(3).digest)

        assert judge(said(3, message="x"), last, is_open=True) is Judgement.DIFFERENT

    def test_reports_without_a_number_are_taken_while_the_attempt_goes_on(self) -> None:
        assert judge(said(), Reported(7, "x"), is_open=True) is Judgement.ACCEPTED
        assert judge(said(), Reported(7, "x"), is_open=False) is Judgement.LATE

    def test_an_older_one_is_stale(self) -> None:
        assert judge(said(2), Reported(7, "x"), is_open=True) is Judgement.STALE


class TestSilence:
    @pytest.mark.parametrize("delivery", Delivery)
    def test_before_the_timeout_it_is_a_loss(self, delivery: Delivery) -> None:
        end = silence(MINUTES, 2 * MINUTES, delivery, is_cancelled=False)

        assert (end.result, end.cause) == (AttemptResult.LOST, "silent")

    def test_the_timeout_is_one_where_it_may_be_done_again(self) -> None:
        end = silence(2 * MINUTES, MINUTES, Delivery.AT_LEAST_ONCE, is_cancelled=False)

        assert end.result is AttemptResult.TIMED_OUT

    def test_it_leaves_open_whether_it_was_done_where_it_must_not_be_done_twice(self) -> None:
        end = silence(2 * MINUTES, MINUTES, Delivery.AT_MOST_ONCE, is_cancelled=False)

        assert end.result is AttemptResult.LOST

    @pytest.mark.parametrize("delivery", Delivery)
    def test_a_cancel_ends_it(self, delivery: Delivery) -> None:
        end = silence(MINUTES, 2 * MINUTES, delivery, is_cancelled=True)

        assert end.result is AttemptResult.CANCELLED


class TestReports:
    @pytest.mark.parametrize(
        "report",
        [
            said(0),
            said(2**63),
            said(message="x" * 4_001),
            said(outputs={}),
            said(state=ReportState.FAILED, progress=Progress(1)),
            said(progress=Progress(-1)),
            said(progress=Progress(1, float("inf"))),
            said(output="x" * 65_537),
            said(message="\ud800"),
            said(state=ReportState.COMPLETED, outputs={"a": 2**70}),
            said(state=ReportState.COMPLETED, outputs={"a": "x" * 262_144}),
        ],
    )
    def test_what_cannot_be_kept_is_refused(self, report: StatusReport) -> None:
        with pytest.raises(Invalid) as refusal:
            check_report(report)

        assert refusal.value.code == "bad_report"

    def test_whatever_goes_is_taken(self) -> None:
        check_report(said(1, progress=Progress(3, 8), message="x", output="x" * 65_536))
        check_report(said(2, ReportState.COMPLETED, outputs={"id": 7}))

    def test_a_share_is_of_a_hundred(self) -> None:
        assert share_done(0.375) == Progress(37.5, 100.0)
        with pytest.raises(Invalid, match="from 0 to 1"):
            share_done(1.1)


class TestCalls:
    def test_rotas_own_message_has_all_that_a_report_needs(self) -> None:
        built = build_call(Notice.ANNOUNCE, call(), OCCASION, "r_1.2", {})

        message = json.loads(built.body)
        assert message["type"] == "run.announced"
        assert (message["run"], message["attempt"], message["project"]) == ("r_1", 2, "shop")
        assert message["inputs"] == OCCASION.inputs
        assert message["report"] == {
            "url": OCCASION.report_url,
            "token": "rotar_x",
            "heartbeat_seconds": 300.0,
            "ends_at": "2030-01-01T01:00:00Z",
        }
        assert built.headers["webhook-id"] == "r_1.2"
        assert built.headers["Idempotency-Key"] == "r_1"
        assert built.headers["Content-Type"] == "application/json"

    def test_inputs_are_values_whatever_they_are_called(self) -> None:
        """An input `secret` is no reference to a secret."""
        occasion = replace(OCCASION, inputs={"secret": "CI_TOKEN"})

        built = build_call(Notice.ANNOUNCE, call(), occasion, "m", {"CI_TOKEN": "hidden"})

        assert b"hidden" not in built.body

    def test_a_body_of_the_job_takes_what_it_names(self) -> None:
        body = {"ticket": {"input": "title"}, "back": {"run": "report_url"}}
        headers = {"X-Token": HttpValue(run="report_token"), "X-Key": HttpValue(secret="CI")}

        built = build_call(
            Notice.ANNOUNCE, call(body=body, headers=headers), OCCASION, "m", {"CI": "k"}
        )

        assert json.loads(built.body) == {"ticket": "Ärger", "back": OCCASION.report_url}
        assert (built.headers["X-Token"], built.headers["X-Key"]) == ("rotar_x", "k")

    def test_an_address_that_is_too_long_is_refused_without_its_secrets(self) -> None:
        query = {"k": HttpValue(secret="K"), "title": HttpValue(input="title")}
        occasion = replace(OCCASION, inputs={"title": "x" * 9_000})

        with pytest.raises(Invalid, match="more than 8192 characters") as refused:
            build_call(Notice.ANNOUNCE, call(query=query), occasion, "m", {"K": "hidden-key"})

        assert "hidden" not in refused.value.message

    def test_a_cancel_is_another_message_and_has_no_token(self) -> None:
        built = build_call(Notice.CANCEL, call(), OCCASION, "m", {})

        message = json.loads(built.body)
        assert message["type"] == "run.cancelled"
        assert "report" not in message
        assert built.headers["Idempotency-Key"] == "r_1-cancel"

    def test_where_it_goes_is_known_before_its_secrets(self) -> None:
        asking = call(query={"k": HttpValue(secret="CI")}, headers={"A": HttpValue(secret="B")})

        assert place_of(asking, OCCASION).host == "ci.example.org"
        assert secrets_of(asking) == ["B", "CI"]

    @given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
    def test_pauses_between_tries_grow_to_some_minutes(self, tries: int, fraction: float) -> None:
        pause = next_try(tries, fraction)

        assert timedelta(seconds=1) <= pause <= timedelta(minutes=6, seconds=15)
        assert next_try(tries + 1, 0) >= next_try(tries, 0)

"""Ends wait for their report, are sent until they are answered, and none holds up the others."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import msgpack
from structlog.testing import capture_logs

from rota.ports.executor import Completions
from rota.ports.work import MAX_ITEMS, MAX_PARCEL, Fence, Outcome, Report, StepOutcome
from rota.worker.ends import EndQueue, GivenUp, Sending
from testkit.builders import outcome

LARGE = "x" * 100_000
LONGEST_PAUSE = 60.0
PRINTED = {"output_bytes": 6, "output_lines": 1}


class Ends:
    """A queue on a clock that moves when told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.noted: list[str] = []  # as given up, for people
        self.queue = EndQueue(lambda: self.now, self.noted.append)

    def complete(self, *runs: str, **outputs: str) -> None:
        fences = [Fence(run, 1) for run in runs]
        count = len(runs)
        by_place = {runs.index(run): text for run, text in outputs.items()}
        self.queue.complete(Completions(fences, [1] * count, [2] * count, [3] * count, by_place))

    def end(self, run: str, **fields: Any) -> None:
        self.queue.end(outcome(Fence(run, 1), **fields))

    def send(self) -> Sending:
        sending = self.queue.next_report()
        assert sending is not None
        return sending

    def answer(self, sending: Sending, *again: str) -> None:
        self.queue.answered(sending, {Fence(run, 1) for run in again}, self.now + 2)

    def refuse(self, sending: Sending) -> None:
        self.queue.put_off(sending, 2, "busy")

    def drain(self) -> list[Report]:
        """Send everything, one report after another."""
        reports = []
        while sending := self.queue.next_report():
            self.answer(sending)
            reports.append(sending.report)
        return reports

    def break_link(self, sending: Sending | None = None) -> list[str]:
        """Let the link break with a report on its way; return the runs in it."""
        runs = [fence.run for fence in (sending or self.send()).fences()]
        self.queue.break_link()
        return runs


@pytest.fixture
def ends() -> Ends:
    return Ends()


def runs_of(sending: Sending) -> list[str]:
    return [fence.run for fence in sending.fences()]


def test_both_kinds_go_in_one_report(ends: Ends) -> None:
    ends.complete("r_1", "r_2", r_2='"result"')
    ends.complete("r_3", r_3="4")
    ends.end("r_4", message="odd")

    report = ends.send().report

    assert report.ends.runs == ["r_1", "r_2", "r_3"]
    assert report.ends.outputs == {1: '"result"', 2: "4"}
    assert [told.message for told in report.outcomes] == ["odd"]


def test_a_report_has_no_more_items_than_servers_take(ends: Ends) -> None:
    ends.complete(*(f"r_{number}" for number in range(2 * MAX_ITEMS + 1)))

    reports = ends.drain()

    assert sum(map(len, reports)) == 2 * MAX_ITEMS + 1
    assert max(map(len, reports)) <= MAX_ITEMS


def test_a_report_is_cut_by_its_size(ends: Ends) -> None:
    for number in range(10):
        ends.end(f"r_{number}", outputs=LARGE)
    ends.complete(*(f"c_{n}" for n in range(10)), **{f"c_{n}": f'"{LARGE}"' for n in range(10)})

    reports = ends.drain()

    assert sum(map(len, reports)) == 20
    assert max(map(len, reports)) == MAX_PARCEL // len(LARGE)


def test_an_outcome_that_is_larger_goes_alone(ends: Ends) -> None:
    ends.end("r_1")
    ends.end("r_large", outputs="x" * (MAX_PARCEL + 1))
    ends.end("r_2")

    assert [[told.run for told in report.outcomes] for report in ends.drain()] == [
        ["r_1"],
        ["r_large"],
        ["r_2"],
    ]


@pytest.mark.parametrize("many", ["plain", "told"])
def test_neither_kind_waits_for_all_of_the_other(ends: Ends, many: str) -> None:
    for number in range(3 * MAX_ITEMS):
        if many == "told":
            ends.end(f"r_{number}")
    if many == "plain":
        ends.complete(*(f"r_{number}" for number in range(3 * MAX_ITEMS)))
        ends.end("r_few")
    else:
        ends.complete("r_few")

    first, second = ends.send(), ends.send()

    assert "r_few" in [*runs_of(first), *runs_of(second)]


def test_what_is_on_its_way_is_not_sent_again_in_the_same_stream(ends: Ends) -> None:
    ends.complete("r_1")
    first = ends.send()
    ends.complete("r_2")

    second = ends.send()

    assert (runs_of(first), runs_of(second)) == (["r_1"], ["r_2"])
    assert ends.queue.next_report() is None
    assert (ends.queue.waiting, ends.queue.under_way) == (0, 2)


def test_what_is_unanswered_is_sent_again_by_the_next_stream(ends: Ends) -> None:
    ends.complete("r_1")
    ends.end("r_2")
    answered = ends.send()
    ends.complete("r_3", "r_4")
    ends.break_link()
    ends.answer(answered)  # too late: that stream is gone

    assert sorted(runs_of(ends.send())) == ["r_1", "r_2", "r_3", "r_4"]


def test_what_is_unanswered_is_sent_again_in_its_order(ends: Ends) -> None:
    for run in ("r_1", "r_2", "r_3"):
        ends.end(run)
    ends.send()
    ends.end("r_4")
    ends.send()
    ends.end("r_5")

    ends.break_link()

    assert runs_of(ends.send()) == ["r_1", "r_2", "r_3", "r_4", "r_5"]


def test_what_a_server_could_not_take_is_sent_again_a_little_later(ends: Ends) -> None:
    ends.complete("r_1", "r_2", r_2='"result"')
    ends.end("r_3")
    ends.end("r_4")
    ends.answer(ends.send(), "r_2", "r_4")

    before = ends.queue.next_report()
    ends.now += 2
    report = ends.send().report

    assert before is None
    assert (report.ends.runs, report.ends.outputs) == (["r_2"], {0: '"result"'})
    assert [told.run for told in report.outcomes] == ["r_4"]


class TestLinkThatBreaks:
    def test_after_two_breaks_each_outcome_goes_alone_and_nothing_beside_it(
        self, ends: Ends
    ) -> None:
        ends.end("r_1")
        ends.end("r_2")
        together = [sorted(ends.break_link()), sorted(ends.break_link())]

        alone = ends.send()

        assert together == [["r_1", "r_2"], ["r_1", "r_2"]]
        assert len(alone) == 1
        assert ends.queue.next_report() is None
        assert ends.queue.has_suspects

    def test_what_was_answered_is_suspected_no_more(self, ends: Ends) -> None:
        ends.end("r_1")
        ends.break_link()
        was_suspect = ends.queue.has_suspects

        ends.answer(ends.send())

        assert (was_suspect, ends.queue.has_suspects) == (True, False)

    def test_an_outcome_that_breaks_it_three_times_alone_goes_without_its_load(
        self, ends: Ends
    ) -> None:
        ends.end("r_1", outputs=LARGE, output=b"inline", message="exit 3", exit_code=3, **PRINTED)
        with capture_logs() as lines:
            for _ in range(3):
                [told] = ends.send().report.outcomes
                assert told.outputs == LARGE
                ends.queue.break_link()
                ends.now += LONGEST_PAUSE

            [cut] = ends.send().report.outcomes
            ends.queue.break_link()

        assert (cut.outputs, cut.output, cut.exit_code) == (None, b"", 3)
        assert (cut.output_bytes, cut.output_lines, cut.truncated) == (0, 0, True)
        assert cut.message.startswith("exit 3; its result and output were left out: the link broke")
        assert [line["event"] for line in lines] == ["outcome.cut"]

    def test_completions_are_divided_until_the_heavy_one_is_found(self, ends: Ends) -> None:
        ends.complete("r_1", "r_2", "r_3", r_2=f'"{LARGE}"')
        delivered: list[Outcome | str] = []
        for _ in range(50):
            sending = ends.queue.next_report()
            if sending is None:
                break
            report = sending.report
            if report.ends.outputs or any(told.outputs for told in report.outcomes):
                ends.queue.break_link()
                ends.now += LONGEST_PAUSE
            else:
                ends.answer(sending)
                delivered += [*report.ends.runs, *report.outcomes]

        [cut] = [each for each in delivered if isinstance(each, Outcome)]
        assert sorted(each for each in delivered if isinstance(each, str)) == ["r_1", "r_3"]
        assert (cut.run, cut.result, cut.outputs) == ("r_2", "COMPLETED", None)

    def test_what_goes_without_its_load_is_small_whatever_it_told(self, ends: Ends) -> None:
        steps = tuple(StepOutcome("s" * 2_000, "completed") for _ in range(1_000))
        ends.end("r_1", message="m" * 10_000, steps=steps, output_bytes=10**6, output_lines=9)
        for _ in range(3):
            ends.break_link()
            ends.now += LONGEST_PAUSE

        [cut] = ends.send().report.outcomes

        assert len(msgpack.encode(cut)) < 4_000
        assert [step.result for step in cut.steps] == ["completed"] * 20
        # Output that did not ride along arrives by itself.
        assert (cut.output_bytes, cut.output_lines, cut.truncated) == (10**6, 9, False)

    def test_what_breaks_it_alone_goes_behind_all_others_and_ever_later(self, ends: Ends) -> None:
        delivered: list[str] = []
        breaks: list[float] = []
        ends.end("r_bad")
        for second in range(400):
            ends.now = float(second)
            ends.end(f"r_{second}")
            while sending := ends.queue.next_report():
                if "r_bad" in runs_of(sending):
                    breaks.append(ends.now)
                    ends.queue.break_link()
                    break
                ends.answer(sending)
                delivered += runs_of(sending)

        assert sorted(delivered) == sorted(f"r_{second}" for second in range(400))
        assert len(breaks) < 20
        assert breaks[-1] - breaks[-2] >= LONGEST_PAUSE

    def test_nobody_waits_for_a_suspect_that_is_put_off(self, ends: Ends) -> None:
        ends.end("r_bad")
        ends.break_link()
        ends.break_link()

        put_off = ends.queue.has_suspects
        ends.now += LONGEST_PAUSE

        assert (put_off, ends.queue.has_suspects) == (False, True)

    def test_an_end_of_the_connection_for_another_reason_blames_nothing(self, ends: Ends) -> None:
        ends.end("r_1", outputs=LARGE)
        for _ in range(20):
            ends.send()
            ends.queue.break_link(is_suspicious=False)

        [told] = ends.send().report.outcomes

        assert told.outputs == LARGE
        assert not ends.queue.has_suspects


class TestWhatNoServerTakes:
    """Told after a few tries, given up after many, and everything else gets through."""

    def test_trouble_is_told_from_the_third_failure_until_it_was_taken(self, ends: Ends) -> None:
        ends.end("r_1")
        told = [ends.queue.trouble]
        for _ in range(3):
            ends.refuse(ends.send())
            told.append(ends.queue.trouble)
            ends.now += LONGEST_PAUSE

        sending = ends.send()
        under_way = ends.queue.trouble
        ends.answer(sending)

        trouble = "the end of a run cannot be reported: busy"
        assert told == ["", "", "", trouble]
        assert (under_way, ends.queue.trouble) == (trouble, "")

    def test_trouble_with_links_that_break_is_told_and_counts_runs(self, ends: Ends) -> None:
        for run in ("r_1", "r_2"):
            ends.end(run)
        for _ in range(12):
            ends.break_link()
            ends.now += LONGEST_PAUSE / 3

        assert ends.queue.trouble == (
            "ends of 2 runs cannot be reported: the link to the server broke whenever it was sent"
        )

    @pytest.mark.parametrize("fails", ["refuse", "break_link"])
    def test_an_end_is_given_up_after_many_tries_in_ten_minutes(
        self, ends: Ends, fails: str
    ) -> None:
        ends.complete("r_1")
        tries = 0
        with capture_logs() as lines:
            while not (given_up := ends.queue.take_given_up()):
                while (sending := ends.queue.next_report()) is None:
                    ends.now += 1
                getattr(ends, fails)(sending)
                tries += 1

        assert given_up == [Fence("r_1", 1)]
        assert ends.noted == ["the end of r_1"]
        assert tries >= 10
        assert 600 <= ends.now < 700
        assert (ends.queue.waiting, ends.queue.under_way, ends.queue.trouble) == (0, 0, "")
        assert [line["run"] for line in lines if line["event"] == "end.given_up"] == ["r_1"]
        ends.now += LONGEST_PAUSE
        assert ends.queue.next_report() is None

    def test_nothing_is_given_up_for_few_failures_however_long_they_take(self, ends: Ends) -> None:
        ends.end("r_1")
        for _ in range(9):
            ends.refuse(ends.send())
            ends.now += 1_000

        assert ends.queue.take_given_up() == []
        ends.answer(ends.send())

    def test_an_end_that_a_server_will_take_later_is_waited_for(self, ends: Ends) -> None:
        ends.end("r_1")
        for _ in range(1_000):
            ends.answer(ends.send(), "r_1")
            ends.now += 2

        assert ends.queue.take_given_up() == []
        assert ends.queue.trouble == ""

    def test_of_many_only_the_one_that_is_never_taken_is_given_up(self, ends: Ends) -> None:
        ends.complete(*(f"r_{number}" for number in range(100)))
        delivered: set[str] = set()
        given_up: list[Fence] = []
        while not given_up:
            ends.now += 1
            while sending := ends.queue.next_report():
                if "r_70" in runs_of(sending):
                    ends.refuse(sending)
                else:
                    delivered.update(runs_of(sending))
                    ends.answer(sending)
            given_up = ends.queue.take_given_up()

        assert given_up == [Fence("r_70", 1)]
        assert len(delivered) == 99

    def test_a_result_that_is_left_out_is_noted(self, ends: Ends) -> None:
        ends.end("r_1", outputs=LARGE)
        for _ in range(3):
            ends.break_link()
            ends.now += LONGEST_PAUSE

        assert ends.noted == ["the result of r_1"]

    def test_what_was_given_up_is_told_for_some_minutes(self) -> None:
        now = 0.0
        given_up = GivenUp(lambda: now)
        before = given_up.trouble
        for number in range(5):
            now += 100
            given_up.note(f"the end of r_{number}")
        given_up.note("the end of r_3")
        told = given_up.trouble

        now += 550
        later = given_up.trouble
        now += 100

        assert before == ""
        assert told == (
            "given up, because no server took it:"
            " the end of r_2, the end of r_4, the end of r_3 and 2 more"
        )
        assert later == "given up, because no server took it: the end of r_4, the end of r_3"
        assert given_up.trouble == ""


class TestServerThatRefuses:
    def test_a_report_is_sent_again_ever_later_and_keeps_what_it_carries(self, ends: Ends) -> None:
        ends.end("r_1", outputs=LARGE, output=b"inline")
        pauses = []
        for _ in range(20):
            refused_at = ends.now
            ends.refuse(ends.send())
            while ends.queue.next_report() is None:
                ends.now += 1
            pauses.append(ends.now - refused_at)
            ends.queue.break_link(is_suspicious=False)

        [told] = ends.send().report.outcomes
        assert (told.outputs, told.output) == (LARGE, b"inline")
        assert (pauses[:3], pauses[-1]) == ([2, 4, 6], 30)

    def test_it_is_logged_once(self, ends: Ends) -> None:
        ends.end("r_1")
        with capture_logs() as lines:
            for _ in range(3):
                ends.refuse(ends.send())
                ends.now += LONGEST_PAUSE

        assert [(line["event"], line["error"]) for line in lines] == [
            ("worker.report_put_off", "busy")
        ]

    def test_it_clears_a_suspect_as_the_link_lives(self, ends: Ends) -> None:
        ends.end("r_1")
        ends.break_link()

        ends.refuse(ends.send())
        ends.now += LONGEST_PAUSE

        assert not ends.queue.has_suspects

    def test_one_end_that_is_never_taken_keeps_no_others_from_it(self, ends: Ends) -> None:
        ends.complete(*(f"c_{number}" for number in range(100)))
        for number in range(20):
            ends.end(f"r_{number}")
        delivered: set[str] = set()
        reports = 0
        while len(delivered) < 118 and ends.now < 120:
            while sending := ends.queue.next_report():
                reports += 1
                if {"c_70", "r_7"}.isdisjoint(runs_of(sending)):
                    delivered.update(runs_of(sending))
                    ends.answer(sending)
                else:
                    ends.refuse(sending)
            ends.now += 1

        assert len(delivered) == 118
        assert reports < 60
        assert (ends.queue.waiting, ends.queue.under_way) == (0, 0)

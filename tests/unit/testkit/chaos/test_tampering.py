"""Bad deeds are done once, by the injection; to look is only to look."""

from __future__ import annotations

from collections.abc import Sequence

from rota.sdk.answers import Run, RunDetail
from testkit.chaos.tampering import PoisonRun, ReplayedReport, Stranger
from tests.unit.testkit.chaos.observers import Told, page

RUN = Run(id="r1", state="PROCESSING", attempt=1)


class Liar(Stranger):
    """Counts its reports, each of which is answered as told."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)

    def get_token(self) -> None:
        pass

    def is_refused(self, runs: Sequence[Run]) -> bool:
        return self.answers.pop(0)


def test_a_report_is_replayed_by_the_injection_alone() -> None:
    liar = Liar(True)
    fault = ReplayedReport(liar, Told(page(RUN), away=1))

    fault.inject()

    assert all(fault.is_felt() for _ in range(3))
    assert liar.answers == []


def test_a_report_is_replayed_again_until_there_was_something_to_refuse() -> None:
    liar = Liar(False, True)
    fault = ReplayedReport(liar, Told(page(RUN)))

    fault.inject()

    assert fault.is_felt()
    assert liar.answers == []


def test_a_poison_run_is_submitted_by_the_injection_alone() -> None:
    told = Told(RUN, away=2)
    fault = PoisonRun(told)

    fault.inject()
    assert told.asked == ["POST"]

    told.answer = RunDetail(id="r1", state="PROCESSING", losses=0)
    assert not fault.is_felt()
    told.answer = RunDetail(id="r1", state="SCHEDULED", losses=1)
    assert fault.is_felt()
    assert told.asked == ["POST", "GET", "GET"]

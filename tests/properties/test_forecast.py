"""Where there is nothing to decide, the short way finds what the simulated world does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.forecast.ahead import RunAhead, Setting
from rota.domain.forecast.placing import Program, place
from tests.unit.domain.forecast.builders import job, runs, starts, workers

jobs = st.tuples(
    st.integers(1, 30),  # how long it takes
    st.none() | st.integers(1, 2),  # how many of it may go at once
    st.lists(st.integers(0, 60), min_size=1, max_size=6),  # when it comes
)


def coming(described: list[tuple[int, int | None, list[int]]], *, is_plain: bool) -> list[RunAhead]:
    found = [
        run
        for number, (seconds, limit, times) in enumerate(described)
        for run in runs(
            job(f"job-{number}", float(seconds), limit=limit, is_plain=is_plain),
            *(float(at) for at in times),
        )
    ]
    return sorted(found, key=lambda run: run.ready_at)


@given(st.lists(jobs, min_size=1, max_size=5), st.lists(st.integers(1, 3), max_size=3))
def test_runs_of_one_line_start_when_the_simulated_world_lets_them(
    described: list[tuple[int, int | None, list[int]]], slots: list[int]
) -> None:
    short, long = coming(described, is_plain=True), coming(described, is_plain=False)

    place(Program([], short), Setting(workers(*slots)), 10_000.0)
    place(Program([], long), Setting(workers(*slots)), 10_000.0)

    assert starts(short) == starts(long)

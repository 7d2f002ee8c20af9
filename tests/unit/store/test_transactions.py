from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rota.domain.errors import Conflict, Unavailable
from rota.store.transactions import Joining

pytestmark = pytest.mark.anyio

SAME = "the same"


class Answers:
    """Whoever is asked for answers: it notes what goes together, and may be held up."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.error: BaseException | None = None
        self.has_begun = asyncio.Event()
        self._may_go = asyncio.Event()
        self._may_go.set()

    async def give(self, asked: Sequence[str]) -> list[str]:
        self.together.append(list(asked))
        self.has_begun.set()
        await self._may_go.wait()
        if "wrong" in asked:
            raise Conflict("one of them is wrong")
        if "broken" in asked:
            raise ValueError("nobody thought of that")
        if self.error is not None:
            raise self.error
        return [each.upper() for each in asked]

    def hold_up(self) -> None:
        self._may_go.clear()

    def go_on(self) -> None:
        self._may_go.set()


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def joining(answers: Answers) -> Joining[str, str]:
    return Joining(answers.give, most=3)


async def ask(
    joining: Joining[str, str], *asked: str, about: str = SAME
) -> list[asyncio.Task[str]]:
    """Callers that have asked, each in a task of its own."""
    tasks = [asyncio.create_task(joining.ask(about, each)) for each in asked]
    await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop: all of them have asked
    return tasks


async def under_way(joining: Joining[str, str], answers: Answers) -> asyncio.Task[str]:
    """One caller whose answer has begun, and does not come to an end yet."""
    answers.hold_up()
    [first] = await ask(joining, "first")
    await answers.has_begun.wait()
    return first


async def test_a_lone_caller_waits_for_nobody(joining: Joining[str, str], answers: Answers) -> None:
    assert await joining.ask(SAME, "a") == "A"
    assert await joining.ask(SAME, "b") == "B"

    assert answers.together == [["a"], ["b"]]


async def test_who_asks_meanwhile_gets_the_next_answer_with_the_others(
    joining: Joining[str, str], answers: Answers
) -> None:
    first = await under_way(joining, answers)
    later = await ask(joining, "b", "c")

    answers.go_on()

    assert await asyncio.gather(first, *later) == ["FIRST", "B", "C"]
    assert answers.together == [["first"], ["b", "c"]]


async def test_only_so_many_go_together(joining: Joining[str, str], answers: Answers) -> None:
    await asyncio.gather(*await ask(joining, *"abcde"))

    assert answers.together == [["a", "b", "c"], ["d", "e"]]


async def test_what_is_about_something_else_waits_for_nobody(
    joining: Joining[str, str], answers: Answers
) -> None:
    first = await under_way(joining, answers)

    [other] = await ask(joining, "other", about="something else")
    answers.go_on()

    assert [await first, await other] == ["FIRST", "OTHER"]
    assert answers.together == [["first"], ["other"]]


async def test_a_refusal_is_told_to_nobody_but_the_one_it_is_about(
    joining: Joining[str, str], answers: Answers
) -> None:
    told = await asyncio.gather(*await ask(joining, "a", "wrong", "c"), return_exceptions=True)

    assert [told[0], told[2]] == ["A", "C"]
    assert isinstance(told[1], Conflict)
    assert answers.together == [["a", "wrong", "c"], ["a"], ["wrong"], ["c"]]


async def test_that_the_store_is_away_is_told_to_all_of_them(
    joining: Joining[str, str], answers: Answers
) -> None:
    answers.error = error = Unavailable("the store is away")

    told = await asyncio.gather(*await ask(joining, "a", "b"), return_exceptions=True)

    assert told == [error, error]
    assert answers.together == [["a", "b"]]


async def test_one_that_nobody_can_answer_fails_by_itself(
    joining: Joining[str, str], answers: Answers
) -> None:
    told = await asyncio.gather(*await ask(joining, "a", "broken"), return_exceptions=True)

    assert told[0] == "A"
    assert isinstance(told[1], ValueError)


async def test_one_who_goes_away_takes_the_answer_from_nobody(
    joining: Joining[str, str], answers: Answers
) -> None:
    first = await under_way(joining, answers)
    second, third = await ask(joining, "second", "third")

    first.cancel()
    second.cancel()
    answers.go_on()

    assert await third == "THIRD"
    assert answers.together == [["first"], ["third"]]


async def test_nothing_is_looked_up_for_those_who_have_all_gone_away(
    joining: Joining[str, str], answers: Answers
) -> None:
    first = await under_way(joining, answers)
    [second] = await ask(joining, "second")

    second.cancel()
    answers.go_on()
    await first
    await joining.close()

    assert answers.together == [["first"]]


async def test_an_end_of_the_work_leaves_nobody_waiting(
    joining: Joining[str, str], answers: Answers
) -> None:
    first = await under_way(joining, answers)
    later = await ask(joining, "b")
    answers.error = asyncio.CancelledError()

    answers.go_on()
    told = await asyncio.gather(first, *later, return_exceptions=True)

    assert [type(each) for each in told] == [asyncio.CancelledError] * 2


async def test_it_is_closed_when_everybody_has_an_answer(
    joining: Joining[str, str], answers: Answers
) -> None:
    first = await under_way(joining, answers)
    closing = asyncio.create_task(joining.close())
    [later] = await ask(joining, "later")
    assert not closing.done()

    answers.go_on()
    await closing

    assert [await first, await later] == ["FIRST", "LATER"]

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

import rota
from rota.sdk.context import Context
from rota.sdk.functions import Parameters

if TYPE_CHECKING:
    from rota.sdk.answers import Job


@dataclass
class Host:
    name: str
    since: date


class Model:
    """What a Pydantic model offers, without Pydantic."""

    def __init__(self, size: int) -> None:
        self.size = size

    def model_dump(self, *, mode: str) -> dict[str, int]:
        assert mode == "json"
        return {"size": self.size}

    @classmethod
    def model_validate(cls, value: dict[str, int]) -> Model:
        return cls(value["size"])


def plain(name: str, count: int = 3, share: float = 0.5, is_dry: bool = False) -> None: ...


def grouped(hosts: list[Host], model: Model, label: str | None = None, n: int = 1) -> None: ...


def unknown(job: Job, name: str) -> None: ...


def round_trip(function: Callable[..., object], *args: Any, **kwargs: Any) -> dict[str, Any]:
    parameters = Parameters(function)
    return parameters.unpack(parameters.pack(args, kwargs))


def test_single_values_are_inputs_of_their_own() -> None:
    assert Parameters(plain).inputs == {
        "name": {"type": "string"},
        "count": {"type": "integer", "default": 3},
        "share": {"type": "number", "default": 0.5},
        "is_dry": {"type": "boolean", "default": False},
    }


def test_everything_else_travels_in_one_input() -> None:
    inputs = Parameters(grouped).inputs

    assert list(inputs) == ["n", "arguments"]
    assert inputs["arguments"]["default"] == "{}"
    assert inputs["arguments"]["help"] == "A JSON object with: hosts, model, label"


def test_only_what_is_given_is_sent_so_that_defaults_stay_the_jobs() -> None:
    assert Parameters(plain).pack(("a",), {"share": 1.0}) == {"name": "a", "share": 1.0}


def test_arguments_arrive_as_their_annotations_say() -> None:
    hosts = [Host("db-1", date(2026, 1, 2))]

    arrived = round_trip(grouped, hosts, model=Model(7))

    assert arrived["hosts"] == hosts
    assert arrived["model"].size == 7
    assert "label" not in arrived


def test_argument_whose_type_is_unknown_while_running_arrives_as_json() -> None:
    assert round_trip(unknown, {"a": 1}, "x") == {"job": {"a": 1}, "name": "x"}


def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'name'"):
        Parameters(plain).pack((), {})
    with pytest.raises(TypeError, match="unexpected keyword argument 'nmae'"):
        Parameters(plain).pack(("a",), {"nmae": "b"})


def test_argument_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(TypeError, match="a object cannot be carried as JSON"):
        Parameters(grouped).pack(([], object()), {})


def test_context_is_told_by_name_or_annotation() -> None:
    def by_name(ctx, a: int) -> None: ...  # type: ignore[no-untyped-def]

    def by_annotation(context: Context, a: int) -> None: ...

    def by_another_name(context: rota.Context, a: int) -> None: ...

    for function in (by_name, by_annotation, by_another_name):
        assert Parameters(function).takes_context
        assert list(Parameters(function).inputs) == ["a"]
    assert not Parameters(plain).takes_context


def test_parameters_without_a_name_are_refused() -> None:
    def several(*hosts: str) -> None: ...

    def anything(**options: str) -> None: ...

    for function in (several, anything):
        with pytest.raises(TypeError, match="parameters have names"):
            Parameters(function)


def test_parameter_may_not_take_the_name_of_the_common_input() -> None:
    def taken(arguments: str, hosts: list[str]) -> None: ...

    with pytest.raises(TypeError, match='"arguments" is taken'):
        Parameters(taken).pack((), {"arguments": "", "hosts": []})

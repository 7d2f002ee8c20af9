"""A function's parameters as a job's inputs, and a run's inputs as the function's arguments.

A parameter annotated `str`, `int`, `float` or `bool` is an input of its own. All others travel
together in the input `arguments`, as the text of a JSON object.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from rota.sdk.context import Context
from rota.sdk.values import from_json, from_plain, to_json

TOGETHER = "arguments"  # the input that carries what is not a single value

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Parameters:
    """What a function takes beside its context."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and _is_context(parameters[0])
        own = parameters[1:] if self.takes_context else parameters
        for parameter in own:
            if parameter.kind not in _NAMED:
                raise TypeError(
                    f"{function.__name__}: a job's parameters have names, {parameter} has not"
                )
        self._signature = inspect.Signature(own)

    @cached_property
    def inputs(self) -> dict[str, dict[str, Any]]:
        """The inputs as a job file declares them."""
        declared = {name: self._declared(name) for name in sorted(self._singles, key=self._order)}
        if self._grouped:
            names = ", ".join(sorted(self._grouped, key=self._order))
            help_text = f"A JSON object with: {names}"
            declared[TOGETHER] = {"type": "string", "default": "{}", "help": help_text}
        return declared

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as inputs; a TypeError if they do not fit the function."""
        given = self._signature.bind(*args, **kwargs).arguments
        inputs = {name: value for name, value in given.items() if name in self._singles}
        rest = {name: value for name, value in given.items() if name in self._grouped}
        if rest:
            inputs[TOGETHER] = to_json(rest).decode()
        return inputs

    def unpack(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """A run's inputs as keyword arguments."""
        if not self._grouped:
            return dict(inputs)
        arguments = {name: value for name, value in inputs.items() if name != TOGETHER}
        for name, value in from_json(inputs.get(TOGETHER, "{}")).items():
            arguments[name] = from_plain(value, self.annotations.get(name, Any))
        return arguments

    @cached_property
    def annotations(self) -> dict[str, Any]:
        """The types of parameters and `return`, as far as they are known while running."""
        # Evaluated late, when everything in the function's module has been defined.
        try:
            return typing.get_type_hints(self._function)
        except NameError:
            raw = self._function.__annotations__
            return {name: Any if isinstance(hint, str) else hint for name, hint in raw.items()}

    @cached_property
    def _singles(self) -> frozenset[str]:
        return frozenset(filter(self._is_single, self._signature.parameters))

    @cached_property
    def _grouped(self) -> frozenset[str]:
        grouped = frozenset(self._signature.parameters) - self._singles
        if grouped and TOGETHER in self._signature.parameters:
            raise TypeError(f'{self._function.__name__}: the name "{TOGETHER}" is taken')
        return grouped

    def _is_single(self, name: str) -> bool:
        annotation = self.annotations.get(name)
        default = self._signature.parameters[name].default
        is_plain = default is inspect.Parameter.empty or type(default) is annotation
        return annotation in _TYPES and is_plain

    def _declared(self, name: str) -> dict[str, Any]:
        default = self._signature.parameters[name].default
        declared: dict[str, Any] = {"type": _TYPES[self.annotations[name]]}
        return declared if default is inspect.Parameter.empty else declared | {"default": default}

    def _order(self, name: str) -> int:
        return list(self._signature.parameters).index(name)


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = annotation.strip("\"'").rsplit(".", 1)[-1]
    return parameter.name == "ctx" or annotation in (Context, Context.__name__)

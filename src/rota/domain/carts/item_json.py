"""Items in JSON: one per line, or a list of them, read without holding the whole list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from rota.domain.carts.item_faults import Faults
from rota.domain.schedule.quoting import quoted

# JSON's strings end in their line, so lines can be cut into tokens one by one.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]')
_FORMS = "write one item per line, or a list of items: [{…}, {…}]"


def read_json(
    lines: Iterable[str], faults: Faults, max_length: int
) -> Iterator[tuple[int, object]]:
    """The line and the value of each item; `max_length` is that of its text."""
    for number, text in _texts(lines, faults, max_length):
        try:
            value = json.loads(text, object_pairs_hook=_mapping)
        except (ValueError, RecursionError) as error:
            faults.add(number, f"not valid JSON: {_reason(error)}", _FORMS)
        else:
            yield number, value


def _texts(lines: Iterable[str], faults: Faults, max_length: int) -> Iterator[tuple[int, str]]:
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    number, first = next(numbered, (0, ""))
    opening = first.lstrip()
    if opening.startswith("["):
        inside = chain([(number, opening[1:])], numbered)
        return _ListCutter(faults, max_length).cut(inside)
    return chain([(number, first)] if first else [], numbered)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"key {quoted(name)} is there twice")
        found[name] = value
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


class _ListCutter:
    """Cuts the inside of a list into the texts of its elements."""

    def __init__(self, faults: Faults, max_length: int) -> None:
        self._faults = faults
        self._max_length = max_length
        self._pieces: list[str] = []  # of the element being read
        self._length = 0  # of these
        self._begin = 0  # the line of the first of them
        self._depth = 0  # 0: in the list itself
        self._elements = 0
        self._is_closed = False

    def cut(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        number = 0
        for number, line in lines:
            yield from self._cut_line(number, line)
        if not self._is_closed:
            self._faults.stop(number, 'the list is not closed by a "]"')

    def _cut_line(self, number: int, line: str) -> Iterator[tuple[int, str]]:
        position = 0
        for token in _TOKEN.finditer(line):
            if self._is_end(token[0]):
                self._keep(number, line[position : token.start()])
                position = token.end()
                yield from self._element(number, token[0])
        self._keep(number, line[position:])

    def _is_end(self, token: str) -> bool:
        """Whether the token ends an element; counts how deep inside of it the next one is."""
        if self._depth == 0 and token in (",", "]"):
            return True
        if token in ("[", "{"):
            self._depth += 1
        elif token in ("]", "}") and self._depth:
            self._depth -= 1
        return False

    def _keep(self, number: int, piece: str) -> None:
        if not self._pieces:
            piece = piece.lstrip()
            self._begin = number
        if not piece:
            return
        if self._is_closed:
            self._faults.stop(number, "something follows the end of the list", _FORMS)
        self._length += len(piece)
        if self._length > self._max_length:
            self._faults.stop(
                self._begin, f"the item is longer than {self._max_length:,} characters"
            )
        self._pieces.append(piece)

    def _element(self, number: int, end: str) -> Iterator[tuple[int, str]]:
        if self._is_closed:
            self._faults.stop(number, "something follows the end of the list", _FORMS)
        self._is_closed = end == "]"
        is_empty_list = self._is_closed and not self._elements
        self._elements += 1
        if self._pieces:
            yield self._begin, "".join(self._pieces)
        elif not is_empty_list:
            self._faults.add(number, "there is no item between two commas, or after the last one")
        self._pieces, self._length = [], 0

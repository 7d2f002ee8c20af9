"""Patterns for the text of inputs: regular expressions whose cost is bounded, however they look.

Patterns and texts come from strangers, and Python's `re` may take time without bound for a short
text. Here a pattern becomes a set of places that are followed side by side, one step for each
character: the work is at most the number of places times the length of the text. What cannot be
done so (back references, looking around) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

MAX_PATTERN = 200  # characters
MAX_TEXT = 1_000  # characters of a text that a pattern is asked about
MAX_PLACES = 1_000  # of a pattern, repetitions written out
_MOST_REMEMBERED = 500  # sets of places, and characters
_MAX_GROUPS = 20  # inside one another

_Test: TypeAlias = Callable[[str], bool]
_CLASSES = {"d": r"[0-9]", "w": r"[A-Za-z0-9_]", "s": r"[ \t\n\r\f\v]"}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}
_BOUNDS = re.compile(r"\{([0-9]{1,4})(?:(,)([0-9]{1,4})?)?\}")
_OTHERWISE = "it may have texts, [a-z], \\d \\w \\s, . | ( ) and * + ? {2,5}"


class PatternRefused(ValueError):
    """Reason why a pattern is not taken."""


@dataclass(slots=True)
class _Place:
    """Place in a pattern: it takes a character, or leads on without one."""

    test: _Test | None = None  # None: it takes none
    after: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of a pattern that was read."""

    enter: int
    leave: int


class Pattern:
    """A pattern that a whole text is to match.

    A set of places is a number with a bit for each: sets of thousands of them would take gigabytes.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN:
            raise PatternRefused(f"it is longer than {MAX_PATTERN} characters")
        reader = _Reader(text)
        whole = reader.read()
        self._places = reader.places
        self._end = 1 << whole.leave
        self._start = self._spread(whole.enter)
        self._after: dict[int, int] = {}  # a place that takes a character → where that leads
        self._taking: dict[str, int] = {}  # a character → the places that take it
        self._known: dict[tuple[int, str], int] = {}

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches; one that is too long never does."""
        if len(text) > MAX_TEXT:
            return False
        here = self._start
        for character in text:
            here = self._step(here, character)
            if not here:
                return False
        return bool(self._end & here)

    def _step(self, here: int, character: str) -> int:
        found = self._known.get((here, character))
        if found is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            found, left = 0, here & self._takers(character)
            while left:
                lowest = left & -left
                left ^= lowest
                found |= self._leads(lowest.bit_length() - 1)
            self._known[here, character] = found
        return found

    def _takers(self, character: str) -> int:
        found = self._taking.get(character)
        if found is None:
            if len(self._taking) >= _MOST_REMEMBERED:
                self._taking.clear()
            tested = enumerate(self._places)
            found = sum(1 << at for at, it in tested if it.test and it.test(character))
            self._taking[character] = found
        return found

    def _leads(self, at: int) -> int:
        if at not in self._after:
            self._after[at] = self._spread(self._places[at].after[0])
        return self._after[at]

    def _spread(self, first: int) -> int:
        """Return the places that a place leads to without a character, and that are of use."""
        seen, ahead, found = {first}, [first], 0
        while ahead:
            at = ahead.pop()
            place = self._places[at]
            if place.test is not None:
                found |= 1 << at
                continue
            found |= self._end & (1 << at)
            new = [after for after in place.after if after not in seen]
            seen.update(new)
            ahead += new
        return found


class _Reader:
    """Reader of a pattern into places."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.places: list[_Place] = []

    def read(self) -> _Part:
        # The whole text has to match, so these say nothing more.
        if self._text.startswith("^"):
            self._at = 1
        if self._text.endswith("$") and not self._text.endswith("\\$"):
            self._text = self._text[:-1]
        part = self._either()
        if self._at < len(self._text):
            raise PatternRefused('a ")" closes nothing')
        return part

    def _either(self) -> _Part:
        parts = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        leave = self._new()
        for part in parts:
            self.places[part.leave].after.append(leave)
        return _Part(self._new(*(part.enter for part in parts)), leave)

    def _sequence(self) -> _Part:
        enter = leave = self._new()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            part = self._repeated()
            self.places[leave].after.append(part.enter)
            leave = part.leave
        return _Part(enter, leave)

    def _repeated(self) -> _Part:
        began = self._at
        part = self._one()
        ended = self._at
        least, most = self._bounds()
        if self._at == ended:
            return part
        if self._at < len(self._text) and self._text[self._at] in "*+?{":
            raise PatternRefused(f'nothing to repeat before "{self._text[self._at]}"')
        return self._times(began, ended, least, most)

    def _times(self, began: int, ended: int, least: int, most: int | None) -> _Part:
        """Write a repetition out: what is repeated is read again for each time."""
        after = self._at
        enter = leave = self._new()
        optional: list[int] = []
        for number in range(max(least, 1) if most is None else most):
            if number >= least:
                optional.append(leave)
            part = self._again(began, ended)
            self.places[leave].after.append(part.enter)
            leave = self._new()
            self.places[part.leave].after.append(leave)
            if most is None and number == max(least, 1) - 1:
                self.places[leave].after.append(part.enter)
        for at in optional:
            self.places[at].after.append(leave)
        self._at = after
        return _Part(enter, leave)

    def _again(self, began: int, ended: int) -> _Part:
        self._at = began
        part = self._one()
        assert self._at == ended
        return part

    def _bounds(self) -> tuple[int, int | None]:
        sign = self._text[self._at : self._at + 1]
        if sign in ("*", "+", "?") and sign:
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        if sign != "{":
            return 1, 1
        found = _BOUNDS.match(self._text, self._at)
        if found is None:
            raise PatternRefused('write "\\{" for a brace; a repetition is {2} or {2,5}')
        self._at = found.end()
        least = int(found[1])
        most = None if found[2] and not found[3] else int(found[3] or least)
        if most is not None and most < least:
            raise PatternRefused(f"{found.group()} repeats from more to less")
        return least, most

    def _one(self) -> _Part:
        character = self._text[self._at]
        self._at += 1
        match character:
            case "(":
                return self._group()
            case "[":
                return self._takes_one(self._class())
            case ".":
                return self._takes_one(lambda given: given != "\n")
            case "\\":
                return self._takes_one(self._escape())
            case "*" | "+" | "?" | "{":
                raise PatternRefused(f'nothing to repeat before "{character}"')
            case "^" | "$":
                raise PatternRefused(f'"{character}" is in the middle; the whole text has to match')
            case _:
                return self._takes_one(character.__eq__)

    def _group(self) -> _Part:
        self._depth += 1
        if self._depth > _MAX_GROUPS:
            raise PatternRefused(f"groups are nested deeper than {_MAX_GROUPS} levels")
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._text.startswith("?", self._at):
            raise PatternRefused(f"(?… is not taken: {_OTHERWISE}")
        part = self._either()
        if not self._takes(")"):
            raise PatternRefused('a "(" is not closed')
        self._depth -= 1
        return part

    def _escape(self) -> _Test:
        if self._at >= len(self._text):
            raise PatternRefused('it ends with "\\"')
        character = self._text[self._at]
        self._at += 1
        if character.lower() in _CLASSES:
            members = re.compile(_CLASSES[character.lower()])
            is_inside = character.islower()
            return lambda given: bool(members.fullmatch(given)) is is_inside
        if character in _CONTROLS:
            return _CONTROLS[character].__eq__
        if character.isalnum():
            raise PatternRefused(f"\\{character} is not taken: {_OTHERWISE}")
        return character.__eq__

    def _class(self) -> _Test:
        is_inside = not self._takes("^")
        tests = list(self._members())
        return lambda given: any(test(given) for test in tests) is is_inside

    def _members(self) -> Iterator[_Test]:
        is_first = True
        while is_first or not self._takes("]"):
            if self._at >= len(self._text):
                raise PatternRefused('a "[" is not closed')
            is_first = False
            yield self._member()

    def _member(self) -> _Test:
        if self._takes("\\"):
            escaped = self._text[self._at : self._at + 1]
            test = self._escape()
            if escaped.isalnum():
                return test
            low = escaped
        else:
            low = self._text[self._at]
            self._at += 1
        following = self._text[self._at + 1 : self._at + 2]
        if self._text[self._at : self._at + 1] != "-" or following in ("]", ""):
            return low.__eq__
        self._at += 1
        if self._takes("\\"):
            following = self._text[self._at : self._at + 1]
            if following.isalnum() or not following:
                raise PatternRefused("a range ends with a character")
        self._at += 1
        if following < low:
            raise PatternRefused(f"[{low}-{following}] goes from more to less")
        return lambda given: low <= given <= following

    def _takes(self, text: str) -> bool:
        is_there = self._text.startswith(text, self._at)
        if is_there:
            self._at += len(text)
        return is_there

    def _takes_one(self, test: _Test) -> _Part:
        leave = self._new()
        enter = self._new(leave)
        self.places[enter].test = test
        return _Part(enter, leave)

    def _new(self, *after: int) -> int:
        if len(self.places) >= MAX_PLACES * 3:
            raise PatternRefused("its repetitions are too many: write smaller numbers")
        self.places.append(_Place(after=list(after)))
        return len(self.places) - 1


@lru_cache(maxsize=500)
def compiled(text: str) -> Pattern:
    """Return a pattern, or raise `PatternRefused`."""
    return Pattern(text)

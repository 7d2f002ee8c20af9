"""Texts of strangers made harmless: job names, messages and output never steer the terminal."""

from __future__ import annotations

import json
import re
import unicodedata

_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]"  # the short ones
)


def inert(text: str) -> str:
    """One line in which every character that a terminal would obey is spelled out."""
    return text if text.isprintable() else "".join(map(_visible, text))


def inert_output(text: str) -> str:
    """A line that a job printed: colours and cursor movements dropped, tabs kept."""
    if text.isprintable():
        return text
    plain = _ESCAPE_SEQUENCE.sub("", text.rstrip("\r\n"))
    latest = plain.rpartition("\r")[2]  # a progress bar draws over itself
    return "\t".join(inert(part) for part in latest.split("\t"))


def inert_json(text: str) -> str:
    """A JSON text whose strings carry such characters escaped; its meaning is unchanged."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1]
        for letter in text
    )


def width_of(text: str) -> int:
    """How many cells of a terminal an inert text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _visible(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def _cells(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1

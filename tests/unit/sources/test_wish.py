"""What the program that fetches tells: it read hostile data, and may tell anything."""

from __future__ import annotations

import json
import os

import pytest

from rota.sources.wish import SourceReport

COMMIT = "ab" * 20


def read(told: object) -> SourceReport | None:
    descriptor = os.memfd_create("report")
    try:
        os.write(descriptor, told if isinstance(told, bytes) else json.dumps(told).encode())
        return SourceReport.read(descriptor)
    finally:
        os.close(descriptor)


def test_how_it_went() -> None:
    assert read({"error": "", "cause": "", "commit": COMMIT}) == SourceReport(commit=COMMIT)
    refused = read({"error": "no such branch", "cause": "source", "commit": ""})
    assert refused == SourceReport("no such branch", "source")


def test_an_error_becomes_a_line_that_can_be_printed_and_kept() -> None:
    told = read({"error": "\udcff\x1b[31mred\n" + "x" * 50_000, "cause": "source", "commit": ""})

    assert told is not None
    assert told.error.startswith("\\udcff\\x1b[31mred\\nxxx")
    assert told.error.isprintable()
    assert len(told.error.encode()) < 3_000


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"[]",
        b"[" * 60_000,
        {"error": "", "cause": ""},
        {"error": "", "cause": "", "commit": f"{COMMIT}\n"},
        {"error": "", "cause": "", "commit": "main"},
        {"error": "x", "cause": "\x1b]0;", "commit": ""},
    ],
)
def test_what_makes_no_sense_is_not_taken(told: object) -> None:
    assert read(told) is None

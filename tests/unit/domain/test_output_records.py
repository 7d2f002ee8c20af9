from __future__ import annotations

import pytest

from rota.domain.errors import Unavailable
from rota.domain.output import Record, Stream, find_records, read_blocks, read_records, to_raw

READABLE = (
    b"1731712345678 stdout 0|Compiling 2 files\n"
    b"|Linking\n"
    b"1731712345690 stderr 0|warning: unused import\n"
    b"1731712346001 stdout 1+Continue?\n"
    b"1731712349127 stdout 1| yes\n"
)


def test_a_header_counts_for_the_records_below_it() -> None:
    first, second, third, *_ = read_records(READABLE)

    assert first == Record(1731712345678, Stream.STDOUT, 0, b"Compiling 2 files", ends_line=True)
    assert second == Record(1731712345678, Stream.STDOUT, 0, b"Linking", ends_line=True)
    assert third.stream is Stream.STDERR


def test_a_line_that_goes_on_is_marked_so() -> None:
    *_, question, answer = read_records(READABLE)

    assert (question.text, question.ends_line) == (b"Continue?", False)
    assert (answer.text, answer.ends_line) == (b" yes", True)


def test_raw_is_what_was_printed() -> None:
    assert to_raw(READABLE) == (
        b"Compiling 2 files\nLinking\nwarning: unused import\nContinue? yes\n"
    )


@pytest.mark.parametrize(
    ("first", "limit", "texts"),
    [
        (0, 2, [b"Compiling 2 files", b"Linking"]),
        (1, 2, [b"Linking", b"warning: unused import"]),
        (3, None, [b"Continue?", b" yes"]),
        (4, 10, [b" yes"]),
        (5, None, []),
        (0, 0, []),
    ],
)
def test_a_window_of_records_is_read(first: int, limit: int | None, texts: list[bytes]) -> None:
    assert [record.text for record in read_records(READABLE, first, limit)] == texts


def test_found_records_come_with_their_indexes() -> None:
    assert [(i, r.text) for i, r in find_records(READABLE, b"in")] == [
        (0, b"Compiling 2 files"),
        (1, b"Linking"),
        (2, b"warning: unused import"),
        (3, b"Continue?"),
    ]
    assert [i for i, _ in find_records(READABLE, b"in", first=2)] == [2, 3]


@pytest.mark.parametrize("text", [b"stdout", b"|", b"+", b"1731"])
def test_headers_and_marks_are_not_searched(text: bytes) -> None:
    assert list(find_records(READABLE, text)) == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"|no header\n", id="starts without a header"),
        pytest.param(b"1 stdout 0|no end", id="cut short"),
        pytest.param(b"1 stdout 0 no mark\n", id="no mark"),
        pytest.param(b"1 stdin 0|text\n", id="unknown stream"),
        pytest.param(b"1 stdout 0|text\n\n", id="empty record"),
        pytest.param(b"\x1f\x8b garbage", id="something else"),
    ],
)
def test_damaged_records_are_refused(data: bytes) -> None:
    with pytest.raises(Unavailable) as caught:
        list(read_records(data))

    assert caught.value.code == "output_damaged"


MIXED = b"7 stdout 0|a\n|b\n+c\n+d\n|e\n|\n8 stderr 1|f\n"


def test_records_in_a_row_are_one_block_unless_a_line_goes_on() -> None:
    blocks = [(block.index, block.text, block.ends_line) for block in read_blocks(MIXED)]

    assert blocks == [
        (0, b"a\nb", True),
        (2, b"c", False),
        (3, b"d", False),
        (4, b"e\n", True),
        (6, b"f", True),
    ]


@pytest.mark.parametrize("first", range(9))
def test_blocks_from_a_record_on_are_the_records_from_there(first: int) -> None:
    found = [
        Record(block.at_ms, block.stream, block.step, text, block.ends_line)
        for block in read_blocks(MIXED, first)
        for text in block.text.split(b"\n")
    ]

    assert found == list(read_records(MIXED, first))
    assert next((block.index for block in read_blocks(MIXED, first)), 7) == min(first, 7)


def test_many_empty_lines_are_one_block() -> None:
    [block] = read_blocks(b"7 stdout 0" + b"|\n" * 100_000)

    assert block.text == b"\n" * 99_999

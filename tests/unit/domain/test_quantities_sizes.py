from __future__ import annotations

import pytest

from rota.domain.quantities import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("512B", 512),
        ("64KB", 64_000),
        ("64KiB", 65_536),
        ("1.5 MiB", 1_572_864),
        ("100mib", 104_857_600),
        ("2GB", 2_000_000_000),
        ("1TiB", 1024**4),
    ],
)
def test_size_is_read_in_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "100", "-1B", "1IB", "1XB", "1e3B", "9" * 16 + "B", "MiB", "٣B"]
)
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["0B", "1B", "1023B", "1KiB", "100MiB", "3GiB", "2TiB"])
def test_size_is_written_as_it_is_read(text: str) -> None:
    assert format_size(parse_size(text)) == text

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.errors import Invalid
from rota.server.gateway.filters import MAX_INTEGER, decode_cursor, encode_cursor


@given(st.text(st.characters(categories=["L", "N"])))
def test_a_cursor_leads_back_to_its_place(name: str) -> None:
    assert decode_cursor("jobs", encode_cursor("jobs", name), "") == name


def test_a_cursor_does_not_show_what_is_in_it() -> None:
    assert "tidy" not in encode_cursor("jobs", "tidy")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "!",
        "é",
        encode_cursor("jobs", "tidy"),
        encode_cursor("runs", "tidy"),
        encode_cursor("runs", -1),
        encode_cursor("runs", MAX_INTEGER + 1),
        urlsafe_b64encode(b"[" * 700).decode(),
        urlsafe_b64encode(b'["runs", true]').decode(),
        urlsafe_b64encode(b'{"runs": 1}').decode(),
    ],
)
def test_a_foreign_or_made_up_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode_cursor("runs", cursor, 0)

    assert caught.value.code == "bad_cursor"


@given(st.text(max_size=60))
def test_any_text_is_a_cursor_or_invalid(text: str) -> None:
    with suppress(Invalid):
        assert decode_cursor("jobs", text, "").isprintable()

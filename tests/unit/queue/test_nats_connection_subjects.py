from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rota.queue.nats_connection import token

TOKEN = re.compile(r"[A-Za-z0-9_=-]+")


@given(st.text(max_size=100))
def test_any_name_is_one_plain_token(name: str) -> None:
    assert TOKEN.fullmatch(token(name))
    assert len(token(name)) <= 150


@given(st.text(max_size=60), st.text(max_size=60))
def test_different_names_are_different_tokens(one: str, other: str) -> None:
    assert (token(one) == token(other)) == (one == other)


def test_plain_names_stay_readable() -> None:
    assert token("gpu-large_2") == "gpu-large_2"
    assert token("output.r_1") == "output=2Er_1"

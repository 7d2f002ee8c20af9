from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.credentials import (
    ALPHABET,
    RANDOM_CHARACTERS,
    SecretKind,
    compose,
    kind_of,
    shown_part,
)

RANDOM = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
randoms = st.text(ALPHABET, min_size=RANDOM_CHARACTERS, max_size=RANDOM_CHARACTERS)
kinds = st.sampled_from(SecretKind)


def test_the_form_is_a_promise_to_secret_scanners() -> None:
    assert compose(SecretKind.PROGRAM, RANDOM) == f"rotat_{RANDOM}0OvOYv"


@given(kinds, randoms)
def test_a_secret_tells_what_it_is_for(kind: SecretKind, random: str) -> None:
    assert kind_of(compose(kind, random)) is kind


@given(kinds, randoms, st.data())
def test_one_wrong_character_is_noticed(kind: SecretKind, random: str, data: st.DataObject) -> None:
    secret = compose(kind, random)
    place = data.draw(st.integers(0, len(secret) - 1))
    other = data.draw(st.sampled_from(ALPHABET).filter(lambda each: each != secret[place]))

    with pytest.raises(ValueError, match=r"looks like|not a valid"):
        kind_of(secret[:place] + other + secret[place + 1 :])


@given(kinds, randoms, st.integers(0, RANDOM_CHARACTERS))
def test_a_secret_that_was_cut_off_is_noticed(kind: SecretKind, random: str, length: int) -> None:
    secret = compose(kind, random)[:length]

    with pytest.raises(ValueError, match=r"looks like|not a valid"):
        kind_of(secret)


@given(st.text())
def test_whatever_else_is_shown_is_no_secret(text: str) -> None:
    with pytest.raises(ValueError, match=r"looks like|not a valid"):
        kind_of(text)


@pytest.mark.parametrize("beginning", ["rota_", "rotaw_"])
def test_secrets_from_before_there_were_kinds_are_left_to_the_store(beginning: str) -> None:
    assert kind_of(beginning + "a-_4" * 8) is None


def test_a_checksum_alone_makes_no_kind() -> None:
    for beginning in ("rotax_", "x_", "t_", "rota_"):
        head = beginning + RANDOM
        forged = compose(SecretKind.PROGRAM, RANDOM).replace(f"rotat_{RANDOM}", head)
        with pytest.raises(ValueError, match=r"looks like|not a valid"):
            kind_of(forged)


@given(kinds, randoms)
def test_what_may_be_shown_is_too_little_to_guess_the_rest(kind: SecretKind, random: str) -> None:
    assert shown_part(compose(kind, random)) == f"rota{kind}_{random[:8]}"

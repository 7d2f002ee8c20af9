from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from rota.domain.errors import Invalid, Unavailable
from rota.domain.key_ring import Key, KeyRing, new_key, parse_keys

OLD, NEW = Key("old", b"o" * 32), Key("new", b"n" * 32)
CONTEXT = b"refresh-token/session-1"


def complaints(text: str) -> list[str]:
    with pytest.raises(Invalid) as refused:
        parse_keys(text)
    assert refused.value.code == "bad_key_ring"
    return [str(problem) for problem in refused.value.problems]


class TestText:
    def test_lines_of_keys_are_read_in_their_order(self) -> None:
        text = f"# the newest first\n\n{NEW.line()}\n  {OLD.line()}\n"

        assert parse_keys(text) == (NEW, OLD)

    def test_a_new_key_is_a_line_that_can_be_read(self) -> None:
        key = new_key()

        assert parse_keys(key.line()) == (key,)
        assert new_key().secret != key.secret

    def test_every_bad_line_is_told_by_its_number(self) -> None:
        short = base64.b64encode(b"short").decode()
        text = f"{OLD.line()}\nrk1:a b:x\nrk1:x:no base64\nrk1:s:{short}\n{OLD.line()}\nwhat"

        told = complaints(text)

        assert [line.partition(" ")[0] for line in told] == ["2", "3", "4", "5", "6"]
        assert "has 5 bytes and not 32" in told[2]
        assert "old is there twice" in told[3]

    def test_an_empty_ring_is_none(self) -> None:
        assert complaints("# nothing\n") == ["there is no key in it"]

    def test_no_part_of_a_key_is_shown(self) -> None:
        encoded = base64.b64encode(OLD.secret).decode()

        assert encoded not in " ".join(complaints(f"rk2:old:{encoded}"))
        assert repr(OLD.secret)[2:-1] not in repr(OLD)


class TestSealing:
    def test_what_was_sealed_opens_in_its_context(self) -> None:
        ring = KeyRing([NEW])
        sealed = ring.seal(b"refresh me", CONTEXT)

        assert ring.open(sealed, CONTEXT) == b"refresh me"
        assert "refresh" not in sealed

    def test_the_same_value_never_looks_the_same(self) -> None:
        ring = KeyRing([NEW])

        first, second = (ring.seal(b"refresh me", CONTEXT).split(":") for _ in range(2))

        assert first[1] == second[1] == "new"
        assert first[2] != second[2]
        assert first[3] != second[3]

    def test_in_another_context_it_does_not_open(self) -> None:
        ring = KeyRing([NEW])
        sealed = ring.seal(b"refresh me", CONTEXT)

        with pytest.raises(Invalid) as refused:
            ring.open(sealed, b"refresh-token/session-2")

        assert refused.value.code == "bad_seal"

    @pytest.mark.parametrize("part", [1, 2, 3])
    def test_parts_of_another_value_do_not_fit(self, part: int) -> None:
        other = KeyRing([OLD]).seal(b"other", CONTEXT).split(":")
        mixed = KeyRing([NEW]).seal(b"refresh me", CONTEXT).split(":")
        mixed[part] = other[part]

        with pytest.raises(Invalid) as refused:
            KeyRing([NEW, OLD]).open(":".join(mixed), CONTEXT)

        assert refused.value.code == "bad_seal"

    @pytest.mark.parametrize("text", ["", "rs1:new", "rs2:new:AA==:AA==", "rs1:new:?:?", "x" * 99])
    def test_what_is_no_sealed_value_is_refused(self, text: str) -> None:
        with pytest.raises(Invalid) as refused:
            KeyRing([NEW]).open(text, CONTEXT)

        assert refused.value.code == "bad_seal"

    @pytest.mark.parametrize("size", [0, 1, 100_000])
    def test_values_of_any_size_are_sealed(self, size: int) -> None:
        ring = KeyRing([NEW])

        assert ring.open(ring.seal(b"x" * size, CONTEXT), CONTEXT) == b"x" * size


class TestRotation:
    def test_a_new_key_put_first_seals_and_the_old_one_still_opens(self) -> None:
        ring = KeyRing([OLD])
        before = ring.seal(b"refresh me", CONTEXT)

        ring.replace([NEW, OLD])

        assert ring.open(before, CONTEXT) == b"refresh me"
        assert not ring.is_current(before)
        assert ring.is_current(ring.seal(b"refresh me", CONTEXT))

    def test_a_rewrapped_value_needs_the_old_key_no_more(self) -> None:
        before = KeyRing([OLD]).seal(b"refresh me", CONTEXT)

        after = KeyRing([NEW, OLD]).rewrap(before)

        assert KeyRing([NEW]).open(after, CONTEXT) == b"refresh me"
        assert after.split(":")[3] == before.split(":")[3], "only its data key is wrapped anew"

    def test_what_the_first_key_has_wrapped_stays_as_it_is(self) -> None:
        ring = KeyRing([NEW, OLD])
        sealed = ring.seal(b"refresh me", CONTEXT)

        assert ring.rewrap(sealed) == sealed

    def test_a_missing_key_is_named(self) -> None:
        sealed = KeyRing([OLD]).seal(b"refresh me", CONTEXT)

        with pytest.raises(Unavailable) as missing:
            KeyRing([NEW]).open(sealed, CONTEXT)

        assert missing.value.code == "key_missing"
        assert missing.value.facts["key_id"] == "old"
        assert "old" in missing.value.message

    def test_a_ring_cannot_become_empty(self) -> None:
        ring = KeyRing([NEW])

        with pytest.raises(ValueError, match="at least one"):
            ring.replace([])

        assert ring.ids == ("new",)


def test_a_ring_that_seals_nothing_costs_no_memory_for_ciphers() -> None:
    program = (
        "import sys; from rota.domain.key_ring import KeyRing, new_key; KeyRing([new_key()]);"
        "sys.exit('cryptography' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

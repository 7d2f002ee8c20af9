"""What a worker was refused with reaches whoever would start it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.domain.errors import Denied, Invalid, NotFound, RotaError, Unavailable
from rota.guardian.cgroups import cleaned
from rota.runtime import worker


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (Denied("no"), True),
        (Invalid("no"), True),
        (Unavailable("no package", code="extra_missing"), True),
        (Unavailable("away"), False),
        (NotFound("no session"), False),
        (ConnectionResetError(), False),
    ],
)
def test_only_what_would_be_refused_again_is_final(error: Exception, is_final: bool) -> None:
    assert worker.is_final(error) is is_final


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Denied("who?", code="unauthenticated", hint="get a token"), Denied),
        (Invalid("what?", hint="write it so"), Invalid),
        (Unavailable("no package", code="extra_missing", hint="install it"), Invalid),
    ],
)
def test_note_is_told_as_it_was_left(
    tmp_path: Path, error: RotaError, kind: type[RotaError]
) -> None:
    worker.leave_refusal(tmp_path, error)

    told = worker.take_refusal(tmp_path)

    assert type(told) is kind
    assert (told.message, told.code, told.hint) == (error.message, error.code, error.hint)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, b"", b'{"kind": "odd"}'])
def test_note_that_cannot_be_read_is_a_refusal_all_the_same(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "refusal.json").write_bytes(content)

    assert isinstance(worker.take_refusal(tmp_path), Invalid)


def test_workers_with_other_folders_are_never_of_one_name_on_a_machine(tmp_path: Path) -> None:
    """What a guardian of a name left behind is killed at the next start of that name."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()

    names = [worker._name_on_this_machine("w" * 200, folder) for folder in folders]

    assert cleaned(names[0]) != cleaned(names[1])

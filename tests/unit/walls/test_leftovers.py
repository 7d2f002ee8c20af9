from __future__ import annotations

from pathlib import Path

from rota.walls.leftovers import Journal


def test_journal_remembers_what_was_not_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("a", "/run/docker.sock")
    journal.note("b", "/run/other.sock")
    journal.forget("a")
    journal.close()

    assert Journal(tmp_path / "journal").open == {"b": "/run/other.sock"}


def test_journal_is_empty_again_when_nothing_is_left(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for number in range(100):
        journal.note(f"c{number}", "/run/docker.sock")
        journal.forget(f"c{number}")

    assert (tmp_path / "journal").read_text() == ""
    journal.note("last", "/run/docker.sock")
    assert Journal(tmp_path / "journal").open == {"last": "/run/docker.sock"}


def test_line_that_was_cut_off_says_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("a", "/run/docker.sock")
    with (tmp_path / "journal").open("a") as file:
        file.write('{"container": "b", "eng')

    assert Journal(tmp_path / "journal").open == {"a": "/run/docker.sock"}

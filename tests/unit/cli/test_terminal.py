from __future__ import annotations

import io

import pytest

from rota.cli.terminal import CommandFailed, Terminal


class Keyboard(io.StringIO):
    """A person's answers, or whatever else is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal() -> Terminal:
    return Terminal(io.StringIO(), Keyboard(), has_colour=False, is_plain=False, width=None)


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_person_can_agree(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard(answer))

    terminal().confirm("delete job tidy?", yes=False, otherwise="add --yes")


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_anything_but_yes_changes_nothing(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard(answer))

    with pytest.raises(CommandFailed, match="nothing was changed"):
        terminal().confirm("delete job tidy?", yes=False, otherwise="add --yes")


def test_script_is_told_how_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    with pytest.raises(CommandFailed) as refused:
        terminal().confirm("delete job tidy?", yes=False, otherwise="add --yes")

    assert refused.value.hint == "add --yes"


@pytest.mark.parametrize(
    ("variables", "flags", "is_coloured"),
    [
        ({}, {}, True),
        ({"NO_COLOR": "1"}, {}, False),
        ({"TERM": "dumb"}, {}, False),
        ({}, {"no_colour": True}, False),
        ({}, {"plain": True}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    flags: dict[str, bool],
    is_coloured: bool,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Keyboard())

    assert Terminal.standard(**flags).has_colour is is_coloured


def test_file_or_pipe_gets_neither_colour_nor_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())

    target = Terminal.standard()

    assert (target.has_colour, target.width) == (False, None)

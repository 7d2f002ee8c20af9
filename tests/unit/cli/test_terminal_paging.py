from __future__ import annotations

import sys

import pytest

from rota.cli.terminal import Terminal, paged


def terminal(width: int | None) -> Terminal:
    return Terminal(sys.stdout, sys.stderr, has_colour=False, is_plain=False, width=width)


def test_terminal_gets_its_pager(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", "tr a-z A-Z")

    with paged(terminal(width=80)) as page:
        page.write("hello\n")

    assert capfd.readouterr().out == "HELLO\n"


@pytest.mark.parametrize(
    ("width", "pager"), [(None, "tr a-z A-Z"), (80, ""), (80, "no-such-pager")]
)
def test_text_goes_straight_out_where_nobody_pages(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    width: int | None,
    pager: str,
) -> None:
    monkeypatch.setenv("PAGER", pager)

    with paged(terminal(width)) as page:
        page.write("hello\n")

    assert capfd.readouterr().out == "hello\n"


def test_reader_may_leave_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "true")

    with paged(terminal(width=80)) as page:
        for _ in range(100_000):
            page.write("more and more\n")

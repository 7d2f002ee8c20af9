from __future__ import annotations

import importlib
import subprocess
import sys
from shlex import quote

import pytest

from rota import __version__
from rota.cli.main import COMMANDS, Command
from tests.unit.cli.console import Console

HEAVY = {"cyclopts", "rich", "msgspec", "yaml", "asyncio", "http.client", "dataclasses"}


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]], ids=" ".join)
def test_overview_names_every_command(rota: Console, words: list[str]) -> None:
    ended = rota(*words)

    named = {line.split()[0] for line in ended.lines if line.startswith("  ")}
    assert ended.code == 0
    assert named == {command.name for command in COMMANDS}


@pytest.mark.parametrize("words", [["version"], ["--version"], ["-V"]], ids=" ".join)
def test_version(rota: Console, words: list[str]) -> None:
    assert rota(*words).out == f"rota {__version__}\n"


def test_version_for_programs(rota: Console) -> None:
    assert rota("version", "--json").json["rota"] == __version__


@pytest.mark.parametrize("words", [["--help"], ["version"]], ids=" ".join)
def test_first_answer_waits_for_no_heavy_import(words: list[str]) -> None:
    script = "import sys; from rota.cli.main import main; main(); print(*sys.modules)"

    ended = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {script}", *words],
        capture_output=True,
        text=True,
        check=True,
    )

    assert HEAVY.isdisjoint(ended.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_command_is_where_the_table_says(command: Command) -> None:
    module, _, name = command.target.partition(":")

    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["jbo", "list"], 'Did you mean "job"?'),
        (["job", "lsit"], 'Did you mean "list"?'),
        (["job", "list", "--limt", "3"], "Did you mean --limit?"),
        (["run", "resolve", "r_1", "--as", "complted"], 'Did you mean "completed"?'),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistyped_word_gets_the_nearest_one(rota: Console, words: list[str], nearest: str) -> None:
    ended = rota(*words)

    assert ended.code == 2
    assert nearest in ended.err
    assert "--help" in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ["job", "show"],
        ["job", "show", "a", "b"],
        ["job", "list", "--limit", "0"],
        ["job", "list", "--limit", "many"],
        ["job", "list", "-o", "xml"],
        ["run", "cancel"],
        ["run", "resolve", "r_1"],
        ["trigger", "tidy", "--input", "novalue"],
        ["trigger", "tidy", "--timeout", "soon"],
        ["trigger", "tidy", "--at", "soon"],
        ["job", "ledger", "tidy", "--since", "5x"],
        ["apply"],
        ["validate"],
        ["cron", "next"],
        ["cron", "next", "@daily", "--from", "soon"],
        ["cron", "next", "61 * * * *"],
        ["token", "create", "--name", "ci", "--role", "king"],
        ["logs", "r_1", "--raw", "--follow"],
        ["logs", "r_1", "--raw", "--tail", "3"],
        ["worker", "lst"],
        ["worker", "start"],
        ["\x1b[2J"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_told_on_standard_error(rota: Console, words: list[str]) -> None:
    ended = rota(*words)

    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("rota: ")
    assert "\x1b" not in ended.err
    assert "Traceback" not in ended.err


def test_time_that_is_none_is_answered_with_one_that_is(rota: Console) -> None:
    ended = rota("trigger", "tidy", "--at", "soon")

    assert '"soon": not a time: write 5m, yesterday, today 14:00, 2026-11-18' in ended.err


def test_verb_that_goes_without_saying_is_left_out(rota: Console) -> None:
    assert rota("worker", "start").err == "rota: did you mean: rota worker\n"


def test_help_of_a_word_is_the_page_of_that_command(rota: Console) -> None:
    assert rota("help", "job", "pause").out == rota("job", "pause", "--help").out


def test_reader_that_leaves_early_is_no_error() -> None:
    ended = subprocess.run(
        f"{quote(sys.executable)} -c 'from rota.cli.main import main; raise SystemExit(main())'"
        " schema | head -n 1; exit ${PIPESTATUS[0]}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.stdout == "{\n"
    assert ended.stderr == ""
    assert ended.returncode in {0, 141}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["trigger", "hello", "now"], 'unexpected argument: "now".'),
        (["trigger"], "JOB is missing."),
        (["trigger", "hello", "--timeout"], "--timeout needs a value."),
        (["run", "resolve", "r_1"], "--as is missing."),
        (["trigger", "hello", "--watch=maybe"], "--watch: it is a flag and takes none."),
        (["logs", "hello", "--attempt", "one"], '"one" for --attempt: it is not a whole number.'),
        (["validate", "--json"], "FILE… is missing."),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_refused_command_lines_are_told_in_words_of_users(
    rota: Console, words: list[str], told: str
) -> None:
    ended = rota(*words)

    assert ended.code == 2
    assert told in ended.err
    assert not any(word in ended.err for word in ("Token", "parameter", "convert"))

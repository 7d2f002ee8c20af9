from __future__ import annotations

import dataclasses
import importlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from shlex import quote

import pytest

from rota import __version__
from rota.cli.main import COMMANDS, Command
from rota.cli.options import Remote
from rota.cli.program import SHARED_OPTIONS, build
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server
from tests.unit.cli.test_help_pages import commands

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
        (
            ["trigger", "hello", "--watch=maybe"],
            '--watch is a flag and takes no value, not "maybe".',
        ),
        (["logs", "hello", "--attempt", "one"], '--attempt must be a whole number, not "one".'),
        (["validate", "--json"], "FILE… is missing."),
        (["job", "list", "--limit", "0"], '--limit must be at least 1, not "0".'),
        (["job", "list", "--limit", "many"], '--limit: "many" is not a whole number'),
        (["job", "list", "-o", "xml"], '-o cannot be "xml"; choose from: "table", "wide"'),
        (["completion", "tcsh"], 'SHELL cannot be "tcsh"; choose from: "bash", "zsh", "fish".'),
        (["job", "list", "--limit", "3", "--limit", "4"], "--limit is given more than once."),
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


SHARED = [
    ["--tz", "Asia/Tokyo"],
    ["--tz=Asia/Tokyo"],
    ["--project", "default"],
    ["--plain", "--no-color"],
]


@pytest.mark.parametrize("options", SHARED, ids=" ".join)
def test_shared_options_may_come_before_the_command(
    rota: Console, server: Server, options: list[str]
) -> None:
    server.define("jobs: [{name: tidy, schedule: '0 2 1 1 *', steps: [{run: x}]}]")

    before, behind = (rota(*options, "job", "list"), rota("job", "list", *options))

    assert before.code == 0
    assert before.out.splitlines()[0] == behind.out.splitlines()[0]
    assert ("JST" in before.out) == ("Asia/Tokyo" in "".join(options))


def test_data_format_may_come_before_the_command(rota: Console) -> None:
    assert rota("--json", "version").json == rota("-o", "json", "version").json


def test_every_shared_option_is_known_before_the_command() -> None:
    names = {"--" + field.name.replace("_", "-") for field in dataclasses.fields(Remote)}

    assert names == set(SHARED_OPTIONS) - {"-o"}


def test_other_option_before_the_command_is_told_where_it_goes(rota: Console) -> None:
    for words in (["--limit", "5", "run", "list"], ["--limit=5", "run", "list"]):
        ended = rota(*words)

        assert ended.code == 2
        assert ended.err.startswith("rota: --limit goes behind the command: rota COMMAND --limit\n")


def test_shared_option_without_a_command_is_told_where_it_goes(rota: Console) -> None:
    assert rota("--tz", "UTC").err.startswith("rota: --tz goes behind the command")


PARSER_WORDS = re.compile(
    "Unused Token|Extra inputs|Invalid value|NoneType|Input should|Unable to convert|Must be >"
    r"|[Pp]arameter|[a-z](?:Error|Exception)\b|Errno|Traceback|<class|\bNone\b|\bstr\b|\bint\b"
)
WRONG = ("", "-5", "qq zz\x1b[2J")
# Every command takes them: tried with one that has them all.
TRIED_ONCE = frozenset(
    [
        "--output",
        "--json",
        "--no-color",
        "--plain",
        "--url",
        "--project",
        "--tz",
        "--dry-run",
        "--yes",
    ]
)
# They go on until they are stopped, whatever a value of theirs is: only the parser is tried.
LASTING = {"up", "server", "worker"}


def wrong_uses(words: list[str]) -> Iterator[list[str]]:
    """Every option of a command with every wrong value; and words that it does not take."""
    program = build()
    for word in words:
        program = program[word]
    if program.default_command is None:
        yield from ([*words, "nosuch"], [*words, "--nosuch"])
        return
    arguments = list(program.assemble_argument_collection())
    given = ["x" for each in arguments if not each.name.startswith("-") and each.required]
    yield from ([*words, *given, "--nosuch"], [*words, *given, "--nosuch=3"], [*words, "-Z"])
    if words[0] in LASTING:
        return
    yield [*words, *("abcdefgh")]
    for each in arguments:
        is_tried = each.name not in TRIED_ONCE or words == ["job", "delete"]
        if each.name.startswith("--") and each.name != "--follow" and is_tried:
            yield [*words, *given, each.name]
            yield from ([*words, *given, f"{each.name}={value}"] for value in WRONG)
    yield from ([*words, *([value] * len(given))] for value in WRONG if given)


@pytest.mark.slow
@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_no_wrong_use_of_any_command_is_told_in_words_of_a_parser(
    rota: Console, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))

    told = {" ".join(each): rota(*each).err for each in wrong_uses(words)}

    assert {use: err for use, err in told.items() if PARSER_WORDS.search(err)} == {}

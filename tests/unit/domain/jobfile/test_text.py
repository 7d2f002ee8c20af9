from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from rota.domain.errors import Invalid
from rota.domain.jobfile.text import MAX_BYTES, MAX_DEPTH, MAX_NODES, Data, Mark, Source, parse_text

FEW = 2 * MAX_DEPTH + 4  # events of the parser: a key and a value on each level, and the frame


def parse(text: str) -> Data:
    source = parse_text(text)
    assert source.problems == ()
    return source.data


def fault(text: str) -> str:
    with pytest.raises(Invalid) as caught:
        parse_text(text)
    (problem,) = caught.value.problems
    return str(problem)


def mark_at(source: Source, *path: str | int) -> Mark:
    mark = source.mark
    for key in path:
        assert mark.children is not None
        mark = mark.children[key]
    return mark


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("0755", 755),
        ("0o17", 15),
        ("0x1F", 31),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("'12'", "12"),
        ('"true"', "true"),
        ("'~'", "~"),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_scalar_is_read_by_the_core_schema(written: str, value: object) -> None:
    data = parse(f"key: {written}")

    assert data == {"key": value}
    assert isinstance(data, dict)
    assert type(data["key"]) is type(value)


def test_json_is_read_as_it_is() -> None:
    text = '{"a":{"b":[1,2.5,null,true,"x\\/y"]},\n\t"c":"\\ud83d\\ude00\\u00e9"}'

    assert parse(text) == {"a": {"b": [1, 2.5, None, True, "x/y"]}, "c": "\U0001f600é"}


def test_escaped_backslash_before_u_is_no_surrogate_pair() -> None:
    assert parse(r'{"a": "\\ud83d\\ude00"}') == {"a": r"\ud83d\ude00"}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse("{1: a, true: b, null: c, on: d}") == {
        "1": "a",
        "true": "b",
        "null": "c",
        "on": "d",
    }


def test_every_value_has_its_place() -> None:
    source = parse_text("jobs:\n  - name: é x\n    tags: [a, b]\n")

    name = mark_at(source, "jobs", 0, "name")
    assert (name.key, name.position) == ((2, 5), (2, 11))
    assert mark_at(source, "jobs", 0, "tags", 1).position == (3, 15)
    assert mark_at(source, "jobs", 0).position == (2, 5)


def test_unquoted_scalar_keeps_what_was_typed() -> None:
    source = parse_text("plain: 1.10\nquoted: '1.10'")

    assert mark_at(source, "plain").written == "1.10"
    assert mark_at(source, "quoted").written is None


def test_repeated_keys_are_all_reported_and_the_first_one_counts() -> None:
    source = parse_text("a: 1\nb: {c: 1, c: {x: 2}}\na: 3\n")

    assert source.data == {"a": 1, "b": {"c": 1}}
    assert [str(problem) for problem in source.problems] == [
        '2:11  key "c" is already in line 2',
        '3:1  key "a" is already in line 1',
    ]


@pytest.mark.parametrize(
    "number", [".nan", ".inf", "-.INF", "1e999", "9223372036854775808", "1" * 5000]
)
def test_number_that_cannot_be_stored_is_reported(number: str) -> None:
    (problem,) = parse_text(f"key: {number}").problems

    assert (problem.line, problem.column) == (1, 6)
    assert "quotes" in problem.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: *x", "1:4  nothing before has the anchor &x — put it in quotes if it is meant as"),
        ("a: &name 1\nb: *nam", '2:4  nothing before has the anchor &nam — did you mean "name"?'),
        ("a: &x [*x]", "1:8  *x stands inside of what it names"),
        ("a: &x {b: {c: *x}}", "1:15  *x stands inside of what it names"),
        ("a: &x 1\n*x : 2", "2:1  a key must be text, not an alias of another value"),
        ("a: 1\n<<: 2", "2:5  << takes a mapping, or a list of such — write <<: *NAME"),
        ("x: &x {a: 1}\ny: &y 2\nz: {<<: [*x, *y]}", "3:14  << takes a mapping"),
        ("a: !!python/object:os.system x", "1:4  YAML tags (!name) are not supported"),
        ("a: !local x", "1:4  YAML tags (!name) are not supported"),
        ("!!set {a}", "1:1  YAML tags (!name) are not supported"),
        ("? [a]\n: 1", "1:3  a key must be text, not a list or a mapping"),
        ("a: 1\n---\nb: 2", "2:1  the file has more than one YAML document"),
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("a: [1, 2", "not valid YAML"),
        ("a: 1\n\tb: 2", "2:1  not valid YAML: found a tab"),
        ("a: b: c", "1:5  not valid YAML: a value without quotes cannot contain"),
        ("a: \0", "1:4  character U+0000 is not allowed"),
        ("a: 1\nb: \x1b[31m", "2:4  character U+001B is not allowed"),
        ("a: \ud800", "1:4  character U+D800 is not allowed"),
        ('{"a": "\\ud800"}', "not valid YAML"),
    ],
)
def test_unsupported_text_is_refused_with_its_place(text: str, message: str) -> None:
    assert message in fault(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "jobs:\n  - name: a\n    schedule: */5 * * * *\n",
            '3:15  not valid YAML: a value without quotes cannot begin with "*"'
            ' — put it in quotes: schedule: "*/5 * * * *"',
        ),
        ("schedule:\n  - */5 * * * *", "2:5  not valid YAML: a value without quotes cannot"),
        ("schedule:\n  - */5 * * * *", 'put it in quotes: "*/5 * * * *"'),
        ("jobs: [{schedule: */5 * * * *, name: a}]", 'put it in quotes: "*/5 * * * *"'),
        ("schedule: @daily", '1:11  not valid YAML: a value without quotes cannot begin with "@"'),
        ("schedule: @daily", 'put it in quotes: schedule: "@daily"'),
        (
            "steps:\n  - run: echo hello: world  # greet",
            '2:20  not valid YAML: a value without quotes cannot contain ": "'
            ' — put it in quotes: run: "echo hello: world"',
        ),
        ("a: b\r\nrun: echo x: y\r\n", 'put it in quotes: run: "echo x: y"'),
        ("steps:\n  - echo a: b: c", 'put it in quotes: "echo a: b: c"'),
        ('run: echo "it\'s": x', "put it in quotes: run: 'echo \"it''s\": x'"),
    ],
)
def test_value_that_needs_quotes_is_shown_in_them(text: str, message: str) -> None:
    assert message in fault(text)


SLIPS = [
    (
        'run: "a" b',
        '1:10  text after the closing " — put the whole value in quotes: run: \'"a" b\'',
    ),
    ('run: "x" y\nb: 1', "1:10  text after the closing \" — put the whole value in quotes: run: '"),
    (
        'run: "a # b" c  # d',
        'put the whole value in quotes: run: \'"a # b" c\', or use "run: |" and',
    ),
    ('- "a" b', '1:7  text after the closing " — put the whole value in quotes: \'"a" b\''),
    (
        "run: 'a': b",
        "1:9  text after the closing ' — put the whole value in quotes: run: \"'a': b\"",
    ),
    ("run: 'don't'", 'put the whole value in quotes: run: "don\'t", or'),
    ('run: "say "hi""', "put the whole value in quotes: run: 'say \"hi\"', or"),
    ('run: "$A"/"$B"', 'put the whole value in quotes: run: \'"$A"/"$B"\', or'),
    (
        "run: [ -f x ] && y",
        '1:15  text after the closing ] — put the whole value in quotes: run: "[ -f',
    ),
    ('run: [ "$a" = b ] && y', "put the whole value in quotes: run: '[ \"$a\" = b ] && y', or"),
    ("run: {a} b", '1:10  text after the closing } — put the whole value in quotes: run: "{a} b"'),
    ("run: %x", '1:6  a value without quotes cannot begin with "%" — put it in quotes: run: "%x"'),
    (
        "run: `date`",
        '1:6  a value without quotes cannot begin with "`" — put it in quotes: run: "`da',
    ),
    (
        "run: - a",
        '1:6  a value without quotes cannot begin with "-" — put it in quotes: run: "- a"',
    ),
    (
        "run: & a",
        '1:6  a value without quotes cannot begin with "&" — put it in quotes: run: "& a"',
    ),
    ("x: [@a, b]", '1:5  a value without quotes cannot begin with "@" — put it in quotes: "@a"'),
    ("@run: x", '1:1  a value without quotes cannot begin with "@" — put it in quotes'),
    ("%run: x", '1:1  a value without quotes cannot begin with "%" — put it in quotes'),
    (
        "run: echo 'a': b",
        '1:14  a value without quotes cannot contain ": " — put it in quotes: run: "e',
    ),
    (
        'run: "abc\nb: 1\n',
        '1:6  this quote is not closed — add the missing "; a text of several lines goes',
    ),
    (
        "b: 1\nrun: 'abc",
        "2:6  this quote is not closed — add the missing '; a text of several lines goes",
    ),
    (
        'run: "abc\nb: "x"',
        "1:6  this quote is closed only in line 2 — close it where its text ends",
    ),
    ("\trun: x", "1:1  found a tab in the indentation — indent with spaces, not tabs"),
    ("a:\n  \tb: x", "2:3  found a tab in the indentation — indent with spaces, not tabs"),
    ("run: |\n\techo", "2:1  found a tab in the indentation — indent with spaces, not tabs"),
    ("run:echo\nb: 1", "1:4  no space after the colon — write a space: run: echo"),
    ("b: 1\nrun:echo a\n", "2:4  no space after the colon — write a space: run: echo a"),
    ("- name:x\n  run: y", "1:7  no space after the colon — write a space: name: x"),
    (
        "a: 1\necho b\nc: 2",
        '2:1  this line has no key — write it as "KEY: VALUE"; a text of several lines',
    ),
    (
        "run: http://x\n  b: 1",
        "2:3  a key inside the value that begins in line 1 — keys of one mapping",
    ),
    (
        "- name: a\n   steps: []",
        "2:4  a key inside the value that begins in line 1 — keys of one mapping",
    ),
    ("a:\n  b: 1\n c: 2", "3:2  the indentation fits no line above — keys of one mapping"),
    ("a: |\n  b\n c\n", "3:2  the indentation fits no line above — keys of one mapping"),
    ("- a\nb: 1", "2:1  the indentation fits no line above — keys of one mapping"),
    ("run: | echo\n  y", '1:8  text in the same line as "|" — write it below, indented'),
    (
        'run: "\\d+"',
        "1:7  \\d is no escape that double quotes know — use single quotes, or write each \\",
    ),
    (
        "a: [b, c\n",
        '1:4  "[" is not closed, or a comma is missing, before line 2 — add the missing "]"',
    ),
    (
        "a: ['b' c]",
        '1:9  a comma or "]" is missing — put a comma between items; a text needs quotes',
    ),
    (
        "run: !x y",
        "1:6  YAML tags (!name) are not supported — put it in quotes if it is meant as text",
    ),
    ("run: *x", "1:6  nothing before has the anchor &x — put it in quotes if it is meant as text"),
    (
        "run: {{ x }}",
        "1:7  a key must be text, not a list or a mapping — put it in quotes if it is",
    ),
]


@pytest.mark.parametrize(("text", "told"), SLIPS)
def test_slip_is_told_with_its_place_and_a_way_to_write_it(text: str, told: str) -> None:
    assert told in fault(text).replace("not valid YAML: ", "")


@pytest.mark.parametrize("text", [text for text, _ in SLIPS])
def test_no_words_of_the_parser_are_told(text: str) -> None:
    assert not re.search(r"token|stream|scalar|node|expected|context|scanning", fault(text))


@pytest.mark.parametrize("spaces", [" x" * 200, " " * 2_000_000])
def test_long_line_is_not_shown_again(spaces: str) -> None:
    told = fault(f"run: echo{spaces}: y")

    assert told.endswith("put the whole value in quotes")


def test_alias_is_what_stands_at_its_anchor() -> None:
    text = """
    limit: &limit 1.10
    build: &build [go, {run: make}]
    again: [*limit, *build]
    name: &name key
    map: {*name : *limit}
    """

    assert parse(text) == {
        "limit": 1.1,
        "build": ["go", {"run": "make"}],
        "again": [1.1, ["go", {"run": "make"}]],
        "name": "key",
        "map": {"key": 1.1},
    }


def test_later_anchor_of_a_name_counts_from_there_on() -> None:
    assert parse("a: &x 1\nb: *x\nc: &x 2\nd: *x") == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_merged_keys_give_way_to_those_that_are_written() -> None:
    text = """
    one: &one {a: 1, b: 1, c: 1}
    two: &two {b: 2, d: 2}
    own: {<<: *one, a: 0}
    both:
      <<: [*two, *one]
      c: 0
    """

    found: Any = parse(text)

    assert found["own"] == {"a": 0, "b": 1, "c": 1}
    assert found["both"] == {"c": 0, "b": 2, "d": 2, "a": 1}


def test_repeated_merge_key_is_reported() -> None:
    [problem] = parse_text("a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n").problems

    assert str(problem) == '4:3  key "<<" is already in line 3'


def test_places_of_an_alias_are_its_own_and_those_of_its_anchor_inside() -> None:
    source = parse_text("a: &a\n  b: 1\n\nc: *a\nd:\n  <<: *a\n  e: 2\n")

    assert mark_at(source, "c").position == (4, 4)
    assert mark_at(source, "c").key == (4, 1)
    assert mark_at(source, "c", "b").position == (2, 6)
    assert mark_at(source, "d", "b").key == (2, 3)
    assert mark_at(source, "d", "e").position == (7, 6)
    assert mark_at(source, "a").position == (1, 4)


def test_aliases_count_as_what_they_stand_for() -> None:
    half = "x: &x [" + "1," * (MAX_NODES // 2 - 10) + "]\n"

    found: Any = parse(half + "y: *x")
    assert len(found["y"]) == MAX_NODES // 2 - 10
    assert "more than 300,000" in fault(half + "y: *x\nz: *x")


def test_quoted_merge_key_is_an_ordinary_key() -> None:
    assert parse("'<<': 1") == {"<<": 1}


def test_byte_order_mark_is_ignored() -> None:
    assert parse("\ufeffa: 1") == {"a": 1}


def test_deepest_allowed_nesting_is_read() -> None:
    parse("[" * MAX_DEPTH + "]" * MAX_DEPTH)

    assert "nested deeper" in fault("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


# Each doubles what it names; the last ones are never written out.
BOMB = "a: &a0 [x, x]\n" + "".join(f"k{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
LONG_BOMB = f"a: &a0 [{'x' * 10_000}]\n" + "".join(
    f"k{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 20)
)
DEEP_BOMB = "a: &a0 [x]\n" + "".join(f"k{n}: &a{n} [*a{n - 1}]\n" for n in range(1, MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("bomb", "message", "most"),
    [
        ("[" * 10_000, "nested deeper", FEW),
        ("{a: " * 10_000, "nested deeper", FEW),
        ("- " * 10_000, "nested deeper", FEW),
        ("? " * 10_000, "must be text", FEW),
        (BOMB, "more than 300,000", 200),
        (LONG_BOMB, "larger than 4 MiB with aliases written out", 200),
        (DEEP_BOMB, "nested deeper", 200),
        ("".join(f"a{n}: &a{n} x\n" for n in range(2_000)), "more than 1,000 anchors", 4_000),
        ("x" * 10_000_000, "larger than 4 MiB", 0),
        ("é" * (MAX_BYTES // 2 + 1), "larger than 4 MiB", 0),
        ("[" + "1," * MAX_NODES + "]", "more than 300,000", MAX_NODES + FEW),
        ("{" + "\\" * (MAX_BYTES - 1), "not valid YAML", FEW),
        ("\n" * MAX_BYTES, "empty", FEW),
    ],
    ids=lambda value: str(value)[:12],
)
def test_bomb_is_refused_after_little_work(
    bomb: str, message: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = taken_events(monkeypatch)

    assert message in fault(bomb)

    assert len(taken) <= most


def taken_events(monkeypatch: pytest.MonkeyPatch) -> list[yaml.Event]:
    """A list that grows with all that is asked of the parser."""
    taken: list[yaml.Event] = []
    parse = yaml.parse

    def keeping(*args: Any, **options: Any) -> Iterator[yaml.Event]:
        for event in parse(*args, **options):
            taken.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", keeping)
    return taken

"""Slips of newcomers: text that is no YAML, keys of other tools; how to write what was meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import yaml

from rota.domain.errors import did_you_mean, quoted

if TYPE_CHECKING:
    from yaml import _yaml

_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_LONGEST_LINE = 200  # that is looked at, and shown again
_INDENT = re.compile(r"[ \t]*(?:-[ \t]+)*+")
_KEY = re.compile(r"""((?:"[^"]*"|'[^']*'|[^\s"'\[{#:]+):)[ \t]+""")
_KEY_WITHOUT_SPACE = re.compile(r"[A-Za-z_][\w.-]*:(?=[^\s:])", re.ASCII)
_COMMENT = re.compile(r"[ \t]+#")
_QUOTED_INSIDE = re.compile(r"""(["'])[^"']*\1\w.*\1""")  # 'don't' or "say "hi""
_FLOW_VALUE = re.compile(r"[^,\]}]+")  # inside [ ] or { }
_NO_FIRST = frozenset("*&!%@`,]}?-")  # what no value without quotes begins with
_CLOSERS = {"[": "]", "{": "}", "'": "'", '"': '"'}
_STARTS_EARLIER = (
    "while scanning an alias",
    "while scanning an anchor",
    "while scanning a directive",
)
_BELOW = 'a text of several lines goes below "run: |", indented'
_LINE_UP = 'keys of one mapping, and the "-" of one list, begin in the same column'
_QUOTE_WHOLE = "put the whole value in quotes"


@dataclass(frozen=True, slots=True)
class Slip:
    """Text that is no YAML: what is wrong where, and how to write it."""

    message: str
    line: int
    column: int
    hint: str


def explain_syntax(error: yaml.MarkedYAMLError, last: yaml.Event | None, text: str) -> Slip:
    """Explain why a text cannot be parsed; `last`: the last event before the error."""
    fault = _Fault(error, last, _LINE_END.split(text))
    slips = (slip for rule in _RULES if (slip := rule(fault)))
    return next(slips, fault.slip("unexpected text", f"{_QUOTE_WHOLE}, or check the indentation"))


@dataclass(frozen=True, slots=True)
class _Value:
    """Value that a line has behind its key."""

    key: str  # "run:"; "": an item of a list
    text: str
    column: int

    @property
    def goes_on(self) -> bool:
        """Return whether it begins with a quote or bracket, and goes on behind it."""
        closer = _CLOSERS.get(self.text[0])
        return closer is not None and closer in self.text[1:-1]

    @property
    def in_quotes(self) -> str:
        is_meant = _QUOTED_INSIDE.fullmatch(self.text) is not None  # its quotes are YAML's
        return f"{self.key} {_in_quotes(self.text[1:-1] if is_meant else self.text)}".lstrip()

    @property
    def hint(self) -> str:
        what = "the whole value" if self.goes_on else "it"
        or_below = ', or use "run: |" and write it below' if self.key == "run:" else ""
        return f"put {what} in quotes: {self.in_quotes}{or_below}"


def _in_quotes(value: str) -> str:
    if '"' in value or "\\" in value:
        return "'" + value.replace("'", "''") + "'"
    return f'"{value}"'


class _Fault:
    """Where and why the parser stopped; lines and columns count from 1."""

    def __init__(
        self, error: yaml.MarkedYAMLError, last: yaml.Event | None, lines: list[str]
    ) -> None:
        self.problem, self.context = error.problem or "", error.context or ""
        self.position = _position(error.problem_mark or error.context_mark)
        self.start = _position(error.context_mark or error.problem_mark)  # of what was being read
        if self.context in _STARTS_EARLIER:
            # What follows a star is noticed, but it is the star that is wrong.
            self.position = self.start
        self.last = last if isinstance(last, yaml.ScalarEvent) else None
        self._lines = lines

    def slip(self, message: str, hint: str, position: tuple[int, int] | None = None) -> Slip:
        return Slip(message, *(position or self.position), hint)

    def line(self, position: tuple[int, int]) -> str:
        """Return a line; the end of the text is past the last one."""
        return self._lines[position[0] - 1] if position[0] <= len(self._lines) else ""

    def character(self, position: tuple[int, int]) -> str:
        return self.line(position)[position[1] - 1 : position[1]]

    def begins_line(self, position: tuple[int, int]) -> bool:
        indent = _INDENT.match(self.line(position))
        return indent is not None and indent.end() >= position[1] - 1

    @property
    def is_colon(self) -> bool:
        return self.problem.startswith("mapping values are not allowed")

    @cached_property
    def value(self) -> _Value | None:
        """The value that the parser was in; None: in none, or the line is too long to look at."""
        line, column = self.line(self.position), self.position[1]
        indent = _INDENT.match(line, 0, column - 1)
        if indent is None or len(line) > _LONGEST_LINE:
            return None
        key = _KEY.match(line, indent.end())
        start = key.end() if key else indent.end()
        comment = _COMMENT.search(line, column - 1)
        text = line[start : comment.start() if comment else None].rstrip()
        if start >= column or not text:
            return None
        return _Value(key[1] if key else "", text, start + 1)


def _position(mark: yaml.error.Mark | _yaml.Mark | None) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _tab(fault: _Fault) -> Slip | None:
    line, column = fault.position
    indent = fault.line(fault.position)[:column]
    if not indent.isspace() or "\t" not in indent:
        return None
    position = (line, indent.index("\t") + 1)
    return fault.slip("found a tab in the indentation", "indent with spaces, not tabs", position)


def _open_quote(fault: _Fault) -> Slip | None:
    is_open = "end of stream" in fault.problem or "document indicator" in fault.problem
    if not is_open or "quoted scalar" not in fault.context:
        return None
    hint = f"add the missing {fault.character(fault.start)}; {_BELOW}"
    return fault.slip("this quote is not closed", hint, fault.start)


def _quote_closed_late(fault: _Fault) -> Slip | None:
    """Find a quote that was not closed in its line, but by the first quote of a later one."""
    if fault.last is None or fault.last.style not in _CLOSERS:
        return None
    start, end = _position(fault.last.start_mark), _position(fault.last.end_mark)
    between = fault.line(end)[end[1] - 1 : fault.position[1] - 1]
    if not start[0] < end[0] == fault.position[0] or between.strip():
        return None
    hint = f"close it where its text ends; {_BELOW}"
    return fault.slip(f"this quote is closed only in line {end[0]}", hint, start)


def _escape(fault: _Fault) -> Slip | None:
    if "quoted scalar" not in fault.context:
        return None
    _, column = fault.position
    escape = fault.line(fault.position)[column - 1 : column + 1]
    hint = "use single quotes, or write each \\ twice"
    return fault.slip(f"{escape} is no escape that double quotes know", hint)


def _behind_block_mark(fault: _Fault) -> Slip | None:
    if fault.context != "while scanning a block scalar":
        return None
    hint = "write it below, indented"
    return fault.slip(f'text in the same line as "{fault.character(fault.start)}"', hint)


def _line_without_key(fault: _Fault) -> Slip | None:
    """Find a line that should be `key: value`: the parser notices only at the next one."""
    last = _position(fault.last.start_mark) if fault.last else fault.position
    if fault.problem == "could not find expected ':'":
        position = fault.start
    elif fault.is_colon and last[0] < fault.position[0] and fault.begins_line(last):
        position = last
    else:
        return None
    line = fault.line(position)
    if len(line) <= _LONGEST_LINE and (glued := _KEY_WITHOUT_SPACE.match(line, position[1] - 1)):
        hint = f"write a space: {glued[0]} {line[glued.end() :].rstrip()}"
        return fault.slip("no space after the colon", hint, (position[0], glued.end()))
    return fault.slip("this line has no key", f'write it as "KEY: VALUE"; {_BELOW}', position)


def _key_inside_value(fault: _Fault) -> Slip | None:
    last = _position(fault.last.start_mark) if fault.last else fault.position
    if not fault.is_colon or last[0] >= fault.position[0]:
        return None
    line = fault.line(fault.position)
    position = (fault.position[0], len(line) - len(line.lstrip()) + 1)
    message = f"a key inside the value that begins in line {last[0]}"
    return fault.slip(message, f"{_LINE_UP}; {_BELOW}", position)


def _indentation(fault: _Fault) -> Slip | None:
    is_expected = fault.problem.endswith(("expected key", "expected '-' indicator"))
    if not is_expected or fault.line(fault.position)[: fault.position[1] - 1].strip():
        return None
    return fault.slip("the indentation fits no line above", f"{_LINE_UP}; {_BELOW}")


def _value_to_quote(fault: _Fault) -> Slip | None:
    value = fault.value
    if value is None:
        return fault.slip(_COLON_INSIDE, _QUOTE_WHOLE) if fault.is_colon else None
    first = value.text[0]
    if value.goes_on:
        return fault.slip(f"text after the closing {_CLOSERS[first]}", value.hint)
    if first in _NO_FIRST and value.column == fault.position[1]:
        return fault.slip(f'a value without quotes cannot begin with "{first}"', value.hint)
    return fault.slip(_COLON_INSIDE, value.hint) if fault.is_colon else None


_COLON_INSIDE = 'a value without quotes cannot contain ": "'


def _first_character(fault: _Fault) -> Slip | None:
    """Find a value inside [ ] or { }, or a key, that begins with a special character."""
    first = fault.character(fault.position)
    if first not in _NO_FIRST:
        return None
    line, column = fault.line(fault.position), fault.position[1]
    value = _FLOW_VALUE.match(line, column - 1, _LONGEST_LINE)
    shown = f": {_in_quotes(value[0].rstrip())}" if value and line[: column - 1].strip() else ""
    message = f'a value without quotes cannot begin with "{first}"'
    return fault.slip(message, f"put it in quotes{shown}")


def _open_bracket(fault: _Fault) -> Slip | None:
    opener = fault.character(fault.start)
    if "while parsing a flow" not in fault.context or opener not in _CLOSERS:
        return None
    if fault.start[0] < fault.position[0]:
        message = (
            f'"{opener}" is not closed, or a comma is missing, before line {fault.position[0]}'
        )
        return fault.slip(message, f'add the missing "{_CLOSERS[opener]}" or comma', fault.start)
    text = f": {fault.value.in_quotes}" if fault.value else ""
    hint = f"put a comma between items; a text needs quotes{text}"
    return fault.slip(f'a comma or "{_CLOSERS[opener]}" is missing', hint)


_RULES: tuple[Callable[[_Fault], Slip | None], ...] = (
    _tab,
    _open_quote,
    _quote_closed_late,
    _escape,
    _behind_block_mark,
    _line_without_key,
    _key_inside_value,
    _indentation,
    _value_to_quote,
    _first_character,
    _open_bracket,
)


_BEFORE_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for keys that are no fields of a section."""

    form: str = ""  # a section in short, for a value that is no mapping
    slips: Mapping[str, str] = field(default_factory=dict)  # wrong keys that are likely
    for_list: str = ""  # what was meant by a list instead of the section
    otherwise: str = ""  # for a key that is near to none

    def about(self, key: str, known: list[str]) -> str:
        """Return what an unknown key was meant to be; "": unknown."""
        return self.slips.get(_plain(key)) or did_you_mean(key, known) or self.otherwise


def _plain(key: str) -> str:
    """Normalise a key: `runs-on` and `runsOn` are `runs_on`."""
    return _BEFORE_CAPITAL.sub("_", key).replace("-", "_").lower()


_A_STEP = "a command is a step: steps: [{run: COMMAND}]"
_A_JOB = 'a job stands in a list under "jobs"'
_A_CART = 'a cart stands in a list under "carts"'
_FOR_ALL = 'for every job of the file, write it under "defaults"'
_INTERVAL = 'did you mean "schedule"? An interval has a unit: schedule: every 10s'
_TRIES = 'did you mean "retry"? Its attempts count the first one too: 3 retries are retry: 4'
_FOLDER = "a job runs in a folder of the worker with source: {path: /FOLDER}"
_WORKERS = 'workers are chosen by "pool" and, by their labels, "needs"'
_LOCK = "declare a resource with kind: mutex, and take it: resources: {NAME: 1}"
_DEFINE = 'a cart runs a job: define that under "jobs", then name it: job: NAME'
_GIVE = 'inputs stand under "with" of each item; rota cart submit --set gives one to all'
_BELONGS = "that is a matter of the job which the items run: write it there"


def _meaning(**words: str) -> dict[str, str]:
    """Map each word that is often written for a key to its advice."""
    return _saying({f"did you mean {quoted(key)}?": often for key, often in words.items()})


def _saying(words: Mapping[str, str]) -> dict[str, str]:
    """Map words to advice, given the words by advice."""
    return {word: hint for hint, often in words.items() for word in often.split()}


FILE_ADVICE = Advice(
    slips=_saying(
        {
            _A_JOB: "steps run command cmd script schedule cron",
            _A_CART: "items items_from",
            _FOR_ALL: "env timeout timezone retry pool priority labels owner",
            "quotas are set by rota quota set": "quota quotas",
            "shares are set by rota share set": "share shares",
        }
    )
    | _meaning(jobs="tasks workflows pipelines", limits="rate_limits", defaults="default_args"),
)

_OFTEN = 'how often runs start is limited under "rate_limits"'
_EACH_RUN = "what each run may take is limited on its job: jobs: [{limits: {memory: 512MiB}}]"

_SHARED_BY_JOBS = _meaning(
    timezone="tz time_zone zone",
    env="environment environ variables vars",
    inputs="params arguments args with",
    timeout="timeout_seconds timeout_minutes time_limit max_runtime",
    max_concurrency="concurrency max_instances max_active_runs max_parallel parallelism",
    overlap="concurrency_policy allow_overlap",
    misfire="misfire_grace_time catchup catch_up coalesce starting_deadline_seconds",
    labels="tags annotations",
    rate_limits="rate_limit throttle",
    limits="limit ulimits ulimit",
    isolation="sandbox",
    mounts="volumes volume binds",
    pull="pull_policy image_pull_policy",
    run_as="run_as_user runas",
    pool="queue executor runner",
) | _saying(
    {
        _TRIES: "retries max_retries retry_count",
        _FOLDER: "cwd workdir working_dir working_directory chdir",
        _WORKERS: "runs_on node_selector hosts host",
        _LOCK: "mutex lock semaphore",
        'write it under "resources"': "cpu cpus memory mem ram gpu gpus",
        'write it under "retry"': "retry_delay backoff",
        "did you mean enabled: false?": "disabled suspend suspended paused",
    }
)

DEFAULTS_ADVICE = Advice(
    slips=_SHARED_BY_JOBS
    | _saying({"each job has its own: write it there": "name schedule cron steps run after"})
)

JOB_ADVICE = Advice(
    form="{name: NAME, steps: [{run: COMMAND}]}",
    slips=_SHARED_BY_JOBS
    | _meaning(
        name="id job",
        description="desc comment summary",
        schedule="cron crontab at when on trigger triggers rrule",
        after="depends_on dependencies depends requires upstream",
        starts="start_date start_at not_before",
        ends="end_date end_at not_after expires",
    )
    | _saying(
        {
            _A_STEP: "run commands cmd script exec entrypoint shell bash tasks",
            _INTERVAL: "interval every frequency",
            "a step says which of its files are kept: write it there": "artifacts",
        }
    ),
)

STEP_ADVICE = Advice(
    form="{run: COMMAND}",
    slips=_meaning(
        run="command cmd script exec bash sh",
        name="id",
        title="label display_name",
        folder="cwd workdir working_dir working_directory chdir directory dir",
        env="environment environ variables vars",
        timeout="timeout_seconds timeout_minutes",
        continue_on_error="ignore_errors allow_failure",
    )
    | _saying(
        {
            "a step runs a command: run: COMMAND": "uses action",
            "the image is the job's: write it there": "image",
            "did you mean if: success, failure or always?": "when condition",
        }
    ),
)

INPUT_ADVICE = Advice(
    form="{default: all}",
    slips=_meaning(
        help="description desc",
        default="value",
        type="kind",
        options="choices choice enum values one_of",
        pattern="regex regexp match format",
    )
    | _saying({"an input without a default has to be given": "required"}),
)

RETRY_ADVICE = Advice(
    slips=_meaning(
        attempts="max max_attempts tries times count limit retries",
        delay="wait sleep pause interval initial_delay retry_delay seconds",
        max_delay="max_interval max_backoff maximum cap",
        backoff="strategy policy type",
        when="on if states",
        exit_codes="codes exit_code on_exit_codes",
    )
    | _saying({"did you mean backoff: exponential?": "exponential multiplier factor"}),
)

MISFIRE_ADVICE = Advice(
    form="{policy: all}",
    slips=_meaning(within="grace grace_time window", policy="action", max="limit count"),
)

SOURCE_ADVICE = Advice(
    form="{path: /FOLDER}",
    slips=_meaning(
        path="folder dir directory cwd workdir", git="repository repo url", upload="file archive"
    )
    | _saying(
        {
            "what is fetched of a repository stands beside its url: git: {url: URL, ref: REF}": (
                "ref branch tag commit revision submodules credential"
            ),
            "an uploaded file has its name beside it: upload: {digest: DIGEST, name: NAME}": (
                "digest name"
            ),
        }
    ),
)

GIT_ADVICE = Advice(
    form="{url: URL, ref: REF}",
    slips=_meaning(
        url="repository repo address remote",
        ref="branch tag commit revision rev sha",
        submodules="recursive recurse_submodules",
        credential="credentials user password token secret key ssh_key deploy_key login",
    ),
)

UPLOAD_ADVICE = Advice(
    form="{digest: DIGEST, name: NAME}", slips=_meaning(digest="sha256 hash id", name="file")
)

ARTIFACTS_ADVICE = Advice(
    form="[PATTERN]",
    slips=_meaning(
        paths="path files globs patterns", keep="retention expire_in days", max="limit size"
    ),
)

HTTP_ADVICE = Advice(
    form="{submit: {url: URL}}",
    slips=_saying(
        {"a request stands below what it is for: submit: {url: URL}": "url method headers body"}
    )
    | _meaning(submit="request start post", status="poll check", cancel="stop delete abort"),
)

AFTER_ADVICE = Advice(
    slips=_meaning(jobs="names upstream on", within="timeout wait wait_for")
    | _saying({"jobs stand in a list: after: [{job: NAME, when: failed}]": "job when with"}),
)

FOLLOW_ADVICE = Advice(
    form="{job: NAME, when: failed}",
    slips=_meaning(
        job="name jobs upstream",
        when="on if state states condition status",
        **{"with": "inputs outputs give gives pass args"},
    )
    | _saying({'"within" stands beside "jobs": after: {jobs: […], within: 2h}': "within"}),
)

TAKEN_LIMIT_ADVICE = Advice(
    slips=_meaning(name="limit key id", tokens="amount count cost weight units"),
)

RUN_LIMITS_ADVICE = Advice(
    form="{memory: 512MiB}",
    for_list=_OFTEN,
    slips=_meaning(
        cpu="cpus cores",
        memory="mem ram rss",
        processes="pids process threads nproc max_processes",
        open_files="files nofile fds descriptors max_open_files",
        disk="storage space disk_space",
    )
    | _saying({_OFTEN: "name tokens per burst rate rps"}),
)

MOUNT_ADVICE = Advice(
    form="{source: /FOLDER, target: /FOLDER}",
    slips=_meaning(
        source="src from host host_path path", target="dst to container destination mount_path"
    )
    | _saying({"without writable: true it is read-only": "read_only readonly ro mode"}),
)

LIMIT_ADVICE = Advice(
    form="{name: NAME, tokens: 10, per: 1s}",
    slips=_meaning(
        name="id key",
        tokens="limit count max amount requests calls capacity",
        per="interval period window every duration seconds unit",
        burst="bucket bucket_size size max_burst",
        each="scope by",
    )
    | _saying(
        {
            "10 a second is tokens: 10, per: 1s": "rate rps qps per_second",
            _EACH_RUN: "cpu memory processes open_files disk",
        }
    ),
)

RESOURCE_ADVICE = Advice(
    form="{name: NAME, total: 4}",
    slips=_meaning(
        name="id key",
        total="count size units capacity slots amount limit max",
        kind="type mode sharing",
    ),
)

ITEM_ADVICE = Advice(
    form="{key: db-001}",
    slips=_saying(
        {
            'did you mean "with"?': "inputs input params vars variables values args env",
            "write the list of items alone, without a name for it": "items",
        }
    )
    | _meaning(key="name id item title", order="wave group number", needs="labels worker"),
    otherwise='inputs of its job stand under "with"',
)

FAILURES_ADVICE = Advice(
    form="{allow: 2%}",
    slips=_meaning(
        allow="max maximum limit allowed percent budget",
        of="scope per",
        then="action do on_breach",
    ),
)

BETWEEN_ADVICE = Advice(
    form="{wait: 10m}",
    slips=_meaning(
        wait="soak delay sleep pause duration",
        check="job test verify",
        approve="approval approver role",
    ),
)

CART_ADVICE = Advice(
    slips=_meaning(
        max_parallel="max_concurrency concurrency max_in_flight parallelism forks",
        schedule="cron at when starts_at",
        group_size="groups batch batch_size ramp serial",
        items="hosts targets",
        items_from="file csv items_file inventory",
        failures="max_failures max_fail_percentage",
    )
    | _saying(
        {
            _DEFINE: "steps run command script image",
            _GIVE: "with inputs",
            _BELONGS: "retry timeout env secrets pool resources isolation network run_as limits "
            "overlap delivery lease",
            'write it under "between"': "wait soak check approve",
            'write it under "failures"': "allow then strict",
            "did you mean order: parallel?": "parallel",
        }
    ),
)

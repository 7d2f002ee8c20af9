"""Slips: keys that newcomers write, most of them from other tools, and what Rota calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.domain.errors import did_you_mean, quoted

_BEFORE_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for keys that are no fields of a section."""

    form: str = ""  # a section in short, for a value that is no mapping
    slips: Mapping[str, str] = field(default_factory=dict)  # wrong keys that are likely
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

_SHARED_BY_JOBS = _meaning(
    timezone="tz time_zone zone",
    env="environment environ variables vars",
    inputs="params parameters arguments args with",
    timeout="timeout_seconds timeout_minutes time_limit max_runtime",
    max_concurrency="concurrency max_instances max_active_runs max_parallel parallelism",
    overlap="concurrency_policy allow_overlap",
    misfire="misfire_grace_time catchup catch_up coalesce starting_deadline_seconds",
    labels="tags annotations",
    rate_limits="rate_limit limits limit throttle",
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
        name="id title job",
        description="desc comment summary",
        schedule="cron crontab at when on trigger triggers rrule",
        after="depends_on dependencies depends requires upstream",
        starts="start_date start_at not_before",
        ends="end_date end_at not_after expires",
    )
    | _saying(
        {
            _A_STEP: "run command commands cmd script exec entrypoint shell bash tasks",
            _INTERVAL: "interval every frequency",
        }
    ),
)

STEP_ADVICE = Advice(
    form="{run: COMMAND}",
    slips=_meaning(
        run="command cmd script exec bash sh",
        name="id title",
        env="environment environ variables vars",
        timeout="timeout_seconds timeout_minutes",
        continue_on_error="ignore_errors allow_failure",
    )
    | _saying(
        {
            "a step runs a command: run: COMMAND": "uses action image",
            "did you mean if: success, failure or always?": "when condition",
            "go there in the script: cd /FOLDER": "cwd workdir working_dir working_directory chdir",
        }
    ),
)

INPUT_ADVICE = Advice(
    form="{default: all}",
    slips=_meaning(help="description desc", default="value", type="kind")
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
    form="{path: /FOLDER}", slips=_meaning(path="folder dir directory cwd workdir")
)

AFTER_ADVICE = Advice(
    slips=_meaning(jobs="job names upstream on", within="timeout wait wait_for"),
)

TAKEN_LIMIT_ADVICE = Advice(
    slips=_meaning(name="limit key id", tokens="amount count cost weight units"),
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
    | _saying({"10 a second is tokens: 10, per: 1s": "rate rps qps per_second"}),
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
    | _meaning(key="name id item title", order="wave group number"),
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
        items="hosts targets matrix",
        items_from="file csv items_file inventory",
        failures="max_failures max_fail_percentage",
    )
    | _saying(
        {
            _DEFINE: "steps run command script image",
            _GIVE: "with inputs",
            _BELONGS: "retry timeout env secrets pool resources isolation overlap delivery lease",
            'write it under "between"': "wait soak check approve",
            'write it under "failures"': "allow then strict",
            "did you mean order: parallel?": "parallel",
        }
    ),
)

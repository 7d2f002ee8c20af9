from __future__ import annotations

import re

import pytest

from rota.domain.access import Role
from tests.unit.cli.console import Console, Ended
from tests.unit.cli.server import Server

LICENSED = """
resources: [{name: licence, total: 1}]
jobs: [{name: tidy, resources: {licence: 1}, max_concurrency: 9, steps: [{run: make tidy}]}]
"""
HOURLY = """
limits: [{name: mail, tokens: 1, per: 1h}]
jobs: [{name: tidy, rate_limits: [mail], max_concurrency: 9, steps: [{run: make tidy}]}]
"""
SET_LIMIT = ("limit", "set", "s3-put", "--tokens", "10", "--per", "1s")


def pairs(page: Ended) -> dict[str, str]:
    """A page of names and values."""
    return dict(re.split(" {2,}", line, maxsplit=1) for line in page.lines)


def test_limit_is_set_changed_and_shown(rota: Console, server: Server) -> None:
    created = rota(*SET_LIMIT)
    changed = rota(*SET_LIMIT, "--burst", "20")
    again = rota(*SET_LIMIT, "--burst", "20")
    listed = rota("limit", "list")
    shown = rota("limit", "show", "s3-put")

    assert (created.code, created.err) == (0, "created limit s3-put: 10 tokens per 1s, burst 10\n")
    assert changed.err.splitlines()[1] == "  burst  10 → 20"
    assert again.err == "limit s3-put is unchanged\n"
    assert "10 tokens per 1s, burst 20" in listed.lines[1]
    assert pairs(shown)["tokens"] == "20 of 20"


def test_limit_tells_who_waits_and_when_the_next_token_comes(rota: Console, server: Server) -> None:
    server.define(HOURLY)
    rota("trigger", "tidy")
    server.claim()
    rota("trigger", "tidy")

    shown = pairs(rota("limit", "show", "mail"))
    data = rota("limit", "list", "--json").json["items"][0]["bucket"]

    assert shown["tokens"] == "0 of 1"
    assert re.match("in (1 h 00|59) m", shown["next token"])
    assert shown["waiting"] == "1 run"
    assert (data["tokens"], data["waiting"]) == (0, 1)


def test_dry_run_changes_nothing(rota: Console, server: Server) -> None:
    planned = rota(*SET_LIMIT, "--dry-run")
    weighed = rota("share", "set", "default", "--weight", "2", "--dry-run")

    assert planned.err == "would create limit s3-put: 10 tokens per 1s, burst 10\n"
    assert weighed.err == "would set the weight of default to 2\n"
    assert rota("limit", "list", "-o", "name").out == ""
    assert rota("share", "list", "-o", "name").out == ""


def test_resource_is_listed_with_its_holders(rota: Console, server: Server) -> None:
    server.define(LICENSED)
    rota("trigger", "tidy")
    work = server.claim()
    rota("trigger", "tidy")

    listed = rota("resource", "list")
    shown = pairs(rota("resource", "show", "licence"))

    assert str(work.run) in listed.lines[1]
    assert (shown["in use"], shown["held by"]) == ("1 of 1", work.run)
    assert shown["waiting"] == "1 run"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (("--total", "4"), "4 in all"),
        (("--mutex",), "one run at a time"),
        (("--read-write",), "many read, or one writes"),
    ],
)
def test_resource_is_of_one_kind(
    rota: Console, server: Server, how: tuple[str, ...], words: str
) -> None:
    ended = rota("resource", "set", "licence", *how)

    assert (ended.code, ended.err) == (0, f"created resource licence: {words}\n")
    assert rota("resource", "show", "licence").code == 0


def test_changed_kind_of_a_resource_is_told(rota: Console, server: Server) -> None:
    rota("resource", "set", "licence", "--total", "4")

    changed = rota("resource", "set", "licence", "--mutex")

    assert changed.err.splitlines()[1:] == ["  kind  counted → mutex", "  total  4 → (none)"]


@pytest.mark.parametrize("how", [(), ("--mutex", "--total", "2"), ("--mutex", "--read-write")])
def test_resource_of_no_kind_or_two_is_refused(rota: Console, how: tuple[str, ...]) -> None:
    ended = rota("resource", "set", "licence", *how)

    assert ended.code == 2
    assert "--total N, --mutex or --read-write" in ended.err


def test_declarations_are_deleted_with_consent(rota: Console, server: Server) -> None:
    server.define(LICENSED)
    rota(*SET_LIMIT)

    looked = rota("limit", "delete", "s3-put", "--dry-run")
    refused = rota("limit", "delete", "s3-put")
    agreed = rota("limit", "delete", "s3-put", "--yes")
    in_use = rota("resource", "delete", "licence", "--yes")

    assert looked.err == "would delete limit s3-put\n"
    assert (refused.code, agreed.code) == (2, 0)
    assert rota("limit", "show", "s3-put").code == 3
    assert in_use.code == 5
    assert "tidy" in in_use.err


def test_misspelt_name_is_told_with_the_nearest_one(rota: Console, server: Server) -> None:
    rota(*SET_LIMIT)

    ended = rota("limit", "show", "s3-putt")

    assert ended.code == 3
    assert 'did you mean "s3-put"?' in ended.err


def test_quota_is_changed_in_parts_and_cleared(rota: Console, server: Server) -> None:
    rota("quota", "set", "--running", "10", "--jobs", "5")
    changed = rota("quota", "set", "--queued", "1000", "--jobs", "unlimited")
    shown = pairs(rota("quota", "show"))
    cleared = rota("quota", "clear", "--yes")

    assert changed.err.splitlines() == [
        "changed quota of project default: 1,000 queued, 10 running",
        "  jobs  5 → unlimited",
        "  queued  unlimited → 1000",
    ]
    assert (shown["running"], shown["jobs"]) == ("at most 10, 0 now", "unlimited, 0 now")
    assert shown["queued"] == "at most 1,000, 0 now"
    assert cleared.err == "cleared the quota of project default\n"
    assert rota("quota", "show", "--json").json["running"] is None


def test_quota_tells_of_queued_runs_that_count(rota: Console, server: Server) -> None:
    server.define("jobs: [{name: tidy, max_concurrency: 9, steps: [{run: make tidy}]}]")
    rota("quota", "set", "--running", "1")
    rota("trigger", "tidy")
    rota("trigger", "tidy")

    shown = pairs(rota("quota", "show"))

    assert shown["running"] == "at most 1, 0 now, 1 queued, 1 run waiting"
    assert (shown["jobs"], shown["queued"]) == ("unlimited, 1 now", "unlimited, 2 now")


def test_quota_of_output_is_a_size(rota: Console, server: Server) -> None:
    created = rota("quota", "set", "--output-bytes-per-day", "10GiB")
    shown = pairs(rota("quota", "show"))
    wrong = rota("quota", "set", "--output-bytes-per-day", "10 gigs")
    in_bytes = rota("quota", "set", "--output-bytes-per-day", "2048")

    assert created.err.endswith(": 10,737,418,240 output bytes per day\n")
    left = "at most 10,737,418,240, 10,737,418,240 left now"
    assert shown["output bytes per day"] == left
    assert (wrong.code, in_bytes.code) == (2, 0)
    assert "write 512KiB, 100MiB or 2GB" in wrong.err


def test_quota_without_a_number_is_refused(rota: Console) -> None:
    misspelt = rota("quota", "set", "--running", "unlimted")

    assert (misspelt.code, rota("quota", "set").code) == (2, 2)
    assert '"unlimted" is neither a whole number nor unlimited' in misspelt.err


def test_half_a_token_is_refused_and_not_rounded(rota: Console, server: Server) -> None:
    ended = rota("limit", "set", "mail", "--tokens", "1.5", "--per", "1s")

    assert ended.code == 2
    assert '"1.5" is not a whole number' in ended.err
    assert rota("limit", "list", "-o", "name").out == ""


def test_name_that_cannot_be_one_is_refused_in_words(rota: Console, server: Server) -> None:
    ended = rota("limit", "set", "my mail", "--tokens", "1", "--per", "1s")

    assert ended.code != 0
    assert "must be a name of at most 128 letters" in ended.err


def test_share_gets_its_weight(rota: Console, server: Server) -> None:
    saved = rota("share", "set", "default/anna", "--weight", "2")
    listed = rota("share", "list")

    assert saved.err == "default/anna weighs 2 now\n"
    assert listed.lines[1].split()[:2] == ["default/anna", "2"]


@pytest.mark.parametrize(
    "words",
    [("quota", "set", "--running", "1"), ("share", "set", "default", "--weight", "2")],
    ids=lambda words: words[0],
)
def test_quotas_and_weights_are_for_admins(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("ROTA_TOKEN", server.secrets[Role.EDITOR])

    assert rota(*words).code == 4

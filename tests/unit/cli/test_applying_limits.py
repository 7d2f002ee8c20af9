"""Limits and resources in job files, as `rota apply` tells of them."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

FILE = """\
limits: [{name: uploads, tokens: 10, per: 1s}]
resources: [{name: pg-license, total: 4}]
jobs:
  - name: dump
    rate_limits: [uploads]
    resources: {pg-license: 2}
    steps: [{run: "true"}]
"""


def write(text: str) -> str:
    Path("jobs.yaml").write_text(text)
    return "jobs.yaml"


def test_plan_shows_limits_and_resources_before_the_jobs(rota: Console, server: Server) -> None:
    planned, applied, again = (
        rota("apply", write(FILE), "--plan"),
        rota("apply", "jobs.yaml"),
        rota("apply", "jobs.yaml", "--plan"),
    )

    assert (planned.code, applied.code, again.code) == (20, 0, 0)
    assert planned.lines == [
        "+ limit uploads        new        10 tokens per 1s, burst 10",
        "+ resource pg-license  new        4 in all",
        "+ dump                 new        on demand",
    ]
    assert "3 changes applied" in applied.err


def test_jobs_that_follow_others_say_so(rota: Console, server: Server) -> None:
    jobs = [
        "{name: vacuum, schedule: '0 2 * * *', steps: [{run: 'true'}]}",
        "{name: report, after: [vacuum, backup], steps: [{run: 'true'}]}",
        "{name: backup, after: [vacuum], schedule: '0 3 * * *', steps: [{run: 'true'}]}",
    ]

    planned = rota("apply", write(f"jobs: [{', '.join(jobs)}]"))
    listed = rota("job", "list")

    assert planned.lines[1].endswith("after vacuum, backup")
    assert "every day at 03:00 UTC, after vacuum, next" in planned.lines[2]
    [follower] = [line for line in listed.lines if line.startswith("report")]
    assert "after vacuum, backup" in follower


def test_exported_jobs_bring_their_limits_and_resources(rota: Console, server: Server) -> None:
    rota("apply", write(FILE))

    again = rota("apply", write(rota("job", "export").out), "--plan")

    assert again.code == 0
    assert [line.split()[:2] for line in again.lines] == [
        ["limit", "uploads"],
        ["resource", "pg-license"],
        ["dump", "unchanged"],
    ]


def test_what_a_job_cannot_have_is_told_with_its_place(rota: Console, server: Server) -> None:
    rota("apply", write(FILE))
    asking = 'jobs: [{name: ship, rate_limits: [upload], steps: [{run: "true"}]}]'

    refused = rota("apply", write(asking))

    assert refused.code == 6
    assert 'jobs.yaml:1:35  there is no limit "upload" — did you mean "uploads"?' in refused.err

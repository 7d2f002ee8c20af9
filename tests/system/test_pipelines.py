"""A pipeline with real processes: values handed on from job to job, and a branch that cleans up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.sdk.answers import Run
from rota.sdk.client import Client
from testkit.processes import RotaUp
from testkit.servers.postgres import PostgresServer
from testkit.waiting import PATIENCE, eventually
from tests.system.jobs import log_of, runs_of
from tests.system.watchers import waits_for, watching

pytestmark = pytest.mark.timeout(120)

PIPELINE = """
defaults: &usual
  timeout: 5m

jobs:
  - name: extract
    title: Заказы 注文
    inputs: {{rows: {{type: integer, default: 3}}}}
    steps:
      - name: Fetch
        title: Daten holen
        run: |
          {extracting}
          echo '{{"rows": '"$INPUT_ROWS"', "table": "orders_'"$INPUT_ROWS"'"}}' > "$ROTA_OUTPUT"

  - name: transform
    after: [{{job: extract, with: {{rows: outputs.rows, table: outputs.table}}}}]
    inputs: {{rows: {{type: integer}}, table: {{pattern: 'orders_[0-9]+'}}}}
    steps:
      - {{name: Prepare, run: 'mkdir -p parts && echo "$INPUT_ROWS" > parts/rows'}}
      - name: Double
        folder: parts
        run: |
          {transforming}
          test "$(cat rows)" -gt 0
          echo '{{"loaded": '"$((INPUT_ROWS * 2))"'}}' > "$ROTA_OUTPUT"

  - name: load
    after: [{{job: transform, with: {{rows: outputs.loaded, from: run}}}}]
    inputs: {{rows: {{type: integer}}, from: {{}}}}
    steps:
      - name: Load
        run: |
          {loading}
          echo "loaded $INPUT_ROWS rows of $INPUT_FROM"

  - name: clean-up
    after: [{{job: transform, when: failed, with: {{run: run, how: state}}}}]
    inputs: {{run: {{}}, how: {{type: choice, options: [failed, timed_out]}}}}
    steps:
      - {{name: Clean, run: 'echo "cleaned up after $INPUT_RUN, which $INPUT_HOW"'}}
"""


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RotaUp]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        rota = RotaUp(tmp_path / "home", store=server.address("rota"))
    else:
        rota = RotaUp(tmp_path / "home")
    try:
        yield rota.start()
    finally:
        rota.close()


def only_run(client: Client, job: str) -> Run:
    eventually(lambda: runs_of(client, job))
    [run] = runs_of(client, job)
    return run


def test_values_go_down_the_pipeline_and_each_step_is_seen_while_it_runs(
    site: RotaUp, tmp_path: Path
) -> None:
    gates = {name: tmp_path / name for name in ("extracting", "transforming", "loading")}
    waits = {name: waits_for(gate).replace("\n", "; ") for name, gate in gates.items()}
    site.client.apply(PIPELINE.format(**waits))

    with watching(site, "trigger", "extract", "--watch", columns=80) as watcher:
        watcher.sees("▶ Daten holen")
        gates["extracting"].touch()
        assert watcher.ended() == 0
    transform = only_run(site.client, "transform")
    with watching(site, "run", "watch", transform.id, columns=80) as watcher:
        watcher.sees("▶ Double")
        assert runs_of(site.client, "load") == []
        gates["transforming"].touch()
        assert watcher.ended() == 0
    load = only_run(site.client, "load")
    with watching(site, "run", "watch", load.id, columns=80) as watcher:
        watcher.sees("▶ Load")
        gates["loading"].touch()
        assert watcher.ended() == 0
        assert f"loaded 6 rows of {transform.id}" in watcher.told

    assert transform.inputs == {"rows": 3, "table": "orders_3"}
    assert load.inputs == {"rows": 6, "from": transform.id}
    shown = site.command("run", "show", transform.id).stdout
    assert f"after        {transform.follows} (extract, completed)" in shown
    assert f"followed by  {load.id} (load, completed)" in shown
    assert runs_of(site.client, "clean-up") == []
    listed = json.loads(site.command("job", "show", "clean-up", "-o", "json").stdout)
    assert listed["after"][0]["words"] == "a failed transform"


def test_a_failing_branch_is_cleaned_up(site: RotaUp) -> None:
    site.client.apply(PIPELINE.format(extracting=":", transforming=":", loading=":"))

    site.client.trigger("extract", {"rows": 0})
    cleaning = only_run(site.client, "clean-up")
    site.client.wait(cleaning.id, PATIENCE.total_seconds())

    [transform] = runs_of(site.client, "transform")
    assert transform.state == "FAILED"
    assert cleaning.inputs == {"run": transform.id, "how": "failed"}
    assert f"cleaned up after {transform.id}, which failed" in log_of(site.client, cleaning.id)
    assert runs_of(site.client, "load") == []


def test_a_run_that_lacks_its_values_says_so(site: RotaUp) -> None:
    site.client.apply("""
jobs:
  - {name: extract, steps: [{run: 'echo 5 > "$ROTA_OUTPUT"'}]}
  - name: load
    after: [{job: extract, with: {rows: outputs.rows}}]
    inputs: {rows: {type: integer}}
    steps: [{run: 'true'}]
""")
    extract = site.client.trigger("extract")

    load = only_run(site.client, "load")
    retried = site.command("run", "retry", load.id)

    assert (load.state, load.cause) == ("FAILED", "input")
    assert f"the outputs of {extract.id} of extract are a value without names" in load.message
    assert retried.returncode == 5
    assert f"rota run retry {extract.id} makes a new one" in retried.stderr

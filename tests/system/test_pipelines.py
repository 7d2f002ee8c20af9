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
          seq 1 "$INPUT_ROWS" > orders.csv
          echo '{{"rows": '"$INPUT_ROWS"', "table": "orders_'"$INPUT_ROWS"'"}}' > "$ROTA_OUTPUT"
        artifacts: [orders.csv]

  - name: transform
    after:
      - job: extract
        with: {{rows: outputs.rows, table: outputs.table, orders: artifacts.orders.csv}}
    inputs: {{rows: {{type: integer}}, table: {{pattern: 'orders_[0-9]+'}}, orders: {{type: file}}}}
    steps:
      - {{name: Prepare, run: 'mkdir -p parts && echo "$INPUT_ROWS" > parts/rows'}}
      - name: Double
        folder: parts
        run: |
          {transforming}
          test "$(cat rows)" -gt 0
          echo '{{"loaded": '"$(($(wc -l < "$INPUT_ORDERS") * 2))"'}}' > "$ROTA_OUTPUT"

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


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RotaUp]:
    home = tmp_path_factory.mktemp("pipelines") / "home"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        rota = RotaUp(home, store=server.address("rota"))
    else:
        rota = RotaUp(home)
    try:
        yield rota.start()
    finally:
        rota.close()


def following(client: Client, run: Run, job: str) -> list[Run]:
    return [each for each in runs_of(client, job) if each.follows == run.id]


def only_one(client: Client, run: Run, job: str) -> Run:
    eventually(lambda: following(client, run, job))
    [found] = following(client, run, job)
    return found


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
    extract = runs_of(site.client, "extract")[0]
    transform = only_one(site.client, extract, "transform")
    with watching(site, "run", "watch", transform.id, columns=80) as watcher:
        watcher.sees("▶ Double")
        assert following(site.client, transform, "load") == []
        gates["transforming"].touch()
        assert watcher.ended() == 0
    load = only_one(site.client, transform, "load")
    with watching(site, "run", "watch", load.id, columns=80) as watcher:
        watcher.sees("▶ Load")
        gates["loading"].touch()
        assert watcher.ended() == 0
        assert f"loaded 6 rows of {transform.id}" in watcher.told

    assert transform.inputs is not None
    [artifact] = site.client.list_artifacts(extract.id).items
    orders = {"file": "orders.csv", "digest": artifact.digest, "size": 6}
    assert transform.inputs == {"rows": 3, "table": "orders_3", "orders": orders}
    assert load.inputs == {"rows": 6, "from": transform.id}
    shown = site.command("run", "show", transform.id).stdout
    assert f"after        {transform.follows} (extract, completed)" in shown
    assert f"followed by  {load.id} (load, completed)" in shown
    assert following(site.client, transform, "clean-up") == []
    listed = json.loads(site.command("job", "show", "clean-up", "-o", "json").stdout)
    assert listed["after"][0]["words"] == "a failed transform"


def test_a_failing_branch_is_cleaned_up(site: RotaUp) -> None:
    site.client.apply(PIPELINE.format(extracting=":", transforming=":", loading=":"))

    extract = site.client.trigger("extract", {"rows": 0})
    transform = only_one(site.client, extract, "transform")
    cleaning = only_one(site.client, transform, "clean-up")
    site.client.wait(cleaning.id, PATIENCE.total_seconds())

    assert site.client.get_run(transform.id).state == "FAILED"
    assert cleaning.inputs == {"run": transform.id, "how": "failed"}
    assert f"cleaned up after {transform.id}, which failed" in log_of(site.client, cleaning.id)
    assert following(site.client, transform, "load") == []


def test_a_run_that_lacks_its_values_says_so(site: RotaUp) -> None:
    site.client.apply("""
jobs:
  - {name: count, steps: [{run: 'echo 5 > "$ROTA_OUTPUT"'}]}
  - name: store
    after: [{job: count, with: {rows: outputs.rows}}]
    inputs: {rows: {type: integer}}
    steps: [{run: 'true'}]
""")
    count = site.client.trigger("count")

    store = only_one(site.client, count, "store")
    retried = site.command("run", "retry", store.id)

    assert (store.state, store.cause) == ("FAILED", "input")
    assert f"the outputs of {count.id} of count are a value without names" in store.message
    assert retried.returncode == 5
    assert f"rota run retry {count.id} makes a new one" in retried.stderr

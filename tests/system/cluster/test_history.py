"""The history of runs that three servers and their workers move on at the same time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import grpc
import pytest

from rota.contracts import client_pb2 as pb
from rota.contracts.client_pb2_grpc import SchedulerStub
from rota.domain.states import TRANSITIONS, RunState, fold_events
from rota.sdk.answers import Event
from rota.sdk.client import Client
from testkit.cluster import Cluster
from testkit.waiting import eventually
from tests.system.jobs import apply, job, runs_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

RUNS = 200
CALLERS = 3  # so few that workers wait for runs: a backlog would hide a wrong order
QUIET = timedelta(minutes=2)
STEPS = {(before, after) for (before, _), after in TRANSITIONS.items()}


@dataclass(frozen=True, slots=True)
class Told:
    """An event, however it was read."""

    seq: int
    kind: str
    ids: tuple[str, ...]
    data: Mapping[str, Any]


def of_rest(event: Event) -> Told:
    kind = event.type.removeprefix("rota.")
    return Told(int(event.id), kind, tuple(event.data["ids"]), event.data)


def of_grpc(event: pb.Event) -> Told:
    return Told(event.position, event.kind, tuple(event.ids), json.loads(event.data_json))


def of_command(event: Mapping[str, Any]) -> Told:
    kind, data = event["type"].removeprefix("rota."), event["data"]
    return Told(int(event["id"]), kind, tuple(data["ids"]), data)


def until_deleted(events: Iterable[Told], job_id: str) -> list[Told]:
    """Events up to the deletion of a job, which is the last thing the test does."""
    heard: list[Told] = []
    for event in events:
        heard.append(event)
        if event.kind == "job.deleted" and job_id in event.ids:
            break
    return heard


def watched(address: str, token: str, after: int) -> Iterator[Told]:
    with grpc.insecure_channel(address) as channel:
        metadata = [("authorization", f"Bearer {token}")]
        for answer in SchedulerStub(channel).Watch(pb.WatchRequest(after=after), metadata=metadata):
            yield from map(of_grpc, answer.events)


def trigger_everywhere(cluster: Cluster, name: str) -> None:
    """Trigger runs at all servers at once, one after another at each."""

    def trigger(number: int) -> None:
        server = cluster.servers[number % len(cluster.servers)]
        with Client(server.url, cluster.token) as client:
            for _ in range(number, RUNS, CALLERS):
                client.trigger(name)

    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(trigger, range(CALLERS)))


def wrong(events: Iterable[Told], states: Mapping[str, RunState]) -> dict[str, list[RunState]]:
    """Runs whose events do not lead, by steps of the table, to the state that they are in."""
    paths = {run: path for run, path in fold_events(events).items() if run in states}
    return {
        run: path
        for run, state in states.items()
        if not (path := paths.get(run, []))
        or path[-1] is not state
        or not STEPS.issuperset(pairwise(path))
    }


def test_every_way_to_read_the_events_folds_to_the_state_of_every_run(cluster: Cluster) -> None:
    first, second, third = (cluster.client(n) for n in range(3))
    apply(first, job("told", "true", overlap="allow"))
    job_id = first.get_job("told").id
    after = int(eventually(lambda: first.list_events(tail=1).items)[-1].id)
    stream = map(of_rest, second.follow_events(after=after))
    watch = watched(cluster.servers[2].grpc, cluster.token, after)
    with ThreadPoolExecutor(2) as followers:
        by_sse = followers.submit(until_deleted, stream, job_id)
        by_grpc = followers.submit(until_deleted, watch, job_id)
        trigger_everywhere(cluster, "told")
        eventually(lambda: not first.list_runs(job="told", active=True).items, within=QUIET)
        states = {run.id: RunState(run.state) for run in runs_of(third, "told")}
        first.delete_job("told")
        histories = {"SSE": by_sse.result(60), "gRPC": by_grpc.result(60)}

    listed = map(of_rest, third.each(Client.list_events(after=after, limit=100)))
    histories["REST"] = until_deleted(listed, job_id)
    words = ("events", "tail", "--after", str(after), "--limit", "100000", "-o", "json")
    printed = map(of_command, json.loads(cluster.command(*words).stdout)["items"])
    histories["CLI"] = until_deleted(printed, job_id)

    assert len(states) == RUNS
    assert set(states.values()) == {RunState.COMPLETED}
    for way, told in histories.items():
        assert wrong(told, states) == {}, way
        positions = [event.seq for event in told]
        assert positions == sorted(set(positions)), way
        assert positions == [event.seq for event in histories["REST"]], way
    for run, state in states.items():
        own = [of_rest(event) for event in second.each(Client.get_run_events(run))]
        assert wrong(own, {run: state}) == {}

"""How jobs say how they are kept apart, and what they take from the defaults below them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rota.domain.errors import Invalid
from rota.domain.jobfile import JobEntry, read_file, read_job
from rota.domain.jobfile.read import with_defaults
from rota.domain.spec import (
    Container,
    Isolation,
    JobType,
    Mount,
    Network,
    PullPolicy,
    RunLimits,
    Step,
    booked_limits,
    run_limits,
)
from rota.domain.walls import NEW_CLUSTER, WallDefaults
from tests.unit.domain.jobfile.jobfiles import file_of, job, problems_in

PROCESSES = WallDefaults()


def function(**fields: object) -> dict[str, object]:
    return job(type="python", function="send", steps=None, **fields)


def errors_in(*jobs: dict[str, object], **file: object) -> list[str]:
    return [problem.message for problem in problems_in(file_of(*jobs, **file))]


def applied(
    one: dict[str, object],
    project: Mapping[str, Any] | None = None,
    store: WallDefaults = NEW_CLUSTER,
    **file: object,
) -> JobEntry:
    """A job once all is merged that stands below it."""
    found = read_file(file_of(one, **file), name="jobs")
    [entry] = with_defaults(found, {"default": project or {}}, store).jobs
    return entry


def refusals(*given: Any, **more: Any) -> list[str]:
    with pytest.raises(Invalid) as refused:
        applied(*given, **more)
    return [str(problem) for problem in refused.value.problems]


class TestWalls:
    def test_a_job_without_any_is_a_plain_process(self) -> None:
        spec = read_job(job())

        assert (spec.isolation, spec.network) == (Isolation.PROCESS, Network.HOST)
        assert (spec.type, spec.container, spec.limits) == (JobType.SHELL, None, RunLimits())

    def test_a_sandbox_has_no_network_unless_it_is_given_some(self) -> None:
        assert read_job(job(isolation="sandbox")).network is Network.NONE

    @pytest.mark.parametrize(
        ("written", "network"),
        [
            (True, Network.OUTBOUND),
            (False, Network.NONE),
            ("outbound", Network.OUTBOUND),
            ("host", Network.HOST),
        ],
    )
    def test_network_is_a_word_or_a_flag(self, written: object, network: Network) -> None:
        assert read_job(job(isolation="sandbox", network=written)).network is network

    def test_limits_are_read_in_their_units(self) -> None:
        limits = {
            "cpu": 0.5,
            "memory": "512MiB",
            "processes": 9,
            "open_files": 64,
            "disk": "1GiB",
        }

        spec = read_job(job(limits=limits))

        assert spec.limits == RunLimits(500, 512 * 2**20, 9, 64, 2**30)

    def test_a_container_by_its_type_is_the_same_as_by_its_isolation(self) -> None:
        by_type = read_job(job(type="container", image="app:1", steps=None))
        by_wall = read_job(job(isolation="container", image="app:1", steps=None))

        assert by_type == by_wall
        assert (by_type.type, by_type.isolation) == (JobType.CONTAINER, Isolation.CONTAINER)

    def test_a_container_has_its_image_mounts_and_command(self) -> None:
        spec = read_job(
            job(
                isolation="container",
                image="registry.example.org:5000/team/app@sha256:" + "0" * 64,
                pull="always",
                registry="team",
                mounts=[
                    {"source": "/srv//models/", "target": "/models"},
                    {"source": "/srv/out", "target": "/out", "writable": True},
                ],
                command=["app", "--once"],
                user=1000,
                steps=None,
            )
        )

        assert spec.container == Container(
            "registry.example.org:5000/team/app@sha256:" + "0" * 64,
            PullPolicy.ALWAYS,
            "team",
            (Mount("/srv/models", "/models"), Mount("/srv/out", "/out", writable=True)),
            ("app", "--once"),
            "1000",
        )


class TestSteps:
    def steps_of(self, step: dict[str, object], **fields: object) -> Step:
        return read_job(job(steps=[{"run": "true"} | step], **fields)).steps[0]

    def test_a_step_has_the_walls_of_its_job(self) -> None:
        step = self.steps_of({}, isolation="sandbox", limits={"cpu": 1})

        assert (step.isolation, step.network, step.run_as, step.limits) == (None,) * 4

    def test_a_process_in_a_walled_job_has_the_network_of_the_host(self) -> None:
        step = self.steps_of({"isolation": "process"}, isolation="sandbox", network="none")

        assert (step.isolation, step.network) == (Isolation.PROCESS, Network.HOST)

    def test_a_sandbox_in_a_job_of_processes_does_not_have_it(self) -> None:
        assert self.steps_of({"isolation": "sandbox"}).network is Network.NONE

    def test_limits_that_a_step_does_not_give_are_those_of_its_job(self) -> None:
        spec = read_job(
            job(
                limits={"cpu": 1, "processes": 10},
                steps=[{"run": "true", "limits": {"processes": 20}}],
            )
        )

        assert run_limits(spec) == RunLimits(cpu=1_000, processes=10)
        assert run_limits(spec, spec.steps[0]) == RunLimits(cpu=1_000, processes=20)

    def test_what_is_booked_is_a_limit_too(self) -> None:
        spec = read_job(job(resources={"cpu": 0.5, "memory": "1GiB", "gpu": 1}))

        assert booked_limits(spec) == RunLimits(cpu=500, memory=2**30)


CONTAINER = {"isolation": "container", "image": "app:1"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"isolation": "process", "network": "none"}, "network none does not go with isolation"),
        ({"isolation": "process", "image": "app"}, '"image" goes with isolation container only'),
        ({"isolation": "sandbox", "user": "app"}, '"user" goes with isolation container only'),
        ({"image": "app"}, '"image" goes with isolation container only'),
        ({"command": ["app"]}, '"command" goes with isolation container only'),
        ({"type": "container", "isolation": "sandbox"}, "isolation sandbox does not go with type"),
        (CONTAINER | {"run_as": "ann"}, '"run_as" does not go with isolation container'),
        (CONTAINER | {"source": {"path": "/srv"}}, '"path" does not go with isolation container'),
        (CONTAINER | {"command": ["app"]}, '"command" does not go with steps'),
        (CONTAINER | {"image": "App"}, "image must be an image such as"),
        (CONTAINER | {"image": "app:1 2"}, "image must be an image such as"),
        (CONTAINER | {"image": "app@sha256:12"}, "image must be an image such as"),
        (CONTAINER | {"mounts": [{"source": "srv", "target": "/srv"}]}, "must be an absolute path"),
        (CONTAINER | {"mounts": [{"source": "/a/../b", "target": "/b"}]}, 'must not contain "."'),
        (CONTAINER | {"mounts": [{"source": "/a", "target": "//"}]}, "below the container's root"),
        (CONTAINER | {"steps": [{"run": "x", "network": "none"}]}, '"network" of a step does not'),
        ({"steps": [{"run": "x", "isolation": "container"}]}, "isolation must be process or"),
        ({"run_as": "root; rm"}, "run_as must be the name of a user"),
        ({"run_as": "-x"}, "run_as must be the name of a user"),
        ({"network": "public"}, "network must be none, outbound or host"),
        ({"limits": {"memory": "1KiB"}}, "memory must be from 4MiB to 1024TiB"),
        ({"limits": {"memory": 512}}, "memory must be a size such as"),
        ({"limits": {"cpu": 0}}, "cpu must be from 0.01 to 10,000 cores"),
        ({"limits": {"cpu": 1e9}}, "cpu must be from 0.01 to 10,000 cores"),
        ({"limits": {"cpu": float("nan")}}, "cpu must be"),
        ({"limits": {"processes": 0}}, "processes must be a whole number from 1"),
        ({"limits": {"open_files": 3}}, "open_files must be a whole number from 16"),
        ({"limits": {"disk": "1B"}}, "disk must be from 1MiB"),
        ({"limits": {"gpu": 1}}, 'unknown key "gpu" in run_limits of job tidy'),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(fields: dict[str, object], message: str) -> None:
    errors = errors_in(job(**fields))

    assert any(message in error for error in errors), errors


def test_a_target_is_mounted_once() -> None:
    mounts = [{"source": "/a", "target": "/m"}, {"source": "/b", "target": "/m/"}]

    assert errors_in(job(**CONTAINER, mounts=mounts)) == ["target /m is already that of mounts[0]"]


@pytest.mark.parametrize(
    "field", ["isolation", "network", "run_as", "limits", "image", "mounts", "command"]
)
def test_functions_are_processes_of_their_host(field: str) -> None:
    value = {
        "isolation": "sandbox",
        "network": "none",
        "run_as": "ann",
        "limits": {"cpu": 1},
        "image": "app",
        "mounts": [],
        "command": ["x"],
    }[field]

    [error] = errors_in(function(**{field: value}))

    assert error == f'"{field}" does not go with type python: functions run in their worker\'s host'


class TestLimitsOfBothKinds:
    def test_rate_limits_under_limits_of_a_job_are_told_where_they_stand(self) -> None:
        [problem] = problems_in(file_of(job(limits=[{"name": "s3-put", "tokens": 1}])))

        assert problem.message == "limits must be a mapping, not a list"
        assert problem.hint == 'how often runs start is limited under "rate_limits"'

    def test_limits_of_runs_at_the_top_of_a_file_are_told_where_they_stand(self) -> None:
        [problem] = problems_in(file_of(job(), limits={"memory": "1GiB"}))

        assert problem.message == "limits must be a list, not a mapping"
        assert "jobs: [{limits: {memory: 512MiB}}]" in problem.hint

    def test_a_limit_of_runs_among_rate_limits_is_told_as_well(self) -> None:
        problems = problems_in(file_of(job(), limits=[{"name": "x", "memory": "1GiB"}]))

        assert any("jobs: [{limits: {memory: 512MiB}}]" in problem.hint for problem in problems)


class TestDefaults:
    def test_the_wall_of_the_store_is_written_into_the_job(self) -> None:
        entry = applied(job())

        assert entry.document["isolation"] == "sandbox"
        assert entry.document["network"] == "outbound"
        assert (entry.spec.isolation, entry.spec.network) == (Isolation.SANDBOX, Network.OUTBOUND)
        assert read_job(entry.document) == entry.spec

    def test_a_plain_process_is_not_written(self) -> None:
        assert (
            applied(job(), store=PROCESSES).document
            == read_file(file_of(job()), name="jobs").jobs[0].document
        )

    def test_what_the_job_its_file_or_its_project_says_comes_before(self) -> None:
        assert applied(job(isolation="process")).spec.isolation is Isolation.PROCESS
        by_file = applied(job(), defaults={"isolation": "process"})
        assert by_file.spec.isolation is Isolation.PROCESS
        by_project = applied(job(), {"isolation": "sandbox", "network": "none"})
        assert by_project.spec.network is Network.NONE

    def test_a_field_left_empty_takes_no_default(self) -> None:
        text = "jobs: [{name: tidy, isolation: , steps: [{run: x}]}]"
        file = read_file(text, name="jobs")

        [entry] = with_defaults(file, {"default": {"isolation": "sandbox"}}, NEW_CLUSTER).jobs

        assert entry.spec.isolation is Isolation.PROCESS

    def test_a_sandbox_in_a_store_of_processes_has_its_network(self) -> None:
        store = WallDefaults(network=Network.OUTBOUND)

        assert applied(job(isolation="sandbox"), store=store).spec.network is Network.OUTBOUND
        assert applied(job(), store=store).document.get("network") is None

    def test_functions_take_no_wall(self) -> None:
        project = {"isolation": "sandbox", "network": "none", "limits": {"cpu": 1}, "run_as": "a"}

        entry = applied(function(), project, defaults={"isolation": "sandbox"})

        assert "isolation" not in entry.document
        assert (entry.spec.isolation, entry.spec.limits) == (Isolation.PROCESS, RunLimits())

    def test_a_job_takes_nothing_that_its_own_wall_cannot_have(self) -> None:
        container = {"isolation": "container", "image": "app", "user": "x", "network": "none"}
        sandbox = {"isolation": "sandbox", "run_as": "ann", "network": "none"}

        walled = applied(job(isolation="sandbox"), container)
        process = applied(job(isolation="process"), container)
        boxed = applied(job(isolation="container", image="app"), sandbox)

        assert walled.spec.container is None
        assert walled.spec.network is Network.NONE
        assert (process.spec.network, process.spec.type) == (Network.HOST, JobType.SHELL)
        assert (boxed.spec.run_as, boxed.spec.network) == ("", Network.NONE)

    def test_a_type_among_defaults_gives_way_to_the_wall_of_a_job(self) -> None:
        entry = applied(job(isolation="sandbox"), defaults={"type": "container", "image": "app"})

        assert (entry.spec.type, entry.spec.container) == (JobType.SHELL, None)

    def test_an_image_may_come_from_below(self) -> None:
        entry = applied(job(isolation="container"), {"image": "registry.example.org/base"})

        assert entry.spec.container == Container("registry.example.org/base")

    def test_limits_are_merged_one_by_one(self) -> None:
        project = {"limits": {"cpu": 1, "memory": "1GiB"}}

        assert applied(job(limits={"cpu": 2}), project).spec.limits == RunLimits(2_000, 2**30)

    def test_a_container_needs_an_image_once_all_is_merged(self) -> None:
        [error] = refusals(job(isolation="container"))

        assert 'job tidy has no "image", which isolation container needs' in error

    def test_a_network_needs_a_wall_once_all_is_merged(self) -> None:
        [error] = refusals(job(network="none"), store=PROCESSES)

        assert error.endswith(
            "network none does not go with isolation process, which has the worker's own"
            " — write isolation: sandbox"
        )
        assert applied(job(network="none")).spec.network is Network.NONE

    def test_steps_follow_the_wall_of_the_store(self) -> None:
        steps = [{"run": "a"}, {"run": "b", "isolation": "sandbox"}]

        entry = applied(job(steps=steps))

        assert entry.spec == read_job(entry.document)
        assert [step.network for step in entry.spec.steps] == [None, None]

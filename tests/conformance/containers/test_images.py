from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec, PullPolicy
from rota.walls.images import RegistryLogin
from testkit.servers.engines import BASE, PASSWORD, USER, Engine, Registry, base_archive
from tests.conformance.containers.bench import Bench, job

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bench(engine: Engine, registry: Registry, tmp_path: Path) -> AsyncIterator[Bench]:
    host = registry.host
    logins = [
        RegistryLogin("team", host, USER, PASSWORD, projects=("default", "shop")),
        RegistryLogin("wrong", host, USER, "guess", projects=("*",)),
        RegistryLogin("other", host, USER, PASSWORD, projects=("shop",)),
        RegistryLogin("elsewhere", "registry.example.org", USER, PASSWORD, projects=("*",)),
    ]
    bench = Bench(engine, tmp_path, logins=logins)
    yield bench
    await bench.close()
    assert engine.names(**bench.labels) == []


@pytest.fixture
def image(engine: Engine, registry: Registry, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return an image that only the registry has."""
    engine.trust(registry.host)
    path = "".join(each for each in request.node.name.lower() if each.isalnum())[-50:]
    engine.push(registry, f"team/{path}:1")
    name = f"{registry.host}/team/{path}:1"
    yield name
    engine.remove_image(name)


def asking(image: str, registry: str = "team", **fields: object) -> JobSpec:
    given = {"pull": PullPolicy.IF_MISSING, **fields}
    return job("echo ran", image=image, registry=registry, **given)


class TestRegistry:
    async def test_image_is_pulled_by_its_tag(self, bench: Bench, image: str) -> None:
        outcome, sink = await bench.run(asking(image))

        assert (outcome.result, sink.text()) == (AttemptResult.COMPLETED, "ran\n")

    async def test_image_is_pulled_by_its_digest(
        self, bench: Bench, image: str, registry: Registry
    ) -> None:
        digest = registry.digest(image.partition("/")[2])
        name = f"{image.removesuffix(':1')}@{digest}"

        outcome, sink = await bench.run(asking(name))

        assert (outcome.result, sink.text()) == (AttemptResult.COMPLETED, "ran\n")
        bench.engine.remove_image(name)

    @pytest.mark.parametrize(
        ("login", "reason"),
        [
            ("wrong", "(with the registry login wrong, user robot)"),
            ("", "(it may need a login: registry: NAME)"),
            ("other", "the registry login other is not for the project default"),
            ("elsewhere", "the registry login elsewhere is for registry.example.org, and"),
            ("nobody", "the worker has no registry login nobody: see container_registries"),
        ],
    )
    async def test_login_has_to_be_the_right_one(
        self, bench: Bench, image: str, login: str, reason: str
    ) -> None:
        outcome, sink = await bench.run(asking(image, login))

        assert outcome.result == AttemptResult.FAILED
        assert reason in outcome.message
        assert PASSWORD not in outcome.message + sink.text()

    async def test_image_that_is_missing_is_told(self, bench: Bench, image: str) -> None:
        outcome, _ = await bench.run(asking(f"{image.removesuffix(':1')}:nope"))

        assert outcome.result == AttemptResult.FAILED
        assert "could not be pulled: " in outcome.message
        assert "nope" in outcome.message or "unknown" in outcome.message

    async def test_registry_that_is_away_is_told(
        self, bench: Bench, image: str, registry: Registry
    ) -> None:
        registry.stop()
        try:
            outcome, _ = await bench.run(asking(image))
        finally:
            registry.start()

        assert outcome.result == AttemptResult.FAILED
        assert f"{image} could not be pulled: " in outcome.message
        assert "refused" in outcome.message


class TestPolicy:
    async def test_image_that_is_there_is_not_pulled(self, bench: Bench) -> None:
        outcome, _ = await bench.run(job("true", pull=PullPolicy.IF_MISSING))

        assert outcome.result == AttemptResult.COMPLETED, outcome.message

    async def test_never_means_never(self, bench: Bench, image: str) -> None:
        outcome, _ = await bench.run(asking(image, pull=PullPolicy.NEVER))

        assert outcome.message == f"the image {image} is not there, and pull is never"

    async def test_always_asks_the_registry_each_time(
        self, bench: Bench, image: str, registry: Registry
    ) -> None:
        spec = asking(image, pull=PullPolicy.ALWAYS)
        first, _ = await bench.run(spec)
        registry.stop()
        try:
            second, _ = await bench.run(spec)
            third, _ = await bench.run(asking(image))
        finally:
            registry.start()

        results = [first.result, second.result, third.result]
        assert results == [AttemptResult.COMPLETED, AttemptResult.FAILED, AttemptResult.COMPLETED]

    async def test_image_of_a_login_is_not_for_those_without(
        self, bench: Bench, image: str
    ) -> None:
        await bench.run(asking(image))

        without, _ = await bench.run(asking(image, ""))
        never, _ = await bench.run(asking(image, "", pull=PullPolicy.NEVER))
        again, _ = await bench.run(asking(image, pull=PullPolicy.NEVER))

        assert (without.result, never.result) == (AttemptResult.FAILED, AttemptResult.FAILED)
        assert "needs a login" in never.message
        assert again.result == AttemptResult.COMPLETED, again.message

    async def test_part_of_an_id_is_no_name(self, bench: Bench) -> None:
        image = await bench.client.image(f"docker.io/library/{BASE}")
        assert image is not None
        part = image.id.removeprefix("sha256:")[:12]

        outcome, _ = await bench.run(asking(part, "", pull=PullPolicy.NEVER))

        assert outcome.message == (
            f"the image docker.io/library/{part}:latest is not there, and pull is never"
        )

    async def test_image_runs_what_it_says_where_it_says(self, bench: Bench) -> None:
        archive = base_archive(files={"srv/start": b"pwd; echo own"})
        changes = ['ENTRYPOINT ["sh"]', 'CMD ["start"]', "WORKDIR /srv"]
        bench.engine.import_image(archive, "rota-own:1", changes)
        spec = job(image="rota-own:1")

        outcome, sink = await bench.run(spec)

        assert (outcome.result, sink.text()) == (AttemptResult.COMPLETED, "/srv\nown\n")

    async def test_volumes_that_it_wants_are_in_memory_wherever_they_are(
        self, bench: Bench
    ) -> None:
        """On disk nothing would limit them, nor look at them."""
        wanted = ("/home", "/run/rota/own", "/srv/kept", "/var")
        bench.engine.import_image(base_archive(), "rota-wants:1", [f"VOLUME {w}" for w in wanted])
        script = f'for v in {" ".join(wanted)}; do grep -c " $v tmpfs " /proc/mounts; done'
        kept = "touch $HOME/a && echo kept"

        outcome, sink = await bench.run(job(script, kept, image="rota-wants:1"))

        assert outcome.result == AttemptResult.COMPLETED, outcome.message
        assert sink.text().split() == ["1", "1", "1", "1", "kept"]

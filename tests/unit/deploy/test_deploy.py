"""The files of `deploy/`, as far as they can be checked without running them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota.runtime import config

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
VARIABLES = {"S3_ACCESS_KEY": "key", "S3_SECRET_KEY": "secret"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return content


def rota_services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in compose["services"].items() if each["image"] == "rota"}


def by_schema(file: Path) -> subprocess.CompletedProcess[str]:
    """What the schema of compose files says; it comes with the checker."""
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema=vendor.compose-spec", file],
        capture_output=True,
        text=True,
        check=False,
    )


class TestCompose:
    def test_has_what_a_cluster_needs(self, compose: dict[str, Any]) -> None:
        names = set(compose["services"])

        assert {"postgres", "s3"} < names
        for kind, count in {"server": 3, "worker": 2, "nats": 3}.items():
            assert sum(name.startswith(f"{kind}-") for name in names) == count

    def test_everything_that_is_named_is_there(self, compose: dict[str, Any]) -> None:
        for service in compose["services"].values():
            assert set(service.get("secrets", ())) <= set(compose["secrets"])
            assert set(service.get("depends_on", ())) <= set(compose["services"])
            named = [each.partition(":")[0] for each in service.get("volumes", ())]
            assert {name for name in named if not name.startswith("/")} <= set(compose["volumes"])
        used = {name for each in compose["services"].values() for name in each.get("secrets", ())}
        assert used == set(compose["secrets"])

    def test_settings_are_ones_that_rota_takes(
        self, compose: dict[str, Any], tmp_path: Path
    ) -> None:
        for name, service in rota_services(compose).items():
            environ = dict(service["environment"])
            for variable in [it for it in environ if it.endswith("_FILE")]:
                content = tmp_path / f"{name}-{variable}"
                content.write_text("postgresql://rota@postgres/rota")
                environ[variable] = str(content)

            settings = config.load(environ=environ)

            assert settings.is_secure == name.startswith("server")
            assert len(settings.server) == (0 if name.startswith("server") else 3)

    def test_servers_differ_only_in_name_and_port(self, compose: dict[str, Any]) -> None:
        services = rota_services(compose)
        one, *others = [each for name, each in services.items() if name.startswith("server")]

        for other in others:
            own = {"environment": {**other["environment"], "ROTA_SERVER_NAME": "server-1"}}
            assert {**other, **own, "ports": one["ports"]} == one

    def test_no_secret_is_written_in_it(self) -> None:
        text = (DEPLOY / "compose.yaml").read_text().lower()

        assert "password:" not in text.replace("postgres-password:", "")
        assert "${s3_secret_key:?" in text

    def test_is_what_its_schema_says(self, tmp_path: Path) -> None:
        wrong = tmp_path / "compose.yaml"
        text = (DEPLOY / "compose.yaml").read_text()
        wrong.write_text(text.replace("healthcheck:", "health_check:"))

        right = by_schema(DEPLOY / "compose.yaml")
        refused = by_schema(wrong)

        assert right.returncode == 0, right.stdout
        assert refused.returncode == 1
        assert "'health_check' was unexpected" in refused.stdout

    def test_docker_understands_it(self) -> None:
        docker = shutil.which("docker")
        if (
            docker is None
            or subprocess.run(
                [docker, "compose", "version"], capture_output=True, check=False
            ).returncode
        ):
            pytest.skip("docker compose is not installed")

        done = subprocess.run(
            [docker, "compose", "--file", DEPLOY / "compose.yaml", "config", "--quiet"],
            env={"PATH": str(Path(docker).parent), **VARIABLES},
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 0, done.stderr


class TestImage:
    def test_copies_only_what_is_there_and_let_in(self) -> None:
        lines = (DEPLOY / "Dockerfile").read_text().splitlines()
        let_in = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()

        copied = [
            line.split()[1:-1] for line in lines if line.startswith("COPY ") and "=" not in line
        ]
        for path in [path for paths in copied for path in paths if path != "."]:
            assert (ROOT / path).exists()
        for path in [line.removeprefix("!") for line in let_in if line.startswith("!")]:
            assert (ROOT / path).exists()

    def test_does_not_run_as_root(self) -> None:
        assert "USER rota" in (DEPLOY / "Dockerfile").read_text().splitlines()


class TestUnits:
    @pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
    def test_systemd_understands_it(self, unit: Path, tmp_path: Path) -> None:
        analyze = shutil.which("systemd-analyze")
        if analyze is None:
            pytest.skip("systemd is not installed")
        rota = tmp_path / "rota"
        rota.touch(0o755)
        copy = tmp_path / unit.name.replace("@.", "@fra-1.")
        copy.write_text(unit.read_text().replace("/opt/rota/bin/rota", str(rota)))

        done = subprocess.run(
            [analyze, "verify", "--man=no", copy], capture_output=True, text=True, check=False
        )

        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
    def test_settings_are_ones_that_rota_takes(self, unit: Path, tmp_path: Path) -> None:
        told = [line for line in unit.read_text().splitlines() if line.startswith("Environment=")]
        environ = dict(line.removeprefix("Environment=").split("=", 1) for line in told)
        token = tmp_path / "token"
        token.write_text("secret")
        environ = {k: str(token) if k.endswith("_FILE") else v for k, v in environ.items()}

        settings = config.load(environ=environ)

        assert settings.home.is_absolute()

    def test_stop_of_a_worker_leaves_time_for_its_grace(self) -> None:
        lines = dict(
            line.partition("=")[::2]
            for line in (DEPLOY / "systemd" / "rota-worker@.service").read_text().splitlines()
        )

        # Only the launcher is asked: the guardian must outlive the attempts that may finish.
        assert (lines["KillMode"], lines["TimeoutStopSec"]) == ("mixed", "6min")
        assert "ROTA_STOP_GRACE=5m" in (DEPLOY / "systemd" / "rota-worker@.service").read_text()

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from rota.domain.errors import Invalid
from rota.domain.key_ring import Key
from rota.runtime import key_ring as loading
from rota.runtime.doctor import Verdict, look_at_key_ring
from rota.runtime.key_ring import KeyRingRenewal, load_key_ring, make_key_ring
from rota.runtime.settings import Settings

pytestmark = pytest.mark.anyio

OLD, NEW = Key("old", b"o" * 32), Key("new", b"n" * 32)
CLUSTER = "postgresql://rota@db/rota"


@pytest.fixture(autouse=True)
def _no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


def ring_file(folder: Path, *keys: Key) -> Path:
    path = folder / "ring"
    path.write_text("".join(f"{key.line()}\n" for key in keys))
    return path


def printing(text: str) -> str:
    return f"echo {text}"


async def ids(**settings: Any) -> tuple[str, ...]:
    ring = await load_key_ring(Settings(store=CLUSTER, **settings))
    assert ring is not None
    return ring.ids


async def refusal(**settings: Any) -> str:
    with pytest.raises(Invalid) as refused:
        await load_key_ring(Settings(store=CLUSTER, **settings))
    assert refused.value.code == "bad_settings"
    return refused.value.message


class TestPlaces:
    async def test_the_ring_may_be_in_the_setting_itself(self) -> None:
        assert await ids(secrets_key=f"{NEW.line()}\n{OLD.line()}") == ("new", "old")

    async def test_a_path_may_lead_to_it_also_by_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "mounted").symlink_to(ring_file(tmp_path, NEW))

        assert await ids(secrets_key=str(tmp_path / "mounted")) == ("new",)

    async def test_a_command_may_print_it(self) -> None:
        assert await ids(secrets_key_command=printing(NEW.line())) == ("new",)

    async def test_without_any_there_is_none(self, settings: Settings) -> None:
        assert await load_key_ring(settings) is None
        assert await load_key_ring(Settings(store=CLUSTER)) is None


class TestRefusals:
    async def test_a_file_that_is_not_there_is_told_by_the_setting(self, tmp_path: Path) -> None:
        told = await refusal(secrets_key=str(tmp_path / "nowhere"))

        assert "secrets_key" in told
        assert "No such file" in told

    @pytest.mark.parametrize(
        ("command", "told"),
        [
            ("/no/such/command", "No such file"),
            ("false", "exit code 1"),
            ("true", "secrets_key_command cannot be used"),
        ],
    )
    async def test_a_command_that_prints_no_ring_is_told(self, command: str, told: str) -> None:
        message = await refusal(secrets_key_command=command)

        assert told in message
        assert "secrets_key_command" in message

    async def test_a_command_has_ten_seconds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert loading.COMMAND_SECONDS == 10
        monkeypatch.setattr(loading, "COMMAND_SECONDS", 0.05)

        assert "longer than 0.05 seconds" in await refusal(secrets_key_command="sleep 60")


class TestHome:
    async def test_one_machine_makes_its_own_once(self, settings: Settings) -> None:
        path = make_key_ring(settings)
        assert path is not None
        ring = await load_key_ring(settings)

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ring is not None
        assert len(ring.ids) == 1
        assert make_key_ring(settings) is None
        assert path.read_text().startswith(f"rk1:{ring.ids[0]}:")

    def test_none_is_made_where_the_settings_name_one(self, tmp_path: Path) -> None:
        assert make_key_ring(Settings(home=tmp_path, secrets_key=NEW.line())) is None
        assert make_key_ring(Settings(home=tmp_path, secrets_key_command="true")) is None
        assert list(tmp_path.iterdir()) == []

    async def test_servers_that_share_a_store_share_no_folder(self, tmp_path: Path) -> None:
        make_key_ring(Settings(home=tmp_path))
        shared = Settings(home=tmp_path, store=CLUSTER)

        assert make_key_ring(shared) is None
        assert await load_key_ring(shared) is None


class TestRenewal:
    async def test_a_new_key_put_first_seals_from_then_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = ring_file(tmp_path, OLD)
        monkeypatch.setenv("ROTA_SECRETS_KEY_FILE", str(path))
        settings = Settings(store=CLUSTER, secrets_key=path.read_text())
        ring = await load_key_ring(settings)
        assert ring is not None
        sealed = ring.seal(b"x", b"")

        ring_file(tmp_path, NEW, OLD)
        await KeyRingRenewal(settings, ring).run_once()

        assert ring.ids == ("new", "old")
        assert ring.open(sealed, b"") == b"x"

    @pytest.mark.parametrize("text", ["rk1:broken", "", "# empty"])
    async def test_a_ring_that_cannot_be_used_leaves_the_old_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        path = ring_file(tmp_path, OLD)
        settings = Settings(store=CLUSTER, secrets_key=str(path))
        monkeypatch.setenv("ROTA_SECRETS_KEY", str(path))
        ring = await load_key_ring(settings)

        path.write_text(text)
        await KeyRingRenewal(settings, ring).run_once()

        assert ring is not None
        assert ring.ids == ("old",)


class TestDoctor:
    def test_it_tells_which_key_seals(self) -> None:
        text = f"{NEW.line()}\n{OLD.line()}"
        [found] = look_at_key_ring(Settings(store=CLUSTER, secrets_key=text))

        assert found.verdict is Verdict.OK
        assert found.message == "the key new seals, 1 more open what is older"

    def test_a_cluster_without_one_is_warned(self) -> None:
        [found] = look_at_key_ring(Settings(store=CLUSTER))

        assert found.verdict is Verdict.WARNING
        assert "secrets_key" in found.advice

    def test_a_ring_that_cannot_be_used_is_a_problem(self, tmp_path: Path) -> None:
        path = tmp_path / "ring"
        path.write_text("rk1:x:AAAA\n")
        [found] = look_at_key_ring(Settings(store=CLUSTER, secrets_key=str(path)))

        assert found.verdict is Verdict.PROBLEM
        assert "has 3 bytes and not 32" in found.message

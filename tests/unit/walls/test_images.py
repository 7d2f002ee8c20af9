from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from rota.domain.spec import Container, PullPolicy
from rota.walls.engine import ContainerEngine, EngineRefused, Image
from rota.walls.images import ImageRefused, Images, RegistryLogin, parse_reference, read_logins

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:12", "docker.io/library/debian:12"),
        ("team/app", "docker.io/team/app:latest"),
        ("index.docker.io/team/app:1", "docker.io/team/app:1"),
        ("registry.example.org/team/app:1", "registry.example.org/team/app:1"),
        ("registry.example.org:5000/app", "registry.example.org:5000/app:latest"),
        ("localhost/app:1", "localhost/app:1"),
        (f"debian@{DIGEST}", f"docker.io/library/debian@{DIGEST}"),
        (f"debian:12@{DIGEST}", f"docker.io/library/debian@{DIGEST}"),
    ],
)
def test_name_is_completed_as_engines_do(text: str, complete: str) -> None:
    assert str(parse_reference(text)) == complete


@pytest.mark.parametrize(
    "text",
    ["", "Debian", "a b", "debian:", ":12", "debian@sha256:12", "-x", "a//b", "a/../b"],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ImageRefused, match="is not the name of an image"):
        parse_reference(text)


class FakeEngine:
    """Engine that has images by name, and a registry that lets some logins have them."""

    def __init__(self) -> None:
        self.images: dict[str, Image] = {}
        self.granted: set[str] = set()  # passwords
        self.pulls: list[str] = []

    async def image(self, name: str) -> Image | None:
        return self.images.get(name)

    async def pull(self, name: str, credentials: Mapping[str, str] | None) -> None:
        self.pulls.append(name)
        if (credentials or {}).get("password", "") not in self.granted:
            raise EngineRefused("unauthorized: authentication required", 500)
        self.images[name] = Image("sha256:1", (name,), (), (), "/")


pytestmark = pytest.mark.anyio
APP = "registry.example.org/app:1"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def images(engine: FakeEngine) -> Images:
    team = RegistryLogin("team", "registry.example.org", "robot", "right", projects=("shop",))
    return Images(cast(ContainerEngine, engine), {"team": team})


def wanted(pull: PullPolicy = PullPolicy.IF_MISSING, registry: str = "team") -> Container:
    return Container(APP, pull, registry)


async def test_registry_is_asked_once_for_each_login(engine: FakeEngine, images: Images) -> None:
    engine.granted = {"right"}
    engine.images[APP] = Image("sha256:1", (APP,), (), (), "/")  # somebody else pulled it

    for _ in range(2):
        await images.get(wanted(), "shop")

    assert engine.pulls == [APP]


async def test_image_that_changed_needs_another_grant(engine: FakeEngine, images: Images) -> None:
    engine.granted = {"right"}
    await images.get(wanted(), "shop")
    engine.images[APP] = Image("sha256:2", (APP,), (), (), "/")

    await images.get(wanted(), "shop")

    assert engine.pulls == [APP, APP]


async def test_registry_that_no_longer_grants_is_heard_after_a_start(
    engine: FakeEngine, images: Images
) -> None:
    engine.images[APP] = Image("sha256:1", (APP,), (), (), "/")

    with pytest.raises(ImageRefused, match="unauthorized"):
        await images.get(wanted(), "shop")


async def test_image_of_a_host_without_logins_needs_none(
    engine: FakeEngine, images: Images
) -> None:
    name = "docker.io/library/debian:12"
    engine.images[name] = Image("sha256:1", ("debian:12",), (), (), "/")

    image = await images.get(Container("debian:12", PullPolicy.NEVER), "any")

    assert (image.id, engine.pulls) == ("sha256:1", [])


async def test_image_by_part_of_its_id_is_not_that_image(
    engine: FakeEngine, images: Images
) -> None:
    name = "docker.io/library/1234abcd:latest"
    engine.images[name] = Image("sha256:1234abcd", ("debian:12",), (), (), "/")

    with pytest.raises(ImageRefused, match="is not there"):
        await images.get(Container("1234abcd", PullPolicy.NEVER), "any")


class TestLogins:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "registries.toml"
        path.touch(0o600)
        return path

    def test_login_is_read_with_its_projects(self, file: Path) -> None:
        file.write_text(
            '[team]\nhost = "docker.io"\nuser = "robot"\npassword = "x"\nprojects = ["shop"]\n'
        )

        [login] = read_logins(file).values()

        assert login.credentials() == {
            "username": "robot",
            "password": "x",
            "serveraddress": "https://index.docker.io/v1/",
        }
        assert (login.is_for("shop"), login.is_for("other")) == (True, False)
        assert "x" not in repr(login).replace("index", "")

    def test_password_in_a_file_is_read_at_each_use(self, file: Path, tmp_path: Path) -> None:
        secret = tmp_path / "password"
        file.write_text(
            f'[team]\nhost = "r.example.org"\nuser = "robot"\npassword_file = "{secret}"\n'
            'projects = ["*"]\n'
        )
        [login] = read_logins(file).values()

        assert "cannot be read" in login.trouble()
        secret.write_text("new\n")

        assert (login.trouble(), login.credentials()["password"]) == ("", "new")
        assert login.is_for("any")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("x", "is not TOML"),
            ('team = "x"', "team is no table"),
            ("[team]", "needs host"),
            ('[team]\nhost = "h"', "needs user"),
            ('[team]\nhost = "h.org"\nuser = "u"', "needs password or password_file"),
            ('[team]\nhost = "h.org"\nuser = "u"\npassword = "p"', "needs projects"),
            ('[team]\nhots = "h.org"', "has an unknown hots"),
        ],
    )
    def test_what_is_wrong_in_the_file_is_told(self, file: Path, text: str, problem: str) -> None:
        file.write_text(text)

        with pytest.raises(ValueError, match=problem):
            read_logins(file)

    def test_passwords_that_others_may_read_are_not_used(self, file: Path) -> None:
        file.write_text('[t]\nhost = "h.org"\nuser = "u"\npassword = "p"\nprojects = ["*"]\n')
        file.chmod(0o640)

        with pytest.raises(ValueError, match="others may read it: chmod 600"):
            read_logins(file)

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.sdk import server
from rota.sdk.errors import Denied, Invalid, Unreachable
from rota.sdk.server import (
    Connection,
    Note,
    Server,
    Source,
    Value,
    decide,
    find_server,
    may_send,
    may_vouch,
    resolve,
)

LOCAL = Server("http://127.0.0.1:7700", "local-token")


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings files but those that a test writes."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setitem(server.SETTINGS_FILES, Source.USER_FILE, tmp_path / "user.toml")
    monkeypatch.setitem(server.SETTINGS_FILES, Source.SYSTEM_FILE, tmp_path / "system.toml")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder as `rota up` leaves it."""
    home = tmp_path / "data"
    home.mkdir()
    note = {"url": LOCAL.url, "token": LOCAL.token, "pid": 1}
    (home / "client.json").write_text(json.dumps(note))
    return home


def environ(home: Path, **variables: str) -> dict[str, str]:
    return {"ROTA_HOME": str(home), **variables}


def test_server_of_this_machine_is_found_with_its_token(home: Path) -> None:
    assert find_server(environ=environ(home)) == LOCAL


def test_data_folder_is_looked_for_where_the_program_was_started(home: Path) -> None:
    home.rename(".rota")

    assert find_server(environ={}) == LOCAL


def test_environment_goes_before_what_lies_in_the_data_folder(home: Path) -> None:
    variables = environ(home, ROTA_URL="http://rota.example/", ROTA_TOKEN="other")

    assert find_server(environ=variables) == Server("http://rota.example", "other")


def test_arguments_go_before_the_environment(home: Path) -> None:
    variables = environ(home, ROTA_URL="http://b:2", ROTA_TOKEN="other")

    assert find_server("http://c:3", "mine", variables) == Server("http://c:3", "mine")


def test_local_token_is_never_sent_to_another_server(home: Path) -> None:
    variables = environ(home, ROTA_URL="http://rota.example")

    assert find_server(environ=variables).token is None


def test_local_server_named_by_its_address_keeps_its_token(home: Path) -> None:
    assert find_server(LOCAL.url + "/", environ=environ(home)) == LOCAL


def test_without_any_server_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="rota up") as caught:
        find_server(environ=environ(tmp_path))

    assert caught.value.code == "no_server"


@pytest.mark.parametrize("text", ["", "[]", '{"url": "http://a:1"}', '{"url": 3, "token": ""}'])
def test_unreadable_note_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "client.json").write_text(text)

    with pytest.raises(Unreachable, match=r"client\.json"):
        find_server(environ=environ(tmp_path))


@pytest.mark.parametrize("url", ["127.0.0.1:7700", "ftp://a", "http://", "http://a/?project=b"])
def test_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(Invalid, match="not the address of a server"):
        find_server(url, environ=environ(tmp_path))


def test_token_is_not_shown() -> None:
    assert "local-token" not in repr(LOCAL)


# By the source of a token: the sources of an address that it may be sent to.
MAY_GO = {
    Source.ARGUMENT: {Source.ARGUMENT},
    Source.ENVIRONMENT: {Source.ARGUMENT, Source.ENVIRONMENT},
    Source.DATA_FOLDER: {Source.ARGUMENT, Source.ENVIRONMENT, Source.DATA_FOLDER},
    Source.USER_FILE: set(Source) - {Source.CURRENT_FOLDER, Source.SYSTEM_FILE},
    Source.SYSTEM_FILE: set(Source) - {Source.CURRENT_FOLDER},
    Source.CURRENT_FOLDER: set(Source),
}
PAIRS = list(product(Source, Source))


class TestRule:
    """Where a token may go: as a table, and for whatever is set."""

    @pytest.mark.parametrize(("token", "url"), PAIRS)
    def test_token_goes_to_addresses_that_are_as_trusted_as_itself(
        self, token: Source, url: Source
    ) -> None:
        found = decide([at(url, "http://a:1")], [at(token, "secret")], [], None)

        assert may_send(token, url) is (url in MAY_GO[token])
        assert found.is_withheld is (url not in MAY_GO[token])

    @pytest.mark.parametrize(("authorities", "url"), PAIRS)
    def test_current_folder_vouches_for_itself_alone(
        self, authorities: Source, url: Source
    ) -> None:
        may = authorities is not Source.CURRENT_FOLDER or url is Source.CURRENT_FOLDER
        written = at(authorities, "ca.pem")

        found = decide([at(url, "http://a:1")], [], [written], None)

        assert may_vouch(authorities, url) is may
        assert (found.authorities, found.ignored) == ((written, None) if may else (None, written))

    @given(st.data())
    def test_whatever_is_set_no_token_goes_where_it_must_not(self, data: st.DataObject) -> None:
        urls, tokens, authorities = (data.draw(VALUES) for _ in range(3))
        source = data.draw(st.sampled_from(Source))
        note = data.draw(st.none() | st.just(Note(at(source, "http://a:1"), at(source, "noted"))))

        found = decide(urls, tokens, authorities, note)

        if found.url and found.token and not found.is_withheld:
            assert found.url.source >= found.token.source
            assert found.token.text != "noted" or found.url.text == "http://a:1"
        if found.url and found.authorities:
            assert may_vouch(found.authorities.source, found.url.source)
        if found.url and Source.CURRENT_FOLDER is found.url.source and found.token:
            is_sent = not found.is_withheld
            assert is_sent is (found.token.source is Source.CURRENT_FOLDER)


def at(source: Source, text: str) -> Value:
    return Value(text, source, source.name)


TEXTS = st.sampled_from(["", "http://a:1", "http://b:2"])
VALUES = st.lists(st.builds(at, st.sampled_from(Source), TEXTS), max_size=4)


class TestSettings:
    def write(self, path: str | Path, **settings: str) -> None:
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        Path(path).write_text("\n".join(lines))

    @pytest.mark.parametrize("file", ["rota.toml", "../user.toml", "../system.toml"])
    def test_file_names_server_token_and_authorities(self, file: str) -> None:
        self.write(file, url="https://rota.example/", token="filed", tls_ca="ca.pem")

        assert find_server(environ={}) == Server("https://rota.example", "filed", "ca.pem")

    def test_file_of_this_folder_goes_before_that_of_the_user_and_that_before_the_systems(
        self,
    ) -> None:
        self.write("../system.toml", url="http://system:1", token="s", tls_ca="s.pem")
        assert resolve(environ={}).url == Value(
            "http://system:1", Source.SYSTEM_FILE, str(Path("../system.toml").resolve())
        )

        self.write("../user.toml", url="http://user:1", token="u")
        assert find_server(environ={}) == Server("http://user:1", "u", "s.pem")

        self.write("rota.toml", url="http://here:1", token="h")
        assert find_server(environ={}) == Server("http://here:1", "h", "s.pem")

    def test_token_may_be_in_a_file_that_the_environment_names(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("secret\n")
        variables = {"ROTA_URL": "http://a:1", "ROTA_TOKEN_FILE": str(tmp_path / "token")}

        assert find_server(environ=variables) == Server("http://a:1", "secret")

    def test_token_file_that_cannot_be_read_is_named_with_its_variable(self) -> None:
        with pytest.raises(Invalid, match="absent") as refused:
            find_server("http://a:1", environ={"ROTA_TOKEN_FILE": "absent"})

        assert "ROTA_TOKEN_FILE" in refused.value.hint

    def test_file_that_cannot_be_read_is_named(self) -> None:
        Path("rota.toml").write_text("url = ")

        with pytest.raises(Invalid, match=r"rota\.toml cannot be read"):
            find_server(environ={})

    def test_empty_variable_hides_what_a_file_says(self, home: Path) -> None:
        self.write("rota.toml", url="http://here:1", token="h")

        assert find_server(environ=environ(home, ROTA_URL="", ROTA_TOKEN="")) == LOCAL

    def test_wrong_address_that_a_stronger_one_hides_does_no_harm(self) -> None:
        self.write("rota.toml", url="nonsense")

        assert find_server("http://a:1", environ={}) == Server("http://a:1")

    def test_data_folder_may_be_named_by_a_file(self, home: Path) -> None:
        self.write("../user.toml", home=str(home))

        assert find_server(environ={}) == LOCAL
        noted = resolve(environ={}).url
        assert noted is not None
        assert noted.source is Source.USER_FILE

    def test_authorities_of_this_folder_give_way_to_those_that_may_vouch(self) -> None:
        self.write("rota.toml", tls_ca="theirs.pem")
        self.write("../system.toml", tls_ca="ours.pem")

        found = find_server(environ={"ROTA_URL": "https://a:1"})

        assert found.authorities == "ours.pem"


class TestWithholding:
    def refusal(self, token: str | None = None, **variables: str) -> Denied:
        with pytest.raises(Denied) as refused:
            find_server(token=token, environ=variables)
        assert refused.value.code == "token_withheld"
        return refused.value

    def test_token_of_the_environment_is_not_for_the_address_of_a_file_of_this_folder(self) -> None:
        Path("rota.toml").write_text('url = "http://evil:1"')

        refused = self.refusal(ROTA_TOKEN="secret")

        assert refused.message == (
            "the token of ROTA_TOKEN is not sent to http://evil:1, an address that comes from"
            " rota.toml"
        )
        assert "set ROTA_URL=http://evil:1" in refused.hint
        assert "only to an address from the same or a more trusted place" in refused.hint

    def test_token_of_the_environment_is_not_for_a_data_folder_found_here(self, home: Path) -> None:
        home.rename(".rota")

        assert ".rota/client.json" in self.refusal(ROTA_TOKEN="secret").message

    def test_relative_data_folder_is_one_found_here(self, home: Path) -> None:
        home.rename("data")
        Path("../user.toml").write_text('token = "mine"')

        assert "data/client.json" in self.refusal(ROTA_HOME="data").message

    def test_token_of_the_environment_is_not_for_a_data_folder_that_is_named(
        self, home: Path
    ) -> None:
        assert "client.json" in self.refusal(ROTA_HOME=str(home), ROTA_TOKEN="secret").message

    def test_token_of_the_user_is_not_for_an_address_of_this_folder(self) -> None:
        Path("../user.toml").write_text('url = "http://mine:1"\ntoken = "mine"')
        Path("rota.toml").write_text('url = "http://evil:1"')

        assert "user.toml is not sent to http://evil:1" in self.refusal().message

    def test_token_of_an_argument_needs_an_address_of_an_argument(self) -> None:
        refused = self.refusal("secret", ROTA_URL="http://a:1")

        assert "the argument token" in refused.message
        assert "as an argument" in refused.hint

    def test_token_of_the_data_folder_is_not_for_an_address_of_this_folder(
        self, home: Path
    ) -> None:
        Path("rota.toml").write_text('url = "http://evil:1"')

        assert find_server(environ=environ(home)) == Server("http://evil:1")

    def test_secret_is_in_no_message(self) -> None:
        Path("rota.toml").write_text('url = "http://evil:1"')

        assert "s3cret" not in str(self.refusal(ROTA_TOKEN="s3cret"))
        assert "s3cret" not in repr(resolve(environ={"ROTA_TOKEN": "s3cret"}))

    def test_without_a_server_there_is_nothing_to_withhold(self) -> None:
        assert resolve(environ={"ROTA_TOKEN": "x"}) == Connection(
            token=Value("x", Source.ENVIRONMENT, "ROTA_TOKEN")
        )


class TestForeignDataFolder:
    @pytest.fixture(params=[".", "client.json"])
    def foreign(self, request: pytest.FixtureRequest, home: Path) -> Path:
        """A data folder of which something belongs to somebody else."""
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        os.chown(home / request.param, 65534, 65534)
        return home

    def test_its_server_is_not_spoken_to(self, foreign: Path) -> None:
        with pytest.raises(Denied, match="belongs to uid 65534") as refused:
            find_server(environ=environ(foreign))

        assert "ROTA_URL" in refused.value.hint

    def test_its_token_is_not_used(self, foreign: Path) -> None:
        assert find_server(LOCAL.url, environ=environ(foreign)) == Server(LOCAL.url)

    def test_one_that_others_may_change_is_not_used(self, home: Path) -> None:
        home.chmod(0o777)

        with pytest.raises(Denied, match="mode 0777"):
            find_server(environ=environ(home))

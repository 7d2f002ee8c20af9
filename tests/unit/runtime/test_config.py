from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.errors import Invalid
from rota.domain.jobfile import read_job
from rota.executors.shell import rota_variables
from rota.guardian.processes import MARKER_VARIABLE
from rota.ports.executor import Assignment
from rota.ports.work import Work
from rota.runtime import config
from rota.runtime import settings as setting_values
from rota.runtime.settings import MEANINGS, Settings


@pytest.fixture(autouse=True)
def _no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def complaints(**environ: str) -> list[str]:
    with pytest.raises(Invalid) as refused:
        config.load(environ=environ)
    return [str(problem) for problem in refused.value.problems]


def test_mistyped_variable_is_an_error_with_the_nearest_name() -> None:
    assert complaints(ROTA_LEAS="3s") == ['ROTA_LEAS  unknown setting — did you mean "ROTA_LEASE"?']


def test_variable_like_no_setting_says_where_they_are_listed() -> None:
    [complaint] = complaints(ROTA_XYZZY="1")

    assert "rota config show" in complaint


def test_zone_that_commands_print_in_is_no_setting_and_no_mistake() -> None:
    assert config.load(environ={"ROTA_TZ": "Europe/Berlin"}) == Settings()


def test_every_problem_of_the_environment_is_told_at_once() -> None:
    told = complaints(ROTA_LEAS="3s", ROTA_SLOT="1", ROTA_POOL="a", SLOTS="x")

    assert [text.partition(" ")[0] for text in told] == ["ROTA_LEAS", "ROTA_SLOT"]


def test_secret_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")

    settings = config.load(environ={"ROTA_TOKEN_FILE": str(tmp_path / "token")})

    assert settings.token == "secret"


def test_what_rota_tells_its_jobs_and_processes_is_no_mistake() -> None:
    spec = read_job({"name": "tidy", "steps": [{"run": "x"}]})
    assignment = Assignment(Work("r_1", 1, "j_1", 1, 0), spec)
    told = rota_variables(assignment, output=Path("output"), progress=Path("progress"))
    internal = dict.fromkeys(
        ("ROTA_CART", "ROTA_ITEM", "ROTA_GUARDIAN_FD", "ROTA_GUARDIAN_KILL_FD", MARKER_VARIABLE),
        "1",
    )

    assert config.load(environ=told | internal) == Settings()


class TestWhereRotaIs:
    @pytest.mark.parametrize(
        ("variable", "value", "told"),
        [
            ("ROTA_PUBLIC_URL", "rota.example.org", "not the address of a site"),
            ("ROTA_PUBLIC_URL", "ftp://example.org", "not the address of a site"),
            ("ROTA_PUBLIC_URL", "https://", "not the address of a site"),
            ("ROTA_PUBLIC_URL", "https://example.org?x=1", "not the address of a site"),
            ("ROTA_PUBLIC_URL", "https://example.org/a b", "not the address of a site"),
            ("ROTA_PUBLIC_URL", "https://example.org/a/../b", "not the address of a site"),
            ("ROTA_PUBLIC_URL", "https://example.org:99999", "not the address of a site"),
            ("ROTA_PUBLIC_URL", "https://ada:secret@example.org", "https://ada:***@example.org"),
            ("ROTA_TRUSTED_PROXIES", "10.0.0.1/8", "has host bits set"),
            ("ROTA_TRUSTED_PROXIES", "10.0.0.0/8,proxy.local", '"proxy.local" is not a network'),
            ("ROTA_TRUSTED_PROXIES", "0.0.0.0/0", "every address"),
            ("ROTA_TRUSTED_PROXIES", "::/0", "every address"),
            ("ROTA_SECRETS_KEY", "rk1:x:AAAA", "line 1: the key x has 3 bytes"),
            ("ROTA_SECRETS_KEY", "c2VjcmV0", "line 1: it is not rk1:ID:BASE64"),
            ("ROTA_SECRETS_KEY_COMMAND", "vault 'get", "not a command line"),
        ],
    )
    def test_what_cannot_be_is_told_by_its_name(self, variable: str, value: str, told: str) -> None:
        [complaint] = complaints(**{variable: value})

        assert told in complaint
        assert variable in complaint
        assert "secret@" not in complaint
        assert "c2VjcmV0" not in complaint

    def test_slots_are_shown_as_numbers(self) -> None:
        assert setting_values.shown("http_slots", 100) == "100"
        assert setting_values.shown("http_slots", 0) == "0"

    def test_settings_are_read_and_shown(self) -> None:
        environ = {
            "ROTA_PUBLIC_URL": "https://example.org/rota/",
            "ROTA_TRUSTED_PROXIES": "10.0.0.0/8, ::1",
            "ROTA_SECRETS_KEY": f"rk1:k:{'A' * 43}=",
        }

        settings, origins = config.load_with_origins(environ=environ)
        shown = {each.name: (each.value, each.origin) for each in origins}

        assert settings.public_url == "https://example.org/rota"
        assert shown["public_url"] == ("https://example.org/rota", "ROTA_PUBLIC_URL")
        assert shown["trusted_proxies"] == ("10.0.0.0/8,::1/128", "ROTA_TRUSTED_PROXIES")
        assert shown["secrets_key"] == ("(set)", "ROTA_SECRETS_KEY")

    @pytest.mark.parametrize("name", ["listen", "grpc_listen"])
    @pytest.mark.parametrize(
        ("settings", "missing"),
        [
            ({}, "trusted_proxies to its networks and public_url"),
            ({"ROTA_TRUSTED_PROXIES": "10.0.0.1"}, "set public_url"),
            ({"ROTA_PUBLIC_URL": "https://example.org"}, "set trusted_proxies"),
            (
                {"ROTA_TRUSTED_PROXIES": "10.0.0.1", "ROTA_PUBLIC_URL": "http://example.org"},
                "set public_url to where people reach it (https://…)",
            ),
        ],
    )
    def test_without_tls_only_loopback_is_listened_on(
        self, name: str, settings: dict[str, str], missing: str
    ) -> None:
        [complaint] = complaints(**{f"ROTA_{name.upper()}": "0.0.0.0:7700"}, **settings)

        assert complaint.startswith(f"{name}  listening on 0.0.0.0 would expose Rota without TLS")
        assert "tls_cert" in complaint
        assert missing in complaint

    def test_behind_proxies_that_end_tls_more_may_be_listened_on(self) -> None:
        settings = config.load(
            environ={
                "ROTA_LISTEN": "0.0.0.0:7700",
                "ROTA_GRPC_LISTEN": "[::]:7701",
                "ROTA_TRUSTED_PROXIES": "10.0.0.1",
                "ROTA_PUBLIC_URL": "https://example.org",
            }
        )

        assert settings.is_behind_tls

    def test_no_command_of_the_current_folder_is_run(self, tmp_path: Path) -> None:
        (tmp_path / ".config" / "rota").mkdir(parents=True)
        (tmp_path / ".config" / "rota" / "rota.toml").write_text('secrets_key_command = "mine"')
        assert config.load(environ={}).secrets_key_command == "mine"

        (tmp_path / "rota.toml").write_text('secrets_key_command = "theirs"')

        [complaint] = complaints()
        assert complaint.startswith("rota.toml  the secrets_key_command of the current folder")

    @pytest.mark.parametrize("mount", ["/srv/cache", "/srv/cache/a", "/srv", "/srv/cache/a:rw"])
    def test_containers_mount_nothing_that_sandboxes_could_replace(self, mount: str) -> None:
        """They could put a link in its place after it was looked at and before it is mounted."""
        [complaint] = complaints(
            ROTA_SANDBOX_BINDS="/srv/cache:rw,/data", ROTA_CONTAINER_MOUNTS=mount
        )

        assert complaint == (
            f"container_mounts  {mount}: sandboxes may write to /srv/cache, and put links there —"
            " let them read it only, or mount another folder"
        )

    @pytest.mark.parametrize("mount", ["/srv/cache:rw", "/srv:rw", "/srv/other", "/data"])
    def test_they_mount_all_else(self, mount: str) -> None:
        environ = {"ROTA_SANDBOX_BINDS": "/srv/cache:rw,/data", "ROTA_CONTAINER_MOUNTS": mount}

        assert [str(root) for root in config.load(environ=environ).container_mounts] == [mount]

    def test_there_is_one_place_for_the_key_ring(self) -> None:
        both = {"ROTA_SECRETS_KEY": "./ring", "ROTA_SECRETS_KEY_COMMAND": "vault get"}

        assert complaints(**both) == [
            "secrets_key_command  secrets_key and secrets_key_command exclude one another"
        ]


class TestAddresses:
    @pytest.mark.parametrize(
        ("variable", "value", "told"),
        [
            ("ROTA_STORE", "mysql://db", "no address of a store: use sqlite:///, postgresql://"),
            ("ROTA_BLOBS", "ftp://b", "no address of a blob store"),
            ("ROTA_QUEUE", "kafka://q", "rota.queues"),
            ("ROTA_QUEUE", "somewhere", "use nats://"),
            ("ROTA_GRPC_LISTEN", "nowhere", "not host:port"),
            ("ROTA_ROLES", "gateway,waiter", "waiter is not among the roles gateway, scheduler"),
            ("ROTA_ROLES", "", "nothing is not among the roles"),
            ("ROTA_STORE_POOL", "0", "not a number of connections"),
            ("ROTA_LABELS", f"site={'x' * 201}", "at most 100 labels of 200 characters"),
            ("ROTA_LABELS", ",".join(f"{n}=" for n in range(101)), "at most 100 labels"),
            ("ROTA_LABELS", "site=fra,worker=web-1", "each worker has already: its name"),
            ("ROTA_RESOURCES", "cpu", "not key=value"),
            ("ROTA_RESOURCES", "cpu=0.0005", "cpu=0.0005 is not an amount"),
            ("ROTA_RESOURCES", "cpu=-1", "cpu=-1 is not an amount"),
            ("ROTA_RESOURCES", "memory=8", "write a size such as 8GiB"),
            ("ROTA_RESOURCES", "slots=8", "the setting slots says how many"),
            ("ROTA_RESOURCES", ",".join(f"{n}=1" for n in range(101)), "at most 100 resources"),
            ("ROTA_POOL_MAX", "cpu=16", "cpu is not POOL/NAME, such as linux/cpu=16"),
            ("ROTA_POOL_MAX", "linux/memory=64", "memory=64 has no unit"),
            ("ROTA_SERVER_LEASE", "10m", "must be between 1s and 5m"),
            ("ROTA_SERVER_LEASE", "10ms", "must be between 1s and 5m"),
            ("ROTA_SERVER", "host:port", "not host:port"),
        ],
    )
    def test_what_cannot_be_is_told_with_what_can(
        self, variable: str, value: str, told: str
    ) -> None:
        [complaint] = complaints(**{variable: value})

        assert told in complaint

    def test_all_backends_by_address(self) -> None:
        settings = config.load(
            environ={
                "ROTA_STORE": "postgresql://rota@db/rota",
                "ROTA_QUEUE": "nats://a,b",
                "ROTA_BLOBS": "s3://bucket/prefix",
                "ROTA_ROLES": "dispatcher, gateway",
                "ROTA_SERVER": "a:1, b ,[::1]:3,[::2]",
            }
        )

        assert not settings.is_alone
        assert settings.roles == ("gateway", "dispatcher")
        assert settings.server == ("a:1", "b:7701", "[::1]:3", "[::2]:7701")

    def test_wake_ups_may_go_through_a_database_too(self) -> None:
        direct = "postgresql://rota@db/rota"

        settings = config.load(environ={"ROTA_STORE": f"{direct}-pooled", "ROTA_QUEUE": direct})

        assert settings.queue == direct

    def test_the_largest_runs_are_told_by_pool(self) -> None:
        written = "linux/cpu=16,linux/memory=64GiB,small/cpu=0.5"

        settings = config.load(environ={"ROTA_POOL_MAX": written})

        memory = 64 * 1024**3 * 1_000
        assert settings.largest == {
            "linux": {"cpu": 16_000, "memory": memory},
            "small": {"cpu": 500},
        }
        assert setting_values.shown("pool_max", settings.pool_max) == written

    def test_resources_of_a_worker_are_numbers_and_sizes(self) -> None:
        settings = config.load(environ={"ROTA_RESOURCES": "cpu=1.5, memory=2GiB, licence-x=2"})

        assert settings.resources == {
            "cpu": 1_500,
            "memory": 2 * 1024**3 * 1000,
            "licence-x": 2_000,
        }
        shown = setting_values.shown("resources", settings.resources)
        assert shown == "cpu=1.5,memory=2GiB,licence-x=2"

    def test_server_lease_is_short_where_others_wait_for_it(self) -> None:
        alone, shared = Settings(), Settings(store="postgresql://db")

        assert (alone.renewed_within, shared.renewed_within) == (
            timedelta(seconds=30),
            timedelta(seconds=5),
        )
        assert Settings(server_lease=timedelta(seconds=9)).renewed_within == timedelta(seconds=9)

    def test_server_of_a_worker_has_no_scheme(self) -> None:
        [complaint] = complaints(ROTA_SERVER="https://rota.example:7701/")

        assert "write it without the scheme, as rota.example:7701" in complaint

    def test_server_lease_of_nothing_is_refused(self) -> None:
        with pytest.raises(Invalid) as refused:
            config.load(environ={"ROTA_SERVER_LEASE": "0s"})

        [problem] = refused.value.problems
        assert (problem.path, problem.message) == (
            "server_lease",
            "lease 0s must be between 1s and 5m",
        )

    def test_queue_of_an_installed_package_is_known_by_its_scheme(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(setting_values, "other_queues", lambda: frozenset({"kafka"}))

        assert config.load(environ={"ROTA_QUEUE": "kafka://q"}).queue == "kafka://q"


class TestListening:
    @pytest.mark.parametrize("variable", ["ROTA_LISTEN", "ROTA_GRPC_LISTEN"])
    def test_beyond_loopback_only_with_a_certificate(self, variable: str) -> None:
        tls = {"ROTA_TLS_CERT": "cert.pem", "ROTA_TLS_KEY": "key.pem"}

        [complaint] = complaints(**{variable: "0.0.0.0:7700"})

        assert "would expose Rota without TLS" in complaint
        assert config.load(environ={variable: "0.0.0.0:7700", **tls}).is_secure

    @pytest.mark.parametrize("half", ["ROTA_TLS_CERT", "ROTA_TLS_KEY"])
    def test_certificate_and_key_go_together(self, half: str) -> None:
        [complaint] = complaints(**{half: "file.pem"})

        assert "go together" in complaint


class TestSecrets:
    def test_none_is_shown(self) -> None:
        environ = {
            "ROTA_TOKEN": "s3cret",
            "ROTA_WORKER_TOKEN": "s3cret",
            "ROTA_STORE": "postgresql://rota:s3cret@db/rota?sslpassword=s3cret",
            "ROTA_QUEUE": "nats://s3cret@a,b",
        }

        settings, shown = config.load_with_origins(environ=environ)

        assert not any("s3cret" in setting.value for setting in shown)
        assert "s3cret" not in repr(settings)

    def test_refused_address_is_told_without_its_password(self) -> None:
        [complaint] = complaints(ROTA_STORE="mysql://me:s3cret@db")

        assert "mysql://me:***@db" in complaint

    @pytest.mark.parametrize(
        ("address", "shown"),
        [
            ("postgresql://rota@db/rota", "postgresql://rota@db/rota"),
            ("postgresql://rota:a@b/c@db/rota", "postgresql://rota:***@db/rota"),
            ("nats://token@a,b", "nats://***@a,b"),
            ("s3://bucket/prefix", "s3://bucket/prefix"),
        ],
    )
    def test_the_rest_of_an_address_stays(self, address: str, shown: str) -> None:
        assert setting_values.without_secrets(address) == shown


def test_every_setting_has_a_meaning_and_a_reader() -> None:
    names = {field.name for field in fields(Settings)}

    assert names == set(MEANINGS) == set(setting_values.READERS)


def test_settings_file_that_is_no_toml_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text("slots = 3\nlog_level = debug\n")

    [complaint] = complaints()

    assert 'not valid TOML at line 2, column 13: write NAME = "text"' in complaint
    assert "Invalid value" not in complaint


def test_token_of_workers_goes_to_no_server_of_a_less_trusted_place(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text('server = "elsewhere:7701"\n')

    [complaint] = complaints(ROTA_WORKER_TOKEN="secret")

    assert "the worker_token of ROTA_WORKER_TOKEN is not sent to the server" in complaint
    environ = {"ROTA_WORKER_TOKEN": "secret", "ROTA_SERVER": "here:7701"}
    assert config.load(environ=environ).worker_token == "secret"


def test_join_token_goes_to_no_server_of_a_less_trusted_place(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text('server = "elsewhere:7701"\n')

    [complaint] = complaints(ROTA_JOIN_TOKEN="secret")

    assert "the join_token of ROTA_JOIN_TOKEN is not sent to the server" in complaint


def test_credential_of_another_data_folder_goes_to_no_server_of_the_current_one(
    tmp_path: Path,
) -> None:
    credential = tmp_path / "kept" / "workers" / "w1" / "credential.json"
    credential.parent.mkdir(parents=True)
    credential.touch()
    (tmp_path / "rota.toml").write_text('server = "elsewhere:7701"\n')
    environ = {"ROTA_HOME": str(tmp_path / "kept"), "ROTA_WORKER_NAME": "w1"}

    [complaint] = complaints(**environ)

    assert f"the credential in {credential} is not sent" in complaint
    assert config.load(environ=environ | {"ROTA_SERVER": "here:7701"}).server == ("here:7701",)
    assert config.load(environ=environ | {"ROTA_HOME": "kept"}).server == ("elsewhere:7701",)


def test_authorities_of_the_current_folder_do_not_vouch_for_other_servers(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    (tmp_path / "rota.toml").write_text('tls_ca = "ca.pem"\n')

    environ = {"ROTA_WORKER_TOKEN": "secret", "ROTA_SERVER": "here:7701"}

    assert config.load(environ=environ).tls_ca is None


def test_settings_that_another_user_wrote_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text('app = "evil:app"\n')
    (tmp_path / "rota.toml").chmod(0o666)

    [complaint] = complaints()

    assert "is not used" in complaint

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.errors import Invalid
from rota.runtime import config

PROVIDER = {"ROTA_OIDC_ISSUER": "https://login.example.org/", "ROTA_OIDC_CLIENT_ID": "rota"}


@pytest.fixture(autouse=True)
def _no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def complaints(**environ: str) -> list[str]:
    with pytest.raises(Invalid) as refused:
        config.load(environ=environ)
    return [f"{problem.path.partition(' ')[0]}: {problem}" for problem in refused.value.problems]


def test_a_provider_is_named_by_issuer_and_client(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush\n")

    settings = config.load(
        environ={
            **PROVIDER,
            "ROTA_OIDC_CLIENT_SECRET_FILE": str(secret),
            "ROTA_OIDC_GROUPS_CLAIM": "/realm_access/roles",
            "ROTA_OIDC_ADMIN_GROUPS": "ops, admins",
            "ROTA_OIDC_SCOPES": "openid profile offline_access",
            "ROTA_SESSION_LIFETIME": "8h",
        }
    )

    assert settings.oidc_issuer == "https://login.example.org/"
    assert settings.oidc_client_secret == "hush"
    assert settings.oidc_admin_groups == ("ops", "admins")
    assert settings.oidc_scopes == ("openid", "profile", "offline_access")
    assert settings.session_lifetime == timedelta(hours=8)
    assert "hush" not in repr(settings)
    shown = {each.name: each.value for each in config.load_with_origins(environ=PROVIDER)[1]}
    assert shown["oidc_client_secret"] == ""
    assert shown["session_idle"] == "2h"


def test_the_secret_of_the_client_is_not_shown() -> None:
    environ = {**PROVIDER, "ROTA_OIDC_CLIENT_SECRET": "hush"}

    shown = {each.name: each.value for each in config.load_with_origins(environ=environ)[1]}

    assert shown["oidc_client_secret"] == "(set)"


@pytest.mark.parametrize(
    "issuer",
    [
        "http://login.example.org",
        "http://localhost.evil.example",
        "login.example.org",
        "https://",
        "https://user:word@login.example.org",
        "https://login.example.org?x=1",
        "https://login.microsoftonline.com/common/v2.0",
        "https://login.microsoftonline.com/organizations/v2.0",
    ],
)
def test_an_issuer_that_nobody_should_trust_is_refused_by_its_name(issuer: str) -> None:
    [complaint] = complaints(ROTA_OIDC_ISSUER=issuer, ROTA_OIDC_CLIENT_ID="rota")

    assert complaint.startswith("oidc_issuer:")
    assert "word" not in complaint


@pytest.mark.parametrize("issuer", ["http://localhost:4000", "http://127.0.0.1:8080/realms/a"])
def test_a_provider_on_this_machine_may_go_without_tls(issuer: str) -> None:
    settings = config.load(environ={**PROVIDER, "ROTA_OIDC_ISSUER": issuer})

    assert settings.oidc_issuer == issuer


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("oidc_client_id", {"ROTA_OIDC_CLIENT_ID": ""}),
        ("oidc_client_id", {"ROTA_OIDC_ISSUER": ""}),
        ("oidc_groups_claim", {"ROTA_OIDC_GROUPS_CLAIM": "groups"}),
        ("oidc_admin_groups", {"ROTA_OIDC_ADMIN_GROUPS": "ops"}),
        ("oidc_scopes", {"ROTA_OIDC_SCOPES": "profile"}),
        ("oidc_access_token_typ", {"ROTA_OIDC_ACCESS_TOKEN_TYP": "JWT"}),
        (
            "oidc_client_ids",
            {"ROTA_OIDC_ACCESS_TOKEN_TYP": "jwt", "ROTA_OIDC_AUDIENCE": "https://rota"},
        ),
        (
            "oidc_audience",
            {
                "ROTA_OIDC_ACCESS_TOKEN_TYP": "jwt",
                "ROTA_OIDC_AUDIENCE": "rota",
                "ROTA_OIDC_CLIENT_IDS": "cli",
            },
        ),
        ("session_idle", {"ROTA_SESSION_IDLE": "13h"}),
        ("session_lifetime", {"ROTA_SESSION_LIFETIME": "60d"}),
        ("session_idle", {"ROTA_SESSION_IDLE": "5s"}),
    ],
)
def test_what_does_not_fit_is_told_by_its_name(name: str, changes: dict[str, str]) -> None:
    [complaint] = complaints(**(PROVIDER | changes))

    assert complaint.startswith(f"{name}:")


def test_a_claim_that_is_no_pointer_is_answered_with_one() -> None:
    [complaint] = complaints(**PROVIDER, ROTA_OIDC_GROUPS_CLAIM="https://example.org/roles")

    assert '"/https:~1~1example.org~1roles"' in complaint


@pytest.mark.parametrize("group", ["hd:example.org", "email:ann@example.org"])
def test_without_groups_a_domain_or_address_may_be_admin(group: str) -> None:
    settings = config.load(environ={**PROVIDER, "ROTA_OIDC_ADMIN_GROUPS": group})

    assert settings.oidc_admin_groups == (group,)

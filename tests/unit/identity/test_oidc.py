from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.responses import RedirectResponse, Response

from rota.domain.errors import Denied, Unavailable
from rota.domain.identity import person_of_access_token
from rota.identity import oidc
from rota.identity.oidc import OidcClient, OidcProvider, check_address
from rota.ports.provider import LoginRequest
from tests.unit.identity.published import ISSUER, RULES, PublishedProvider, key

pytestmark = pytest.mark.anyio

REQUEST = LoginRequest("state", "nonce", "challenge", "http://127.0.0.1:7700/auth/callback")


@pytest.fixture
def published() -> PublishedProvider:
    return PublishedProvider()


@pytest.fixture
async def provider(published: PublishedProvider, anyio_backend: str) -> AsyncIterator[OidcProvider]:
    async with published.open() as provider:
        yield provider


async def test_people_are_sent_with_all_that_ties_the_answer_to_them(
    provider: OidcProvider,
) -> None:
    address = await provider.login_address(REQUEST)

    asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    assert address.startswith(f"{ISSUER}/auth?")
    assert asked == {
        "response_type": "code",
        "response_mode": "query",
        "client_id": "rota",
        "redirect_uri": REQUEST.return_to,
        "scope": "openid profile email",
        "state": "state",
        "nonce": "nonce",
        "code_challenge": "challenge",
        "code_challenge_method": "S256",
    }


async def test_a_code_is_traded_once_with_the_secret_in_the_header(
    provider: OidcProvider, published: PublishedProvider
) -> None:
    back = published.log_in(await provider.login_address(REQUEST))

    granted = await provider.redeem(back["code"], "verifier", REQUEST.return_to)

    assert (await provider.verify(granted.id_token)).claims["sub"] == "ann"
    with pytest.raises(Denied) as refusal:
        await provider.redeem(back["code"], "verifier", REQUEST.return_to)
    assert refusal.value.code == "invalid_grant"


async def test_the_secret_is_in_the_form_where_the_provider_wants_it_there(
    provider: OidcProvider, published: PublishedProvider
) -> None:
    published.document["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    back = published.log_in(await provider.login_address(REQUEST))

    assert (await provider.redeem(back["code"], "verifier", REQUEST.return_to)).id_token


async def test_a_wrong_secret_is_told_by_the_setting(
    provider: OidcProvider, published: PublishedProvider
) -> None:
    back = published.log_in(await provider.login_address(REQUEST))
    published.secret = "another"

    with pytest.raises(Unavailable) as refusal:
        await provider.redeem(back["code"], "verifier", REQUEST.return_to)

    assert "oidc_client_secret" in refusal.value.hint


async def test_a_refresh_token_works_once(
    provider: OidcProvider, published: PublishedProvider
) -> None:
    published.refresh_tokens["first"] = "ann"

    granted = await provider.refresh("first")

    assert granted.refresh_token in published.refresh_tokens
    with pytest.raises(Denied):
        await provider.refresh("first")


def signed_with_the_public_key(claims: dict[str, object], public: bytes) -> str:
    """HS256 whose secret is what everybody knows; a library refuses to make it."""
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "kid": "k1", "typ": "at+jwt"}, claims)
    )
    mac = hmac.digest(public, head + b"." + body, hashlib.sha256)
    return b".".join((head, body, base64.urlsafe_b64encode(mac).rstrip(b"="))).decode()


class TestSignatures:
    async def test_a_token_of_the_provider_is_believed(
        self, provider: OidcProvider, published: PublishedProvider
    ) -> None:
        token = await provider.verify(published.access_token())

        assert (token.header.kind, token.claims["sub"]) == ("at+jwt", "ann")

    async def test_a_token_of_anybody_else_is_not(
        self, provider: OidcProvider, published: PublishedProvider
    ) -> None:
        claims = published.claims(aud="x")
        public = published.keys[0].as_pem(private=False)
        forged = [
            published.sign(claims, by=key("evil"), kid="k1"),
            published.sign(claims, by=key("evil")),
            published.sign(claims, by=key("evil"), kid=None),
            published.sign(claims, by=key("evil"), kid="k1", jku=f"{ISSUER}/evil"),
            published.sign(
                claims, by=key("evil"), kid="k1", jwk=key("evil").as_dict(private=False)
            ),
            signed_with_the_public_key(claims, public),
            "eyJhbGciOiJub25lIn0.e30.",
        ]
        good = published.access_token()
        head, body, signature = good.split(".")
        forged += [f"{head}.{body[:-2]}AA.{signature}", f"{head}.{body}.", f"{head}.{body}"]

        for token in forged:
            with pytest.raises(Denied):
                await provider.verify(token)
        assert f"{ISSUER}/evil" not in published.asked

    async def test_a_new_key_is_found_and_a_removed_one_ends_within_a_quarter_of_an_hour(
        self, provider: OidcProvider, published: PublishedProvider
    ) -> None:
        old = published.access_token()
        await provider.verify(old)
        published.keys = [key("k2")]
        new = published.access_token()

        await provider.verify(new)

        with pytest.raises(Denied):
            await provider.verify(old)

    async def test_a_removed_key_ends_although_nobody_uses_the_new_one(
        self, provider: OidcProvider, published: PublishedProvider
    ) -> None:
        old = published.access_token()
        await provider.verify(old)
        published.keys = [key("k2")]
        published.clock += 15 * 60 - 1
        await provider.verify(old)

        published.clock += 1

        with pytest.raises(Denied):
            await provider.verify(old)

    async def test_a_flood_of_unknown_keys_is_no_flood_of_requests(
        self, provider: OidcProvider, published: PublishedProvider
    ) -> None:
        await provider.verify(published.access_token())

        for number in range(100):
            published.clock += 1
            with pytest.raises(Denied):
                await provider.verify(published.sign({}, by=key("evil"), kid=f"k{number + 9}"))

        assert published.asked.count("/jwks") <= 3

    async def test_keys_that_cannot_be_read_spoil_no_others(
        self, provider: OidcProvider, published: PublishedProvider
    ) -> None:
        published.other_keys = [{"kty": "RSA", "kid": "k1", "n": "!" * 400, "e": "AQAB"}, 7]

        assert (await provider.verify(published.access_token())).claims["sub"] == "ann"


class TestAProviderThatMisbehaves:
    @pytest.mark.parametrize(
        "instead",
        [
            RedirectResponse("https://evil.example/"),
            Response("no json"),
            Response('{"issuer": 1, "issuer": 2}'),
            Response(status_code=500),
        ],
        ids=["redirect", "no JSON", "twice", "error"],
    )
    async def test_what_it_says_is_not_followed(
        self, provider: OidcProvider, published: PublishedProvider, instead: Response
    ) -> None:
        published.instead = instead

        with pytest.raises(Unavailable):
            await provider.login_address(REQUEST)

    async def test_it_cannot_fill_the_memory(
        self, provider: OidcProvider, published: PublishedProvider
    ) -> None:
        published.document["padding"] = "x" * 256 * 1024
        with pytest.raises(Unavailable, match="256 KiB"):
            await provider.login_address(REQUEST)
        published.document["padding"] = "x" * 255 * 1024
        published.clock += 5

        assert await provider.login_address(REQUEST)

    async def test_it_cannot_keep_people_waiting(
        self,
        provider: OidcProvider,
        published: PublishedProvider,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(oidc, "_TIMEOUT_SECONDS", 0.01)
        published.is_mute = True

        with pytest.raises(Unavailable, match="no answer within"):
            await provider.login_address(REQUEST)

    @pytest.mark.parametrize(
        "changes",
        [
            {"issuer": "https://evil.example"},
            {"issuer": ISSUER + "/"},
            {"jwks_uri": "http://10.0.0.1/jwks"},
            {"token_endpoint": "http://evil.example/token"},
            {"token_endpoint": "file:///etc/passwd"},
            {"token_endpoint": None},
            {"end_session_endpoint": "javascript:alert(1)"},
        ],
        ids=str,
    )
    async def test_it_cannot_lead_secrets_elsewhere(
        self, provider: OidcProvider, published: PublishedProvider, changes: dict[str, object]
    ) -> None:
        published.document.update(changes)

        with pytest.raises(Unavailable):
            await provider.login_address(REQUEST)

    async def test_while_it_is_away_what_is_known_of_it_counts_for_a_quarter_of_an_hour(
        self, provider: OidcProvider, published: PublishedProvider
    ) -> None:
        token = published.access_token()
        await provider.verify(token)
        published.is_away = True
        published.clock += 15 * 60 - 1
        await provider.verify(token)

        published.clock += 1

        with pytest.raises(Unavailable) as refusal:
            await provider.verify(token)
        assert refusal.value.code == "provider_away"

    async def test_a_provider_that_is_away_is_not_asked_by_everybody(
        self, provider: OidcProvider, published: PublishedProvider
    ) -> None:
        published.is_away = True
        for _ in range(10):
            with pytest.raises(Unavailable):
                await provider.login_address(REQUEST)
        asked = len(published.asked)
        published.is_away = False
        published.clock += 5

        assert await provider.login_address(REQUEST)
        assert asked == 1


async def test_a_logout_leads_to_the_provider_and_back(provider: OidcProvider) -> None:
    address = await provider.logout_address("the id token", "http://127.0.0.1:7700/logged-out")

    asked = parse_qs(urlsplit(address).query)
    assert address.startswith(f"{ISSUER}/logout?")
    assert asked["id_token_hint"] == ["the id token"]
    assert asked["post_logout_redirect_uri"] == ["http://127.0.0.1:7700/logged-out"]


async def test_a_provider_without_a_place_to_log_out_has_none(
    provider: OidcProvider, published: PublishedProvider
) -> None:
    published.document["end_session_endpoint"] = None

    assert await provider.logout_address("the id token", "http://127.0.0.1:7700/") == ""


async def test_a_public_client_has_no_secret_to_show(published: PublishedProvider) -> None:
    published.secret = ""

    async with published.open() as provider:
        back = published.log_in(await provider.login_address(REQUEST))
        assert (await provider.redeem(back["code"], "v", REQUEST.return_to)).id_token


async def test_addresses_of_a_far_provider_are_https() -> None:
    check_address("https://login.example.org/token", "https://login.example.org/")
    check_address("http://127.0.0.1:9/token", "http://localhost:9")
    for address in ("http://login.example.org/token", "http://127.0.0.1/token"):
        with pytest.raises(Unavailable):
            check_address(address, "https://login.example.org/")


async def test_plain_tokens_are_taken_by_their_own_rules(published: PublishedProvider) -> None:
    published.rules = replace(RULES, access_token_typ="jwt", client_ids=frozenset({"cli"}))

    async with published.open() as provider:
        token = await provider.verify(published.access_token(typ="JWT"))

    now = datetime.fromtimestamp(token.claims["iat"], UTC)
    person = person_of_access_token(token.header, token.claims, published.rules, now=now)
    assert person.groups == ("admins",)


def test_a_client_does_not_show_its_secret() -> None:
    assert "s3cret" not in repr(OidcClient(RULES, "s3cret"))

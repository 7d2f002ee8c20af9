from __future__ import annotations

import base64
import contextlib
import json
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.errors import Denied
from rota.domain.identity import (
    KEYS_OF,
    Claims,
    EndedSession,
    Header,
    Person,
    ProviderRules,
    at_pointer,
    checked_next,
    ended_by_logout,
    fits,
    groups_in,
    handles_like,
    is_near,
    person_of_access_token,
    person_of_login,
    read_header,
    read_object,
    wished_handle,
)
from rota.ports.projects import AWAITED

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
AT = int(NOW.timestamp())
ISSUER = "https://login.example.org/"
RULES = ProviderRules(ISSUER, "rota", audience="https://rota.example.org", groups_claim="/groups")
PLAIN_RULES = ProviderRules(
    ISSUER,
    "rota",
    "https://rota.example.org",
    access_token_typ="jwt",
    client_ids=frozenset({"cli"}),
)
ID_HEADER = Header("RS256", "k1", "jwt")
AT_HEADER = Header("RS256", "k1", "at+jwt")
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


def id_claims(**changes: Any) -> dict[str, Any]:
    return without_missing(
        {
            "iss": ISSUER,
            "sub": "u1",
            "aud": "rota",
            "exp": AT + 300,
            "iat": AT - 10,
            "nonce": "n",
            "preferred_username": "ann",
            "groups": ["ops", "dev"],
            **changes,
        }
    )


def access_claims(**changes: Any) -> dict[str, Any]:
    return without_missing(
        {
            "iss": ISSUER,
            "sub": "u1",
            "aud": ["https://rota.example.org", "https://other.example.org"],
            "exp": AT + 300,
            "iat": AT - 10,
            "client_id": "cli",
            "jti": "j",
            "groups": ["ops"],
            **changes,
        }
    )


def logout_claims(**changes: Any) -> dict[str, Any]:
    return without_missing(
        {
            "iss": ISSUER,
            "aud": "rota",
            "iat": AT,
            "exp": AT + 120,
            "jti": "j",
            "sid": "s1",
            "sub": "u1",
            "events": {LOGOUT_EVENT: {}},
            **changes,
        }
    )


class Missing:
    """Stands for a claim that is left out."""

    def __repr__(self) -> str:
        return "missing"


MISSING = Missing()


def without_missing(claims: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in claims.items() if value is not MISSING}


def part(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def token(header: object) -> str:
    return f"{part(header)}.{part({})}.c2ln"


class TestHeaders:
    @pytest.mark.parametrize("algorithm", KEYS_OF)
    def test_a_token_signed_with_a_published_key_is_looked_at(self, algorithm: str) -> None:
        header = read_header(token({"alg": algorithm, "kid": "k1", "typ": "application/AT+JWT"}))

        assert header == Header(algorithm, "k1", "at+jwt")

    @pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS512", "ES256K", "", 7, None])
    def test_no_other_algorithm_is_trusted(self, algorithm: object) -> None:
        with pytest.raises(Denied, match="not signed in a way"):
            read_header(token({"alg": algorithm}))

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "ab",
            f"{part({'alg': 'RS256'})}.e30",
            f"{part({'alg': 'RS256'})}.e30.sig.more",
            f"{part({'alg': 'RS256'})}.e30.c2ln" + "a" * 1_000_000,
            "!!.e30.c2ln",
            f"{part('[]')}.e30.c2ln",
            f"{part('no json')}.e30.c2ln",
            part("[" * 20_000) + ".e30.c2ln",
            part('{"alg": "RS256", "alg": "none"}') + ".e30.c2ln",
        ],
    )
    def test_what_is_no_signed_token_is_refused(self, text: str) -> None:
        with pytest.raises(Denied):
            read_header(text)

    def test_rules_that_are_not_known_are_not_ignored(self) -> None:
        with pytest.raises(Denied, match="rules"):
            read_header(token({"alg": "RS256", "crit": ["b64"], "b64": False}))

    def test_keys_that_the_token_brings_along_are_not_read(self) -> None:
        brought = {
            "jku": "https://evil.example",
            "jwk": {"kty": "RSA"},
            "x5u": "https://evil.example",
        }

        assert read_header(token({"alg": "RS256", "kid": "k1", **brought})) == Header("RS256", "k1")

    @given(st.text(max_size=300))
    def test_any_text_is_refused_or_read(self, text: str) -> None:
        with contextlib.suppress(Denied):
            read_header(text)

    @given(st.binary(max_size=300))
    def test_any_bytes_are_an_object_or_refused(self, data: bytes) -> None:
        with contextlib.suppress(Denied):
            assert isinstance(read_object(data), dict)

    @pytest.mark.parametrize("text", [b'{"a": 1, "a": 2}', b'{"a": NaN}', b"[1]", b'"x"', b"{"])
    def test_claims_that_can_be_read_in_two_ways_are_refused(self, text: bytes) -> None:
        with pytest.raises(Denied):
            read_object(text)


RSA: Claims = {"kty": "RSA", "kid": "k1", "n": "n" * 342, "e": "AQAB"}


class TestKeys:
    @pytest.mark.parametrize(
        ("change", "is_fit"),
        [
            ({}, True),
            ({"use": "sig", "alg": "RS256"}, True),
            ({"use": "enc"}, False),
            ({"alg": "PS256"}, False),
            ({"kid": "k2"}, False),
            ({"kty": "EC"}, False),
            ({"kty": "oct", "k": "c2VjcmV0"}, False),
            ({"n": "n" * 170}, False),  # 1,024 bits
        ],
    )
    def test_a_key_signs_only_what_it_is_for(self, change: Claims, is_fit: bool) -> None:
        assert fits({**RSA, **change}, Header("RS256", "k1")) is is_fit


class TestLogins:
    def test_an_id_token_tells_who_logged_in(self) -> None:
        claims = id_claims(name="Ann", email="ann@example.org", email_verified=True, sid="s")

        person = person_of_login(ID_HEADER, claims, RULES, now=NOW, nonce="n")

        assert person == Person(ISSUER, "u1", "ann", "Ann", "ann@example.org", "s", ("ops", "dev"))

    @pytest.mark.parametrize(
        "change",
        [
            {"iss": ISSUER.rstrip("/")},
            {"iss": "https://evil.example/"},
            {"iss": MISSING},
            {"aud": "other"},
            {"aud": ["other"]},
            {"aud": []},
            {"aud": MISSING},
            {"aud": ["rota", "other"]},  # without azp
            {"aud": ["rota", "other"], "azp": "other"},
            {"azp": "other"},
            {"exp": AT - 60},
            {"exp": MISSING},
            {"exp": str(AT + 300)},
            {"exp": True},
            {"exp": float("inf")},
            {"exp": float("nan")},
            {"exp": 10**400},
            {"iat": MISSING},
            {"iat": AT + 61},
            {"nbf": AT + 61},
            {"nbf": "soon"},
            {"nonce": "another"},
            {"nonce": MISSING},
            {"nonce": 7},
            {"sub": MISSING},
            {"sub": ""},
            {"sub": 7},
            {"sub": "x" * 256},
            {"sub": "a\x00b"},
            {"sub": "\ud800"},
            {"sub": f"{AWAITED}ann@example.org"},  # to be somebody who has not logged in yet
            {"groups": {"ops": True}},
            {"groups": ["ops", 7]},
            {"groups": [f"g{number}" for number in range(1_001)]},
        ],
        ids=str,
    )
    def test_an_id_token_of_another_place_time_or_login_is_refused(self, change: Claims) -> None:
        with pytest.raises(Denied) as refusal:
            person_of_login(ID_HEADER, id_claims(**change), RULES, now=NOW, nonce="n")

        assert refusal.value.code == "login_refused"

    @pytest.mark.parametrize(
        "change",
        [
            {"exp": AT - 59},
            {"iat": AT + 60},
            {"nbf": AT + 60},
            {"aud": ["rota"]},
            {"aud": ["rota", "other"], "azp": "rota"},
            {"groups": MISSING},
            {"groups": "ops"},
        ],
        ids=str,
    )
    def test_clocks_may_differ_by_a_minute_and_lists_may_be_short(self, change: Claims) -> None:
        person = person_of_login(ID_HEADER, id_claims(**change), RULES, now=NOW, nonce="n")

        assert person.subject == "u1"

    @pytest.mark.parametrize("kind", ["at+jwt", "logout+jwt", "secevent+jwt"])
    def test_another_kind_of_token_is_no_id_token(self, kind: str) -> None:
        with pytest.raises(Denied):
            person_of_login(Header("RS256", "k1", kind), id_claims(), RULES, now=NOW, nonce="n")

    def test_a_refresh_need_not_repeat_the_nonce(self) -> None:
        claims = id_claims(nonce=MISSING)

        assert person_of_login(ID_HEADER, claims, RULES, now=NOW, nonce=None).subject == "u1"

    def test_an_address_counts_only_if_the_provider_has_verified_it(self) -> None:
        for verified in (False, "true", MISSING):
            claims = id_claims(email="ann@example.org", email_verified=verified)
            assert person_of_login(ID_HEADER, claims, RULES, now=NOW, nonce="n").email == ""

    @pytest.mark.parametrize(
        ("email", "known"),
        [
            ("Ann@Example.org", "ann@example.org"),  # as roles are bound to it
            (f"{'x' * 245}@example.org", ""),  # cut, it could be another's
            ("ann@example.org\x00", ""),
        ],
    )
    def test_an_address_is_kept_as_roles_are_bound_to_it_and_whole(
        self, email: str, known: str
    ) -> None:
        claims = id_claims(email=email, email_verified=True)

        assert person_of_login(ID_HEADER, claims, RULES, now=NOW, nonce="n").email == known


class TestAccessTokens:
    def test_an_access_token_speaks_for_its_user(self) -> None:
        person = person_of_access_token(AT_HEADER, access_claims(), RULES, now=NOW)

        assert (person.subject, person.groups) == ("u1", ("ops",))

    @pytest.mark.parametrize(
        "change",
        [
            {"iss": ISSUER.rstrip("/")},
            {"aud": "https://other.example.org"},
            {"aud": ["rota"]},
            {"aud": MISSING},
            {"exp": AT - 60},
            {"exp": MISSING},
            {"iat": AT + 61},
            {"iat": MISSING},
            {"nbf": AT + 61},
            {"sub": MISSING},
            {"client_id": MISSING},
            {"jti": MISSING},
        ],
        ids=str,
    )
    def test_an_access_token_for_another_place_or_time_is_refused(self, change: Claims) -> None:
        with pytest.raises(Denied):
            person_of_access_token(AT_HEADER, access_claims(**change), RULES, now=NOW)

    def test_an_id_token_is_no_access_token(self) -> None:
        shared = ProviderRules(ISSUER, "rota", audience="rota")

        with pytest.raises(Denied, match="at\\+jwt"):
            person_of_access_token(ID_HEADER, id_claims(), shared, now=NOW)

    def test_without_an_audience_none_is_taken(self) -> None:
        with pytest.raises(Denied, match="not taken"):
            person_of_access_token(
                AT_HEADER, access_claims(), ProviderRules(ISSUER, "rota"), now=NOW
            )

    def test_only_listed_clients_may_ask_for_them(self) -> None:
        rules = ProviderRules(
            ISSUER, "rota", "https://rota.example.org", client_ids=frozenset({"other"})
        )

        with pytest.raises(Denied, match="oidc_client_ids"):
            person_of_access_token(AT_HEADER, access_claims(), rules, now=NOW)

    @pytest.mark.parametrize("named", [{"azp": "cli"}, {"client_id": "cli"}])
    def test_a_plain_jwt_is_taken_where_that_is_set(self, named: Claims) -> None:
        claims = access_claims(**{"client_id": MISSING, "jti": MISSING, **named})

        assert person_of_access_token(ID_HEADER, claims, PLAIN_RULES, now=NOW).subject == "u1"

    @pytest.mark.parametrize(
        "change",
        [
            {"nonce": "n"},
            {"at_hash": "h"},
            {"azp": "other"},
            {"client_id": MISSING},
            {"aud": "rota"},
        ],
        ids=str,
    )
    def test_a_plain_jwt_that_may_be_an_id_token_is_refused(self, change: Claims) -> None:
        with pytest.raises(Denied):
            person_of_access_token(ID_HEADER, access_claims(**change), PLAIN_RULES, now=NOW)

    def test_a_plain_jwt_needs_an_audience_of_its_own(self) -> None:
        shared = ProviderRules(
            ISSUER, "rota", "rota", access_token_typ="jwt", client_ids=frozenset({"cli"})
        )

        with pytest.raises(Denied):
            person_of_access_token(ID_HEADER, access_claims(aud="rota"), shared, now=NOW)


class TestLogouts:
    HEADER = Header("RS256", "k1", "logout+jwt")

    def test_a_logout_token_names_what_has_ended(self) -> None:
        ended = ended_by_logout(self.HEADER, logout_claims(), RULES, now=NOW)

        assert ended == EndedSession(ISSUER, "s1", "u1", NOW + timedelta(seconds=60))

    @pytest.mark.parametrize(
        "change",
        [
            {"events": MISSING},
            {"events": {}},
            {"events": [LOGOUT_EVENT]},
            {"events": {LOGOUT_EVENT: "yes"}},
            {"nonce": "n"},
            {"jti": MISSING},
            {"iss": "https://evil.example/"},
            {"aud": "other"},
            {"iat": MISSING},
            {"exp": AT - 60},
            {"exp": MISSING, "iat": AT - 400},  # replayed
            {"iat": -(10**300)},
            {"sid": MISSING, "sub": MISSING},
        ],
        ids=str,
    )
    def test_no_other_token_ends_a_session(self, change: Claims) -> None:
        with pytest.raises(Denied):
            ended_by_logout(self.HEADER, logout_claims(**change), RULES, now=NOW)

    def test_an_id_or_access_token_ends_nothing(self) -> None:
        for header, claims in ((ID_HEADER, id_claims()), (AT_HEADER, logout_claims())):
            with pytest.raises(Denied):
                ended_by_logout(header, claims, RULES, now=NOW)


class TestGroups:
    @pytest.mark.parametrize(
        ("pointer", "claims"),
        [
            ("/groups", {"groups": ["ops"]}),
            ("/realm_access/roles", {"realm_access": {"roles": ["ops"]}}),
            ("/https:~1~1example.org~1roles", {"https://example.org/roles": ["ops"]}),
            ("/a~0b", {"a~b": ["ops"]}),
            ("/resource/0/roles", {"resource": [{"roles": ["ops"]}]}),
        ],
    )
    def test_groups_are_where_the_pointer_leads(self, pointer: str, claims: Claims) -> None:
        rules = ProviderRules(ISSUER, "rota", groups_claim=pointer)

        assert groups_in(claims, rules) == ("ops",)

    @pytest.mark.parametrize("pointer", ["/nothing", "/groups/9", "/groups/x", "/groups/0/deep"])
    def test_a_pointer_that_leads_nowhere_finds_nothing(self, pointer: str) -> None:
        assert at_pointer({"groups": ["ops"]}, pointer) is None

    @pytest.mark.parametrize(
        "marker", [{"_claim_names": {"groups": "src1"}, "_claim_sources": {}}, {"hasgroups": True}]
    )
    def test_groups_that_were_left_out_refuse_the_login(self, marker: Claims) -> None:
        with pytest.raises(Denied, match="too many") as refusal:
            groups_in(marker, RULES)

        assert "/roles" in refusal.value.hint

    def test_the_roles_claim_is_whole_although_groups_were_left_out(self) -> None:
        rules = ProviderRules(ISSUER, "rota", groups_claim="/roles")
        claims = {"_claim_names": {"groups": "src1"}, "roles": ["ops"]}

        assert groups_in(claims, rules) == ("ops",)

    def test_without_groups_the_hosted_domain_and_the_verified_address_count(self) -> None:
        rules = ProviderRules(ISSUER, "rota")
        claims = {"hd": "Example.org", "email": "Ann@example.org", "email_verified": True}

        assert groups_in(claims, rules) == ("hd:example.org", "email:ann@example.org")

    def test_the_end_of_an_address_is_no_domain_and_an_unverified_one_nothing(self) -> None:
        rules = ProviderRules(ISSUER, "rota")

        assert groups_in({"email": "ann@example.org"}, rules) == ()
        assert groups_in({"email": "ann@example.org", "email_verified": "true"}, rules) == ()

    def test_groups_of_a_provider_that_has_them_cannot_be_made_up_by_addresses(self) -> None:
        claims = {"groups": [], "hd": "example.org", "email": "a@b.c", "email_verified": True}

        assert groups_in(claims, RULES) == ()

    def test_groups_that_no_store_can_hold_are_left_out(self) -> None:
        claims = {"groups": ["ops", "a\x00b", "\ud800", "", "x" * 257, "ops"]}

        assert groups_in(claims, RULES) == ("ops",)


class TestNames:
    @pytest.mark.parametrize(
        ("username", "handles"),
        [
            ("ann", ["ann", "ann-2", "ann-3"]),
            ("ann@example.org", ["ann", "ann-2", "ann-3"]),
            ("Ann Ä. <script>", ["ann-.-script", "ann-.-script-2", "ann-.-script-3"]),
            ("auth0|5f7", ["auth0-5f7", "auth0-5f7-2", "auth0-5f7-3"]),
            ("../..", ["user", "user-2", "user-3"]),
            ("me", ["me-2", "me-3", "me-4"]),
            ("SYSTEM", ["system-2", "system-3", "system-4"]),
            ("Scheduler", ["scheduler-2", "scheduler-3", "scheduler-4"]),
        ],
    )
    def test_a_handle_is_made_of_what_the_provider_calls_them(
        self, username: str, handles: list[str]
    ) -> None:
        assert (
            list(islice(handles_like(wished_handle(Person(ISSUER, "u1", username))), 3)) == handles
        )

    @given(st.text())
    def test_every_handle_is_a_name(self, username: str) -> None:
        for handle in islice(handles_like(wished_handle(Person(ISSUER, "u1", username))), 3):
            assert handle[0].isalnum()
            assert handle.isascii()
            assert len(handle) <= 128
            assert set(handle) <= set(
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
            )


class TestAddresses:
    @pytest.mark.parametrize(
        "path", ["/", "/jobs", "/device?code=BCDF-GHJK", "/a//b", "/%2F%2Fhost"]
    )
    def test_a_login_goes_on_at_a_path(self, path: str) -> None:
        assert checked_next(path) == path

    @pytest.mark.parametrize(
        "path",
        [
            *(
                "",
                "jobs",
                "//evil.example",
                "///evil.example",
                "/\\evil.example",
                "\\\\evil.example",
            ),
            *(
                "https://evil.example",
                "javascript:alert(1)",
                "/\t/evil.example",
                "/\n/evil.example",
            ),
            *("/\r\nSet-Cookie: a=b", "/ /evil.example", "/ä", "/" + "a" * 2_000),
        ],
    )
    def test_a_login_never_goes_on_elsewhere(self, path: str) -> None:
        assert checked_next(path) == "/"

    @pytest.mark.parametrize(
        "near", ["http://localhost:1", "http://127.0.0.9/x", "http://[::1]:80"]
    )
    def test_this_machine_is_near(self, near: str) -> None:
        assert is_near(near)

    @pytest.mark.parametrize(
        "far",
        ["http://localhost.evil.example", "http://10.0.0.1", "http://evil@10.0.0.1", "nothing"],
    )
    def test_all_else_is_not(self, far: str) -> None:
        assert not is_near(far)


def test_a_provider_s_clock_may_be_off_by_no_more_than_a_minute() -> None:
    claims = id_claims()
    for late in (timedelta(seconds=359), timedelta(seconds=360)):
        is_valid = late < timedelta(seconds=360)
        try:
            person_of_login(ID_HEADER, claims, RULES, now=NOW + late, nonce="n")
        except Denied:
            assert not is_valid
        else:
            assert is_valid

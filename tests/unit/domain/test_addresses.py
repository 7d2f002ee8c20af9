"""Which URLs are read, and which machines may be reached."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from rota.domain.addresses import (
    PRIVATE_IPV4,
    check_addresses,
    parse_origin,
    parse_target,
    redirected,
    why_closed,
)
from rota.domain.errors import Denied, Invalid


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("https://example.org", "https://example.org/"),
        ("HTTPS://Example.ORG:443/a?b=1", "https://example.org/a?b=1"),
        ("http://example.org:443/", "http://example.org:443/"),
        ("http://example.org?q", "http://example.org/?q"),
        ("http://example.org./", "http://example.org/"),
        ("http://example.org/#part", "http://example.org/"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://db_1:8080/x%2Fy", "http://db_1:8080/x%2Fy"),
        ("http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/"),
        ("http://192.0.2.1/", "http://192.0.2.1/"),
    ],
)
def test_a_url_has_one_form(url: str, read: str) -> None:
    target = parse_target(url)

    assert str(target) == read
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "does not begin with"),
        ("example.org", "does not begin with"),
        ("//example.org/", "does not begin with"),
        ("https:/example.org/", "does not begin with"),
        ("file:///etc/passwd", "file is not https or http"),
        ("gopher://example.org/", "gopher is not https or http"),
        ("http:///path", "not the name of a host"),
        ("http://user@example.org/", "a user or password"),
        ("http://good.example@evil.example/", "a user or password"),
        ("http://good.example:80@evil.example/", "a user or password"),
        ("http://good.example\\@evil.example/", "backslash"),
        ("http://example.org/ x", "blanks"),
        ("http://example.org/\r\nX: y", "blanks"),
        ("http://exa\u200bmple.org/", "blanks"),
        ("http://example.org:/", "not a port"),
        ("http://example.org:0/", "not a port"),
        ("http://example.org:080/", "not a port"),
        ("http://example.org:65536/", "not a port"),
        ("http://example.org:８0/", "not a port"),
        ("http://example..org/", "not the name of a host"),
        ("http://-example.org/", "not the name of a host"),
        ("http://exa%6dple.org/", "not the name of a host"),
        ("http://" + "a" * 64 + ".org/", "not the name of a host"),
        ("http://127.1/", "usual form"),
        ("http://127.0.0.01/", "usual form"),
        ("http://0x7f.0.0.1/", "usual form"),
        ("http://0x7f000001/", "usual form"),
        ("http://2130706433/", "usual form"),
        ("http://0177.0.0.1/", "usual form"),
        ("http://127.0.0.1.2/", "usual form"),
        ("http://example.0x/", "usual form"),
        ("http://１２７.0.0.1/", "another way to write"),
        ("http://127。0。0。1/", "another way to write"),
        ("http://ⓔxample.org/", "another way to write"),
        ("http://[::1/", "host cannot be read"),
        ("http://[::1]x/", "host cannot be read"),
        ("http://[127.0.0.1]/", "not an IPv6 address"),
        ("http://[fe80::1%25eth0]/", "zone"),
        ("http://::1/", "not a port"),
        ("http://example.org/ü", "must be written as %XX"),
        ("http://example.org/%zz", "must be written as %XX"),
        ("http://example.org/<x>", "must be written as %XX"),
        ("http://example.org/" + "x" * 9_000, "longer than"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(url: str, why: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_target(url)

    assert why in refused.value.message
    assert refused.value.code == "bad_address"


def test_a_password_is_not_in_the_message() -> None:
    with pytest.raises(Invalid) as refused:
        parse_target("https://me:hunter2@example.org/")

    assert "hunter2" not in refused.value.message


def test_ssh_addresses_name_a_user_and_no_password() -> None:
    target = parse_target("ssh://git@example.org:2222/a.git", ("https", "ssh"))

    assert (target.user, target.host, target.port) == ("git", "example.org", 2222)
    for url in ("ssh://git:x@example.org/", "ssh://-oProxyCommand=x@example.org/"):
        with pytest.raises(Invalid):
            parse_target(url, ("https", "ssh"))


def test_what_is_shown_of_a_target_has_no_query() -> None:
    assert parse_target("https://example.org/a?token=x").shown == "https://example.org/a?…"


@pytest.mark.parametrize("host", ["localhost", "registry.example.org", "10.0.0.1", "[::1]"])
def test_a_bare_host_is_the_origin_of_the_first_scheme(host: str) -> None:
    assert parse_origin(host) == f"https://{host}"
    assert parse_origin(f"{host}:22/", ("ssh", "https")) == f"ssh://{host}"
    assert parse_origin(f"HTTP://{host}:8080") == f"http://{host}:8080"


@pytest.mark.parametrize("text", ["example.org/a", "https://example.org/?a", "ftp://example.org"])
def test_what_is_more_or_less_than_an_origin_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_origin(text)


class TestNetworks:
    @pytest.mark.parametrize(
        "address",
        [
            *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.0.1"),
            *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.168.1.1"),
            *("192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
            *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
            *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "64:ff9b::a00:1"),
            *("64:ff9b:1::1", "100::1", "2001::1", "2001:0:5ef5:79fd::1", "2001:db8::1"),
            *("2002:7f00:1::", "3fff::1", "4000::1", "fc00::1", "fd00:ec2::254", "fe80::1"),
            *("fe80::1%2", "fec0::1", "ff02::1"),
        ],
    )
    def test_what_only_this_machine_can_see_is_closed(self, address: str) -> None:
        assert why_closed(ip_address(address))

    @pytest.mark.parametrize(
        "address",
        [
            *("1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0"),
            *("172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "223.255.255.255"),
            *("2606:4700::1111", "2a00::1", "::ffff:1.1.1.1", "64:ff9b::101:101"),
        ],
    )
    def test_public_addresses_are_open(self, address: str) -> None:
        assert why_closed(ip_address(address)) == ""

    def test_a_network_of_the_settings_is_open_in_all_its_forms(self) -> None:
        opened = [ip_network("10.1.0.0/16"), ip_network("fd00::/64")]

        for address in ("10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd00::7"):
            assert why_closed(ip_address(address), opened) == ""
        for address in ("10.2.0.1", "::ffff:10.2.0.1", "fd01::7"):
            assert why_closed(ip_address(address), opened)

    def test_one_closed_address_spoils_all_of_a_host(self) -> None:
        found = [ip_address("1.1.1.1"), ip_address("10.0.0.5")]

        with pytest.raises(Denied) as refused:
            check_addresses("twofold.example", found)

        assert "twofold.example (10.0.0.5) must not be reached" in refused.value.message
        assert "a private network" in refused.value.message
        assert refused.value.hint.endswith("outgoing_networks = 10.0.0.5/32")
        check_addresses("twofold.example", found, [ip_network("10.0.0.0/8")])

    def test_networks_of_their_own_are_kept_from_all_that_is_private(self) -> None:
        assert ip_network("169.254.0.0/16") in PRIVATE_IPV4
        assert ip_network("127.0.0.0/8") in PRIVATE_IPV4


class TestRedirects:
    @pytest.mark.parametrize(
        ("location", "to"),
        [
            ("/x", "https://a.example/x"),
            ("x?y", "https://a.example/b/x?y"),
            ("?y", "https://a.example/b/c?y"),
            ("../x", "https://a.example/x"),
            ("//b.example/x", "https://b.example/x"),
            ("https://b.example:8443/#part", "https://b.example:8443/"),
        ],
    )
    def test_a_redirect_is_read_from_where_it_was_given(self, location: str, to: str) -> None:
        assert str(redirected(parse_target("https://a.example/b/c?d"), location)) == to

    @pytest.mark.parametrize(
        "location",
        ["", "file:///etc/passwd", "https://me@b.example/", "\\\\b.example", "/ü", "/\n"],
    )
    def test_a_redirect_is_no_way_around_the_rules(self, location: str) -> None:
        with pytest.raises(Denied, match=r"https://a\.example redirects: "):
            redirected(parse_target("https://a.example/"), location)

    def test_a_redirect_does_not_leave_https(self) -> None:
        with pytest.raises(Denied, match="which is not https"):
            redirected(parse_target("https://a.example/"), "http://a.example/")
        redirected(parse_target("http://a.example/"), "https://a.example/")

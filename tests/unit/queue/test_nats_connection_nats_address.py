from __future__ import annotations

import pytest

from rota.domain.errors import Invalid
from rota.queue.nats_connection import parse_address


@pytest.mark.parametrize(
    ("address", "servers", "deployment"),
    [
        ("nats://n1:4222", ["nats://n1:4222"], "rota"),
        ("nats://n1,n2:4223/blue", ["nats://n1", "nats://n2:4223"], "blue"),
        ("tls://u:p@n1:4222/", ["tls://u:p@n1:4222"], "rota"),
    ],
)
def test_an_address_names_servers_and_a_deployment(
    address: str, servers: list[str], deployment: str
) -> None:
    assert parse_address(address) == (servers, deployment)


@pytest.mark.parametrize("address", ["", "nats://", "http://n1", "n1:4222"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(Invalid):
        parse_address(address)

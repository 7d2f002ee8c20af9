"""What a deployment may set about its gateway."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota import __version__


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    base_url: str = "http://127.0.0.1:7700"  # where people reach this server
    version: str = __version__  # told in the OpenAPI document and on the start page
    secure_cookies: bool = False  # True behind TLS: cookies never travel in the clear
    max_body_bytes: int = 4 * 1024 * 1024  # a larger request is refused
    max_cart_bytes: int = 64 * 1024 * 1024  # the same for items that come line by line
    failed_logins: int = 10  # of one address within `failed_logins_per`, then it has to wait
    failed_logins_per: timedelta = timedelta(minutes=1)
    trust_tokens_for: timedelta = timedelta(seconds=1)  # before the store is asked again

"""A server says at its start that nobody can log in, and starts all the same."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from rota.runtime.backends import ProviderProbe, open_provider
from rota.runtime.settings import Settings
from tests.unit.identity.published import ISSUER, PublishedProvider

pytestmark = pytest.mark.anyio


async def test_without_a_provider_there_is_nothing_to_tell() -> None:
    async with open_provider(Settings()) as provider:
        with capture_logs() as lines:
            await ProviderProbe(provider).run()

    assert provider is None
    assert lines == []


async def test_a_provider_that_answers_is_no_news() -> None:
    async with PublishedProvider().open() as provider:
        with capture_logs() as lines:
            await ProviderProbe(provider).run()

    assert lines == []


async def test_a_provider_that_is_away_is_told_and_nothing_fails() -> None:
    settings = Settings(oidc_issuer="http://127.0.0.1:1", oidc_client_id="rota")
    async with open_provider(settings) as provider:
        with capture_logs() as lines:
            await ProviderProbe(provider).run()

    [line] = lines
    assert (line["event"], line["log_level"]) == ("provider.away", "warning")


async def test_an_issuer_that_calls_itself_otherwise_is_told_by_the_setting() -> None:
    published = PublishedProvider(document={"issuer": f"{ISSUER}/"})
    async with published.open() as provider:
        with capture_logs() as lines:
            await ProviderProbe(provider).run()

    [line] = lines
    assert "oidc_issuer" in line["hint"]

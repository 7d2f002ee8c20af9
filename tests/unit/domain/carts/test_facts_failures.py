from __future__ import annotations

from time import process_time

import pytest

from rota.domain.carts.facts import MAX_CAUSE, cause_of


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("disk full on db-017: 12 MB left", "disk full on <name>: <n> MB left"),
        ("exit 137", "exit 137"),
        ("step 2: exit 1: HTTP 503 after 3 tries", "step 2: exit 1: HTTP 503 after <n> tries"),
        ("killed by signal 9, status 4, code 12345", "killed by signal 9, status 4, code 12345"),
        ("code 1234567 of exit 7a", "code <n> of exit <n>a"),
        ("got -3 of 1,024.5 (12%)", "got <n> of <n> (<n>%)"),
        ("12MB read", "<n>MB read"),
        ("timed out after 30s", "timed out after <duration>"),
        ("timed out after 1h30m", "timed out after <duration>"),
        ("timed out after 1.5 minutes", "timed out after <duration>"),
        ("5 mines", "<n> mines"),
        ("at 2026-06-01T22:00:01.123Z: boom", "at <time>: boom"),
        ("at 2026-06-01 22:00:01,5 +02:00: boom", "at <time>: boom"),
        ("since 2026-06-01, 12:30:45", "since <time>, <time>"),
        ("550e8400-e29b-41d4-a716-446655440000 is gone", "<id> is gone"),
        ("run r_01hx3k2m9qvw was lost", "run <id> was lost"),
        ("at 0x7ffe12 of 3fa9c2e1b7", "at <hex> of <hex>"),
        ('relation "orders" does not exist', "relation <text> does not exist"),
        ("can't find 'a b' or `c`, that's all", "can't find <text> or <text>, that's all"),
        ("I/O error on /dev/sda1", "I/O error on <path>"),
        (r"C:\temp\x.txt: access denied", "<path>: access denied"),
        ("cannot read ~/.pgpass and ../conf.d/", "cannot read <path> and <path>"),
        ("connect 10.0.3.17:5432: refused", "connect <host>:<n>: refused"),
        ("connect fe80::1ff:fe23:4567:890a failed", "connect <host> failed"),
        ("no route to web01.fra.example.org", "no route to <name>"),
        ("no route to www.example.org", "no route to www.example.org"),
        ("https://db-1.example.org/x?y=2 says 503", "<url> says <n>"),
        ("std::bad_alloc in a::b", "std::bad_alloc in a::b"),
        ("  two\n\tlines\r\n", "two lines"),
        ("", ""),
    ],
)
def test_what_differs_between_items_becomes_a_placeholder(message: str, cause: str) -> None:
    assert cause_of(message) == cause


def test_the_same_failure_of_two_hosts_is_one_cause() -> None:
    assert cause_of("disk full on db-017: 12 MB left") == cause_of("disk full on db-018: 3 MB left")


def test_other_words_are_another_cause() -> None:
    assert cause_of("disk full on db-017") != cause_of("disk failed on db-017")


def test_a_long_message_is_cut() -> None:
    assert cause_of("no " * 500) == ("no " * 500)[:MAX_CAUSE].rstrip()


@pytest.mark.parametrize(
    "part",
    ["'", '"', "'a", "`", "/", "/a", "1.", "1:", ":", "0f:", "f", "0", "1s", "1 ", "a-", "a_"],
)
def test_a_hostile_message_is_no_work(part: str) -> None:
    begun = process_time()

    cause_of(part * 1_000_000)

    assert process_time() - begun < 1

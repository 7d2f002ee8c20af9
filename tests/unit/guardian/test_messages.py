from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.guardian import messages
from rota.guardian.messages import Bad, Hello, Kill, Lease, Request, Signal, Spawn, decode
from rota.guardian.network import Namespace
from rota.guardian.spawn import Command, Confinement
from rota.guardian.trees import Tree

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
VALUE = st.none() | st.integers() | st.text() | st.lists(st.text()) | st.just({"A": "b"})
NAMES = ("key", "deadline", "argv", "env", "cwd", "fds", "signal", "confine")
CONFINEMENT = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("uid", "gid", "groups", "limits", "signals", "tag"), VALUE)
    | {
        "network": VALUE
        | st.fixed_dictionaries(
            dict.fromkeys(("network", "users", "device", "receivers", "unreachable"), VALUE)
        )
    },
)
FIELDS = st.fixed_dictionaries(
    {"do": st.sampled_from(["hello", "limits", "lease", "spawn", "signal", "kill"])},
    optional=dict.fromkeys(NAMES, VALUE) | {"confine": VALUE | CONFINEMENT},
)


def a_spawn(**changes: object) -> dict[str, Any]:
    good = {"key": "k", "argv": ["true"], "env": {"A": "b"}, "cwd": "/", "fds": 2}
    return {"do": "spawn", **good, **changes}


def decoded(*requests: object, fds: tuple[int, ...] = ()) -> list[Request]:
    return decode(json.dumps(requests).encode(), fds)


def ended_tree(wait_status: int) -> Tree:
    return Tree("k", 12, (), wait_status=wait_status, ended_at=5.0, strays={13, 14})


def test_requests_keep_their_order() -> None:
    requests = decoded(
        {"do": "hello"},
        {"do": "lease", "deadline": 12.5},
        {"do": "signal", "key": "k", "signal": 15},
        {"do": "kill", "key": "k"},
    )

    assert requests == [Hello(), Lease(12.5), Signal("k", signal.SIGTERM), Kill("k")]


def test_spawns_take_descriptors_in_order() -> None:
    first, second = decoded(a_spawn(key="1"), a_spawn(key="2"), fds=(10, 11, 12, 13))

    assert first == Spawn("1", Command(("true",), {"A": "b"}, "/", {1: 10, 2: 11}))
    assert second == Spawn("2", Command(("true",), {"A": "b"}, "/", {1: 12, 2: 13}))


def test_confined_spawn_takes_descriptors_by_number() -> None:
    confine = {
        "uid": 65_536,
        "gid": 65_537,
        "groups": [7],
        "limits": {"memory": 1 << 30, "open_files": 99},
        "signals": "inside",
        "tag": "run-1-0",
    }
    confined, plain = decoded(
        a_spawn(fds=[1, 2, 9], confine=confine), a_spawn(), fds=(10, 11, 12, 13, 14)
    )

    confinement = Confinement(
        65_536, 65_537, (7,), {"memory": 1 << 30, "open_files": 99}, True, "run-1-0"
    )
    descriptors = {1: 10, 2: 11, 9: 12}
    assert confined == Spawn("k", Command(("true",), {"A": "b"}, "/", descriptors, confinement))
    assert plain == Spawn("k", Command(("true",), {"A": "b"}, "/", {1: 13, 2: 14}))


NETWORK = {
    "network": 4,
    "users": None,
    "device": "tap0",
    "receivers": ["52550a000202"],
    "unreachable": ["10.0.0.0/8"],
}


def test_network_of_a_confined_spawn_is_understood() -> None:
    [spawn] = decoded(a_spawn(confine={"network": NETWORK}), fds=(10, 11))

    assert isinstance(spawn, Spawn)
    assert spawn.command.confinement is not None
    namespace = Namespace(4, None, "tap0", (b"\x52\x55\x0a\0\x02\x02",), ("10.0.0.0/8",))
    assert spawn.command.confinement.network == namespace


@pytest.mark.parametrize(
    ("confine", "complaint"),
    [
        ({"network": {"network": 4}}, "not an object of device, network"),
        ({"network": NETWORK | {"users": 256}}, "not the number of a descriptor"),
        ({"network": NETWORK | {"network": True}}, "not the number of a descriptor"),
        ({"network": NETWORK | {"device": "a-name-too-long!"}}, "device is not a name"),
        ({"network": NETWORK | {"receivers": ["52:55"]}}, "receivers is not"),
        ({"network": NETWORK | {"unreachable": ["10.0.0.0/33"]}}, "unreachable is not"),
        ({"network": NETWORK | {"unreachable": ["10.0.0/8"]}}, "unreachable is not"),
        ({"network": NETWORK | {"unreachable": [7]}}, "unreachable is not"),
        ("sandbox", "not an object of gid, groups"),
        ({"gids": 1}, "not an object of gid, groups"),
        ({"uid": 7}, "a uid and no gid"),
        ({"uid": "root", "gid": 7}, "uid is not the id"),
        ({"uid": True, "gid": 7}, "uid is not the id"),
        ({"uid": -1, "gid": 7}, "uid is not the id"),
        ({"uid": 7, "gid": 1 << 32}, "gid is not the id"),
        ({"groups": 7}, "groups is not"),
        ({"groups": ["wheel"]}, "groups is not"),
        ({"signals": "all"}, "signals is neither"),
        ({"tag": "x" * 201}, "tag is not"),
        ({"limits": {"disk": 1}}, "limits is not"),
        ({"limits": {"memory": 0}}, "limits is not"),
        ({"limits": {"cpu": 1.5}}, "limits is not"),
        ({"limits": [1]}, "limits is not"),
    ],
)
def test_bad_confinement_is_refused_with_the_reason(confine: object, complaint: str) -> None:
    [bad] = decoded(a_spawn(confine=confine), fds=(10, 11))

    assert isinstance(bad, Bad)
    assert (bad.key, complaint in bad.error) == ("k", True)


@pytest.mark.parametrize("fds", [[1, "2"], [1, 256], [-1, 2], [True, 2], 3, None])
def test_bad_numbers_of_descriptors_are_refused_and_take_theirs(fds: object) -> None:
    bad, good = decoded(a_spawn(fds=fds), a_spawn(key="good"), fds=(10, 11, 12, 13))

    assert isinstance(bad, Bad)
    assert isinstance(good, Spawn)
    assert good.command.descriptors == {1: 12, 2: 13}


def test_limits_tell_what_can_be_had() -> None:
    assert messages.limits({"cpu": "", "memory": "no"})["offers"] == {
        "open_files": "",
        "cpu": "",
        "memory": "no",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": []},
        {"argv": "true"},
        {"argv": ["true", 1]},
        {"env": {"A": 1}},
        {"env": None},
        {"cwd": None},
        {"fds": 1},
    ],
)
def test_bad_spawn_is_refused_by_key_and_leaves_its_descriptors_to_nobody(
    changes: dict[str, object],
) -> None:
    bad, good = decoded(a_spawn(**changes), a_spawn(key="good"), fds=(10, 11, 12, 13))

    assert isinstance(bad, Bad)
    assert bad.key == "k"
    assert isinstance(good, Spawn)
    assert good.command.descriptors == {1: 12, 2: 13}


@pytest.mark.parametrize("key", ["", "k" * 257, None, 7])
def test_spawn_without_a_usable_key_is_an_error(key: object) -> None:
    (bad,) = decoded(a_spawn(key=key), fds=(10, 11))

    assert isinstance(bad, Bad)
    assert bad.key is None


@pytest.mark.parametrize("deadline", ["NaN", "Infinity", "-1", "1e12", '"soon"', "null"])
def test_deadline_that_would_never_come_is_an_error(deadline: str) -> None:
    (bad,) = decode(b'[{"do": "lease", "deadline": %s}]' % deadline.encode(), ())

    assert isinstance(bad, Bad)


@pytest.mark.parametrize("number", [0, -9, 65, 1.0, True, "9"])
def test_number_of_no_signal_is_an_error(number: object) -> None:
    (bad,) = decoded({"do": "signal", "key": "k", "signal": number})

    assert isinstance(bad, Bad)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_datagram_is_answered_without_a_crash(datagram: bytes) -> None:
    assert all(isinstance(request, Bad) for request in decode(datagram, ()))


def test_deeply_nested_datagram_is_an_error() -> None:
    (bad,) = decode(b"[" * 1_000_000, ())

    assert isinstance(bad, Bad)


@given(st.lists(FIELDS, max_size=4))
def test_every_object_gets_exactly_one_answer(objects: list[object]) -> None:
    assert len(decoded(*objects, fds=(10, 11, 12))) == len(objects)


def test_end_by_status_and_by_signal_are_told_apart() -> None:
    by_status = messages.ended(ended_tree(3 << 8))
    by_signal = messages.ended(ended_tree(signal.SIGKILL))

    assert (by_status["status"], by_status["signal"], by_status["strays"]) == (3, None, 2)
    assert (by_signal["status"], by_signal["signal"]) == (None, signal.SIGKILL)

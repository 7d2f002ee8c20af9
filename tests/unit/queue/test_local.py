from __future__ import annotations

from rota.queue.local import Names, Offers, Wakes


def test_announcements_wait_once_each() -> None:
    wakes = Wakes()
    for topic, payload in [("a", "1"), ("a", "1"), ("a", "2"), ("b", "")]:
        wakes.add(topic, payload)

    assert wakes.empty() == {"a": ["1", "2"], "b": [""]}
    assert wakes.empty() == {}


def test_what_waits_is_bounded() -> None:
    wakes, offers = Wakes(limit=2), Offers(limit=2)
    for name in ("a", "b", "c"):
        wakes.add(name, "x")
        offers.add(name, ["x"])

    assert set(wakes.empty()) == {"a", "b"}
    assert set(offers.empty()) == {"a", "b"}
    wakes.add("c", "x")
    assert wakes.empty() == {"c": ["x"]}


def test_too_many_names_or_none_name_nothing() -> None:
    names = Names(limit=3)
    names.add(["1", "2"])
    names.add(["2", "3"])
    few = names.empty()
    names.add(["1", "2", "3", "4"])
    many = names.empty()
    names.add(["1"])
    names.add([])
    names.add(["2"])
    none = names.empty()
    names.add(["3"])

    assert (few, many, none, names.empty()) == (("1", "2", "3"), (), (), ("3",))

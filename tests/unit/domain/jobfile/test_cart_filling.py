"""Carts of a file filled with items that somebody read for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.domain.carts.definition import CartItem, ItemsFile
from rota.domain.errors import Invalid
from rota.domain.jobfile import JobFile, read_file


def read(came: dict[str, Any], **fields: Any) -> JobFile:
    cart = {"name": "fleet", "job": "upgrade", "items_from": "hosts.csv", **fields}
    document = {"jobs": [{"name": "upgrade", "steps": [{"run": "true"}]}], "carts": [cart]}
    return read_file(json.dumps(document), name="test", items=came)


def faults(came: dict[str, Any], **fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as refused:
        read(came, **fields)
    return [(problem.path, problem.message) for problem in refused.value.problems]


def test_items_take_the_place_of_their_file() -> None:
    [entry] = read({"fleet": [{"key": "db-1"}, {"key": "db-2"}]}).carts

    assert entry.template.items == (CartItem("db-1"), CartItem("db-2"))


def test_without_items_a_cart_keeps_its_file() -> None:
    [entry] = read({}).carts

    assert entry.template.items == ItemsFile("hosts.csv")


def test_items_are_checked_as_if_they_were_written_there() -> None:
    items = [{"key": "a"}, {"key": "a"}, {"key": "b", "colour": "red"}]

    paths = [path for path, _ in faults({"fleet": items})]

    assert sorted(paths) == ["carts[0].items[1].key", "carts[0].items[2].colour"]


def test_no_items_are_refused() -> None:
    assert [path for path, _ in faults({"fleet": []})] == ["carts[0].items"]


@pytest.mark.parametrize("name", ["other", "fleet"])
def test_items_that_fit_no_cart_are_refused(name: str) -> None:
    [(path, message)] = faults({name: [{"key": "a"}]}, items_from=None, items=[{"key": "b"}])

    assert path == "carts"
    assert f'items came for the cart "{name}"' in message


@pytest.mark.parametrize("carts", [None, 5, "x", [5, None, {"name": 7}]])
def test_whatever_is_written_as_carts_is_no_crash(carts: Any) -> None:
    with pytest.raises(Invalid):
        read_file(json.dumps({"carts": carts}), name="test", items={"fleet": [{"key": "a"}]})

from __future__ import annotations

import os
import time

import pytest

from bench.layers import Layers, per_run


def test_a_run_costs_what_each_layer_worked_for_it() -> None:
    before = {"server": 1.0, "worker": 0.0}
    after = {"server": 1.5, "worker": 0.25}

    assert per_run(before, after, 10_000) == pytest.approx({"server µs": 50, "worker µs": 25})


def test_a_layer_is_all_its_processes() -> None:
    layers = Layers({"ours": [os.getpid()], "nobody's": []})

    found = layers.read()

    assert found["ours"] >= time.process_time() / 2
    assert found["nobody's"] == 0

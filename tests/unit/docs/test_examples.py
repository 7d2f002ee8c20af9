"""Examples do what the pages say."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rota import App
from rota.testing import inline
from tests.unit.cli.console import Console
from tests.unit.docs.pages import ROOT, Block, blocks

TUTORIAL = ROOT / "docs" / "tutorials" / "python-functions.md"
PYTHON = blocks("python")
ITEMS_FROM = re.compile(r"items_from: (\S+\.csv)")  # a table that stands on the same page
BESIDE = re.compile(r"path: (\./[\w.]+)")


@pytest.fixture
def _own_modules() -> Iterator[None]:
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def executed(block: Block, name: str) -> ModuleType:
    """The block as an imported module."""
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(block.text, str(block), "exec"), vars(module))
    return module


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_job_files_are_valid(rota: Console, block: Block) -> None:
    Path("jobs.yaml").write_text(block.text)
    for name, table in zip(ITEMS_FROM.findall(block.text), blocks("csv", block.page), strict=False):
        Path(name).write_text(table.text)
    for name in BESIDE.findall(block.text):
        Path(name).touch()

    ended = rota("validate", "jobs.yaml")

    # Their programs are not here: a warning, and what to do about it, is right.
    told = [line for line in ended.err.splitlines() if "fresh, empty folder" not in line]
    assert (ended.code, told) == (0, [])


def test_readme_shows_the_example_that_is_shipped() -> None:
    shipped = (ROOT / "examples" / "jobs.yaml").read_text("utf-8")

    assert shipped in [block.text for block in blocks("yaml", ROOT / "README.md")]


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_is_python(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.usefixtures("_own_modules")
def test_function_of_the_readme_runs() -> None:
    [block] = blocks("python", ROOT / "README.md")

    module = executed(block, "shop")

    assert isinstance(module.app, App)
    with inline(module.app):
        assert module.nightly_report.submit(shop="berlin").wait().output == 1


@pytest.mark.usefixtures("_own_modules")
def test_tests_of_the_tutorial_pass() -> None:
    module, tests = [block for block in blocks("python", TUTORIAL) if block.is_executed]
    executed(module, "shop")

    told = vars(executed(tests, "test_shop"))

    functions = [value for name, value in told.items() if name.startswith("test_")]
    assert len(functions) == 2
    for function in functions:
        function()

"""The public contracts, and the code that is made from them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = sorted((ROOT / "contracts").rglob("*.proto"))
GENERATED = ROOT / "src" / "rota" / "contracts"
ENUM = re.compile(r"^enum (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)


def named(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("contract", CONTRACTS, ids=named)
def test_contract_begins_with_what_it_is_for(contract: Path) -> None:
    assert contract.read_text().startswith("// ")


@pytest.mark.parametrize("contract", CONTRACTS, ids=named)
def test_enums_have_a_zero_that_means_nothing_and_values_that_say_whose_they_are(
    contract: Path,
) -> None:
    for name, body in ENUM.findall(contract.read_text()):
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
        values = re.findall(r"^  (\w+) = (\d+);", body, re.MULTILINE)

        assert values[0] == (f"{prefix}_UNSPECIFIED", "0")
        assert all(value.startswith(f"{prefix}_") for value, _ in values)


def test_generated_code_is_of_these_contracts(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'tools'); import build_contracts;"
        "build_contracts.compile_contracts(build_contracts.SOURCES, Path(sys.argv[1]))"
    )

    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=True)

    fresh = {path.name: path.read_text() for path in (tmp_path / "rota" / "contracts").iterdir()}
    used = {path.name: path.read_text() for path in GENERATED.glob("*_pb2*.py*")}
    assert used == fresh


def test_generated_code_is_never_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()

    assert "src/rota/contracts/*_pb2*" in ignored

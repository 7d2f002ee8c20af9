"""Makes `rota.contracts` from the `.proto` files, whenever Rota is built or installed.

Hatchling's build hook; what it makes is part of the wheel and never committed.
"""

from __future__ import annotations

import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("contracts", "rota")
PACKAGE = Path("rota", "contracts")


class ContractsHook(BuildHookInterface[Any]):
    """Generates before every build of a wheel, an editable one included."""

    PLUGIN_NAME = "contracts"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generate(Path(self.root))


def generate(root: Path) -> None:
    """Replace the generated modules one by one, so that none is ever seen half-written."""
    package = root / "src" / PACKAGE
    with tempfile.TemporaryDirectory(dir=package.parent) as folder:
        compile_contracts(root / SOURCES, Path(folder))
        fresh = {path.name: path for path in Path(folder, PACKAGE).iterdir()}
        for name, path in fresh.items():
            path.replace(package / name)
    for path in package.glob("*_pb2*.py*"):
        if path.name not in fresh:
            path.unlink()


def compile_contracts(sources: Path, output: Path) -> None:
    """Run the compiler; SystemExit if it complains."""
    arguments = [
        *(f"--proto_path={PACKAGE}={version}" for version in sorted(sources.iterdir())),
        f"--proto_path={resources.files('grpc_tools') / '_proto'}",
        f"--python_out={output}",
        f"--pyi_out={output}",
        f"--grpc_python_out={output}",
        *(f"{PACKAGE}/{path.name}" for path in sorted(sources.glob("*/*.proto"))),
    ]
    if protoc.main(["protoc", *arguments]) != 0:
        raise SystemExit("the contracts cannot be compiled, see above")

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "rota"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)
LOCK_FILES = sorted((ROOT / "requirements").glob("*.txt"))
LONGEST_MODULE = 600
SHORTEST_CHAPTER = 60  # below that a module needs a second importer, or is one of these few
MOST_MODULES = 345
MOST_FRAGMENTS = 10


def named_after_path(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("lock_file", LOCK_FILES, ids=named_after_path)
def test_lock_file_names_no_place_to_download_from(lock_file: Path) -> None:
    addresses = re.findall(r".*://.*|^-.*", lock_file.read_text(), flags=re.MULTILINE)

    assert addresses == []


@pytest.mark.parametrize("lock_file", LOCK_FILES, ids=named_after_path)
def test_every_locked_requirement_is_pinned_and_hashed(lock_file: Path) -> None:
    requirements = re.split(r"\n(?=[a-z])", lock_file.read_text().strip())

    unsafe = [each for each in requirements if "==" not in each or "--hash=sha256:" not in each]

    assert len(requirements) > 1
    assert unsafe == []


def test_lock_files_agree_on_every_version() -> None:
    versions: dict[str, set[str]] = {}
    for lock_file in LOCK_FILES:
        for name, version in re.findall(
            r"^([\w.-]+)(?:\[.*\])?==(\S+)", lock_file.read_text(), re.MULTILINE
        ):
            versions.setdefault(name, set()).add(version)

    assert [name for name, pinned in versions.items() if len(pinned) > 1] == []


def test_locks_keep_the_extras_that_pip_in_hash_mode_needs() -> None:
    [command] = re.findall(
        r"^LOCK := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )

    assert "--no-strip-extras" in command


@pytest.mark.parametrize("package", sorted(PACKAGE.rglob("__init__.py")), ids=named_after_path)
def test_package_says_what_it_is_for(package: Path) -> None:
    assert ast.get_docstring(ast.parse(package.read_text()))


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=named_after_path)
def test_folder_of_modules_is_a_package(folder: Path) -> None:
    assert (folder / "__init__.py").exists()


def test_no_module_has_outgrown_one_reading() -> None:
    lengths = {named_after_path(path): len(path.read_text().splitlines()) for path in MODULES}

    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def test_the_house_has_rooms_and_not_drawers() -> None:
    """Before a new module: is it read together with one that is there?"""
    assert len(MODULES) <= MOST_MODULES
    assert len(fragments()) <= MOST_FRAGMENTS, fragments()


def fragments() -> list[str]:
    """Short modules that only one other imports: sentences of its chapter."""
    users: dict[str, set[Path]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{each.name}" for each in node.names)):
                    users.setdefault(name, set()).add(path)
    return [
        named_after_path(path)
        for path in MODULES
        if path.name not in ("__init__.py", "__main__.py")
        and len(path.read_text().splitlines()) < SHORTEST_CHAPTER
        and len(users.get(module_of(path), ())) <= 1
    ]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty_names = {"utils", "common", "helpers", "base", "manager", "core"}

    assert [named_after_path(path) for path in MODULES if path.stem in empty_names] == []


def test_guardian_imports_only_itself_and_the_standard_library() -> None:
    imported = {name for path in PACKAGE.glob("guardian/**/*.py") for name in imports_of(path)}

    foreign = [name for name in imported if name.split(".")[0] not in sys.stdlib_module_names]

    assert [name for name in foreign if not name.startswith("rota.guardian")] == []


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or ".")
    return names

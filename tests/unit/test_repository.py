from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "rota"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)
STORE_TESTS = ROOT / "tests" / "conformance" / "store"
LOCK_FILES = sorted((ROOT / "requirements").glob("*.txt"))
LONGEST_MODULE = 600
SHORTEST_CHAPTER = 60  # below that a module needs a second importer, or is one of these few
MOST_MODULES = 466
MOST_FRAGMENTS = 4


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


def test_no_module_can_run_what_it_reads() -> None:
    """What these read may say to call anything: they are for nothing that another process wrote."""
    unsafe = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "multiprocessing"}
    found = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    imported = {alias.name for alias in names}
                case ast.ImportFrom(module=str(module)):
                    imported = {module}
                case _:
                    continue
            found += [f"{named_after_path(path)}: {name}" for name in imported & unsafe]

    assert found == []


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


def test_tests_of_the_store_are_named_after_its_chapters() -> None:
    """Or after a chapter and a topic: whoever changes a chapter finds its tests by its name."""
    chapters = {path.stem for path in (PACKAGE / "store").rglob("*.py")}
    stories = {"concurrency", "locks", "plans", "pooler", "publishing", "schema"}  # of all chapters
    names = [path.stem.removeprefix("test_") for path in STORE_TESTS.rglob("test_*.py")]

    assert len(names) > 40
    assert [name for name in names if not is_named_after(chapters | stories, name)] == []


def is_named_after(nouns: set[str], name: str) -> bool:
    return any(name == noun or name.startswith(f"{noun}_") for noun in nouns)


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty_names = {"utils", "common", "helpers", "base", "manager", "core"}

    assert [named_after_path(path) for path in MODULES if path.stem in empty_names] == []


@pytest.mark.parametrize("part", ["source_modules", "forbidden_modules", "layers"])
def test_import_contract_names_each_module_once(part: str) -> None:
    named = [contract.get(part, []) for contract in import_contracts()]

    assert [names for names in named if len(names) > len(set(names))] == []


def test_every_script_of_the_store_is_kept_from_knowing_carts() -> None:
    [contract] = [each for each in import_contracts() if "nothing of carts" in each["name"]]
    modules = {module_of(path) for path in (PACKAGE / "store").glob("*.py")}
    # `store` binds all verbs; `jobs` saves the jobs and templates of a file, all or none.
    may_know = {"rota.store.__init__", "rota.store.store", "rota.store.jobs"}

    assert set(contract["source_modules"]) == modules - may_know - set(
        contract["forbidden_modules"]
    )


def test_whatever_talks_to_a_database_is_kept_from_knowing_verbs() -> None:
    [contract] = [each for each in import_contracts() if "know no verbs" in each["name"]]
    modules = {module_of(path) for path in (PACKAGE / "store").glob("*/*.py")}
    opens_all = {name for name in modules if name.endswith((".__init__", ".opening"))}

    assert modules - opens_all <= set(contract["source_modules"])


def import_contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return contracts


def test_no_verb_of_the_store_hides_the_module_it_is_bound_to() -> None:
    tree = ast.parse((PACKAGE / "store" / "store.py").read_text())
    [store] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert imported & names_in(store) == set()


def names_in(scope: ast.ClassDef) -> set[str]:
    bound = {
        target.id
        for node in scope.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    methods = (ast.FunctionDef, ast.AsyncFunctionDef)
    return bound | {node.name for node in scope.body if isinstance(node, methods)}


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

"""The site of the documentation has every public module; its build, `make docs`, checks the links."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from airflow_delta.provider import get_provider_info

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "docs" / "reference" / "python"
OPERATORS = (ROOT / "docs" / "reference" / "operators.md").read_text(encoding="utf-8")


def modules(kind: str) -> set[str]:
    """The modules that the provider shows Airflow."""
    found: set[str] = set()
    for entry in get_provider_info()[kind]:
        found |= set(entry["python-modules"])
    return found


def documented(page: str) -> set[str]:
    """The modules and classes of a page that are generated from docstrings."""
    text = (GENERATED / f"{page}.rst").read_text(encoding="utf-8")
    return set(re.findall(r"^\.\. auto(?:module|class):: (\S+)$", text, re.M))


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        ("operators", "operators"),
        ("sensors", "sensors"),
        ("triggers", "sensors"),
        ("hooks", "hooks"),
    ],
)
def test_the_site_has_each_module_of_the_provider(kind: str, page: str) -> None:
    found = documented(page)
    missing = {
        module for module in modules(kind) if not any(name.startswith(module) for name in found)
    }
    assert not missing


def classes() -> dict[str, ast.ClassDef]:
    """The public classes of operators, sensors and triggers, and of their bases, by name."""
    return {
        node.name: node
        for folder in ("operators", "sensors", "triggers")
        for path in sorted((ROOT / "airflow_delta" / folder).glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }


CLASSES = classes()
# Arguments of Airflow's own base classes, which tables mention.
AIRFLOWS = {"deferrable", "mode", "poke_interval", "timeout", "soft_fail"}


def arguments(name: str) -> set[str]:
    """The arguments of a class, with those of its bases in this package."""
    node = CLASSES[name]
    found: set[str] = set()
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            found = {each.arg for each in item.args.kwonlyargs}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            found |= arguments(base.id)
    return found


def described(name: str) -> set[str]:
    """The arguments that the docstrings of a class and of its bases describe."""
    node = CLASSES[name]
    found = set(re.findall(r"^:param (\w+):", ast.get_docstring(node) or "", re.M))
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            found |= described(base.id)
    return found


def sections() -> list[tuple[str, set[str]]]:
    """Each section of the reference about a class, with the arguments in its table."""
    found = []
    for name, text in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", OPERATORS, re.M | re.S):
        if name in CLASSES:
            table = re.search(r"^\| argument \|.*?\n\n", text, re.M | re.S)
            cells = re.findall(r"^\|([^|]*)\|", table[0], re.M) if table else []
            found.append((name, set(re.findall(r"`(\w+)`", " ".join(cells)))))
    return found


SECTIONS = sections()
SOURCES = arguments("RowSourceTask")


def test_the_reference_has_a_section_for_each_operator_and_sensor() -> None:
    public = {name for name in CLASSES if name.endswith(("Operator", "Sensor"))}
    assert {name for name, _ in SECTIONS} >= public
    assert len(public) > 20


@pytest.mark.parametrize(("name", "named"), SECTIONS, ids=[name for name, _ in SECTIONS])
def test_the_reference_and_the_docstrings_name_the_same_arguments(
    name: str, named: set[str]
) -> None:
    """The reference is read without the site, so it has tables of its own."""
    common = arguments("TableTask") - {"table_uri"} | AIRFLOWS
    own = arguments(name) - common
    assert described(name) >= own
    if name == "MergeOperator":  # its table refers to that of WriteOperator
        own, common = own - SOURCES, common | SOURCES
    assert named - common == own


def test_the_reference_names_every_operation_of_the_hook() -> None:
    """The operations are the methods that return a report."""
    hook = ROOT / "airflow_delta" / "hooks" / "delta"
    operations = {
        node.name
        for name in ("maintenance", "managed", "reading", "repair")
        for node in ast.walk(ast.parse((hook / f"{name}.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.returns is not None
        and ast.unparse(node.returns) == "dict[str, Any]"
    }
    assert len(operations) > 10
    sentence = OPERATORS.split("The operations of the operators are methods")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == operations

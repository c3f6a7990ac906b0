"""Every module says what it exports, and exports what it says."""

from __future__ import annotations

import ast
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import airflow_delta.engine
from airflow_delta.engine.model.schema import PRIMITIVE_TYPES

ENGINE = Path(airflow_delta.engine.__file__).parent
MODULES = [
    module.name
    for module in pkgutil.walk_packages([str(ENGINE)], "airflow_delta.engine.")
    if not module.ispkg
]


@pytest.mark.parametrize("name", MODULES)
def test_all_lists_the_public_names(name: str) -> None:
    source = ENGINE.parent.parent.joinpath(*name.split(".")).with_suffix(".py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    public = {entry for entry in defined if not entry.startswith("_")}
    module = import_module(name)
    listed = set(module.__all__)
    assert public <= listed, f"{name}.__all__ lacks {sorted(public - listed)}"
    assert all(hasattr(module, entry) for entry in listed)


def test_each_name_of_the_engine_can_be_loaded() -> None:
    for name in airflow_delta.engine.__all__:
        assert getattr(airflow_delta.engine, name) is not None


def test_the_types_of_columns_are_names_of_the_engine() -> None:
    for name, type_ in PRIMITIVE_TYPES.items():
        assert getattr(airflow_delta.engine, name.upper()) is type_
        assert name.upper() in airflow_delta.engine.__all__


def test_the_reference_has_each_name_of_the_engine() -> None:
    page = ENGINE.parents[1].joinpath("docs", "reference", "engine.md").read_text(encoding="utf-8")
    missing = [name for name in airflow_delta.engine.__all__ if f"`{name}" not in page]
    assert not missing


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = airflow_delta.engine.nonsense

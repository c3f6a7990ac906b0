"""What Airflow learns of the provider."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import airflow_delta
from airflow_delta.hooks.storage_options import SECRET_OPTIONS
from airflow_delta.provider import get_provider_info

PACKAGE = Path(airflow_delta.__file__).parent
KINDS = ("hooks", "operators", "sensors", "triggers")


def declared_modules(kind: str) -> list[str]:
    info: dict[str, Any] = get_provider_info()
    return [module for entry in info[kind] for module in entry["python-modules"]]


def test_the_description_is_valid_by_the_schema_of_airflow() -> None:
    schema = json.loads((resources.files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_the_package_name_is_that_of_the_distribution() -> None:
    project = (PACKAGE.parent / "pyproject.toml").read_text().partition("[project]")[2]
    names = re.findall(r'^name = "(.+)"$', project, re.MULTILINE)
    assert get_provider_info()["package-name"] == names[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_declared_module_can_be_imported(kind: str) -> None:
    for module in declared_modules(kind):
        importlib.import_module(module)


@pytest.mark.parametrize("kind", KINDS)
def test_every_module_with_a_class_of_its_kind_is_declared(kind: str) -> None:
    suffix = {"hooks": "Hook", "operators": "Operator", "sensors": "Sensor", "triggers": "Trigger"}
    # A package that exports the class of a module is declared in place of the module.
    found: dict[type, str] = {}
    for file in sorted((PACKAGE / kind).rglob("*.py")):
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        module = importlib.import_module(f"airflow_delta.{name.removesuffix('.__init__')}")
        for exported in getattr(module, "__all__", ()):
            if exported.endswith(suffix[kind]):
                found.setdefault(getattr(module, exported), module.__name__)
    assert declared_modules(kind) == list(dict.fromkeys(found.values()))


CONNECTION_TYPES = {
    declared["connection-type"]: declared for declared in get_provider_info()["connection-types"]
}


def test_there_is_a_connection_type_for_the_store_and_one_for_the_commit_owner() -> None:
    assert sorted(CONNECTION_TYPES) == ["delta", "delta_commit_owner"]


@pytest.mark.parametrize("declared", CONNECTION_TYPES.values(), ids=CONNECTION_TYPES)
def test_the_hook_of_a_connection_type_agrees_with_it(declared: dict[str, Any]) -> None:
    module, _, name = declared["hook-class-name"].rpartition(".")
    hook = getattr(importlib.import_module(module), name)
    assert hook.conn_type == declared["connection-type"]
    assert hook.hook_name == declared["hook-name"]
    # As Airflow makes one for the button that tests a connection.
    made = hook(**{hook.conn_name_attr: "some"})
    assert made.__dict__[hook.conn_name_attr] == "some"


@pytest.mark.parametrize("declared", CONNECTION_TYPES.values(), ids=CONNECTION_TYPES)
def test_the_form_of_a_connection_is_about_fields_that_there_are(declared: dict[str, Any]) -> None:
    behaviour = declared["ui-field-behaviour"]
    own = set(declared.get("conn-fields", {}))
    fields = {"host", "port", "schema", "login", "password", "extra", *own}
    named = {*behaviour["hidden-fields"], *behaviour["relabeling"], *behaviour["placeholders"]}
    assert named <= fields


def test_the_form_of_a_store_has_its_options_and_hides_its_secrets() -> None:
    """An extra is hidden by Airflow's API only if its name is one that Airflow takes for a secret's."""
    from airflow._shared.secrets_masker import should_hide_value_for_key

    from airflow_delta.engine.storage.azure import AZURE_OPTIONS
    from airflow_delta.engine.storage.gcs import GCS_OPTIONS
    from airflow_delta.engine.storage.s3 import S3_OPTIONS

    stores = (S3_OPTIONS, GCS_OPTIONS, AZURE_OPTIONS)
    known = {alias for store in stores for aliases in store.values() for alias in aliases}
    fields = CONNECTION_TYPES["delta"]["conn-fields"]
    others = {"test_location", "single_writer", "allowed_outside"}
    assert others < fields.keys() <= known | others
    hidden = {name for name in fields if fields[name]["schema"].get("format") == "password"}
    assert hidden == SECRET_OPTIONS.intersection(fields)
    assert [name for name in hidden if not should_hide_value_for_key(name)] == []


def test_airflow_finds_the_installed_provider() -> None:
    from airflow.providers_manager import ProvidersManager
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    found = ProvidersManager().providers["airflow-delta"]
    assert found.version == airflow_delta.__version__
    assert found.data.items() >= get_provider_info().items()
    hooks = ProvidersManagerTaskRuntime().hooks
    for kind, attribute in (
        ("delta", "delta_conn_id"),
        ("delta_commit_owner", "commit_owner_conn_id"),
    ):
        hook = hooks[kind]
        assert hook is not None
        found = (hook.hook_name, hook.connection_id_attribute_name)
        assert found == (CONNECTION_TYPES[kind]["hook-name"], attribute)


PARSED = (
    "airflow_delta.assets",
    "airflow_delta.task_runs",
    *(module for kind in KINDS for module in declared_modules(kind)),
)
"""What DAG files import."""


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        (("airflow_delta", "airflow_delta.provider"), {"airflow", "pyarrow", "pyspark"}),
        # They are imported at every parse of a DAG file; Airflow itself is there already.
        (
            PARSED,
            {"airflow_delta.engine.table", "pyarrow", "pyspark", "numpy", "psycopg", "openlineage"},
        ),
        # Airflow imports it for the assets of any DAG.
        (("airflow_delta.hooks.lineage.asset_uris",), {"airflow", "pyarrow", "openlineage"}),
    ],
)
def test_importing_stays_light(modules: tuple[str, ...], heavy: set[str]) -> None:
    code = f"import {', '.join(modules)}, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(run.stdout.split())
    assert loaded.issuperset(modules)
    assert heavy.isdisjoint(loaded)

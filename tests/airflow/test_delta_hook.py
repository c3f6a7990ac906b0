"""The doorway to the engine: credentials, and what it makes of the engine's answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.version_compat import AirflowException, AirflowNotFoundException
from tests.airflow.maintenance import checkpoint_only

SECRET = "gr8-s3cr3t-of-the-hook"
AWS = json.dumps({"conn_type": "aws", "login": "AKIA", "password": SECRET})
OPTIONS = {"aws_access_key_id": "AKIA", "aws_secret_access_key": SECRET}


def both_ways(hook: DeltaHook, uri: str) -> dict[str, str]:
    """The options as tasks and as triggers get them, which must be the same."""
    options = hook.storage_options(uri)
    assert asyncio.run(hook.storage_options_async(uri)) == options
    return options


def test_the_default_connection_of_the_scheme_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", AWS)
    assert both_ways(DeltaHook(), "s3://lake/t") == OPTIONS
    assert both_ways(DeltaHook(""), "s3://lake/t") == OPTIONS, "as a template renders nothing"
    assert both_ways(DeltaHook(), "/data/t") == {}


def test_without_a_default_connection_the_environment_decides() -> None:
    assert both_ways(DeltaHook(), "s3://lake/t") == {}


def test_a_named_connection_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", '{"conn_type": "aws", "login": "other"}')
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", AWS)
    assert both_ways(DeltaHook("lake"), "s3://lake/t") == OPTIONS


def test_a_named_connection_must_exist() -> None:
    with pytest.raises(AirflowNotFoundException, match=r"'lake' \(delta_conn_id\) isn't defined"):
        DeltaHook("lake").storage_options("s3://lake/t")
    with pytest.raises(AirflowNotFoundException, match=r"'lake' \(delta_conn_id\) isn't defined"):
        asyncio.run(DeltaHook("lake").storage_options_async("s3://lake/t"))


def test_secrets_of_any_option_are_masked_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.log import redact

    # A name that Airflow's own rules for extras don't know.
    extra = {
        "azure_storage_account_key": "k3y-of-the-account",
        "azure_storage_account_name": "lake",
    }
    connection = {"conn_type": "delta", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    assert DeltaHook("lake").storage_options("az://files/t") == extra
    assert "k3y-of-the-account" not in str(redact("opened with k3y-of-the-account"))
    assert redact("the account lake") == "the account lake"


def test_secrets_are_masked_where_triggers_log(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.log import redact

    extra = {"azure_storage_sas_key": "sig-of-the-trigger", "azure_storage_account_name": "pond"}
    monkeypatch.setenv("AIRFLOW_CONN_POND", json.dumps({"conn_type": "delta", "extra": extra}))
    assert asyncio.run(DeltaHook("pond").storage_options_async("az://files/t")) == extra
    assert "sig-of-the-trigger" not in str(redact("opened with sig-of-the-trigger"))


@pytest.mark.parametrize("uris", [("s3://lake/t", "az://lake/t"), ("gs://lake/t", "s3a://lake/t")])
def test_one_connection_for_two_stores_is_refused(
    monkeypatch: pytest.MonkeyPatch, uris: tuple[str, str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", AWS)
    with pytest.raises(AirflowException, match=rf"{uris[0]} and {uris[1]} are in different stores"):
        DeltaHook("lake").common_storage_options(*uris)


def test_one_connection_for_one_store_and_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", AWS)
    for uris in (("s3://lake/t", "s3a://lake/u"), ("s3://lake/t", "/data/t")):
        assert DeltaHook("lake").common_storage_options(*uris) == OPTIONS
    # The identity of the worker may be known to both.
    assert DeltaHook().common_storage_options("s3://lake/t", "gs://lake/t") == {}


def test_a_version_whose_commit_is_gone_can_be_pinned(sales_copy: Path) -> None:
    hook = DeltaHook()
    before = hook.pin(str(sales_copy))
    hook.checkpoint(str(sales_copy))
    checkpoint_only(sales_copy, 3)
    assert before["timestamp_ms"] is not None
    assert hook.pin(str(sales_copy)) == {**before, "timestamp_ms": None}


def test_the_facts_of_a_checkpoint(sales_copy: Path) -> None:
    hook = DeltaHook()
    first, second = hook.checkpoint(str(sales_copy)), hook.checkpoint(str(sales_copy))
    file = sales_copy / first["path"]
    assert file.name == f"{3:020}.checkpoint.parquet"
    assert first["bytes"] == file.stat().st_size
    assert first["files"] == hook.pin(str(sales_copy))["num_files"]
    assert (first["written"], second["written"]) == (True, False)
    assert second["version"] == 3


def test_a_table_without_a_commit_of_ours(sales: Path, tmp_path: Path) -> None:
    table = str(sales)
    assert DeltaHook().committed_version(table, app_id="airflow:a.b", app_version=1) is None
    nowhere = str(tmp_path / "nowhere")
    assert DeltaHook().committed_version(nowhere, app_id="airflow:a.b", app_version=1) is None


def test_a_task_of_a_users_own_has_the_operations_as_methods(sales_copy: Path) -> None:
    hook, uri = DeltaHook(), str(sales_copy)
    reports = [
        hook.checkpoint(uri),
        hook.compact_log(uri, start=0, end=3, dry_run=True),
        hook.clean_up(uri, dry_run=True),
        hook.vacuum(uri, dry_run=True),
        hook.restore(uri, version=1, dry_run=True),
    ]
    assert {report["table_uri"] for report in reports} == {uri}
    assert all(report["duration_ms"] >= 0 for report in reports)
    assert DeltaTable(uri).latest_version() == 3

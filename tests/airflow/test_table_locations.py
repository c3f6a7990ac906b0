"""Locations as users give them to operators, sensors and hooks: with a connection, and allowed ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.table_locations import as_locations, split_connection
from airflow_delta.operators.change_feed import ChangeFeedOperator
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.write import WriteOperator
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import AirflowException, AirflowFailException

Connect = Callable[..., None]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def define(name: str, **extra: Any) -> None:
        connection = {"conn_type": "delta", "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))

    return define


@pytest.mark.parametrize(
    ("uri", "connection_id", "bare"),
    [
        ("s3://lake_prod@bucket/sales", "lake_prod", "s3://bucket/sales"),
        ("S3a://lake-prod.1@bucket", "lake-prod.1", "S3a://bucket"),
        ("gs://lake@bucket/a@b", "lake", "gs://bucket/a@b"),
        ("s3://bucket/a@b", None, "s3://bucket/a@b"),
        ("abfss://c@acc.dfs.core.windows.net/t", None, "abfss://c@acc.dfs.core.windows.net/t"),
        ("/data/a@b", None, "/data/a@b"),
    ],
)
def test_the_connection_in_a_uri(uri: str, connection_id: str | None, bare: str) -> None:
    assert split_connection(uri) == (connection_id, bare)


@pytest.mark.parametrize("uri", ["s3://user:hidden@bucket/t", "gs://@bucket/t", "s3://a@b@c/t"])
def test_a_user_in_front_of_a_bucket_is_refused_and_not_shown(uri: str) -> None:
    kinds, texts = (
        (AirflowFailException, InvalidArgumentError),
        "isn't a connection id|has a password",
    )
    with pytest.raises(kinds, match=texts) as refused:
        DeltaHook().table(uri)
    assert "hidden" not in str(refused.value)


def test_a_hook_opens_a_table_with_the_connection_in_its_uri(connect: Connect) -> None:
    connect("lake_prod", aws_region="eu-west-1")
    table = DeltaHook().table("s3://lake_prod@bucket/sales")
    assert (table.uri, table.storage.root) == ("s3://bucket/sales", "s3://bucket/sales")
    assert DeltaHook("lake_prod").table("s3://lake_prod@bucket/sales").uri == "s3://bucket/sales"
    assert DeltaHook().storage_options("s3://lake_prod@bucket/sales") == {"aws_region": "eu-west-1"}


def test_another_connection_than_that_of_the_uri_is_an_error(connect: Connect) -> None:
    connect("lake_prod")
    connect("other")
    with pytest.raises(AirflowFailException, match="different connections"):
        DeltaHook("other").table("s3://lake_prod@bucket/sales")
    with pytest.raises(AirflowException, match="'missing'"):
        DeltaHook().table("s3://missing@bucket/sales")


def test_without_airflow_nothing_stands_in_front_of_a_bucket() -> None:
    from airflow_delta.engine import DeltaTable

    with pytest.raises(InvalidArgumentError, match="an Airflow connection is named"):
        DeltaTable("s3://lake_prod@bucket/sales").storage  # noqa: B018


def test_an_operator_takes_the_connection_from_its_locations() -> None:
    operator = CheckpointOperator(task_id="c", table_uri="s3://lake_prod@bucket/sales")
    assert operator.hook().delta_conn_id == "lake_prod"
    assert (operator.table_uri, operator.delta_conn_id) == ("s3://bucket/sales", "lake_prod")
    # A second time, as in a sensor that pokes.
    assert operator.hook().delta_conn_id == "lake_prod"
    for kind in (TimeTravelSnapshotOperator, ChangeFeedOperator):
        copy = kind(task_id="t", table_uri="s3://b/t", target_uri="s3://lake_prod@b/copy")
        assert copy.hook().delta_conn_id == "lake_prod"
        assert copy.target_uri == "s3://b/copy"
    both = TimeTravelSnapshotOperator(
        task_id="b", table_uri="s3://one@b/t", target_uri="s3://two@b/copy"
    )
    with pytest.raises(AirflowFailException, match=r"different connections \(one, two\)"):
        both.hook()


def test_an_operator_takes_the_connection_from_the_tables_of_its_source(connect: Connect) -> None:
    for name in ("aws_default", "lake_prod"):
        connect(name, aws_region=name)
    source = {"one": ("s3://b/one", 1), "two": {"table_uri": "s3://lake_prod@b/two", "version": 2}}
    arguments: dict[str, Any] = {"source_query": "SELECT 1", "source_tables": source}
    write = WriteOperator(task_id="w", table_uri="s3://b/t", **arguments)
    for _ in range(2):
        hook = write.hook()
        assert hook.delta_conn_id == "lake_prod"
        assert write.source()["tables"] == {"one": ("s3://b/one", 1), "two": ("s3://b/two", 2)}
        assert hook.common_storage_options("s3://b/t", "s3://b/two") == {"aws_region": "lake_prod"}
    for other in ({"table_uri": "s3://other@b/t"}, {"table_uri": "/t", "delta_conn_id": "other"}):
        both = WriteOperator(task_id="b", **other, **arguments)
        with pytest.raises(AirflowFailException, match="different connections"):
            both.hook()


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, ()),
        ("", ()),
        ("None", ()),
        ("s3://a/", ("s3://a/",)),
        (" s3://a/ , /data/b,", ("s3://a/", "/data/b")),
        (["s3://a,b/"], ("s3://a,b/",)),
    ],
)
def test_allowed_locations(value: Any, found: tuple[str, ...]) -> None:
    assert as_locations(value) == found


@pytest.mark.parametrize("extra", [["s3://a/", "/data/b"], "s3://a/,/data/b"])
def test_a_connection_and_an_operator_allow_locations(connect: Connect, extra: Any) -> None:
    connect("lake_prod", allowed_outside=extra, aws_region="eu-west-1")
    uri = "s3://lake_prod@bucket/sales"
    operator = CheckpointOperator(task_id="c", table_uri=uri, allowed_outside="/data/c")
    hook = operator.hook()
    assert hook.allowed_outside(operator.table_uri) == ["s3://a/", "/data/b", "/data/c"]
    table = hook.table(operator.table_uri)
    assert table.allowed_outside == ("s3://a/", "/data/b", "/data/c")
    assert hook.storage_options(operator.table_uri) == {"aws_region": "eu-west-1"}
    assert "allowed_outside" in operator.template_fields


@pytest.mark.parametrize("extra", [{"a": 1}, [1], 7])
def test_an_extra_that_is_no_list_of_locations(connect: Connect, extra: Any) -> None:
    connect("lake_prod", allowed_outside=extra)
    with pytest.raises(AirflowException, match="allowed_outside"):
        DeltaHook("lake_prod").table("/data/t")


def test_a_trigger_takes_them_along() -> None:
    trigger = TableVersionTrigger(table_uri="/t", min_version=1, allowed_outside="/a,/b")
    _, arguments = trigger.serialize()
    assert arguments["allowed_outside"] == ["/a", "/b"]
    assert TableVersionTrigger(**json.loads(json.dumps(arguments))).allowed_outside == ("/a", "/b")

"""The test of a connection, as the button of the form and ``airflow connections test`` run it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.models.connection import Connection

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import INTEGER, StructField, StructType
from airflow_delta.engine.storage.location import open_storage
from tests.object_stores import new_place

SECRET = "s3cr3t/of+the=store"


def run_test(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]) -> tuple[bool, str]:
    """What Airflow's API server does: it puts the connection into the environment, and calls its hook."""
    monkeypatch.setenv("AIRFLOW_CONN_TRANSIENT", json.dumps({"conn_type": "delta", "extra": extra}))
    connection = Connection(conn_id="transient", conn_type="delta", extra=json.dumps(extra))
    passed, message = connection.test_connection()
    for name, value in extra.items():
        if "secret" in name or "key" in name:
            assert str(value) not in message, name
    return passed, message


@pytest.fixture
def store(tmp_path: Path) -> tuple[str, dict[str, str]]:
    uri, options = new_place("s3", tmp_path)
    return uri, {**options, "aws_secret_access_key": SECRET}


def test_the_log_of_a_table_is_listed_and_read(
    store: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, options = store
    table = f"{uri}/sales"
    schema = StructType((StructField("id", INTEGER),))
    DeltaTable.create(table, schema, storage_options=options)
    before = sorted(info.path for info in open_storage(uri, options).walk(""))
    passed, message = run_test(monkeypatch, {**options, "test_location": table})
    assert passed
    assert message == (
        f"listed {table}/_delta_log, and read a byte of _delta_log/00000000000000000000.crc; writing "
        "wasn't tried. What the connection doesn't say came from the environment of this machine"
    )
    assert sorted(info.path for info in open_storage(uri, options).walk("")) == before


def test_a_directory_without_a_table_is_only_listed(
    store: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, options = store
    passed, message = run_test(monkeypatch, {**options, "test_location": uri, "aws_region": ""})
    assert passed
    assert "where no Delta table is; reading and writing weren't tried" in message


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, "nothing was tried, since the connection doesn't say where"),
        ({"test_location": None}, "nothing was tried, since the connection doesn't say where"),
        ({"test_location": "/etc"}, "nothing was tried: the test is for locations in S3"),
        ({"test_location": "file:///etc"}, "nothing was tried: the test is for locations in S3"),
        ({"test_location": "sftp://user:pw@host/t"}, "and 'sftp://host/t' isn't one"),
        ({"test_location": "s4://lake/t"}, "nothing was tried: the test is for locations in S3"),
        ({"test_location": "s3://lake/t", "aws_regio": "r"}, "unknown storage option 'aws_regio'"),
        ({"test_location": "s3://me:pw@lake/t"}, "has something in front of the bucket"),
        ({"test_location": "s3://lake/t", "timeout": 5}, "the extras ['timeout'] aren't text"),
    ],
    ids=str,
)
def test_what_cannot_be_tried_has_not_passed(
    extra: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, message = run_test(monkeypatch, extra)
    assert not passed
    assert expected in message
    assert "pw" not in message


def test_a_bucket_that_is_not_there(
    store: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, options = store
    passed, message = run_test(monkeypatch, {**options, "test_location": f"{uri}-none/t"})
    assert not passed
    assert "BucketNotFoundError" in message
    assert "the bucket or container doesn't exist" in message


def test_a_store_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.monotonic()
    extra = {
        "test_location": "s3://lake/t",
        "aws_endpoint_url": "http://127.0.0.1:1",
        "aws_access_key_id": "AKIA",
        "aws_secret_access_key": SECRET,
    }
    passed, message = run_test(monkeypatch, extra)
    assert not passed
    assert "StorageError" in message
    # Ten repetitions, as for tables, would take much longer.
    assert time.monotonic() - begun < 30


def test_a_store_that_quotes_the_secret(
    store: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_delta.hooks import connection_check

    def quote(location: str, options: object) -> tuple[bool, str]:
        raise ValueError(f"SignatureDoesNotMatch for {SECRET}")

    monkeypatch.setattr(connection_check, "_look", quote)
    uri, options = store
    passed, message = run_test(monkeypatch, {**options, "test_location": uri})
    assert (passed, message) == (False, "ValueError: SignatureDoesNotMatch for ***")

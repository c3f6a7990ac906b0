"""The file that says what a copy is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.copies.marker import MARKER, CopyMarker, read_marker, write_marker
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.local import LocalStorage

FULL = CopyMarker(
    *("s3://lake/sales", "an id", 7, "s3://lake/pins/sales_7", "delta", 1000, 4),
    made_at_ms=1_769_860_800_123,
    expires_at_ms=1_770_465_600_123,
    target_id="its own id",
    committed_version=3,
)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    assert read_marker(storage) is None
    bare = CopyMarker("t", "i", 0)
    for marker in (FULL, bare):
        write_marker(storage, marker)
        assert read_marker(storage) == marker
    told = json.loads(FULL.to_json())
    assert (told["made_at"], told["expires_at"]) == (
        "2026-01-31T12:00:00.123Z",
        "2026-02-07T12:00:00.123Z",
    )
    assert "committed_version" not in json.loads(bare.to_json())


def test_that_of_an_earlier_release_is_read() -> None:
    text = '{"table_uri": "t", "table_id": "i", "version": 1, "num_rows": 2}'
    marker = CopyMarker.from_json(text)
    assert marker == CopyMarker("t", "i", 1, num_rows=2)
    assert not marker.has_expired(10**15), "it says nothing of expiring"


def test_a_place_whose_name_is_no_utf_8_is_told() -> None:
    odd = replace(FULL, target_uri=os.fsdecode(b"/lake/\xff"))
    assert CopyMarker.from_json(odd.to_json()) == odd


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("sftp://me:secret@host:22/t", "sftp://host:22/t"),
        ("sftp://:secret@host/t", "sftp://host/t"),
        ("zip://t::sftp://me:secret@host/a.zip", "zip://t::sftp://host/a.zip"),
        ("abfss://box@account.dfs.core.windows.net/t:1@2", None),
        ("s3://bucket/a:b@c", None),
        ("/lake/a:b@c", None),
    ],
)
def test_no_password_is_told(uri: str, told: str | None) -> None:
    text = replace(FULL, table_uri=uri, target_uri=uri).to_json()
    marker = CopyMarker.from_json(text)
    assert (marker.table_uri, marker.target_uri) == (told or uri, told or uri)


def test_when_a_copy_has_expired() -> None:
    at = FULL.expires_at_ms or 0
    assert [FULL.has_expired(now) for now in (at - 1, at, at + 1)] == [False, True, True]


@pytest.mark.parametrize(
    "change",
    [
        {"version": "7"},
        {"version": True},
        {"target_uri": 5},
        {"table_id": None},
        {"table_uri": "/\ud800"},
        {"target_uri": "/\ud800"},
        {"expires_at": "soon"},
        {"expires_at": "2026-01-31T12:00:00"},
        {"expires_at": 5},
        {"target_id": 5},
        {"num_files": 1.5},
    ],
)
def test_what_is_no_marker_is_refused(change: dict[str, Any]) -> None:
    told = {**json.loads(FULL.to_json()), **change}
    with pytest.raises(InvalidArgumentError, match=f"{MARKER} can't be read"):
        CopyMarker.from_json(json.dumps(told))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '"x"', b"\xff\xfe"])
def test_what_is_no_json_object_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{MARKER} can't be read"):
        CopyMarker.from_json(text)


def test_deleting_needs_no_spark() -> None:
    code = (
        "import airflow_delta.copies.deletion, airflow_delta.copies.lease, sys; "
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

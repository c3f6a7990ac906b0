"""What snapshots say of row tracking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.snapshot.row_tracking import RowTracking
from tests.log_builder import add, metadata, write_commit

PROTOCOL = {
    "protocol": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["rowTracking", "domainMetadata"],
    }
}
COLUMNS = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}


def mark(configuration: str) -> dict[str, Any]:
    domain = {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}
    return {"domainMetadata": domain}


def table_of(root: Path, *actions: dict[str, Any]) -> DeltaTable:
    write_commit(root, 0, *actions)
    return DeltaTable(str(root))


def test_a_table_without_the_feature_has_none(tmp_path: Path) -> None:
    versions = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    on = metadata(configuration={"delta.enableRowTracking": "true"})
    assert table_of(tmp_path, versions, on).snapshot().row_tracking is None


def test_supported_is_not_enabled(tmp_path: Path) -> None:
    table = table_of(tmp_path, PROTOCOL, metadata())
    assert table.snapshot().row_tracking == RowTracking(
        enabled=False, row_id_column=None, row_commit_version_column=None, high_water_mark=-1
    )


@pytest.mark.parametrize("key", ["highWaterMark", "rowIdHighWaterMark"])
def test_an_enabled_table_names_its_columns_and_its_mark(tmp_path: Path, key: str) -> None:
    on = metadata(configuration={"delta.enableRowTracking": "true", **COLUMNS})
    file = add("a", baseRowId=10, defaultRowCommitVersion=0)
    snapshot = table_of(tmp_path, PROTOCOL, on, mark(f'{{"{key}": 41}}'), file).snapshot()
    assert snapshot.row_tracking == RowTracking(
        enabled=True,
        row_id_column="_row-id-col-1",
        row_commit_version_column="_row-commit-version-col-1",
        high_water_mark=41,
    )
    bases = snapshot.files(columns=["baseRowId", "defaultRowCommitVersion"]).to_pylist()
    assert bases == [{"baseRowId": 10, "defaultRowCommitVersion": 0}]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"highWaterMark": "3"}', "[" * 100_000])
def test_a_mark_that_is_none_is_a_typed_error(tmp_path: Path, text: str) -> None:
    snapshot = table_of(tmp_path, PROTOCOL, metadata(), mark(text)).snapshot()
    with pytest.raises(InvalidTableError, match=r"delta\.rowTracking holds"):
        _ = snapshot.row_tracking


def test_a_snapshot_tells_of_its_features(tmp_path: Path) -> None:
    snapshot = table_of(tmp_path, PROTOCOL, metadata()).snapshot()
    features = {feature.name: feature for feature in snapshot.features}
    assert features["rowTracking"].supported
    assert not features["rowTracking"].active
    assert not features["deletionVectors"].supported

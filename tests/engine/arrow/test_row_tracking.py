"""Row ids by the reader requirements of PROTOCOL.md, "Row Tracking"."""

from __future__ import annotations

import pyarrow as pa

from airflow_delta.engine.arrow.row_tracking import row_commit_versions, row_ids


def test_default_ids_count_from_the_base() -> None:
    assert row_ids(pa.array([0, 1, 4]), base_row_id=100).to_pylist() == [100, 101, 104]


def test_a_materialised_id_wins_where_there_is_one() -> None:
    materialized = pa.array([None, 7, None], pa.int64())
    ids = row_ids(pa.array([0, 1, 4]), base_row_id=100, materialized=materialized)
    assert ids.to_pylist() == [100, 7, 104]


def test_commit_versions_are_those_of_the_file_unless_materialised() -> None:
    assert row_commit_versions(2, default_row_commit_version=5).to_pylist() == [5, 5]
    materialized = pa.array([3, None], pa.int64())
    versions = row_commit_versions(2, default_row_commit_version=5, materialized=materialized)
    assert versions.to_pylist() == [3, 5]
    assert versions.type == pa.int64()

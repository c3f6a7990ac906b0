"""When removes have expired."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_delta.engine.replay.tombstones import deletion_times, expired, unexpired


def removes(*times: int | None) -> pa.Table:
    columns = {"path": [str(time) for time in times], "deletionTimestamp": times}
    return pa.table(columns, pa.schema([("path", pa.string()), ("deletionTimestamp", pa.int64())]))


@pytest.mark.parametrize(
    ("oldest", "kept"),
    [
        (99, ["100", "101"]),
        # The retention is over at the very millisecond.
        (100, ["101"]),
        (101, []),
        # A retention that reaches back beyond 1970: what has no time was deleted in 1970.
        (-1, ["None", "0", "100", "101"]),
        (0, ["100", "101"]),
    ],
)
def test_removes_expire_and_those_without_a_time_are_of_1970(oldest: int, kept: list[str]) -> None:
    all_of_them = removes(None, 0, 100, 101)
    assert unexpired(all_of_them, oldest)["path"].to_pylist() == kept
    gone = expired(all_of_them, oldest)
    assert gone.null_count == 0
    assert all_of_them.filter(pa.compute.invert(gone))["path"].to_pylist() == kept


def test_no_removes_have_no_times() -> None:
    assert deletion_times(removes()).to_pylist() == []
    assert deletion_times(removes(None, 7)).to_pylist() == [0, 7]

"""What a ``remove`` leaves out comes from the ``add`` of its file, and what it says agrees with that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable, RemoveFile
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.snapshot.state import LogState
from tests.engine.transaction.prepare.attempts import NOW, attempt, schema, table, tombstone, write
from tests.log_builder import add

VECTOR = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
FEATURES = ("changeDataFeed", "deletionVectors", "rowTracking", "domainMetadata")
FEED = {"delta.enableChangeDataFeed": "true"}
REPEATED: dict[str, Any] = {
    "partitionValues": {"p": "x", "q": None},
    "size": 7,
    "stats": '{"numRecords":9}',
    "tags": {"a": "1"},
    "deletionVector": VECTOR.to_json(),
    "baseRowId": 3,
    "defaultRowCommitVersion": 0,
}


def parted(root: Path) -> Path:
    columns = schema(id="long", p="string", q="string")
    known = add("f%20g", **REPEATED)
    plain = add("plain", partitionValues={"p": "y", "q": ""})
    options = {"schema": columns, "partition_columns": ["p", "q"], "configuration": FEED}
    return table(root, FEATURES, known, plain, **options)


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_what_is_left_out_is_what_the_add_says(tmp_path: Path, with_checkpoint: bool) -> None:
    parted(tmp_path)
    if with_checkpoint:
        DeltaTable(str(tmp_path)).checkpoint()
    removes = (tombstone("plain"), tombstone("f%20g", deletion_vector=VECTOR))
    written = write(tmp_path, attempt(tmp_path, removes=removes))["remove"]
    common = {"deletionTimestamp": NOW, "dataChange": True, "extendedFileMetadata": True}
    plain, full = written
    assert full == {"path": "f%20g", **common, **REPEATED}
    assert plain == {
        "path": "plain",
        **common,
        "partitionValues": {"p": "y", "q": ""},
        "size": 1,
    }


def test_the_change_feed_can_be_read_after_the_documented_remove(tmp_path: Path) -> None:
    parted(tmp_path)
    delta = DeltaTable(str(tmp_path))
    transaction = delta.transaction("DELETE")
    transaction.remove_file(RemoveFile("plain", data_change=True))
    version = transaction.commit().version
    (change,) = delta.changes(version).files.to_pylist()
    assert dict(change["partitionValues"]) == {"p": "y", "q": ""}
    assert (change["path"], change["_change_type"], change["size"]) == ("plain", "delete", 1)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"partition_values": {"p": "z", "q": None}}, r"partitionValues=\{'p': 'z', .*'p': 'x'"),
        ({"partition_values": {"p": "x", "q": "y"}}, "partitionValues="),
        ({"partition_values": {}}, "partitionValues="),
        ({"size": 8}, "size=8, but the file's add has 7; repeat that, or omit it"),
        ({"tags": {"a": "2"}}, "tags="),
        ({"base_row_id": 4}, "baseRowId=4"),
        ({"default_row_commit_version": 1}, "defaultRowCommitVersion=1"),
        ({"deletion_vector": replace(VECTOR, cardinality=5)}, "deletionVector="),
        ({"deletion_vector": replace(VECTOR, size_in_bytes=5)}, "deletionVector="),
    ],
)
def test_a_remove_that_contradicts_the_add_is_refused(
    tmp_path: Path, said: dict[str, Any], named: str
) -> None:
    parted(tmp_path)
    remove = tombstone("f%20g", **{"deletion_vector": VECTOR, **said})
    with pytest.raises(ConstraintViolationError, match=rf"remove of the file 'f%20g' has {named}"):
        attempt(tmp_path, removes=(tombstone("plain"), remove))


def test_one_value_may_be_said_in_several_ways(tmp_path: Path) -> None:
    parted(tmp_path)
    for values in ({"p": "x"}, {"p": "x", "q": ""}, {"p": "x", "q": None}):
        said = tombstone("f%20g", deletion_vector=VECTOR, partition_values=values, tags={"a": "1"})
        (made,) = attempt(tmp_path, removes=(said,)).actions.removes
        assert made.size == 7


def test_the_path_is_spelt_as_in_the_add(tmp_path: Path) -> None:
    table(tmp_path, (), add("a%c3%a9"))
    (made,) = attempt(tmp_path, removes=(tombstone("a%C3%A9"),)).actions.removes
    assert made.path == "a%c3%a9"


def test_of_a_large_table_only_the_files_in_question_are_decoded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [add(f"file-{number}", stats='{"numRecords":1}') for number in range(2000)]
    table(tmp_path, (), *many)
    delta = DeltaTable(str(tmp_path))
    delta.checkpoint()
    seen: list[pa.Table] = []
    live_adds = LogState.live_adds

    def watched(self: LogState, *args: Any, **options: Any) -> pa.Table:
        seen.append(live_adds(self, *args, **options))
        return seen[-1]

    monkeypatch.setattr(LogState, "live_adds", watched)
    attempt(tmp_path, removes=(tombstone("file-5"), tombstone("file-1999")))
    assert [found.num_rows for found in seen] == [2]
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.parquet")
    assert pq.ParquetFile(checkpoint).metadata.num_rows > 2000

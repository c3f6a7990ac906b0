"""The keys of logical files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE, add_schema
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.replay.file_key import are_keys, are_relative, file_keys, keys_of_files

TABLE = "s3://bucket/table"
VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1,
          "sizeInBytes": 40, "cardinality": 6}  # fmt: skip


def rows(*files: tuple[str, Any]) -> pa.Table:
    values = [{"path": path, "deletionVector": vector} for path, vector in files]
    return pa.Table.from_pylist(values, schema=add_schema(("path", "deletionVector")))


def test_files_that_are_objects_have_the_keys_of_rows() -> None:
    vector = DeletionVectorDescriptor.from_json(VECTOR, "")
    files: list[AddFile | RemoveFile] = [
        RemoveFile(path="a", data_change=True),
        RemoveFile(path="a", data_change=True, deletion_vector=vector),
        AddFile("/table/b", {}, 1, 1, data_change=True, deletion_vector=vector),
    ]
    keys = keys_of_files(files, table=TABLE)
    expected = file_keys(rows(("a", None), ("a", VECTOR), ("/table/b", VECTOR)), table=TABLE)
    assert keys.to_pylist() == expected.to_pylist()
    assert len(set(keys.to_pylist())) == 3
    assert keys_of_files([], table=TABLE).to_pylist() == []


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], True),
        (["a", "p=1/b", ""], True),
        (["p=12:30/a", "p=a%3Ab"], True),  # a colon, but no scheme
        (["a", "/a"], False),
        (["a", "s3://bucket/a"], False),
        (["file:/a"], False),
    ],
)
def test_relative_paths_are_told_apart(paths: list[str], expected: bool) -> None:
    for chunks in ([paths], [[], paths], [[path] for path in paths]):
        assert are_relative(pa.chunked_array(chunks, pa.string())) is expected


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], True),
        (["a", "p=1/b", "p=a%3Ab", "x%C3%A9"], True),
        (["a", "/a"], False),
        (["a", "x%c3%a9"], False),
        (["a", "./b"], False),
        (["a//b"], False),
        (["a/../b"], False),
    ],
)
def test_paths_that_are_keys_are_told_apart(paths: list[str], expected: bool) -> None:
    array = pa.chunked_array([paths], pa.string())
    assert are_keys(array) is expected
    actions = pa.table(
        {"path": array, "deletionVector": pa.nulls(len(paths), DELETION_VECTOR_TYPE)}
    )
    assert (file_keys(actions, table=TABLE).to_pylist() == paths) is expected

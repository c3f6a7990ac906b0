"""What a commit may say of the files it adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from tests.log_builder import commit_path, metadata, write_commit

VECTOR = DeletionVectorDescriptor(
    "i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6
)
DV_ON = {"delta.enableDeletionVectors": "true"}
MAPPING = "delta.columnMapping"


def protocol(*features: str) -> dict[str, Any]:
    readers = [name for name in features if name in {"deletionVectors", "columnMapping"}]
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": readers,
            "writerFeatures": list(features),
        }
    }


def schema(**types: Any) -> dict[str, Any]:
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in types.items()
    ]
    return {"type": "struct", "fields": fields}


def append(root: Path, **fields: Any) -> None:
    transaction = DeltaTable(str(root)).transaction("WRITE")
    values = {"partition_values": {}, "size": 1, "modification_time": 1, "data_change": True}
    transaction.add_file(AddFile("f.parquet", **{**values, **fields}))
    transaction.commit()


def refused(root: Path, match: str, **fields: Any) -> None:
    with pytest.raises(ConstraintViolationError, match=match):
        append(root, **fields)
    assert not commit_path(root, 1).exists()


PARTITION_VALUES = [
    ("integer", "12", True),
    ("integer", None, True),
    ("integer", "", True),
    ("integer", "12.5", False),
    ("integer", "2147483648", False),
    ("date", "2024-02-29", True),
    ("date", "2023-02-29", False),
    ("timestamp", "2024-01-01 00:00:00", True),
    ("timestamp", "yesterday", False),
    ("boolean", "true", True),
    ("boolean", "yes", False),
    ("decimal(3,1)", "12.5", True),
    ("decimal(3,1)", "12.55", False),
    ("string", "any text", True),
    ("string", "__HIVE_DEFAULT_PARTITION__", False),
    ("integer", "__HIVE_DEFAULT_PARTITION__", False),
]


@pytest.mark.parametrize(("type_", "text", "fits"), PARTITION_VALUES)
def test_a_partition_value_is_a_text_of_its_type(
    tmp_path: Path, type_: str, text: str | None, fits: bool
) -> None:
    write_commit(
        tmp_path,
        0,
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        metadata(partition_columns=["p"], schema=schema(id="long", p=type_)),
    )
    if fits:
        append(tmp_path, partition_values={"p": text})
    else:
        refused(tmp_path, "'f.parquet', partition column 'p': ", partition_values={"p": text})


def test_the_hive_null_is_explained(tmp_path: Path) -> None:
    write_commit(
        tmp_path,
        0,
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        metadata(partition_columns=["part"]),
    )
    null = {"part": "__HIVE_DEFAULT_PARTITION__"}
    refused(tmp_path, "in directory names only; expected null", partition_values=null)


def test_a_partition_value_is_known_by_the_physical_name(tmp_path: Path) -> None:
    mapped = schema(id="long", p="integer")
    for number, field in enumerate(mapped["fields"], start=1):
        field["metadata"] = {f"{MAPPING}.id": number, f"{MAPPING}.physicalName": f"c{number}"}
    configuration = {f"{MAPPING}.mode": "name", f"{MAPPING}.maxColumnId": "2"}
    write_commit(
        tmp_path,
        0,
        protocol("columnMapping"),
        metadata(partition_columns=["p"], schema=mapped, configuration=configuration),
    )
    refused(tmp_path, "partitioned by", partition_values={"p": "1"})
    refused(tmp_path, "'x' is no integer", partition_values={"c2": "x"})
    append(tmp_path, partition_values={"c2": "1"})


def test_a_deletion_vector_comes_with_the_number_of_records(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol("deletionVectors"), metadata(configuration=DV_ON))
    for stats in (None, "{}", '{"numRecords":null}', '{"numRecords":"9"}', '{"numRecords":true}'):
        refused(tmp_path, "don't tell numRecords", deletion_vector=VECTOR, stats=stats)
    refused(tmp_path, "are no JSON", deletion_vector=VECTOR, stats="{broken")
    append(tmp_path, deletion_vector=VECTOR, stats='{"numRecords":30}')


@pytest.mark.parametrize(
    ("features", "configuration", "lacking"),
    [
        (("domainMetadata",), DV_ON, "the feature deletionVectors"),
        (("deletionVectors",), {}, "delta.enableDeletionVectors=true"),
        (
            ("deletionVectors",),
            {"delta.enableDeletionVectors": "false"},
            "delta.enableDeletionVectors=true",
        ),
    ],
)
def test_a_table_without_deletion_vectors_gets_none(
    tmp_path: Path, features: tuple[str, ...], configuration: dict[str, str], lacking: str
) -> None:
    write_commit(tmp_path, 0, protocol(*features), metadata(configuration=configuration))
    stats = '{"numRecords":30}'
    refused(tmp_path, f"the table lacks {lacking}", deletion_vector=VECTOR, stats=stats)
    append(tmp_path, stats=stats)


@pytest.mark.parametrize("field", ["base_row_id", "default_row_commit_version"])
def test_a_table_without_row_tracking_gets_no_row_ids(tmp_path: Path, field: str) -> None:
    write_commit(tmp_path, 0, protocol("domainMetadata"), metadata())
    refused(tmp_path, "lacks the feature rowTracking", **{field: 0})
    append(tmp_path)


def statistics(nulls: Any = 0, *, records: int | None = 3, **bounds: Any) -> str:
    """Statistics of the column ``s.x``."""
    told: dict[str, Any] = {} if records is None else {"numRecords": records}
    if nulls is not None:
        told["nullCount"] = {"s": {"x": nulls}}
    return json.dumps({**told, **{name: {"s": {"x": bound}} for name, bound in bounds.items()}})


BOUNDS = {"minValues": 1, "maxValues": 2}
CLUSTERING = [
    ("long", None, "numRecords"),
    ("long", statistics(records=None, **BOUNDS), "numRecords"),
    ("long", statistics(None, **BOUNDS), "nullCount"),
    ("long", statistics(minValues=1), "maxValues"),
    ("long", statistics(maxValues=1), "minValues"),
    ("long", statistics(nulls=2), "minValues"),
    ("long", statistics(nulls=3), None),
    ("long", statistics(**BOUNDS), None),
    ("double", statistics(), None),
    ("string", statistics(), None),
    ("string", statistics(None), "nullCount"),
]


@pytest.mark.parametrize(("type_", "stats", "lacking"), CLUSTERING)
def test_a_clustered_table_gets_statistics_of_its_clustering_columns(
    tmp_path: Path, type_: str, stats: str | None, lacking: str | None
) -> None:
    domain = {
        "domain": "delta.clustering",
        "configuration": '{"clusteringColumns":[["s","x"]]}',
        "removed": False,
    }
    write_commit(
        tmp_path,
        0,
        protocol("clustering", "domainMetadata"),
        metadata(schema=schema(id="long", s=schema(x=type_))),
        {"domainMetadata": domain},
    )
    if lacking is None:
        append(tmp_path, stats=stats)
    else:
        refused(tmp_path, rf"lack {lacking} of the clustering column s\.x", stats=stats)


def test_a_table_clustered_by_nothing_asks_for_no_statistics(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol("clustering", "domainMetadata"), metadata())
    append(tmp_path)

"""Tables whose data files aren't parquet, as the protocol of 2019 allows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.spark import read_snapshot
from tests.spark.conftest import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"n": "long", "word": "string", "day": "date", "p": "integer"}
OPTIONS = {
    "csv": {"header": "true", "sep": ";", "pathGlobFilter": "*.none"},
    "json": {"dateFormat": "dd.MM.yyyy"},
    "orc": {},
}


def write_log(table: Path, provider: str, *, options: dict[str, str], **changes: Any) -> None:
    """A table of the files that lie in ``p=1``, written by hand: no engine makes such tables today."""
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in COLUMNS.items()
    ]
    metadata = {
        "id": "1",
        "format": {"provider": provider, "options": options},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["p"],
        "configuration": changes.get("configuration", {}),
    }
    adds = [
        {
            "path": str(file.relative_to(table)),
            "partitionValues": {"p": "1"},
            "size": file.stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            **changes.get("add", {}),
        }
        for file in sorted(table.glob("p=1/part-*"))
    ]
    protocol = changes.get("protocol", {"minReaderVersion": 1, "minWriterVersion": 2})
    lines = [{"protocol": protocol}, {"metaData": metadata}, *[{"add": add} for add in adds]]
    (table / "_delta_log").mkdir(parents=True)
    text = "\n".join(map(json.dumps, lines))
    (table / "_delta_log" / f"{0:020}.json").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("provider", OPTIONS)
def test_files_of_other_formats_are_read(
    spark: SparkSession, tmp_path: Path, provider: str
) -> None:
    options = OPTIONS[provider]
    rows = spark.sql(
        "SELECT id AS n, concat('a;b ', id) AS word, date_add(date'2024-01-31', CAST(id AS INT)) AS day "
        "FROM range(0, 4, 1, 2)"
    )
    rows.write.format(provider).options(**options).save(f"{tmp_path}/p=1")
    write_log(tmp_path, provider.upper(), options=options)
    wanted = [{**row, "p": 1} for row in rows_of(rows)]
    frame = read_snapshot(spark, str(tmp_path), metadata_columns=["_file_path"])
    found = sorted(rows_of(frame), key=lambda row: row["n"])
    assert len({row.pop("_file_path") for row in found}) == 2
    assert found == wanted
    some = read_snapshot(spark, str(tmp_path), columns=["p", "word"], predicate="n = 3 AND p = 1")
    assert rows_of(some) == [{"p": 1, "word": "a;b 3"}]
    with pytest.raises(UnsupportedFeatureError, match=f"row indexes can't be read: .*'{provider}'"):
        read_snapshot(spark, str(tmp_path), metadata_columns=["_row_index"])


def test_what_needs_parquet_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("vectors", "mapped", "jdbc"):
        (tmp_path / name / "p=1").mkdir(parents=True)
        (tmp_path / name / "p=1" / "part-0").write_text("1\n", encoding="utf-8")
    features = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    add = {"deletionVector": vector, "stats": '{"numRecords":30}'}
    write_log(tmp_path / "vectors", "csv", options={}, protocol=features, add=add)
    with pytest.raises(UnsupportedFeatureError, match="deletion vectors can't be read"):
        read_snapshot(spark, str(tmp_path / "vectors"))
    write_log(
        tmp_path / "mapped",
        "csv",
        options={},
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        configuration={"delta.columnMapping.mode": "name"},
    )
    with pytest.raises(UnsupportedFeatureError, match=r"column mapping, and data files in .*'csv'"):
        read_snapshot(spark, str(tmp_path / "mapped"))
    write_log(tmp_path / "jdbc", "jdbc", options={"url": "jdbc:x"})
    with pytest.raises(
        UnsupportedFeatureError, match="in the format 'jdbc': expected one of parquet"
    ):
        read_snapshot(spark, str(tmp_path / "jdbc"))

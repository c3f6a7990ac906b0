from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.checkpoint.typed_columns import typed_columns
from airflow_delta.engine.checkpoint.write import write_classic_checkpoint
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning, InvalidTableError
from airflow_delta.engine.log.files import parse_log_file
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.storage.local import LocalStorage
from tests.engine.checkpoint.contents import METADATA, add_row, add_table, content, memory
from tests.laws.histories import protocol
from tests.log_builder import add, remove
from tests.log_builder import metadata as meta_action
from tests.table_builder import MemoryTable, commits

STRUCT = "delta.checkpoint.writeStatsAsStruct"
TEXT = "delta.checkpoint.writeStatsAsJson"


def metadata(*, partitions: dict[str, str], **properties: str) -> Metadata:
    """A table with a data column ``id`` and partition columns of the types given."""
    columns = [("id", "long"), *partitions.items()]
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns]
    return replace(
        METADATA,
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=tuple(partitions),
        configuration=properties,
    )


def written_adds(rows: list[dict[str, Any]], meta: Metadata) -> tuple[list[Any], list[Any]]:
    """The adds of a checkpoint: as they are stored, and as we read them."""
    storage = memory()
    state = content(metadata=meta, adds=[add_table(rows)])
    path = write_classic_checkpoint(storage, state, version=7, table="t").path
    stored = pq.read_table(io.BytesIO(storage.read(path)))["add"].to_pylist()
    checkpoint: Any = parse_log_file(storage.head(path))
    reader = open_checkpoint(storage, checkpoint, table="t")
    return [row for row in stored if row], pa.concat_tables(reader.adds()).to_pylist()


STATS = '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}'


def test_both_forms_are_stored_where_the_properties_say_so() -> None:
    meta = metadata(partitions={"p": "integer"}, **{STRUCT: "true"})
    stored, read = written_adds(
        [
            add_row(1, stats=STATS, partitionValues=[("p", "5")]),
            add_row(2, stats=None, partitionValues=[("p", None)]),
        ],
        meta,
    )
    assert stored[0]["stats"] == STATS
    assert stored[0]["stats_parsed"] == {**json.loads(STATS), "tightBounds": None}
    assert stored[0]["partitionValues_parsed"] == {"p": 5}
    assert stored[1]["stats_parsed"] is None
    assert [row["stats"] for row in read] == [STATS, None]


def test_the_text_comes_back_where_only_the_struct_is_stored() -> None:
    meta = metadata(partitions={}, **{STRUCT: "true", TEXT: "false"})
    stored, read = written_adds([add_row(1, stats=STATS), add_row(2, stats=None)], meta)
    assert "stats" not in stored[0]
    assert json.loads(read[0]["stats"]) == json.loads(STATS)
    assert read[1]["stats"] is None


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_no_digit_is_lost_from_checkpoint_to_checkpoint(policy: Any) -> None:
    """A maximum that shrinks hides rows from those who read the struct."""
    bounds = {"minValues": {"t": "1969-12-31T23:59:59.999999Z"},
              "maxValues": {"t": "2024-01-31T12:00:00.999999Z"}}  # fmt: skip
    column = {"name": "t", "type": "timestamp", "nullable": True, "metadata": {}}
    table_metadata = meta_action(
        schema={"type": "struct", "fields": [column]},
        configuration={STRUCT: "true", TEXT: "false"},
    )
    first = [protocol({"v2Checkpoint"}), table_metadata, add("a", stats=json.dumps(bounds))]
    # What takes a neighbour away has the file written anew.
    later = [[remove(path, deletionTimestamp=1)] for path in "bc"]
    with MemoryTable(commits([[*first, add("b"), add("c")], *later])) as table:
        for version in range(3):
            before = {file.path for file in table.storage.list("_delta_log/_sidecars")}
            result = table.delta().checkpoint(version, policy=policy)
            assert result.written
            sidecars = {file.path for file in table.storage.list("_delta_log/_sidecars")} - before
            (path,) = sidecars or {result.path}
            rows = pq.read_table(io.BytesIO(table.storage.read(path)))["add"].to_pylist()
            (stored,) = [row["stats_parsed"] for row in rows if row and row["path"] == "a"]
            assert stored["minValues"]["t"].isoformat() == "1969-12-31T23:59:59.999999+00:00"
            assert stored["maxValues"]["t"].isoformat() == "2024-01-31T12:00:00.999999+00:00"


def test_without_either_property_only_the_text_is_stored() -> None:
    stored, _ = written_adds([add_row(1)], metadata(partitions={"p": "string"}))
    assert "stats" in stored[0]
    assert "stats_parsed" not in stored[0]
    assert "partitionValues_parsed" not in stored[0]
    stored, _ = written_adds([add_row(1)], metadata(partitions={}, **{TEXT: "false"}))
    assert "stats" not in stored[0]
    assert "stats_parsed" not in stored[0]


def test_unpartitioned_tables_have_no_typed_partition_values() -> None:
    stored, _ = written_adds([add_row(1)], metadata(partitions={}, **{STRUCT: "true"}))
    assert "stats_parsed" in stored[0]
    assert "partitionValues_parsed" not in stored[0]


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        ("string", "a", "a"),
        ("string", "", None),
        ("string", None, None),
        ("long", "-1", -1),
        ("boolean", "true", True),
        ("binary", "\x01\xff", b"\x01\xc3\xbf"),
        ("date", "2024-01-31", dt.date(2024, 1, 31)),
        ("timestamp_ntz", "2024-01-31 01:02:03.5", dt.datetime(2024, 1, 31, 1, 2, 3, 500000)),
        (
            "timestamp",
            "2024-01-31 01:02:03",
            dt.datetime(2024, 1, 31, 1, 2, 3, tzinfo=dt.timezone.utc),
        ),
        # Not as the protocol has it, and a value to those who cast it.
        (
            "timestamp",
            "2024-01-31 01:02",
            dt.datetime(2024, 1, 31, 1, 2, tzinfo=dt.timezone.utc),
        ),
        ("boolean", "yes", True),
    ],
)
def test_partition_values_are_typed(type_: str, text: Any, expected: Any) -> None:
    meta = metadata(partitions={"p": type_}, **{STRUCT: "true"})
    rows = [add_row(1, partitionValues=[("p", text)]), add_row(2, partitionValues=[])]
    stored, read = written_adds(rows, meta)
    assert [row["partitionValues_parsed"]["p"] for row in stored] == [expected, None]
    # The text is what counts, and stays as it is.
    assert read[0]["partitionValues"] == [("p", text)]


@pytest.mark.parametrize(("type_", "text"), [("long", "one"), ("byte", "1000")])
def test_a_text_that_is_no_value_is_null_and_a_warning(type_: str, text: str) -> None:
    """Whoever prunes by the typed value loses the rows of the file."""
    rows = [add_row(1, partitionValues=[("p", text)]), add_row(2, partitionValues=[("p", "7")])]
    with pytest.warns(DeltaWarning, match=f"'p' has the value '{text}', which is no {type_}"):
        stored, read = written_adds(rows, metadata(partitions={"p": type_}, **{STRUCT: "true"}))
    assert [row["partitionValues_parsed"]["p"] for row in stored] == [None, 7]
    assert read[0]["partitionValues"] == [("p", text)]


LISTED = "delta.dataSkippingStatsColumns"


@pytest.mark.parametrize(
    ("listed", "bounds", "counts"),
    [
        ("b", {"b"}, {"b"}),
        ("B , `c`.`x.y`", {"b", "c.x.y"}, {"b", "c.x.y"}),
        ("c", {"c.x.y", "c.z"}, {"c.x.y", "c.z", "c.list"}),
        ("a,c.z", {"a", "c.z"}, {"a", "c.z"}),
        ("c.list", set(), {"c.list"}),
        ("c.z.deeper,nowhere", set(), set()),
        ("", set(), set()),
    ],
)
@pytest.mark.parametrize("mapped", [False, True])
def test_only_listed_columns_have_typed_statistics(
    listed: str, bounds: set[str], counts: set[str], mapped: bool
) -> None:
    """Names are logical in the list, and physical in the struct."""
    inner = struct_of({"x.y": "long", "z": "string", "list": LIST}, mapped=mapped)
    columns = struct_of({"a": "long", "b": "date", "c": inner, "p": "long"}, mapped=mapped)
    meta = replace(
        METADATA,
        schema_string=json.dumps(columns),
        partition_columns=("p",),
        configuration={
            STRUCT: "true",
            LISTED: listed,
            "delta.dataSkippingNumIndexedCols": "1",
            **({"delta.columnMapping.mode": "name"} if mapped else {}),
        },
    )
    typed = typed_columns(Protocol(2, 5), meta, table="t")
    assert typed is not None
    found = {
        name: {leaf.replace("col-", "") for leaf in leaves(typed.stats, name)}
        for name in ("minValues", "maxValues", "nullCount")
    }
    assert found == {"minValues": bounds, "maxValues": bounds, "nullCount": counts}
    if mapped:
        assert all("col-" in leaf for leaf in leaves(typed.stats, "nullCount"))


LIST = {"type": "array", "elementType": "long", "containsNull": True}


def struct_of(columns: dict[str, Any], *, mapped: bool) -> dict[str, Any]:
    fields = []
    for number, (name, type_) in enumerate(columns.items(), start=1):
        mapping = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": f"col-{name}",
        }
        column = {"name": name, "type": type_, "nullable": True}
        fields.append({**column, "metadata": mapping if mapped else {}})
    return {"type": "struct", "fields": fields}


def leaves(struct: pa.StructType, name: str) -> set[str]:
    """The leaves of a field, by their dotted paths; none where there is no such field."""
    if struct.get_field_index(name) < 0:
        return set()
    type_ = struct.field(name).type
    if not pa.types.is_struct(type_):
        return {""}
    return {f"{f.name}.{leaf}".rstrip(".") for f in type_ for leaf in leaves(type_, f.name)}


def test_names_are_physical_where_columns_are_mapped() -> None:
    fields = [
        {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{name}",
            },
        }
        for number, name in enumerate(("id", "p"), start=1)
    ]
    meta = replace(
        METADATA,
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=("p",),
        configuration={STRUCT: "true", "delta.columnMapping.mode": "name"},
    )
    typed = typed_columns(Protocol(2, 5), meta, table="t")
    assert typed is not None
    assert typed.stats.field("minValues").type.names == ["col-id"]
    assert list(typed.partitions) == ["col-p"]


def test_a_partition_column_that_is_not_in_the_schema_is_an_error() -> None:
    meta = replace(metadata(partitions={}, **{STRUCT: "true"}), partition_columns=("gone",))
    with pytest.raises(
        InvalidTableError, match=r"partition columns are \[.*'gone'.*\], and the table has"
    ):
        typed_columns(Protocol(1, 2), meta, table="t")


def test_the_struct_equals_what_spark_makes_of_the_same_text(
    golden_case: Callable[[str], Path],
) -> None:
    root = golden_case("delta-1.2.1-only-struct-stats")
    (checkpoint,) = list_log(LocalStorage(str(root))).checkpoints
    reader = open_checkpoint(LocalStorage(str(root)), checkpoint, table=str(root))
    (metadata_json,) = [value for kind, value in reader.non_file_actions() if kind == "metaData"]
    meta = Metadata.from_json(metadata_json, "test")
    meta = replace(meta, configuration={**meta.configuration, STRUCT: "true"})
    typed = typed_columns(Protocol(1, 2), meta, table=str(root))
    assert typed is not None
    # The text that reading makes of Spark's struct, made typed again.
    again = typed.added_to(pa.concat_tables(reader.adds()))["stats_parsed"].to_pylist()
    file = pq.ParquetFile(root / checkpoint.path, coerce_int96_timestamp_unit="us")
    theirs = file.read(columns=["add"])["add"].to_pylist()
    expected = [row["stats_parsed"] for row in theirs if row]
    assert len(again) == len(expected) > 0
    assert [known(row) for row in again] == [known(row) for row in expected]


def known(value: Any) -> Any:
    """A struct without the fields that are null: which columns have none differs by engine."""
    if isinstance(value, dt.datetime):
        # Spark stored instants as INT96, which Arrow reads without their time zone.
        return value.replace(tzinfo=dt.timezone.utc)
    if not isinstance(value, dict):
        return value
    return {name: known(item) for name, item in value.items() if item is not None}


def test_bytes_that_have_no_text_damage_a_checkpoint_that_has_only_them() -> None:
    storage = memory()
    state = content(
        metadata=metadata(partitions={"p": "binary"}, **{STRUCT: "true"}),
        adds=[add_table([add_row(1, partitionValues=[("p", "x")])])],
    )
    path = write_classic_checkpoint(storage, state, version=7, table="t").path
    rows = pq.read_table(io.BytesIO(storage.read(path))).combine_chunks()
    adds = rows["add"].chunk(0)
    fields = {field.name: adds.field(index) for index, field in enumerate(adds.type)}
    del fields["partitionValues"]
    values = pa.array([b"\xff"] * len(adds), pa.binary())
    fields["partitionValues_parsed"] = pa.StructArray.from_arrays([values], ["p"])
    bare = pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=adds.is_null())
    buffer = io.BytesIO()
    pq.write_table(rows.set_column(rows.column_names.index("add"), "add", bare), buffer)
    storage.delete([path])
    storage.create(path, buffer.getvalue())
    checkpoint: Any = parse_log_file(storage.head(path))
    with pytest.raises(CorruptLogError, match="'partitionValues_parsed' has no text"):
        list(open_checkpoint(storage, checkpoint, table="t").adds())

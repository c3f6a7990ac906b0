"""Field ids that are added to the footer of a file: pyarrow finds them, and the same data."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.parquet import FOOTER_END, PyarrowFallback, add_field_ids, footer_start

TABLE = pa.table(
    {
        "id": [1, 2],
        "tags": pa.array([[["a"], []], None], pa.list_(pa.list_(pa.string()))),
        "m": pa.array(
            [[("k", {"x": 1})], []], pa.map_(pa.string(), pa.struct([("x", pa.int32())]))
        ),
    }
)
IDS = {
    ("tags", "list", "element"): 7,
    ("tags", "list", "element", "list", "element"): 1 << 20,
    ("m", "key_value", "key"): 3,
    ("m", "key_value", "value"): 4,
    ("m", "key_value", "value", "x"): 5,
}


def written(**options: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(TABLE, buffer, **options)
    return buffer.getvalue()


def with_ids(data: bytes, ids: dict[tuple[str, ...], int]) -> bytes:
    start = footer_start(data[-FOOTER_END:], len(data))
    return data[:start] + add_field_ids(data[start:], ids)


def found_ids(data: bytes) -> dict[str, int]:
    schema = pq.ParquetFile(io.BytesIO(data)).schema_arrow
    found: dict[str, int] = {}

    def visit(field: pa.Field, path: str) -> None:
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            found[path] = int(number)
        type_ = field.type
        if pa.types.is_map(type_):
            visit(type_.key_field, f"{path}.key")
            visit(type_.item_field, f"{path}.value")
        elif pa.types.is_list(type_):
            visit(type_.value_field, f"{path}.element")
        elif pa.types.is_struct(type_):
            for index in range(type_.num_fields):
                visit(type_.field(index), f"{path}.{type_.field(index).name}")

    for field in schema:
        visit(field, field.name)
    return found


@pytest.mark.parametrize("options", [{}, {"row_group_size": 1, "write_page_index": True}])
def test_columns_get_ids_and_keep_their_data(options: dict[str, object]) -> None:
    data = with_ids(written(store_schema=False, **options), IDS)
    assert found_ids(data) == {
        "tags.element": 7,
        "tags.element.element": 1 << 20,
        "m.key": 3,
        "m.value": 4,
        "m.value.x": 5,
    }
    assert pq.read_table(io.BytesIO(data)).to_pylist() == TABLE.to_pylist()
    # Whoever adds them again changes nothing, and others replace them.
    assert with_ids(data, IDS) == data
    assert found_ids(with_ids(data, {("m", "key_value", "key"): 9}))["m.key"] == 9


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda end: end, "the schema has no tags.list.item"),
        (lambda end: end[5:], "damaged|cut off|wire type|field"),
        (lambda end: end[:20] + end[-FOOTER_END:], "cut off|damaged|field"),
    ],
)
def test_footers_of_another_kind_are_refused(damage: object, message: str) -> None:
    data = written()
    end = data[footer_start(data[-FOOTER_END:], len(data)) :]
    with pytest.raises(PyarrowFallback, match=message):
        add_field_ids(damage(end), {("tags", "list", "item"): 1})  # type: ignore[operator]

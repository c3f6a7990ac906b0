from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE, STRING_MAP
from airflow_delta.engine.arrow.normalise import conform, present_rows

ENTRIES = [[("a", "1")], None, [], [("b", None), ("c", "3")]]


@pytest.mark.parametrize(
    "type_",
    [
        STRING_MAP,
        pa.map_(pa.large_string(), pa.large_string()),
        pa.map_(pa.string(), pa.dictionary(pa.int32(), pa.string())),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
    ],
)
@pytest.mark.parametrize(("start", "stop"), [(0, 4), (1, 4), (3, 4), (1, 2)])
def test_maps_and_lists_of_pairs_become_string_maps(
    type_: pa.DataType, start: int, stop: int
) -> None:
    entries = ENTRIES
    if pa.types.is_list(type_):
        entries = [
            None if row is None else [{"key": key, "value": value} for key, value in row]
            for row in ENTRIES
        ]
    array = pa.array(entries, type_).slice(start, stop - start)
    conformed = conform(array, STRING_MAP)
    conformed.validate(full=True)
    assert conformed.type == STRING_MAP
    assert conformed.to_pylist() == ENTRIES[start:stop]


@pytest.mark.parametrize("array", [pa.array([["a"]]), pa.array(["a"]), pa.array([{"a": "b"}])])
def test_what_is_no_map_is_an_error(array: pa.Array) -> None:
    with pytest.raises(pa.ArrowException, match="cast"):
        conform(array, STRING_MAP)


def test_a_column_of_nothing_becomes_null_maps() -> None:
    assert conform(pa.nulls(2), STRING_MAP).to_pylist() == [None, None]


def test_struct_fields_are_found_by_name_and_missing_ones_are_null() -> None:
    stored = pa.array(
        [
            {"unknown": 1, "cardinality": 3, "storageType": "u", "pathOrInlineDv": "x"},
            None,
        ],
        pa.struct(
            [
                ("unknown", pa.int8()),
                ("cardinality", pa.int32()),
                ("storageType", pa.string()),
                ("pathOrInlineDv", pa.string()),
            ]
        ),
    )
    conformed = conform(stored, DELETION_VECTOR_TYPE)
    assert conformed.type == DELETION_VECTOR_TYPE
    assert conformed.to_pylist() == [
        {
            "storageType": "u",
            "pathOrInlineDv": "x",
            "offset": None,
            "sizeInBytes": None,
            "cardinality": 3,
            "maxRowIndex": None,
        },
        None,
    ]


def test_a_value_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid, match="not in range"):
        conform(pa.array([2**40]), pa.int32())


def rows_of(valid: list[bool]) -> pa.StructArray:
    """Rows whose fields have a value even where the row is null."""
    numbers = pa.array(range(len(valid)), pa.int64())
    mask = pa.array([not flag for flag in valid], pa.bool_())
    return pa.StructArray.from_arrays([numbers], names=["n"], mask=mask)


@pytest.mark.parametrize(
    "valid",
    [
        [],
        [True, True],
        [False, False],
        [False, True, True, False],
        [True, False, True],
        [False, True, False, False, True, True],
    ],
)
def test_only_rows_that_are_not_null_are_left(valid: list[bool]) -> None:
    for start in range(len(valid) + 1):
        left = present_rows(rows_of(valid).slice(start))
        expected = [number for number, flag in enumerate(valid) if flag and number >= start]
        assert left.null_count == 0
        assert left.field("n").to_pylist() == expected

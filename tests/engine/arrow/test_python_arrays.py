"""Arrow values from Python ones against pyarrow's own."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE, STRING_MAP
from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of

VECTOR = {"storageType": "u", "pathOrInlineDv": "é", "offset": 1, "sizeInBytes": None}
LATE = datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone(timedelta(hours=1, seconds=1)))


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), ["a", "", None, "é😀\x00"]),
        (pa.string(), [None, None]),
        (pa.int64(), [1, None, -(1 << 63), (1 << 63) - 1]),
        (pa.int32(), [1, None, -(1 << 31), (1 << 31) - 1]),
        (pa.float64(), [0.5, None]),
        (pa.binary(), [b"a\x00", b"", None]),
        (pa.date32(), [date(2026, 1, 31), None, date.min, date.max]),
        (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999_999), None, datetime.max]),
        (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=timezone.utc), None, LATE]),
        (pa.bool_(), [True, None, False, *[True] * 9]),
        (STRING_MAP, [{"a": "1", "b": None}, None, {}, {"": ""}]),
        (STRING_MAP, [None]),
        (DELETION_VECTOR_TYPE, [VECTOR, None, {}]),
        (pa.list_(pa.string()), [["a", None, ""], None, [], ["é"]]),
        (pa.struct({"of": pa.list_(pa.int64())}), [{"of": [1]}, None, {"of": None}, {"of": []}]),
    ],
)
def test_same_as_pyarrow(type_: pa.DataType, values: list[Any]) -> None:
    for some in (values, values[:1], []):
        array = array_of(some, type_)
        array.validate(full=True)
        assert array.equals(pa.array(some, type_))
    for value in values:
        assert scalar_of(value, type_).equals(pa.scalar(value, type_))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OverflowError, match="too large"):
        array_of([1 << 63], pa.int64())
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        array_of(["\ud800"], pa.string())


def test_texts_are_joined_row_by_row() -> None:
    rows = pa.chunked_array([["a", None], ["", "é"]], pa.string())
    assert joined_text("<", rows, rows, ">").to_pylist() == ["<aa>", None, "<>", "<éé>"]
    assert joined_text(rows.chunk(0), scalar_of("b", pa.string())).to_pylist() == ["ab", None]

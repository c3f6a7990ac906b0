"""Identity columns: PROTOCOL.md, "Identity Columns"."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.identity import IdentityColumn, advance_marks, identity_columns
from airflow_delta.engine.model.schema import LONG, StructField, StructType

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def identity(name: str = "key", **values: Any) -> StructField:
    metadata = {"delta.identity.start": 1, "delta.identity.step": 1}
    return StructField(
        name, LONG, metadata={**metadata, **{f"delta.identity.{k}": v for k, v in values.items()}}
    )


@pytest.mark.parametrize(
    ("start", "step", "mark", "furthest", "expected"),
    [
        (1, 2, None, 8, 9),
        (1, 2, None, 9, 9),
        (1, 2, None, 1, 1),
        (1, 2, 9, 8, 9),
        (1, 2, 9, 10, 11),
        (10, -3, None, 5, 4),
        (10, -3, None, 10, 10),
        (10, -3, 4, 7, 4),
        (10, -3, 4, 3, 1),
        (-5, 10, None, -4, 5),
        # Before the start no value is made: it says nothing, in the column or as the mark.
        (100, 1, None, 99, None),
        (100, 1, 50, 99, 50),
        (100, 1, 50, 200, 200),
        (-1, -1, None, 0, None),
    ],
)
def test_the_mark_lies_on_the_grid_and_no_value_lies_behind_it(
    start: int, step: int, mark: int | None, furthest: int, expected: int | None
) -> None:
    assert IdentityColumn("k", start, step, mark, True).mark_after(furthest) == expected


@pytest.mark.parametrize(("start", "step", "furthest"), [(0, 2, _HIGHEST), (-1, -2, _LOWEST)])
def test_a_mark_beyond_64_bits_is_an_error(start: int, step: int, furthest: int) -> None:
    with pytest.raises(OverflowError):
        IdentityColumn("k", start, step, None, True).mark_after(furthest)


@settings(max_examples=50)
@given(
    start=st.integers(-100, 100),
    step=st.integers(-7, 7).filter(bool),
    values=st.lists(st.integers(-200, 200), min_size=1, max_size=6),
)
def test_whatever_was_inserted_the_next_value_is_new(
    start: int, step: int, values: list[int]
) -> None:
    mark = None
    for value in values:
        column = IdentityColumn("k", start, step, mark, True)
        mark = column.mark_after(value)
    grid = [start + k * step for k in range(1000)]
    following = grid[0] if mark is None else mark + step
    assert following in grid
    assert all(
        abs(following - start) > abs(v - start) for v in values if _is_beyond(v, start, step)
    )
    # The mark is the first possible value that is as far as all values, as in the reference.
    beyond = [abs(v - start) for v in values if _is_beyond(v, start, step)]
    assert mark == (next(g for g in grid if abs(g - start) >= max(beyond)) if beyond else None)


def _is_beyond(value: int, start: int, step: int) -> bool:
    return value >= start if step > 0 else value <= start


def test_columns_are_found_at_the_top_and_marked_there() -> None:
    inner = StructField("s", StructType((identity("inner"),)))
    schema = StructType((StructField("x", LONG), identity(), inner))
    assert identity_columns(schema) == (IdentityColumn("key", 1, 1, None, False),)
    advanced = advance_marks(schema, {"key": 5})
    assert identity_columns(advanced) == (IdentityColumn("key", 1, 1, 5, False),)
    assert (advanced.fields[0], advanced.fields[2]) == (schema.fields[0], inner)


def test_a_schema_whose_marks_stay_is_the_same_object() -> None:
    schema = StructType((identity(highWaterMark=5),))
    assert advance_marks(schema, {"key": 4}) is schema
    assert advance_marks(schema, {}) is schema


@pytest.mark.parametrize("furthest", [{"x": 1}, {"key": True}, {"key": 1.0}, {"key": 2**63}])
def test_only_identity_columns_have_marks(furthest: dict[str, Any]) -> None:
    schema = StructType((StructField("x", LONG), identity()))
    with pytest.raises(InvalidArgumentError, match=r"identity columns, which are \['key'\]"):
        advance_marks(schema, furthest)


@pytest.mark.parametrize(
    "values",
    [
        {"step": 0},
        {"start": "1"},
        {"step": None},
        {"highWaterMark": "4"},
        {"start": 2**63},
        {"allowExplicitInsert": "yes"},
    ],
)
def test_a_column_that_is_described_wrongly_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidTableError, match="identity column 'key' has") as caught:
        identity_columns(StructType((identity(**values),)))
    assert caught.value.column == "key"

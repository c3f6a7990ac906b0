from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta.engine.checkpoint.path_ranges import (
    PathRanges,
    any_within,
    find_ranges,
    parse_ranges,
    ranges_text,
)

DAYS = [f"day={day:02}/part-{n:05}-0123456789abcdef" for day in range(3) for n in range(10, 20)]

# Few characters, among them the first and the last that there are, so that much is shared.
PATHS = st.text(st.sampled_from("\x01/ab\U0010ffff"), max_size=12)


def ranges(paths: list[str]) -> PathRanges | None:
    return find_ranges(pa.chunked_array([pa.array(paths, pa.string())]))


def test_a_range_for_each_directory() -> None:
    found = ranges(DAYS)
    assert found == tuple(
        (f"day={day:02}/part-00010-012345", f"day={day:02}/part-00019-012345") for day in range(3)
    )


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("day=00/part-00009-ffff", False),
        ("day=00/part-00010-0123456789abcdef", True),
        ("day=01/part-00015-ffff", True),
        ("day=01/part-00020-0123", False),  # where the next one of an old directory goes
        ("day=005/part-00015-ffff", False),  # a new directory
        ("day=02/part-00019-0123456789abcdef", True),
        ("day=02/part-00019-0123456789abcdef-more", True),  # wider than it need be, never narrower
        ("e", False),
        ("", False),
    ],
)
def test_what_lies_in_them(path: str, inside: bool) -> None:
    found = ranges(DAYS)
    assert found is not None
    assert any_within(found, [path]) == inside
    assert any_within(found, sorted([path, "", "day=00/z", "z"])) == inside


def test_the_text_says_the_same() -> None:
    found = ranges(DAYS)
    assert found is not None
    assert parse_ranges(ranges_text(found)) == found
    assert parse_ranges("one two three") is None


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["a/1"],
        ["a/1", "a/2"],  # one directory: its range is that of all
        ["b/1", "a/1"],
        ["a/1 2", "b/1"],  # the text couldn't be read back
        [f"{n:04}/{'x' * 30}" for n in range(1000)],
    ],
)
def test_none_where_they_would_tell_nothing_or_too_much(paths: list[str]) -> None:
    assert ranges(paths) is None


@given(st.sets(PATHS, max_size=12), st.sets(PATHS, max_size=4))
def test_no_path_of_the_sidecar_lies_outside(paths: set[str], others: set[str]) -> None:
    found = ranges(sorted(paths))
    if found is None:
        return
    for path in paths:
        assert any_within(found, sorted({path, *others}))
    # And what is told for each directory is no wider than its beginning allows.
    assert list(found) == sorted(found)

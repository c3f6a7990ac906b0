from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_delta.engine.deletion_vectors.read_plan import Extent, plan_reads

KIB = 1024
NEAR, LONGEST = 64 * KIB, 8192 * KIB

PLACES = st.lists(
    st.tuples(
        st.integers(1, 40 * LONGEST) | st.integers(1, 300),
        st.sampled_from([8, 42, NEAR - 1, NEAR, NEAR + 1, LONGEST - 1, LONGEST, 3 * LONGEST]),
    ),
    min_size=1,
    max_size=40,
)


@example([(1, 3 * LONGEST), (LONGEST - 6, 8), (LONGEST + NEAR + 3, 8)])
@given(PLACES)
def test_every_vector_is_read_once_and_little_else(places: list[tuple[int, int]]) -> None:
    extents = [Extent(start, start + size, n) for n, (start, size) in enumerate(places)]
    found = plan_reads(extents)
    assert sorted(e for span in found for e in span.extents) == sorted(extents)
    wanted = {byte for e in extents for byte in (e.start, e.end)}
    for span in found:
        assert all(span.start <= e.start and e.end <= span.end for e in span.extents)
        longest = max((e.end - e.start for e in span.extents), default=1)
        assert span.end - span.start <= max(LONGEST, longest) + NEAR
        assert span.end in wanted or span.end == 1
        covered = span.start + NEAR
        for extent in span.extents:
            assert extent.start <= covered
            covered = max(covered, extent.end + NEAR)
    assert found[0].start == 0


@given(PLACES)
def test_whatever_the_order_in_which_they_are_asked_for(places: list[tuple[int, int]]) -> None:
    extents = [Extent(start, start + size, n) for n, (start, size) in enumerate(places)]
    assert plan_reads(reversed(extents)) == plan_reads(extents)


@pytest.mark.parametrize(
    ("starts", "parts"),
    [
        ([1], [(0, 43)]),
        ([1, 43, 85], [(0, 127)]),
        ([NEAR], [(0, NEAR + 42)]),
        ([NEAR + 1], [(0, 1), (NEAR + 1, NEAR + 43)]),
        ([1, 43 + NEAR], [(0, 85 + NEAR)]),
        ([1, 44 + NEAR], [(0, 43), (44 + NEAR, 86 + NEAR)]),
    ],
)
def test_what_is_read_for_vectors_of_42_bytes(
    starts: list[int], parts: list[tuple[int, int]]
) -> None:
    found = plan_reads([Extent(start, start + 42, n) for n, start in enumerate(starts)])
    assert [(span.start, span.end) for span in found] == parts


def test_a_long_vector_of_several_files_is_read_once() -> None:
    extents = [Extent(1, 10_000 * KIB, n) for n in range(3)]
    assert [span.extents for span in plan_reads(extents)] == [tuple(extents)]


def test_neighbours_are_read_in_parts_of_eight_megabytes() -> None:
    megabyte = 1024 * KIB
    extents = [Extent(1 + n * megabyte, 1 + (n + 1) * megabyte, n) for n in range(20)]
    found = plan_reads(extents)
    assert [len(span.extents) for span in found] == [8, 8, 4]
    assert all(before.end == after.start for before, after in pairwise(found))

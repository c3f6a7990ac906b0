"""Slices and lines: nothing is lost, nothing is cut, and every line knows where it came from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.json import lines as json_lines
from airflow_delta.engine.arrow.json.lines import cut_slices, index_lines
from airflow_delta.engine.errors import CorruptLogError

contents = st.lists(st.text("ab\n\r", min_size=1, max_size=30).map(str.encode), max_size=6)


@given(commits=contents, slice_bytes=st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_all_lines_come_back_with_their_versions(commits: list[bytes], slice_bytes: int) -> None:
    found, positions = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "SLICE_BYTES", slice_bytes)
        for source in cut_slices(enumerate(commits, 7), table="t"):
            lines = index_lines(source)
            found += zip(lines.versions().tolist(), lines.contents(), strict=True)
            positions += lines.positions().tolist()
    expected = [
        (version, line.removesuffix(b"\r"))
        for version, content in enumerate(commits, 7)
        for line in content.split(b"\n")
    ]
    assert [entry for entry in found if entry[1]] == [entry for entry in expected if entry[1]]
    assert positions == sorted(set(positions))


@given(commits=contents, slice_bytes=st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_newest_first_the_same_lines_come_from_the_end(
    commits: list[bytes], slice_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "SLICE_BYTES", slice_bytes)
        newest_first = reversed(list(enumerate(commits, 7)))
        slices = [
            index_lines(source) for source in cut_slices(newest_first, table="t", newest_first=True)
        ]
    found, positions = [], []
    for lines in reversed(slices):
        found += zip(lines.versions().tolist(), lines.contents(), strict=True)
        positions += lines.positions().tolist()
    expected = [
        (version, line.removesuffix(b"\r"))
        for version, content in enumerate(commits, 7)
        for line in content.split(b"\n")
    ]
    assert [entry for entry in found if entry[1]] == [entry for entry in expected if entry[1]]
    assert positions == sorted(set(positions))


def test_newest_first_a_commit_is_cut_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "SLICE_BYTES", 8)
    commits = [(1, b"aaa\nbbb\nccc\nddd\n"), (0, b"e\n"), (-1, b"f\n")]
    slices = list(cut_slices(commits, table="t", newest_first=True))
    texts = [bytes(source.text()) for source in slices]
    assert texts == [b"ccc\nddd\n", b"aaa\nbbb\n", b"f\n\ne\n"]


def test_a_large_commit_is_cut_evenly_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "SLICE_BYTES", 100)
    content = b"123456789\n" * 12
    slices = list(cut_slices([(0, content)], table="t"))
    assert [len(source.text()) for source in slices] == [60, 60]
    assert all(source.text().obj is content for source in slices)


def test_small_commits_share_a_slice() -> None:
    slices = list(cut_slices([(0, b"a"), (1, b"b\n"), (2, b"\xef\xbb\xbfc")], table="t"))
    assert [bytes(source.text()) for source in slices] == [b"a\nb\n\nc"]


def test_joined_lines_are_the_chosen_ones() -> None:
    (source,) = cut_slices([(0, b"a\r\nb\nc\nd\ne")], table="t")
    lines = index_lines(source)
    assert bytes(lines.join()) == b"a\r\nb\nc\nd\ne"
    assert bytes(lines.pick([1, 2]).join()) == b"b\nc"
    assert bytes(lines.pick([0, 2, 3]).join()) == b"a\nc\nd"
    assert [len(part) for part in lines.split(2)] == [3, 2]


def test_prefix_and_end_of_lines() -> None:
    (source,) = cut_slices([(0, b"abc}\nab\nabd}\r\nxab}")], table="t")
    lines = index_lines(source)
    assert lines.start_with(b"ab").tolist() == [True, False, True, False]
    assert lines.end_with(ord("}")).tolist() == [True, False, True, True]


def test_the_error_names_file_line_and_content() -> None:
    sources = cut_slices([(3, b"x\ny\n"), (4, b"\xef\xbb\xbfu\n\nv" + b"w" * 99)], table="t")
    lines = index_lines(next(sources))
    error = lines.corrupt(len(lines) - 1, "wrong")
    assert isinstance(error, CorruptLogError)
    assert (error.version, error.line, error.table) == (4, 3, "t")
    expected = f"t: _delta_log/00000000000000000004.json, line 3: wrong; found: 'v{'w' * 79}';"
    assert str(error).startswith(expected)

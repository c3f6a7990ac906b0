"""The search for non-file actions against the parsing of whole commits."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.json.non_file_actions import find_non_file_actions
from airflow_delta.engine.arrow.json.reader import parse_commits
from airflow_delta.engine.errors import CorruptLogError

KINDS = ("protocol", "metaData", "txn", "domainMetadata")

LINES = [
    '{"add":{"path":"a"}}',
    '{"add":{"path":"p","partitionValues":{"protocol":"x"}}}',
    '{"remove":{"path":"\\u00e9","stats":"{\\"txn\\":1}"}}',
    ' { "add" : {"path":"b"} }',
    '{"txn":{"appId":"a","version":1}}',
    '{ "metaData" : {"id":"m"}}\r',
    '{"pr\\u006ftocol":{"minReaderVersion":1}}',
    '{"domainMetadata":{"domain":"d"},"add":null}',
    '{"commitInfo":{"operation":"protocol"}}',
    '{"protocol":null}',
    '{"add":null,"metaD\\u0061ta":{"id":"n"}}',
    '{"novel":{"metaData":1}}',
    "",
    "  ",
]


@given(commits=st.lists(st.lists(st.sampled_from(LINES), max_size=5), min_size=1, max_size=4))
@example(commits=[[line] for line in LINES])
@example(commits=[LINES])
@settings(max_examples=50, deadline=None)
def test_the_same_actions_as_by_parsing_everything(commits: list[list[str]]) -> None:
    contents = [(v, "\n".join([*lines, ""]).encode() or b"\n") for v, lines in enumerate(commits)]
    found = find_non_file_actions(contents, kinds=KINDS, table="t")
    parsed = parse_commits(contents, kinds=KINDS, table="t").non_file_actions
    assert [(a.version, a.kind, a.value) for a in found] == [
        (a.version, a.kind, a.value) for a in parsed
    ]


@pytest.mark.parametrize(
    "line",
    [
        '{"add":{"path":"a"},"metaData":{"id":"m"}}',
        '{"commitInfo":{}} {"protocol":{"minReaderVersion":1}}',
        '{"protocol":{"minReaderVersion":1}',
        '{"protocol":[]}',
    ],
)
def test_a_broken_line_that_may_hold_one_is_refused_by_its_place(line: str) -> None:
    content = '{"add":{"path":"a"}}\n' + line + "\n"
    with pytest.raises(CorruptLogError, match=r"00000000000000000004\.json, line 2"):
        find_non_file_actions([(3, b"{}\n"), (4, content.encode())], kinds=KINDS, table="t")


def test_an_empty_commit_is_refused() -> None:
    with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json is empty"):
        find_non_file_actions([(0, b"{}"), (1, b"")], kinds=KINDS, table="t")


def test_lines_of_files_and_commits_without_a_name_are_not_looked_into() -> None:
    metadata = json.dumps({"metaData": {"id": "m"}})
    contents = [(0, b"{broken"), (1, f'{{"add":{{broken\n{metadata}'.encode())]
    (action,) = find_non_file_actions(contents, kinds=KINDS, table="t")
    assert (action.version, action.kind, action.value) == (1, "metaData", {"id": "m"})


@pytest.mark.parametrize("content", [b"", b'{"protocol":[]}'])
@pytest.mark.parametrize("read", [find_non_file_actions, parse_commits])
def test_a_file_without_the_name_of_a_commit_is_named_as_it_is(
    read: Callable[..., object], content: bytes
) -> None:
    with pytest.raises(CorruptLogError, match="of-its-own") as caught:
        read([(3, b"{}"), (4, content)], kinds=KINDS, table="t", paths={4: "of-its-own.json"})
    assert (caught.value.path, caught.value.version) == ("of-its-own.json", 4)
    assert "00000004.json" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b'\xef\xbb\xbf{"txn":{"appId":"a","version":1}}',
        b'\xef\xbb\xbf{"add":{"path":"txn"}}\r\n{"txn":{"appId":"a","version":1}}\r\n',
        b'\n\r\n{"txn":{"appId":"a","version":1}}\n{"remove":{"path":"\\"txn\\""}}',
        b'{"add":{"path":"x","tags":{"txn":"txn"}}}\n\n{"txn":{"appId":"a","version":1}}',
    ],
)
def test_marks_and_line_ends_are_no_part_of_a_line(content: bytes) -> None:
    (action,) = find_non_file_actions([(0, content)], kinds=KINDS, table="t")
    (parsed,) = parse_commits([(0, content)], kinds=KINDS, table="t").non_file_actions
    assert (action.kind, action.value) == (parsed.kind, parsed.value)
    assert action.value == {"appId": "a", "version": 1}


def test_a_file_action_cut_off_after_its_name_is_looked_into() -> None:
    with pytest.raises(CorruptLogError, match=r"line 2: not valid JSON.*found: '\{\"add\":'"):
        find_non_file_actions([(0, b'{"txn":null}\n{"add":\n')], kinds=KINDS, table="t")


def test_positions_ascend_with_the_log() -> None:
    txn = b'{"txn":{"appId":"a","version":1}}\n'
    contents = [(0, txn + txn), (1, b'{"add":{"path":"p"}}\n'), (2, txn)]
    positions = [a.position for a in find_non_file_actions(contents, kinds=KINDS, table="t")]
    assert positions == sorted(set(positions))

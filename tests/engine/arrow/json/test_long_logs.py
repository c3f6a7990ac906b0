"""Finding non-file actions in a long log, compared with parsing whole commits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.json import lines as json_lines
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
    '{"add":null,"domainMetadata":{"domain":"d"}}',
    '{"commitInfo":{"operation":"protocol"}}',
    '{"commitInfo":null,"protocol":{"minReaderVersion":1}}',
    '{"cdc":{"path":"c"}}',
    '{"protocol":null}',
    '{"novel":{"metaData":1}}',
    "",
    "  ",
]


@given(
    commits=st.lists(st.lists(st.sampled_from(LINES), max_size=5), min_size=1, max_size=4),
    kinds=st.sampled_from([KINDS, ("txn",), ("commitInfo", "txn")]),
    slice_bytes=st.integers(1, 300),
)
@settings(max_examples=50, deadline=None)
def test_the_same_actions_as_by_parsing_everything(
    commits: list[list[str]], kinds: tuple[str, ...], slice_bytes: int
) -> None:
    contents = [(v, "\n".join([*lines, ""]).encode() or b"\n") for v, lines in enumerate(commits)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "SLICE_BYTES", slice_bytes)
        found = find_non_file_actions(iter(contents), kinds=kinds, table="t", is_long=True)
        assert found == parse_commits(contents, kinds=kinds, table="t").non_file_actions


@pytest.mark.parametrize(
    "line",
    [
        '{"commitInfo":{}} {"protocol":{"minReaderVersion":1}}',
        '{"protocol":{"minReaderVersion":1}',
        '{"protocol":[]}',
        '{"txn":{"appId":"a"},"metaData":{"id":"m"}}',
        "add",
    ],
)
def test_a_broken_line_that_may_hold_one_is_refused_by_its_place(line: str) -> None:
    content = '{"add":{"path":"a"}}\n' + line + "\n"
    kinds = (*KINDS, "commitInfo")
    with pytest.raises(CorruptLogError, match=r"00000000000000000004\.json, line 2"):
        find_non_file_actions(
            [(3, b"{}\n"), (4, content.encode())], kinds=kinds, table="t", is_long=True
        )


def test_lines_that_begin_like_files_are_not_looked_into() -> None:
    content = b'{"add":{broken\n{"remove":{"path"\n{"txn":{"appId":"a","version":1}}'
    (action,) = find_non_file_actions([(1, content)], kinds=KINDS, table="t", is_long=True)
    assert (action.version, action.kind) == (1, "txn")


def test_a_file_without_the_name_of_a_commit_is_named_as_it_is() -> None:
    with pytest.raises(CorruptLogError, match="of-its-own"):
        find_non_file_actions(
            [(4, b'{"protocol":[]}')],
            kinds=KINDS,
            table="t",
            is_long=True,
            paths={4: "of-its-own.json"},
        )

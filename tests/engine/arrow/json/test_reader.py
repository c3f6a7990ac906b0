"""`parse_commits` against an oracle: Python's `json.loads` of every line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS, REMOVE_FIELDS
from airflow_delta.engine.arrow.json import lines as json_lines
from airflow_delta.engine.arrow.json import reader as json_actions
from airflow_delta.engine.arrow.json.reader import ParsedCommits, parse_commits, stream_commits
from airflow_delta.engine.errors import CorruptLogError, InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

FIELDS = {"add": ADD_FIELDS, "remove": REMOVE_FIELDS}
SMALL = ("protocol", "metaData", "txn", "domainMetadata", "commitInfo", "cdc")
ADD = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true}}'

VECTOR = '{"add":{"path":"a","deletionVector":{"storageType":"u","pathOrInlineDv":"x","offset":1}}}'


def parse(*commits: str | bytes, columns: list[str] | None = None) -> ParsedCommits:
    content = [data.encode() if isinstance(data, str) else data for data in commits]
    return parse_commits(list(enumerate(content)), columns=columns, table="s3://b/t")


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {name: dict(value) if isinstance(value, list) else value for name, value in row.items()}
        for row in table.to_pylist()
    ]


def in_log_order(parsed: ParsedCommits) -> list[tuple[str, int, dict[str, Any]]]:
    """All actions as (kind, version, fields), sorted by the position that the parser gave them."""
    found = [
        (action.position, action.kind, action.version, action.value)
        for action in parsed.non_file_actions
    ]
    for kind, table in (("add", parsed.files.adds), ("remove", parsed.files.removes)):
        positions = table.column("position").to_pylist()
        assert positions == sorted(positions)
        for row in rows(table):
            found.append((row.pop("position"), kind, row.pop("version"), row))
    assert len({position for position, *_ in found}) == len(found)
    return [entry[1:] for entry in sorted(found, key=lambda entry: entry[0])]


def oracle(*commits: str) -> list[tuple[str, int, dict[str, Any]]]:
    """The same from `json.loads`: what the protocol says, a line at a time."""
    found = []
    for version, content in enumerate(commits):
        for line in content.split("\n"):
            entry = json.loads(line) if line.strip() else {}
            for kind, value in entry.items():
                if value is not None and kind in FIELDS:
                    found.append((kind, version, dict.fromkeys(FIELDS[kind])))
                    found[-1][2].update(
                        {name: fit(item) for name, item in value.items() if name in FIELDS[kind]}
                    )
                elif value is not None and kind in SMALL:
                    found.append((kind, version, value))
    return found


def fit(value: Any) -> Any:
    """A deletion vector with all its fields; anything else as it is."""
    if isinstance(value, dict) and "storageType" in value:
        names = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
        return {name: value.get(name) for name in (*names, "maxRowIndex")}
    return value


def assert_same(*commits: str) -> None:
    assert in_log_order(parse(*commits)) == oracle(*commits)


def action(kind: str, path: str, **fields: Any) -> str:
    return json.dumps({kind: {"path": path, **fields}}, separators=(",", ":"))


def lines(items: Iterable[str]) -> str:
    return "".join(f"{item}\n" for item in items)


def test_every_field_of_every_action() -> None:
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    shared = {"size": 5, "dataChange": False, "tags": {"T": "1", "U": "2"}, "stats": '{"a":1}'}
    first = lines(
        [
            '{"commitInfo":{"timestamp":5,"operation":"WRITE"}}',
            '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}',
            '{"metaData":{"id":"x","partitionColumns":["p","q"]}}',
            action("add", "b", partitionValues={"p": "1", "q": None}, **shared),
            action("add", "c", partitionValues={"p": "2", "q": "é😀"}, deletionVector=vector),
            '{"txn":{"appId":"a","version":1}}',
            action("add", "d", modificationTime=7, baseRowId=8, defaultRowCommitVersion=9),
        ]
    )
    second = lines(
        [
            action("remove", "b", deletionTimestamp=9, extendedFileMetadata=True, **shared),
            action("remove", "c", partitionValues={"p": "2"}, deletionVector=vector),
            action("add", "c", clusteringProvider="liquid", partitionValues={}),
            '{"domainMetadata":{"domain":"d","configuration":"","removed":true}}',
            '{"cdc":{"path":"_change_data/x","size":1}}',
        ]
    )
    assert_same(first, second)


def test_a_null_in_one_map_says_nothing_of_the_key_in_another() -> None:
    assert_same(
        lines(
            [
                action("remove", "a", tags={}, partitionValues={"p": None, "q": ""}),
                action("remove", "b", tags={"p": ""}),
            ]
        )
    )


def test_nothing_at_all() -> None:
    parsed = parse_commits([], table="t")
    assert parsed.files.adds.schema.names == [*ADD_FIELDS, "version", "position"]
    assert parsed.files.removes.schema.names == [*REMOVE_FIELDS, "version", "position"]
    assert (parsed.files.adds.num_rows, parsed.files.removes.num_rows) == (0, 0)
    assert parsed.non_file_actions == ()


def test_columns_keep_what_identifies_a_file() -> None:
    content = lines([action("add", "a", size=1, stats="s"), action("remove", "b", size=2)])
    parsed = parse(content, columns=["size", "modificationTime"])
    assert parsed.files.adds.column_names == [
        "path", "size", "modificationTime", "deletionVector", "version", "position"
    ]  # fmt: skip
    assert parsed.files.removes.column_names == [
        "path", "size", "deletionVector", "version", "position"
    ]  # fmt: skip
    assert parsed.files.adds.column("size").to_pylist() == [1]


def test_other_actions_are_kept_by_kind() -> None:
    content = lines(['{"commitInfo":{"a":1}}', '{"txn":{"appId":"a","version":1}}', ADD])
    parsed = parse_commits([(4, content.encode())], kinds=["txn"], table="t")
    assert [(one.kind, one.version) for one in parsed.non_file_actions] == [("txn", 4)]
    with pytest.raises(CorruptLogError, match="line 1: not valid JSON"):
        parse_commits([(4, b'{"commitInfo":}')], kinds=["txn"], table="t")


def test_unknown_column_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no such column of file actions: sise"):
        parse(ADD, columns=["sise"])


@pytest.mark.parametrize(
    "content",
    [
        ADD,
        "\ufeff" + ADD + "\n",
        ADD + "\r\n" + ADD + "\r\n",
        "\n\n" + ADD + "\n\r\n  \n" + ADD + "\n\n",
        "\n",
        "{}\n" + ADD + "\n{}",
        ' { "add" : {"path" : "a" , "size" : 3 } } ',
        '{"add": {"path": "a", "partitionValues": {"p": null}, "tags": {"t": null}}}',
        '{"add":null}\n{"remove":null}\n' + ADD,
        '{"add":null,"protocol":{"minReaderVersion":1}}',
        '{"add":null,"remove":{"path":"r"}}',
        '{"remove":{"path":"r"},"add":null}',
        '{"somethingNew":{"path":"x"}}\n{"add":{"path":"a"},"somethingNew":1}',
        '{"sidecar":{"path":"x"}}\n{"checkpointMetadata":{"version":1}}',
        '{"add":{"path":"a","novel":1}}\n{"add":{"path":"a","novel":"x","other":{"y":[1]}}}',
        '{"add":{"path":"a","path":"b","size":1,"size":2}}',
        '{"add":{"path":"a","partitionValues":{"p":"1","p":"2"}}}',
        '{"add":{"path":"x"},"add":{"path":"y"}}',
        '{"add":{"path":"a","size":5.0,"modificationTime":1e3}}',
        '{"add":{"path":"a","size":9223372036854775807,"baseRowId":-9223372036854775808}}',
        '{"add":{"path":"\\u0061\\/\\"\\\\\\n\\ud83d\\ude00\\u0000"}}',
        '{"add":{"p\\u0061th":"a"}}',
        '{"\\u0061dd":{"path":"a"}}',
        '{"add":{"path":"a","stats":"{\\"nullCount\\":null,\\"p\\":null}"}}',
        '{"add":{"path":"a","partitionValues":null,"tags":null,"deletionVector":null}}',
        '{"add":{"path":"a","tags":{}}}\n{"add":{"path":"b","tags":{"":"e","é":"x"}}}',
        '{"add":{"path":"a","partitionValues":{"d":"2020-01-01 00:00:00","n":"1"}}}',
        '{"add":{"path":"a","deletionVector":{"storageType":"i","pathOrInlineDv":"x","new":1}}}',
    ],
)
def test_unusual_but_right(content: str) -> None:
    parsed = in_log_order(parse(content))
    assert parsed == oracle(content.removeprefix("\ufeff"))
    among_others = "\n".join([content.removeprefix("\ufeff"), *[ADD] * 300])
    assert in_log_order(parse(ADD, among_others)) == oracle(ADD, among_others)


def test_numbers_and_booleans_in_maps_become_strings() -> None:
    parsed = parse('{"add":{"path":"a","partitionValues":{"i":1,"b":true,"f":1.5,"s":"x"}}}')
    assert rows(parsed.files.adds)[0]["partitionValues"] == {
        "i": "1", "b": "true", "f": "1.5", "s": "x"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"add":{"path":"a"}', "not valid JSON: Expecting ',' delimiter at character 19"),
        ('{"add":{"path":"a"}}{"add":{"path":"b"}}', "not valid JSON: Extra data"),
        ('{"add":{"path":"a"}} x', "not valid JSON: Extra data"),
        ('{"add":{"path":"a","size":NaN}}', "NaN is not a JSON value"),
        ('{"add":{"path":"a","size":01}}', "not valid JSON"),
        ('{"add":{"path":"a\x01"}}', "not valid JSON: Invalid control character"),
        ("null", "expected a JSON object with one action, got null"),
        ("[1]", r"expected a JSON object with one action, got \[1\]"),
        ('{"add":5}', "add: expected a JSON object, got 5"),
        ('{"txn":"x"}', 'txn: expected a JSON object, got "x"'),
        ('{"add":{"path":"a"},"remove":{"path":"b"}}', "one action in a line, got add and remove"),
        ('{"add":{"path":"a"},"protocol":{}}', "one action in a line, got add and protocol"),
        ('{"add":{"size":1}}', "add.path: expected a string, got nothing"),
        ('{"remove":{"path":null}}', "remove.path: expected a string, got nothing"),
        ('{"add":{"path":5}}', "add.path: expected a string, got 5"),
        ('{"add":{"path":"\\ud800"}}', "add.path: expected Unicode text, got a lone surrogate"),
        ('{"add":{"path":"a","stats":{"x":1}}}', "add.stats: expected a string, got "),
        ('{"add":{"path":"a","size":"5"}}', 'add.size: expected an integer of 64 bits, got "5"'),
        ('{"add":{"path":"a","size":5.5}}', "add.size: expected an integer of 64 bits, got 5.5"),
        ('{"add":{"path":"a","size":true}}', "add.size: expected an integer"),
        ('{"add":{"path":"a","size":9223372036854775808}}', "add.size: expected an integer"),
        ('{"add":{"path":"a","size":1e300}}', "add.size: expected an integer"),
        ('{"add":{"path":"a","size":' + "9" * 5000 + "}}", "not valid JSON: Exceeds the limit"),
        ('{"add":{"path":"a","dataChange":1}}', "add.dataChange: expected true or false, got 1"),
        ('{"add":{"path":"a","tags":[]}}', r"add.tags: expected a JSON object, got \[\]"),
        ('{"add":{"path":"a","tags":{"k":{}}}}', r"add.tags.k: expected a string, got {}"),
        ('{"add":{"path":"a","deletionVector":{}}}', "add.deletionVector.storageType: expected a"),
        (
            VECTOR.replace("1}", "2147483648}"),
            "add.deletionVector.offset: expected an integer of 32 bits",
        ),
        ('{"add":{"path":"a","x":' + "[" * 99999 + "]" * 99999 + "}}", "nested too deeply"),
        ('{"add":{"partitionValues":\n{"add":"x"}}}', "not valid JSON"),
        ('{"add":{"path":"a"}}\x00', "not valid JSON: Extra data"),
    ],
)
@pytest.mark.parametrize("around", [0, 300])
def test_broken_lines_say_where_and_what(line: str, reason: str, around: int) -> None:
    content = lines([*[ADD] * around, line, *[ADD] * around])
    with pytest.raises(CorruptLogError, match=reason) as caught:
        parse(ADD, content)
    error = caught.value
    assert (error.version, error.line) == (1, around + 1)
    assert error.path == "_delta_log/00000000000000000001.json"
    assert str(error).startswith(f"s3://b/t: {error.path}, line {around + 1}: ")
    assert repr(line.split("\n")[0][:80]) in str(error)


def test_two_objects_on_a_line_are_not_balanced_by_one_over_two_lines() -> None:
    twice, halves = '{"add":{"path":"a"}}{"add":{"path":"b"}}', '{"add":{"tags":\n{"add":"x"}}}'
    with pytest.raises(CorruptLogError, match=r"line [12]: not valid JSON"):
        parse(lines([twice, halves]))


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf"])
def test_bytes_that_are_not_utf8(bad: bytes) -> None:
    content = b'%b\n{"add":{"path":"a%b"}}\n' % (ADD.encode(), bad)
    with pytest.raises(CorruptLogError, match="line 2: expected UTF-8, got byte 0x"):
        parse(content)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_empty_commit_is_incomplete(content: bytes) -> None:
    with pytest.raises(
        CorruptLogError, match=r"incomplete commit: .*0002\.json is empty"
    ) as caught:
        parse(ADD, ADD, content)
    assert (caught.value.version, caught.value.path[-6:]) == (2, "2.json")


def test_columns_not_asked_for_are_not_checked() -> None:
    content = '{"add":{"path":"a","size":"not a number","stats":"\\ud800"}}'
    assert parse(content, columns=["dataChange"]).files.adds.num_rows == 1


def test_line_numbers_in_later_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "SLICE_BYTES", 1000)
    content = lines([*[ADD] * 500, '{"add":{}}', ADD])
    with pytest.raises(CorruptLogError, match=r"line 501: add\.path") as caught:
        parse(ADD, content)
    assert (caught.value.version, caught.value.line) == (1, 501)


def test_keys_of_maps_change_within_and_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "SLICE_BYTES", 2000)
    texts = []
    for version in range(6):
        keys = [("p",), ("p", "q"), ("q",), ()][version % 4]
        texts.append(
            lines(
                action(
                    "add",
                    f"{version}-{number}",
                    partitionValues=dict.fromkeys(keys, "v" if number % 3 else None),
                    tags={f"t{number % 7}": "x"},
                )
                for number in range(100)
            )
        )
    assert_same(*texts)


def test_maps_whose_keys_never_end() -> None:
    assert_same(lines(action("add", f"f{n}", tags={f"key{n}": str(n)}) for n in range(600)))


def test_many_tiny_commits_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = json_actions.read_columns

    def counted(*args: Any, **named: Any) -> Any:
        calls.append(named["rows"])
        return original(*args, **named)

    monkeypatch.setattr(json_actions, "read_columns", counted)
    commits = [f'{{"txn":{{"appId":"a","version":{n}}}}}\n{ADD}' for n in range(500)]
    assert_same(*commits)
    assert 500 in calls
    assert len(calls) <= 2


def test_one_odd_line_does_not_slow_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = []
    original = json_actions.read_line

    def counted(content: bytes) -> Any:
        exact.append(content)
        return original(content)

    monkeypatch.setattr(json_actions, "read_line", counted)
    content = lines([*[ADD] * 5000, '{"add":{"path":"a","path":"b"}}', *[ADD] * 5000])
    assert_same(content)
    assert len(exact) < 1000


def test_an_iterator_is_drawn_as_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "SLICE_BYTES", 100)
    drawn = []

    def commits() -> Iterable[tuple[int, bytes]]:
        for version in range(1000):
            drawn.append(version)
            yield version, b"{" if version == 3 else ADD.encode()

    with pytest.raises(CorruptLogError, match=r"0003\.json, line 1"):
        parse_commits(commits(), table="t")
    assert len(drawn) < 200


def test_pandas_is_not_imported() -> None:
    code = """
import sys
from airflow_delta.engine.arrow.json.reader import parse_commits
commit = b'{"add":{"path":"a","tags":{"a":"1","b":null}}}\\n{"remove":{"path":"a","size":5.0}}'
parsed = parse_commits([(version, commit) for version in range(9)], table="t")
print(parsed.files.adds.num_rows, parsed.files.removes.num_rows, "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("9 9 False\n", "")


texts = st.text(st.characters(codec="utf-8"), max_size=6)
maps = st.dictionaries(st.sampled_from(["p", "q", "é", 'w"x', ""]), texts | st.none(), max_size=3)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
fields = {
    "partitionValues": maps | st.none(),
    "tags": maps,
    "size": longs | st.none(),
    "dataChange": st.booleans(),
    "stats": texts | st.just('{"numRecords":1,"nullCount":{"p":null}}'),
    "deletionVector": st.none()
    | st.fixed_dictionaries(
        {"storageType": st.sampled_from("upi"), "pathOrInlineDv": texts},
        optional={"offset": st.integers(0, 1 << 30), "cardinality": longs},
    ),
    "unknown": st.integers() | texts | maps,
}
file_actions = st.builds(
    lambda kind, path, rest: {kind: {"path": path, **rest}},
    st.sampled_from(["add", "remove"]),
    texts,
    st.fixed_dictionaries({}, optional=fields),
)
others = st.sampled_from(
    [{}, {"add": None}, {"txn": {"appId": "a", "version": 1}}, {"new": 1}, {"commitInfo": {}}]
)
layouts = st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")])
commits = st.lists(
    st.lists(st.tuples(file_actions | others, layouts, st.booleans()), min_size=1, max_size=12),
    min_size=1,
    max_size=4,
)


@given(commits=commits, slice_bytes=st.sampled_from([64, 1000, 1 << 22]))
@settings(max_examples=50, deadline=None)
def test_any_log_reads_as_json_loads_reads_it(
    commits: list[list[tuple[dict[str, Any], tuple[str, str], bool]]], slice_bytes: int
) -> None:
    contents = [
        lines(
            json.dumps(entry, separators=layout, ensure_ascii=ascii_only)
            for entry, layout, ascii_only in commit
        )
        for commit in commits
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "SLICE_BYTES", slice_bytes)
        assert_same(*contents)


def outcome(content: bytes) -> object:
    """What becomes of a commit: its actions, or where it is broken."""
    try:
        return in_log_order(parse(content))
    except CorruptLogError as error:
        return "corrupt", error.path


damage = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from(list(b'{}[]",:\\\n\r \x00\xff\xc35n-'))),
    min_size=1,
    max_size=2,
)


@given(positions=damage, inserted=st.booleans())
@settings(max_examples=50, deadline=None)
def test_damage_is_seen_by_the_fast_reader_too(
    positions: list[tuple[int, int]], inserted: bool
) -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1}
    whole = lines(
        [
            action("add", "a", partitionValues={"p": "1"}, size=5, dataChange=True, stats="{}"),
            action("add", "b", partitionValues={"p": None}, size=6, deletionVector=vector),
            action("remove", "c", deletionTimestamp=1, tags={"t": "x"}),
        ]
    )
    damaged = bytearray(whole.encode())
    for position, byte in positions:
        at = position % len(damaged)
        damaged[at : at if inserted else at + 1] = bytes([byte])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_actions, "read_columns", lambda *_, **__: None)
        line_by_line = outcome(bytes(damaged))
    assert outcome(bytes(damaged)) == line_by_line


@pytest.mark.parametrize("slice_bytes", [1, 150, 1 << 20])
def test_a_stream_tells_the_same_from_the_newest_end(
    monkeypatch: pytest.MonkeyPatch, slice_bytes: int
) -> None:
    monkeypatch.setattr(json_lines, "SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(json_lines, "_ALONE_BYTES", slice_bytes)
    remove = '{"remove":{"path":"a","dataChange":true}}'
    txn = '{"txn":{"appId":"a","version":1}}'
    commits = [f"{ADD}\n{txn}\n{remove}\n{ADD}\n", f"{VECTOR}\n\n{remove}", txn]
    contents = [(version, content.encode()) for version, content in enumerate(commits)]
    stream = stream_commits(reversed(contents), lambda part: part, kinds=("txn",), table="t")
    parts = [in_log_order(part) for part in stream]
    assert [entry for part in reversed(parts) for entry in part] == oracle(*commits)
    assert (len(parts) > 1) == (slice_bytes < 1 << 20)


def test_a_stream_forgets_what_was_not_asked_for() -> None:
    (part,) = stream_commits([(0, f'{{"txn":{{}}}}\n{ADD}'.encode())], lambda p: p, table="t")
    assert part.non_file_actions == ()


def test_an_error_in_a_stream_comes_in_its_turn() -> None:
    contents = [(2, ADD.encode()), (1, b"{broken"), (0, ADD.encode())]
    with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json, line 1"):
        list(stream_commits(contents, lambda part: part, table="t"))


@pytest.mark.parametrize("number", [3, 20_000])
@pytest.mark.parametrize(
    "filler", ["{}", '{"x":1}', '{"later":"ready"}\r', '{"x":null}', '{"addition":true}']
)
def test_lines_without_an_action_are_passed_over_and_others_among_them_are_not(
    filler: str, number: int
) -> None:
    lines = [filler] * number
    lines[1:1] = [
        '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}'
    ]
    lines.append('{"txn":{"appId":"x","version":1}}')
    content = "\n".join(lines).encode()
    parsed = json_actions.parse_commits([(0, content)], table="t", kinds={"txn"})
    assert parsed.files.adds["path"].to_pylist() == ["a"]
    assert [action.value["appId"] for action in parsed.non_file_actions] == ["x"]
    for broken in (
        '{"x":1}}',
        '{"x":01}',
        '{"add":1}',
        '{"x":"\x01"}',
        "{,}",
        '{"x":1,}',
        '{"x" 1}',
    ):
        text = content.replace(b'{"txn"', broken.encode() + b'\n{"txn"')
        with pytest.raises(CorruptLogError, match=f"line {number + 2}:"):
            json_actions.parse_commits([(0, text)], table="t", kinds={"txn"})

"""Hostile values in the files of a log: numbers, types, nesting, duplicates, in JSON and in Parquet."""

from __future__ import annotations

import copy
import io
import json
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.attacks.fuzz.hostile import Raw, dumps, hostile_number, hostile_path, hostile_value
from tests.attacks.fuzz.world import Trust, World, mutation
from tests.table_builder import ACTION_KINDS, parquet

Place = tuple[Any, Any]
"""A container and the key or index of a value in it."""

_HINTS = ("_last_checkpoint", ".crc")
_MOST_BYTES = 100_000_000
"""Of repeated lines: a line may be as long as `bombs.a_large_text` makes it."""


def _json_file(world: World, rng: random.Random) -> str | None:
    """A file of JSON of the log; hints come as often as all others."""
    hints = world.log_files(*_HINTS)
    others = world.log_files(".json")
    groups = [group for group in (hints, others, others) if group]
    return rng.choice(rng.choice(groups)) if groups else None


def _known(world: World, path: str) -> None:
    """A hint may be wrong in any way; of anything else nothing is known then."""
    if not path.endswith(_HINTS):
        world.trust = Trust.OPEN


def places_of(value: Any) -> list[Place]:
    """Where the values are in a JSON value, all the way down."""
    found: list[Place] = []
    pending = [value]
    while pending:
        current = pending.pop()
        keys: Any = range(len(current)) if isinstance(current, list) else list(current)
        for key in keys:
            found.append((current, key))
            if isinstance(current[key], dict | list):
                pending.append(current[key])
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _change(world: World, container: Any, key: Any, rng: random.Random, *, number: bool) -> str:
    old = container[key]
    if isinstance(old, str) and old[:1] == "{" and rng.random() < 0.8:
        try:
            inner = json.loads(old)
        except (ValueError, RecursionError):
            inner = {}
        if places := places_of(inner):
            said = _change(world, *rng.choice(places), rng, number=number)
            container[key] = dumps(inner).decode()
            return f"in {key} {said}"
    container[key] = hostile_number(rng) if number else hostile_value(world.places, old, rng)
    return f"{key}: {str(old)[:40]} -> {str(container[key])[:80]!r}"


def _edit(world: World, rng: random.Random, *, number: bool) -> str | None:
    path = _json_file(world, rng)
    lines = path and world.json_lines(path)
    if not path or not lines:
        return None
    line = rng.randrange(len(lines))
    places = places_of(lines[line]) if isinstance(lines[line], dict | list) else []
    if number:
        embedded = [(c, k) for c, k in places if isinstance(c[k], str) and c[k][:1] == "{"]
        places = [(c, k) for c, k in places if _is_number(c[k])] + embedded
    if not places:
        return None
    _known(world, path)
    said = _change(world, *rng.choice(places), rng, number=number)
    world.put(path, b"\n".join(map(dumps, lines)) + b"\n")
    return f"{path} line {line} {said}"


@mutation(2, weight=10, trust=Trust.EXACT)
def a_number(world: World, rng: random.Random) -> str | None:
    """A number that is none, or a large one."""
    return _edit(world, rng, number=True)


@mutation(2, weight=8, trust=Trust.EXACT)
def a_value(world: World, rng: random.Random) -> str | None:
    """Any value, of the wrong type or hostile."""
    return _edit(world, rng, number=False)


_LINES = (b"[]", b"5", b'"x"', b"null", b"true", b"{}", b"NaN", b"{}{}", b"{", b"}", b"\0", b"\xff\xfe",
          b'{"add":null}', b'{"add":[]}', b'{"add":"x"}', b'{"add":{}}', b'{"metaData":5}', b'{"":{}}',
          b'{"protocol":{"minReaderVersion":1}}', b'{"add":{"path":null}}', b'{"commitInfo":[]}',
          b'{"txn":{}}', b'{"domainMetadata":[]}', b'{"sidecar":{}}', b'{"checkpointMetadata":{}}',
          b'{"add":{"path":"a"},"remove":{"path":"a"}}', b'{"remove":{"path":5}}', b'{"cdc":{}}',
          b'\xef\xbb\xbf{}', b'// comment', b'{"add":{"path":"a",}}', b"{'add':{}}")  # fmt: skip


@mutation(2, weight=2, trust=Trust.EXACT)
def a_whole_line(world: World, rng: random.Random) -> str | None:
    """A line that isn't an object, or not the right one."""
    path = _json_file(world, rng)
    if path is None:
        return None
    _known(world, path)
    new = rng.choice(_LINES)
    lines = world.content(path).splitlines()
    if lines and rng.random() < 0.4:
        lines[rng.randrange(len(lines))] = new
    else:
        lines.insert(rng.randrange(len(lines) + 1), new)
    world.put(path, b"\n".join(lines) + b"\n")
    return f"{path} {new!r}"


@mutation(2, weight=3, trust=Trust.EXACT)
def duplicate_keys(world: World, rng: random.Random) -> str | None:
    """An object that has one key twice: which one counts?"""
    path = _json_file(world, rng)
    lines = path and world.content(path).splitlines()
    if not path or not lines:
        return None
    _known(world, path)
    number = rng.randrange(len(lines))
    line = lines[number]
    key, value = rng.choice(
        ((b"path", b'"/etc/passwd"'), (b"size", b"-5"), (b"version", b"99"), (b"add", b"{}"),
         (b"add",
             b'{"path":"second","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}'),
         (b"metaData", b"null"), (b"dataChange", b"false"), (b"minReaderVersion", b"99"))
    )  # fmt: skip
    at = line.find(b"{", rng.randrange(len(line) or 1)) + 1
    if rng.random() < 0.5 or at == 0:
        at = line.find(b"{") + 1
    glue = b"" if line[at : at + 1] == b"}" else b","
    lines[number] = line[:at] + b'"' + key + b'":' + value + glue + line[at:]
    world.put(path, b"\n".join(lines) + b"\n")
    return f"{path} line {number} {key!r}"


@mutation(2, weight=3, trust=Trust.EXACT)
def nesting(world: World, rng: random.Random) -> str | None:
    """Brackets in brackets, as a value, in an embedded text or as the schema."""
    path = _json_file(world, rng)
    lines = path and world.json_lines(path)
    if not path or not lines:
        return None
    _known(world, path)
    depth = rng.choice((500, 1_000, 10_000, 100_000))
    opened, closed = rng.choice((("[", "]"), ('{"a":', "}"), ('{"type":', "}")))
    deep = opened * depth + ("1" if opened != "[" else "") + closed * depth
    line = rng.randrange(len(lines))
    places = places_of(lines[line]) if isinstance(lines[line], dict) else []
    if not places:
        return None
    container, key = rng.choice(places)
    if rng.random() < 0.3 and isinstance(container, dict):
        key = "deep"
    texts = [(c, k) for c, k in places if k in ("stats", "schemaString", "configuration")]
    if texts and rng.random() < 0.6:
        (container, key), text = rng.choice(texts), deep
        if key == "schemaString":
            kinds = ('{"type":"array","containsNull":true,"elementType":',
                     '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":',
                     '{"type":"map","keyType":"long","valueContainsNull":true,"valueType":')  # fmt: skip
            number = rng.randrange(3)
            text = kinds[number] * depth + '"long"' + ("}", "}]}", "}")[number] * depth
            text = (
                '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":'
                + text
                + "}]}"
            )
        container[key] = text
    else:
        marker = "\ue001"
        container[key] = Raw(marker)
    content = b"\n".join(map(dumps, lines)) + b"\n"
    content = content.replace(json.dumps("\ue001")[1:-1].encode(), deep.encode())
    world.put(path, content)
    return f"{path} line {line} {key} {depth} times {opened}"


@mutation(2, weight=2, trust=Trust.EXACT)
def a_hint(world: World, rng: random.Random) -> str:
    """Another ``_last_checkpoint`` or ``_last_vacuum_info``, of any content."""
    contents = (
        b"", b"{}", b"[]", b"null", b"5", b"{", b"\0" * 100, b"\xff" * 50, b'{"version":0}',
        b'{"version":5}', b'{"version":6,"size":3}', b'{"version":9999999}', b'{"version":-1}',
        b'{"version":9223372036854775807,"size":1}', b'{"version":18446744073709551616}',
        b'{"version":1e400}', b'{"version":4,"parts":4294967295}', b'{"version":4,"parts":0}',
        b'{"version":4,"parts":-3}', b'{"version":4,"parts":2000000000}', b'{"version":"4"}',
        b'{"version":4,"size":-1,"sizeInBytes":1e308,"numOfAddFiles":-1}', b'{"version":4.0}',
        b'{"version":4,"checkpointSchema":{"type":"struct","fields":null}}',
        b'{"version":5,"v2Checkpoint":{"path":"../../secret","sizeInBytes":1,"modificationTime":1}}',
        b'{"version":5,"v2Checkpoint":{"path":"/etc/passwd","sidecarFiles":[{"path":"/etc/passwd"}]}}',
        b'{"version":5,"v2Checkpoint":5,"tags":[]}', b'{"version":4,"checksum":"x","tags":null}',
        b'{"version":4,"version":2}', b"[" * 100_000, b'{"a":' * 10_000, b" " * 3_000_000,
        b'{"version":4,"size":1,"x":"' + b"y" * 5_000_000 + b'"}',
        b'{"latestCommitVersionOutsideOfRetentionWindow":99999999999999999999}',
        b'{"latestCommitVersionOutsideOfRetentionWindow":-5}',
        b'{"latestCommitVersionOutsideOfRetentionWindow":1e400}',
        b'{"latestCommitVersionOutsideOfRetentionWindow":"4"}',
    )  # fmt: skip
    name = rng.choice(("_last_checkpoint", "_last_checkpoint", "_last_vacuum_info"))
    content = rng.choice(contents)
    world.put(f"_delta_log/{name}", content)
    return f"{name} {content[:80]!r}"


@mutation(2, weight=6)
def a_parquet_value(world: World, rng: random.Random) -> str | None:
    """A value of a checkpoint or sidecar, hostile but of its type; or a column of another type."""
    paths = world.log_files(".parquet")
    if not paths:
        return None
    path = rng.choice(paths)
    rows = _rows(world, path)
    if not rows:
        return None
    number = rng.randrange(len(rows))
    if not (places := [(c, k) for c, k in places_of(rows[number]) if c[k] is not None]):
        return None
    said = _change(world, *rng.choice(places), rng, number=False)
    if rng.random() < 0.3:
        rows += [rows[number]] * rng.choice((1, 2, 1000))
        said += ", repeated"
    kinds = sorted({kind for row in rows for kind in row})
    try:
        content = parquet(rows, kinds=kinds)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
        try:
            buffer = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(rows), buffer)
            content = buffer.getvalue()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
    world.put(path, content)
    return f"{path} row {number} {said}"


@mutation(2, weight=4, trust=Trust.RIGHT)
def said_twice(world: World, rng: random.Random) -> str | None:
    """A checkpoint, sidecar or compaction that says a thing twice, in the same words or others.

    No reconciliation does. What the key of the thing is stays as it is, so the live files do too.
    """
    paths = world.log_files(".checkpoint.parquet", ".compacted.json", "/_sidecars/")
    paths += [
        p for p in world.log_files(".parquet", ".json") if ".checkpoint." in p and p not in paths
    ]
    if not paths:
        return None
    path = rng.choice(paths)
    rows = _rows(world, path)
    if not rows:
        return None
    again = copy.deepcopy(rng.choice([row for row in rows if row]))
    kind = next(kind for kind, value in again.items() if value is not None)
    if isinstance(again[kind], dict) and rng.random() < 0.5:
        other = {
            "size": 7,
            "modificationTime": 1,
            "dataChange": False,
            "version": 99,
            "sizeInBytes": 5,
        }
        again[kind] |= {name: value for name, value in other.items() if name in again[kind]}
    rows[rng.choice((0, len(rows))) : 0] = [again]
    if path.endswith(".json"):
        world.put(path, b"\n".join(map(dumps, rows)) + b"\n")
    else:
        world.put(path, parquet(rows, kinds=sorted({kind for row in rows for kind in row})))
    return f"{path} {kind}"


_MANY_ROWS = 10_000


def _rows(world: World, path: str) -> list[Any] | None:
    """The rows of a checkpoint, sidecar or compaction; None where it can't be read."""
    if path.endswith(".json"):
        lines = world.json_lines(path) or []
        return lines if all(isinstance(line, dict) for line in lines) else None
    try:
        file = pq.ParquetFile(io.BytesIO(world.content(path)))
        if not {*file.schema_arrow.names} <= {*ACTION_KINDS}:
            return None  # Another mutation has put a data file there.
        # Another mutation may have made a bomb of it.
        table = file.read() if file.metadata.num_rows < _MANY_ROWS else None
    except Exception:  # damaged by another mutation, in any way
        return None
    if table is None:
        return None
    return [_objects(row) for row in table.to_pylist()]


def _objects(value: Any) -> Any:
    """Pairs of Arrow's maps as objects."""
    if isinstance(value, dict):
        return {key: _objects(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


@mutation(2, weight=2)
def a_sidecar_path(world: World, rng: random.Random) -> str | None:
    """A V2 checkpoint whose sidecars are elsewhere."""
    paths = [p for p in world.log_files(".json") if b'"sidecar"' in world.content(p)]
    if not paths:
        return None
    path = rng.choice(paths)
    lines = world.json_lines(path)
    if not lines:
        return None
    new = rng.choice((hostile_path(world.places, rng), f"{world.places.outside}/x.parquet"))
    for line in lines:
        if isinstance(line, dict) and isinstance(line.get("sidecar"), dict):
            line["sidecar"]["path"] = new
            if rng.random() < 0.3:
                line["sidecar"]["sizeInBytes"] = hostile_number(rng)
            break
    world.put(path, b"\n".join(map(dumps, lines)) + b"\n")
    return f"{path} {new[:120]!r}"


@mutation(2, weight=2)
def a_second_line(world: World, rng: random.Random) -> str | None:
    """A line of a file of JSON twice, or in another file of the log."""
    paths = world.log_files(".json")
    if not paths:
        return None
    source, target = rng.choice(paths), rng.choice(paths)
    if rng.random() < 0.6:
        target = source
    lines = world.content(source).splitlines()
    if not lines:
        return None
    line, times = rng.choice(lines), rng.choice((1, 1, 2, 5000))
    more = [line] * min(times, max(2, _MOST_BYTES // max(len(line), 1)))
    into = world.content(target).splitlines()
    at = rng.randrange(len(into) + 1)
    world.put(target, b"\n".join([*into[:at], *more, *into[at:]]) + b"\n")
    return f"{source} to {target}, {len(more)} times"

"""Tables as data: a history of commits, what it comes to by brute force, and every form of its log.

A history is a list of commits, a commit a list of actions as JSON objects. `replay` reconciles one
with dictionaries, action by action, as PROTOCOL.md ("Action Reconciliation") says it; it shares
nothing with the engine and is what the engine's answers are compared with. The functions below it
lay a history or a state out as files: commits, compactions, and checkpoints of each form. Files are
a dict from the path below the table's root to the bytes.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.storage.memory import MemoryStorage

Action = dict[str, Any]
History = Sequence[Sequence[Action]]
Files = dict[str, bytes]
Key = tuple[str, str | None]

FAR_FUTURE_MS = 2**42
"""A deletion timestamp in the year 2109: such a tombstone has not expired."""

_CERTAINLY_EXPIRED_MS = 2_000_000_000_000 - 10**12  # the year 2001

_SHARED = (
    "path",
    "partitionValues",
    "size",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
)
_ADD = (*_SHARED, "modificationTime", "stats", "tags", "clusteringProvider")
# What a checkpoint keeps of a remove.
_REMOVE = (*_SHARED, "deletionTimestamp", "extendedFileMetadata")
_VECTOR = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality", "maxRowIndex")
_MAPS = ("partitionValues", "tags", "configuration", "options")


@dataclass(frozen=True)
class State:
    """A table at a version. File actions are dicts with a value, or None, for every column.

    Attributes:
        files: the live files, by path and the unique id of the deletion vector.
        tombstones: the removed files, likewise.
        transactions: version and time by ``appId``.
        domains: configuration by domain.
        protocol: versions and lists of features.
        metadata: all fields.
        removed_domains: the domains that were removed and not set again.
    """

    files: Mapping[Key, Action] = field(default_factory=dict)
    tombstones: Mapping[Key, Action] = field(default_factory=dict)
    transactions: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    protocol: tuple[Any, ...] | None = None
    metadata: Action | None = None
    removed_domains: frozenset[str] = frozenset()

    def visible(self) -> State:
        """What readers see: no expired tombstones, no removed domains."""
        unexpired = {
            key: remove
            for key, remove in self.tombstones.items()
            if (remove["deletionTimestamp"] or 0) > _CERTAINLY_EXPIRED_MS
        }
        return replace(self, tombstones=unexpired, removed_domains=frozenset())


def replay(commits: Iterable[Iterable[Action]], base: State | None = None) -> State:
    """The state after commits, by brute force."""
    base = base or State()
    files, tombstones = dict(base.files), dict(base.tombstones)
    transactions, domains = dict(base.transactions), dict(base.domains)
    removed_domains = set(base.removed_domains)
    protocol, metadata = base.protocol, base.metadata
    for commit in commits:
        for action in commit:
            for kind, value in action.items():
                if value is None:
                    continue
                if kind == "add":
                    tombstones.pop(key_of(value), None)
                    files[key_of(value)] = _columns(value, _ADD)
                elif kind == "remove":
                    files.pop(key_of(value), None)
                    tombstones[key_of(value)] = _columns(value, _REMOVE)
                elif kind == "txn":
                    transactions[value["appId"]] = (value["version"], value.get("lastUpdated"))
                elif kind == "domainMetadata" and value.get("removed"):
                    domains.pop(value["domain"], None)
                    removed_domains.add(value["domain"])
                elif kind == "domainMetadata":
                    domains[value["domain"]] = value["configuration"]
                    removed_domains.discard(value["domain"])
                elif kind == "protocol":
                    protocol = _protocol(value)
                elif kind == "metaData":
                    metadata = _metadata(value)
    return State(
        files, tombstones, transactions, domains, protocol, metadata, frozenset(removed_domains)
    )


def states(history: History) -> list[State]:
    """The state of every version."""
    found: list[State] = []
    for commit in history:
        found.append(replay([commit], found[-1] if found else None))
    return found


def state_of(snapshot: Snapshot) -> State:
    """What the engine says of a version, in the model's terms."""
    protocol, metadata = snapshot.protocol, snapshot.metadata
    return State(
        files=_by_key(snapshot.files(), _ADD),
        tombstones=_by_key(snapshot.tombstones(), _REMOVE),
        transactions={
            app: (txn.version, txn.last_updated) for app, txn in snapshot.transactions.items()
        },
        domains={name: domain.configuration for name, domain in snapshot.domains.items()},
        protocol=(
            protocol.min_reader_version,
            protocol.min_writer_version,
            protocol.reader_features,
            protocol.writer_features,
        ),
        metadata={
            "id": metadata.id,
            "name": metadata.name,
            "description": metadata.description,
            "provider": metadata.format.provider,
            "options": dict(metadata.format.options),
            "schemaString": metadata.schema_string,
            "partitionColumns": list(metadata.partition_columns),
            "createdTime": metadata.created_time,
            "configuration": dict(metadata.configuration),
        },
    )


def key_of(file: Mapping[str, Any]) -> Key:
    """What tells one logical file from another."""
    vector = file.get("deletionVector")
    if vector is None:
        return file["path"], None
    suffix = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return file["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}{suffix}"


def _columns(file: Mapping[str, Any], names: Sequence[str]) -> Action:
    columns = {name: file.get(name) for name in names}
    for name in ("partitionValues", "tags"):
        if columns.get(name) is not None:
            columns[name] = {key: _entry(item) for key, item in columns[name].items()}
    if columns["deletionVector"] is not None:
        columns["deletionVector"] = {n: columns["deletionVector"].get(n) for n in _VECTOR}
    return columns


def _entry(value: Any) -> Any:
    """A value of a map of strings, where writers have put other things too."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _protocol(value: Mapping[str, Any]) -> tuple[Any, ...]:
    lists = (value.get("readerFeatures"), value.get("writerFeatures"))
    return (
        value["minReaderVersion"],
        value["minWriterVersion"],
        *(None if names is None else frozenset(names) for names in lists),
    )


def _metadata(value: Mapping[str, Any]) -> Action:
    form = value.get("format") or {}
    return {
        "id": value["id"],
        "name": value.get("name"),
        "description": value.get("description"),
        "provider": form.get("provider", "parquet"),
        "options": form.get("options") or {},
        "schemaString": value.get("schemaString"),
        "partitionColumns": value.get("partitionColumns") or [],
        "createdTime": value.get("createdTime"),
        "configuration": value.get("configuration") or {},
    }


def _by_key(table: pa.Table, names: Sequence[str]) -> dict[Key, Action]:
    rows = [_columns(_dicts(row), names) for row in table.to_pylist()]
    found = {key_of(row): row for row in rows}
    assert len(found) == len(rows), "the engine gave one logical file twice"
    return found


def _dicts(row: Action) -> Action:
    maps = {name: dict(row[name]) for name in _MAPS if row.get(name) is not None}
    return {**row, **maps}


# Files of a log.


def commit_file(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def lines(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Actions as the content of a commit, a compaction or a V2 checkpoint in JSON."""
    compact = (json.dumps(a, separators=(",", ":"), ensure_ascii=False) for a in actions)
    return "".join(f"{line}\n" for line in compact).encode()


def commits(history: History) -> Files:
    """The history as commits."""
    return {commit_file(version): lines(actions) for version, actions in enumerate(history)}


def compaction(state: State, version: int, *, expired: bool) -> Files:
    """The compaction of versions 0 to ``version``; with the tombstones that had expired, or not."""
    told = state if expired else state.visible()
    removed = [
        {"domainMetadata": {"domain": name, "configuration": "", "removed": True}}
        for name in sorted(told.removed_domains)
    ]
    name = f"_delta_log/{0:020}.{version:020}.compacted.json"
    return {name: lines([*removed, *small_rows(told), *file_rows(told)])}


def classic_checkpoint(state: State, version: int) -> Files:
    """``<v>.checkpoint.parquet`` of the V1 spec."""
    rows = [*small_rows(state), *file_rows(state.visible())]
    return {f"_delta_log/{version:020}.checkpoint.parquet": parquet(rows)}


def multipart_checkpoint(state: State, version: int, *, parts: int) -> Files:
    """``<v>.checkpoint.<part>.<parts>.parquet``, the actions dealt out like cards."""
    rows = [*small_rows(state), *file_rows(state.visible())]
    return {
        f"_delta_log/{version:020}.checkpoint.{part + 1:010}.{parts:010}.parquet": parquet(
            rows[part::parts]
        )
        for part in range(parts)
    }


def v2_checkpoint(state: State, version: int, *, form: str, sidecars: int) -> Files:
    """A checkpoint of the V2 spec.

    Args:
        form: ``json`` or ``parquet`` (named by a UUID), or ``classic`` (by the classic name).
        sidecars: how many share the file actions; 0 for none.
    """
    rows = file_rows(state.visible())
    top: list[Action] = [{"checkpointMetadata": {"version": version}}, *small_rows(state)]
    files: Files = {}
    for number in range(sidecars):
        name = f"{version:020}.checkpoint.{number:010}.{uuid.UUID(int=version)}.parquet"
        content = parquet(rows[number::sidecars], kinds=("add", "remove"))
        files[f"_delta_log/_sidecars/{name}"] = content
        top.append({"sidecar": {"path": name, "sizeInBytes": len(content), "modificationTime": 1}})
    if not sidecars:
        top += rows
    stem = f"_delta_log/{version:020}.checkpoint"
    name = f"{stem}.parquet" if form == "classic" else f"{stem}.{uuid.UUID(int=version)}.{form}"
    return {**files, name: lines(top) if form == "json" else parquet(top)}


def hint(version: int, *, parts: int | None = None) -> Files:
    """``_last_checkpoint``, as plain as the protocol allows."""
    fields = {"version": version, "size": -1, **({} if parts is None else {"parts": parts})}
    return {"_delta_log/_last_checkpoint": json.dumps(fields).encode()}


def checksum(state: State, version: int) -> Files:
    """``<v>.crc``: the totals of a version."""
    protocol, metadata = small_rows(state)[:2]
    fields = {
        "tableSizeBytes": sum(add["size"] for add in state.files.values()),
        "numFiles": len(state.files),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": metadata["metaData"],
        "protocol": protocol["protocol"],
    }
    return {f"_delta_log/{version:020}.crc": json.dumps(fields).encode()}


def small_rows(state: State) -> list[Action]:
    """The actions that aren't files."""
    assert state.protocol is not None
    assert state.metadata is not None
    names = ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures")
    protocol = {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in zip(names, state.protocol, strict=True)
        if value is not None
    }
    metadata = {name: v for name, v in state.metadata.items() if v is not None}
    form = {"provider": metadata.pop("provider"), "options": metadata.pop("options")}
    return [
        {"protocol": protocol},
        {"metaData": {**metadata, "format": form}},
        *(
            {"txn": _present({"appId": app, "version": version, "lastUpdated": time})}
            for app, (version, time) in state.transactions.items()
        ),
        *(
            {"domainMetadata": {"domain": name, "configuration": text, "removed": False}}
            for name, text in state.domains.items()
        ),
    ]


def file_rows(state: State) -> list[Action]:
    """The adds and the removes, which change no data when they are told again."""
    return [
        {kind: {**_present(row), "dataChange": False}}
        for kind, rows in (("add", state.files), ("remove", state.tombstones))
        for row in rows.values()
    ]


def _present(fields: Mapping[str, Any]) -> Action:
    return {
        name: _present(value) if name == "deletionVector" else value
        for name, value in fields.items()
        if value is not None
    }


_STRINGS = pa.map_(pa.string(), pa.string())
_LIST = pa.list_(pa.string())
_FILE = {
    "path": pa.string(),
    "partitionValues": _STRINGS,
    "size": pa.int64(),
    "dataChange": pa.bool_(),
    "tags": _STRINGS,
    "deletionVector": pa.struct(
        [
            ("storageType", pa.string()),
            ("pathOrInlineDv", pa.string()),
            ("offset", pa.int32()),
            ("sizeInBytes", pa.int32()),
            ("cardinality", pa.int64()),
            ("maxRowIndex", pa.int64()),
        ]
    ),
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}
_TYPES: dict[str, dict[str, pa.DataType]] = {
    "txn": {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()},
    "add": {
        **_FILE,
        "modificationTime": pa.int64(),
        "stats": pa.string(),
        "clusteringProvider": pa.string(),
    },
    "remove": {**_FILE, "deletionTimestamp": pa.int64(), "extendedFileMetadata": pa.bool_()},
    "metaData": {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct([("provider", pa.string()), ("options", _STRINGS)]),
        "schemaString": pa.string(),
        "partitionColumns": _LIST,
        "configuration": _STRINGS,
        "createdTime": pa.int64(),
    },
    "protocol": {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": _LIST,
        "writerFeatures": _LIST,
    },
    "domainMetadata": {
        "domain": pa.string(),
        "configuration": pa.string(),
        "removed": pa.bool_(),
    },
    "checkpointMetadata": {"version": pa.int64(), "tags": _STRINGS},
    "sidecar": {
        "path": pa.string(),
        "sizeInBytes": pa.int64(),
        "modificationTime": pa.int64(),
        "tags": _STRINGS,
    },
}


ACTION_KINDS = tuple(_TYPES)


def parquet(rows: Sequence[Action], kinds: Iterable[str] = ACTION_KINDS) -> bytes:
    """Actions as a Parquet file with page checksums, a struct column for each kind."""
    schema = pa.schema([(kind, pa.struct(list(_TYPES[kind].items()))) for kind in kinds])
    table = pa.Table.from_pylist([_pairs(row) for row in rows], schema)
    buffer = io.BytesIO()
    group = max(7, len(rows) // 100)
    pq.write_table(table, buffer, write_page_checksum=True, row_group_size=group)
    return buffer.getvalue()


def _pairs(value: Any) -> Any:
    """Maps as the pairs that Arrow wants."""
    return {
        name: list(item.items())
        if name in _MAPS and isinstance(item, dict)
        else _pairs(item)
        if isinstance(item, dict)
        else item
        for name, item in value.items()
    }


# Tables in memory.


@final
class MemoryTable:
    """A table in memory that goes away with the test::

    with MemoryTable(files) as table: table.delta().snapshot()
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.uri = f"memory://{uuid.uuid4()}/table"
        self.storage = MemoryStorage(self.uri)
        self.put(files)

    def put(self, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            self.storage.replace(path, content)

    def files(self) -> Files:
        return {info.path: self.storage.read(info.path) for info in self.storage.walk("")}

    def delta(self) -> DeltaTable:
        """The table as the engine opens it, afresh."""
        return DeltaTable(self.uri)

    def __enter__(self) -> MemoryTable:
        return self

    def __exit__(self, *failure: object) -> None:
        self.storage.delete([info.path for info in self.storage.walk("")])

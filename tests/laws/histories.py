"""Random histories: every kind of action that a table's state depends on, each commit well-formed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.log_builder import SCHEMA, metadata
from tests.table_builder import FAR_FUTURE_MS, Action

PATHS = (
    "a.parquet",
    "part=x/b%20c.parquet",
    "part=%25/d.parquet",
    "ü/e.parquet",
    "s3://elsewhere/t/f.parquet",
)
FEATURES = ("changeDataFeed", "timestampNtz", "columnMapping", "inCommitTimestamp")
READER_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"}

_STATS = st.none() | st.integers(0, 99).map(lambda n: json.dumps({"numRecords": n}))
_UNKNOWN: list[Action] = [
    {"novelty": {"path": "a.parquet"}},
    {"commitInfo": {"operation": "WRITE", "timestamp": 1}},
    {"cdc": {"path": "_change_data/x", "partitionValues": {}, "size": 1, "dataChange": False}},
    {},
]


def protocol(features: set[str]) -> Action:
    """A protocol with table features: always deletion vectors and domains, and some others."""
    named = {"deletionVectors", "domainMetadata", *features}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted(named & READER_FEATURES),
            "writerFeatures": sorted(named),
        }
    }


@st.composite
def histories(draw: st.DrawFn, features: set[str] = frozenset()) -> list[list[Action]]:
    """Histories of up to eight commits."""
    known = set(features)
    first = [protocol(known), metadata(partition_columns=["part"])]
    live: dict[str, Action] = {}
    history = []
    for version in range(draw(st.integers(2, 8))):
        actions = list(first) if version == 0 else []
        for path in draw(st.sets(st.sampled_from(PATHS), max_size=4)):
            actions += draw(_file_actions(path, live))
        actions += draw(_non_file_actions())
        if version and draw(st.integers(0, 4)) == 0:
            known.add(draw(st.sampled_from(FEATURES)))
            actions.append(protocol(known))
        if version and draw(st.integers(0, 4)) == 0:
            actions.append(draw(_metadata(version)))
        actions += draw(st.lists(st.sampled_from(_UNKNOWN), max_size=2, unique_by=str))
        history.append(draw(st.permutations(actions)) or [{}])
    return history


@st.composite
def _file_actions(draw: st.DrawFn, path: str, live: dict[str, Action]) -> list[Action]:
    """What one commit does to one file; at most one action for each logical file."""
    present = live.get(path)
    if present is None:
        if draw(st.integers(0, 5)) == 0:
            return [{"remove": _removal(draw, {"path": path})}]
        added = live[path] = _addition(draw, path)
        return [{"add": added}]
    match draw(st.sampled_from(["remove", "vector", "again"])):
        case "remove":
            del live[path]
            return [{"remove": _removal(draw, present)}]
        case "vector":
            vector = _vector(draw(st.integers(3, 5)))
            if vector == present.get("deletionVector"):
                return []
            live[path] = {**present, "deletionVector": vector}
            return [{"remove": _removal(draw, present)}, {"add": live[path]}]
        case _:
            live[path] = {**present, "stats": draw(_STATS), "dataChange": False}
            return [{"add": live[path]}]


def _addition(draw: st.DrawFn, path: str) -> Action:
    fields: Action = {
        "path": path,
        "partitionValues": {"part": draw(st.sampled_from([None, "", "x", 'é"\\']))},
        "size": draw(st.integers(0, 2**40)),
        "modificationTime": draw(st.integers(0, 2**42)),
        "dataChange": draw(st.booleans()),
        "stats": draw(_STATS),
    }
    if draw(st.booleans()):
        fields["tags"] = {"k": draw(st.sampled_from(["", "v"]))}
    if draw(st.integers(0, 3)) == 0:
        fields["deletionVector"] = _vector(draw(st.integers(1, 2)))
    if draw(st.integers(0, 3)) == 0:
        fields |= {"baseRowId": draw(st.integers(0, 9)), "defaultRowCommitVersion": 3}
    return fields


def _removal(draw: st.DrawFn, present: Action) -> Action:
    fields: Action = {
        "path": present["path"],
        "dataChange": True,
        "deletionTimestamp": draw(st.sampled_from([FAR_FUTURE_MS, 1, None])),
    }
    if "deletionVector" in present:
        fields["deletionVector"] = present["deletionVector"]
    if "size" in present and draw(st.booleans()):
        fields |= {
            "extendedFileMetadata": True,
            "size": present["size"],
            "partitionValues": present["partitionValues"],
        }
    return fields


def _vector(number: int) -> Action:
    if number % 2:
        # Two vectors in one file: only the offset tells them apart.
        return {
            "storageType": "u",
            "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
            "offset": number,
            "sizeInBytes": 40,
            "cardinality": 6,
        }
    return {
        "storageType": "i",
        "pathOrInlineDv": f"^Bg9^0rr91000000000{number}iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{{L",
        "sizeInBytes": 44,
        "cardinality": number,
        "maxRowIndex": 29,
    }


@st.composite
def _non_file_actions(draw: st.DrawFn) -> list[Action]:
    actions: list[Action] = []
    for app in draw(st.sets(st.sampled_from(["app", "b", "ç"]), max_size=2)):
        txn: Action = {"appId": app, "version": draw(st.integers(0, 9))}
        if draw(st.booleans()):
            txn["lastUpdated"] = draw(st.integers(1, 9))
        actions.append({"txn": txn})
    for domain in draw(st.sets(st.sampled_from(["delta.one", "two"]), max_size=2)):
        removed = draw(st.booleans())
        text = "" if removed else draw(st.sampled_from(["{}", '{"a":1}']))
        fields = {"domain": domain, "configuration": text, "removed": removed}
        actions.append({"domainMetadata": fields})
    return actions


@st.composite
def _metadata(draw: st.DrawFn, version: int) -> Action:
    field: dict[str, Any] = {"name": f"c{version}", "type": "long", "nullable": True}
    fields = [*SCHEMA["fields"], {**field, "metadata": {"comment": "é"}}]
    configuration = draw(
        st.dictionaries(
            st.sampled_from(["delta.appendOnly", "delta.enableChangeDataFeed"]),
            st.sampled_from(["true", "false"]),
        )
    )
    changed = metadata(
        partition_columns=["part"],
        schema={**SCHEMA, "fields": fields},
        configuration={**configuration, "note": str(version)},
    )
    changed["metaData"]["description"] = draw(st.none() | st.just("second"))
    return changed

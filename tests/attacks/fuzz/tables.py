"""The tables before anything hostile is done to them: one history, in every form of its log.

The history has adds, removes, change data files, deletion vectors in a file and inline, transactions and
domains; its table is partitioned and column mapped, and its data files are there. The oracle is
`tests.table_builder.replay`, which shares nothing with the engine.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tests.attacks.fuzz.files import OLD_MS, File, Tree
from tests.log_builder import metadata
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    State,
    checksum,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    hint,
    multipart_checkpoint,
    states,
    v2_checkpoint,
)

__all__ = [
    "FORMS",
    "MANAGED",
    "OWNER",
    "Places",
    "canary",
    "data_file",
    "data_files",
    "history",
    "log_tree",
]

ROWS = 40
MANAGED = "managed"
OWNER = "the-owner"
VECTOR_FILE = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
VECTOR_NAME = "ab^-aqEH.-t@S}K{vb[*k^"
"""How a descriptor names that file: the example of PROTOCOL.md."""
INLINE_VECTOR = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
"""The inline example of PROTOCOL.md: rows 3, 4, 7, 11, 18 and 29."""
SECRET = "CANARY-9f3b-CONTENT"
"""What the files have in them that the table must not reach."""


@dataclass(frozen=True)
class Places:
    """Where things are while a case runs.

    Attributes:
        root: the table's directory.
        outside: the directory beside it that nobody may touch.
        port: of the host on the loopback interface that nobody may speak to.
    """

    root: str
    outside: str
    port: int


def history(form: str) -> list[list[Action]]:
    """Seven commits with every kind of action; of the simple form, with the oldest protocol."""
    if form == "simple":
        return _simple_history()
    vector = {"storageType": "u", "pathOrInlineDv": VECTOR_NAME, "offset": 1}
    vector |= {"sizeInBytes": len(_vector_data()), "cardinality": 6}
    inline = {"storageType": "i", "pathOrInlineDv": INLINE_VECTOR, "sizeInBytes": 40}
    inline["cardinality"] = 6
    changed = {"path": "_change_data/cdc-0.parquet", "partitionValues": {"p-part": "x"}}
    changed |= {"size": len(data_file()), "dataChange": False}
    return [
        [_info(0), _protocol(form), _metadata(), _add("a"), _add("b"), _add("c", part="y")],
        [_info(1), _add("d"), _add("e", part="y"), _txn(1)],
        [_info(2), _remove("a"), _remove("b"), _add("f", tags={"k": "v"})],
        [_info(3), _remove("c", part="y"), _add("c", part="y", deletionVector=vector)],
        [_info(4), _add("g", deletionVector=inline), _domain("d", '{"x":1}')],
        [_info(5), _remove("d", deletionTimestamp=FAR_FUTURE_MS), {"cdc": changed}],
        [_info(6), _add("h%20h"), _txn(2), _domain("d", '{"x":2}')],
    ]


def data_files(form: str) -> Tree:
    """The files that the history names, and some that nobody needs."""
    names = ["x/a", "x/b", "y/c", "x/d", "y/e", "x/f", "x/g", "x/h h", "x/unknown"]
    tree: Tree = {f"part={name}.parquet": File(data_file()) for name in names}
    if form == "simple":
        return {path.rpartition("/")[2]: node for path, node in tree.items()}
    tree["_change_data/cdc-0.parquet"] = File(data_file())
    tree[VECTOR_FILE] = File(vector_file())
    return tree


@cache
def data_file() -> bytes:
    """A data file; all of them are alike."""
    table = pa.table({"c-id": pa.array(range(ROWS), pa.int64())})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none")
    return sink.getvalue()


@cache
def _vector_data() -> bytes:
    data: bytes = BitMap64([1, 2, 3, 5, 8, 13]).serialize()
    return struct.pack("<I", 1681511377) + data


def vector_file(data: bytes | None = None) -> bytes:
    """A file with one deletion vector (PROTOCOL.md, "Deletion Vector File Storage Format")."""
    data = _vector_data() if data is None else data
    return b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def canary() -> Tree:
    """What lies beside the table: old files of all names that maintenance deletes, and a table."""
    uuid = "12345678-1234-1234-1234-123456789abc"
    names = [
        "secret.txt",
        f"{6:020}.json",
        f"{2:020}.checkpoint.parquet",
        f"{6:020}.crc",
        f"{6:020}.{uuid}.json",
        f"{2:020}.checkpoint.{1:010}.{uuid}.parquet",
        f"{uuid}.parquet",
        f"_commit_{uuid}.json.tmp",
        f".{6:020}.json.{uuid}.tmp",
        "_last_checkpoint",
        "_last_vacuum_info",
        "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
    ]
    tree: Tree = {name: File(f"{SECRET} {name}\n".encode()) for name in names}
    tree["x.parquet"] = File(data_file())
    tree["vector.bin"] = File(vector_file())
    tree |= {f"files/{path}": node for path, node in list(tree.items())}
    live = [[_info(0), *_simple_history()[0][1:]]]
    tree |= {f"victim/{path}": File(text) for path, text in commits(live).items()}
    tree |= {f"victim/{name}.parquet": File(data_file()) for name in "abc"}
    return tree


def log_tree(form: str, commits_: list[list[Action]]) -> Tree:
    """The log of a history in a form.

    Raises:
        Exception: the history can't be written in this form, for values that don't fit its columns.
    """
    files = _FORMS[form](commits_)
    tree: Tree = {}
    for path, content in files.items():
        version = int(path.split("/")[1][:20]) if path.split("/")[1][:20].isdigit() else 0
        tree[path] = File(content, OLD_MS + version * 1000)
    return tree


def _plain(history_: list[list[Action]]) -> Files:
    return commits(history_)


def _classic(history_: list[list[Action]]) -> Files:
    told = states(history_)
    sums = {path: text for v, state in enumerate(told) for path, text in checksum(state, v).items()}
    return {
        **commits(history_),
        **classic_checkpoint(told[2], 2),
        **classic_checkpoint(told[4], 4),
        **hint(4),
        **sums,
    }


def _cleaned(history_: list[list[Action]]) -> Files:
    return _without_commits(_classic(history_), 4)


def _parts(history_: list[list[Action]]) -> Files:
    told = states(history_)
    return {**commits(history_), **multipart_checkpoint(told[4], 4, parts=3), **hint(4, parts=3)}


def _v2(history_: list[list[Action]], form: str) -> Files:
    told = states(history_)
    made = {**v2_checkpoint(told[2], 2, form=form, sidecars=0)}
    made |= v2_checkpoint(told[5], 5, form=form, sidecars=2)
    return {**commits(history_), **made, **hint(5), **checksum(told[6], 6)}


def _v2_json(history_: list[list[Action]]) -> Files:
    return _v2(history_, "json")


def _v2_parquet(history_: list[list[Action]]) -> Files:
    return _without_commits(_v2(history_, "parquet"), 5)


def _compacted(history_: list[list[Action]]) -> Files:
    return {**commits(history_), **compaction(states(history_)[3], 3, expired=True)}


def _without_commits(files: Files, before: int) -> Files:
    gone = {commit_file(version) for version in range(before)}
    return {path: content for path, content in files.items() if path not in gone}


_FORMS: dict[str, Callable[[list[list[Action]]], Files]] = {
    "commits": _plain,
    "simple": _classic,
    "classic": _classic,
    "cleaned": _cleaned,
    "parts": _parts,
    "v2-json": _v2_json,
    "v2-parquet": _v2_parquet,
    "compacted": _compacted,
}
FORMS = (*_FORMS, MANAGED)
"""The forms of a log. A managed one is made by the engine; see `templates`."""


def _info(version: int) -> Action:
    info = {"timestamp": OLD_MS + version * 1000, "operation": "WRITE", "txnId": f"t{version}"}
    return {"commitInfo": {**info, "operationParameters": {"mode": "Append"}, "engineInfo": "x/1"}}


def _protocol(form: str) -> Action:
    readers = ["deletionVectors", "columnMapping"] + ["v2Checkpoint"] * form.startswith("v2")
    writers = [*readers, "domainMetadata", "changeDataFeed", "appendOnly", "invariants"]
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": readers,
            "writerFeatures": writers,
        }
    }


def _metadata() -> Action:
    fields: list[dict[str, Any]] = []
    for number, (name, kind) in enumerate((("id", "long"), ("part", "string")), 1):
        about = {"delta.columnMapping.id": number}
        physical = {"delta.columnMapping.physicalName": f"{'c' if name == 'id' else 'p'}-{name}"}
        fields.append(
            {"name": name, "type": kind, "nullable": True, "metadata": {**about, **physical}}
        )
    configuration = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "2",
        "delta.enableChangeDataFeed": "true",
        "delta.enableDeletionVectors": "true",
    }
    return metadata(
        configuration=configuration,
        partition_columns=["part"],
        schema={"type": "struct", "fields": fields},
    )


def stats(column: str = "c-id") -> str:
    """The statistics of a data file."""
    bounds = {"minValues": {column: 0}, "maxValues": {column: ROWS - 1}, "nullCount": {column: 0}}
    return json.dumps({"numRecords": ROWS, **bounds}, separators=(",", ":"))


def _add(name: str, *, part: str = "x", **fields: Any) -> Action:
    base = {
        "path": f"part={part}/{name}.parquet",
        "partitionValues": {"p-part": part},
        "size": len(data_file()),
        "modificationTime": OLD_MS,
        "dataChange": True,
        "stats": stats(),
    }
    return {"add": {**base, **fields}}


def _remove(name: str, *, part: str = "x", **fields: Any) -> Action:
    base = {
        "path": f"part={part}/{name}.parquet",
        "deletionTimestamp": OLD_MS + 100_000,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {"p-part": part},
        "size": len(data_file()),
    }
    return {"remove": {**base, **fields}}


def _txn(version: int) -> Action:
    return {"txn": {"appId": "app", "version": version, "lastUpdated": OLD_MS}}


def _domain(name: str, text: str) -> Action:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": False}}


def _simple_history() -> list[list[Action]]:
    fields = [{"name": "c-id", "type": "long", "nullable": True, "metadata": {}}]
    schema = {"type": "struct", "fields": fields}
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}

    def add(name: str) -> Action:
        action = _add(name)["add"]
        return {"add": {**action, "path": f"{name}.parquet", "partitionValues": {}}}

    def remove(name: str) -> Action:
        action = _remove(name)["remove"]
        return {"remove": {**action, "path": f"{name}.parquet", "partitionValues": {}}}

    return [
        [_info(0), protocol, metadata(schema=schema), add("a"), add("b"), add("c")],
        [_info(1), add("d"), add("e"), _txn(1)],
        [_info(2), remove("a"), remove("b"), add("f")],
        [_info(3), add("g")],
        [_info(4), remove("c")],
        [_info(5), add("h%20h")],
        [_info(6), _txn(2)],
    ]


def newest(history_: list[list[Action]]) -> State:
    """What a history comes to."""
    return states(history_)[-1]

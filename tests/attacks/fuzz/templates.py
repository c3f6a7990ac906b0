"""What takes long to make and is made once: blobs, and a managed table with what its commit owner knows.

Run as a process of its own, because making it takes memory and starts threads.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from tests.attacks.fuzz.files import OLD_MS, File, Tree, lay_out
from tests.attacks.fuzz.tables import OWNER, data_files, history, log_tree, newest
from tests.attacks.fuzz.world import Blobs
from tests.table_builder import file_rows, parquet, small_rows

__all__ = ["Templates", "load", "main"]

_ROWS, _GROUP = 2_000_000, 200_000
_ZEROS = 1 << 26


@dataclass(frozen=True)
class Templates:
    """What `main` has made.

    Attributes:
        blobs: contents by name.
        managed: the files of the managed table.
        owner_entries: the entry that its commit owner has.
    """

    blobs: Blobs
    managed: Tree
    owner_entries: tuple[Any, ...]


def load(directory: str) -> Templates:
    """What `main` has put into a directory."""
    with open(f"{directory}/templates", "rb") as file:
        return Templates(*pickle.load(file))


def main(directory: str) -> None:
    """Make everything."""
    managed, owner_entries = _managed(f"{directory}/managed")
    with open(f"{directory}/templates", "wb") as file:
        # Not as `Templates`: run as a program, this module has another name.
        pickle.dump(({**_parquet(), **_vectors()}, managed, owner_entries), file)


def _managed(root: str) -> tuple[Tree, tuple[Any, ...]]:
    from airflow_delta.engine import AddFile, DeltaTable
    from airflow_delta.engine.commit.store.memory import MemoryCommitStore
    from airflow_delta.engine.commit.store.owner import StoreBackedOwner

    lay_out(data_files("commits") | log_tree("commits", history("commits")), root)
    commit_store = MemoryCommitStore()
    table = DeltaTable(root, commit_owners={OWNER: StoreBackedOwner(commit_store)})
    table.convert_to_managed(OWNER, {"backfill": "on-request"})
    file = AddFile("part=x/unknown.parquet", {"p-part": "x"}, 1, OLD_MS, data_change=True)
    for app in ("three", "four"):
        transaction = table.transaction("WRITE")
        transaction.add_file(file)
        transaction.set_transaction(app, 1)
        transaction.commit()
    tree: Tree = {}
    for path in Path(root).rglob("*"):
        if path.is_file():
            tree[str(path.relative_to(root))] = File(path.read_bytes())
    entries = commit_store.entries_at(os.path.realpath(root)) or commit_store.entries_at(root)
    entry = commit_store.find(entries[0].table_id)
    return tree, (entry,)


def _parquet() -> Blobs:
    """Checkpoints that say all that they must, and then one thing two million times."""
    state = newest(history("classic"))
    rows = [*small_rows(state), *file_rows(state.visible())]
    sidecar = {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}
    again: dict[str, Any] = {next(iter(row)): row for row in rows}
    again |= {
        "sidecar": {"sidecar": sidecar},
        "checkpointMetadata": {"checkpointMetadata": {"version": 5}},
    }
    blobs = {f"parquet-{kind}": _repeated(rows, row) for kind, row in again.items()}
    blobs["parquet-nothing"] = _repeated(rows, {})
    blobs["parquet-zeros"] = _long_text(rows, "zstd")
    blobs["parquet-zeros-snappy"] = _long_text(rows, "snappy")
    return blobs


def _repeated(rows: list[dict[str, Any]], row: dict[str, Any]) -> bytes:
    table = pq.read_table(io.BytesIO(parquet([*rows, row])))
    many = table.slice(len(rows)).take(pa.array([0] * _GROUP))
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        for _ in range(_ROWS // _GROUP):
            writer.write_table(many)
    return sink.getvalue()


def _long_text(rows: list[dict[str, Any]], compression: str) -> bytes:
    """A checkpoint with a text of 64 MB, in few kilobytes of zstd; of less in snappy."""
    length = _ZEROS if compression == "zstd" else _ZEROS // 64
    add = next(row for row in rows if "add" in row)
    table = pq.read_table(
        io.BytesIO(parquet([*rows, {"add": {**add["add"], "stats": "0" * length}}]))
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=compression, use_dictionary=False)
    return sink.getvalue()


def _vectors() -> Blobs:
    blobs: Blobs = {}
    for bits in (20, 28, 31):
        bitmap = BitMap64()
        bitmap.add_range(0, 1 << bits)
        bitmap.run_optimize()
        blobs[f"vector-runs-{1 << bits}"] = _framed(bitmap.serialize())
    # Containers of roaring that are empty: a key and a cardinality, and no value.
    empty = struct.pack("<QI", 1, 0) + struct.pack("<II", 12346, 1) + struct.pack("<HHI", 0, 0, 8)
    blobs["vector-empty-1"] = _framed(empty)
    blobs["vector-none-0"] = _framed(struct.pack("<Q", 0))
    keys = b"".join(struct.pack("<I", key) + struct.pack("<II", 12346, 0) for key in range(2000))
    blobs["vector-keys-0"] = _framed(struct.pack("<Q", 2000) + keys)
    blobs["vector-count-0"] = _framed(struct.pack("<Q", 2**63))
    return blobs


def _framed(serialized: bytes) -> bytes:
    data = struct.pack("<I", 1681511377) + serialized
    return b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))


if __name__ == "__main__":
    main(sys.argv[1])

"""Write checkpoints of the V2 spec: sidecars with the file actions, and a top level that names them.

PROTOCOL.md, "V2 Spec", "Sidecar Files", "Checkpoint Naming Scheme". The top level holds
``checkpointMetadata``, ``protocol``, ``metaData``, ``txn``, ``domainMetadata`` and ``sidecar`` actions,
and never file actions: those are in the sidecars, all of them. It is written last, in one request,
and until then nothing names the sidecars: a checkpoint is there as a whole or not at all.

A top level comes as JSON lines or as Parquet, under a name with a UUID, which nobody else can have
written; or as Parquet under the classic name, for readers that don't know the others: they find the
protocol there, and in it that they can't read the table.

What a caller answers for: that the protocol of the version has the feature ``v2Checkpoint`` and lets us
write, that the version's commit exists, and which tombstones and transactions have expired.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import STRING_MAP
from airflow_delta.engine.checkpoint.action_rows import FileActionTable, new_action_file
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.sidecar_layout import clustered, sidecar_layout
from airflow_delta.engine.checkpoint.sidecar_tags import count_of
from airflow_delta.engine.checkpoint.sidecar_write import new_sidecars
from airflow_delta.engine.checkpoint.write import (
    CheckpointWritten,
    ExpectedFiles,
    SmallContent,
    small_actions,
)
from airflow_delta.engine.log.files import checkpoint_path
from airflow_delta.engine.model.actions import CheckpointMetadata, Sidecar
from airflow_delta.engine.storage.base import Storage

__all__ = ["V2Written", "publish_top_level", "write_v2_checkpoint"]

_CHECKPOINT_METADATA = pa.struct(
    [pa.field("version", pa.int64(), nullable=False), pa.field("tags", STRING_MAP)]
)
_SIDECAR = pa.struct(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("sizeInBytes", pa.int64(), nullable=False),
        pa.field("modificationTime", pa.int64(), nullable=False),
        pa.field("tags", STRING_MAP),
    ]
)

_EMBEDDED = 30
"""The most actions of either kind that ``_last_checkpoint`` repeats, as in Delta Spark (edge case C13)."""


@dataclass(frozen=True, slots=True)
class V2Written:
    """A V2 checkpoint that has been published.

    Attributes:
        checkpoint: its totals.
        sidecars_written: sidecars that are new.
        sidecars_reused: sidecars of an earlier checkpoint that it names too.
        bytes_written: bytes of the top level and the new sidecars.
    """

    checkpoint: CheckpointWritten
    sidecars_written: int
    sidecars_reused: int
    bytes_written: int


def write_v2_checkpoint(
    storage: Storage,
    small: SmallContent,
    files: Iterable[FileActionTable],
    *,
    path: str,
    version: int,
    table: str,
    expected: ExpectedFiles | None = None,
) -> V2Written:
    """Write all of a checkpoint, and publish it.

    Args:
        storage: the table's storage.
        small: the state of the version but for its files.
        files: the live adds and the unexpired removes, in tables of any size and in any order.
        path: where the top level goes: a path of `v2_checkpoint_path` or `checkpoint_path`.
        version: the version of the table.
        table: the table's location, for errors.
        expected: what the live files must come to; None if nobody knows.

    Raises:
        CorruptLogError: an action lacks what the protocol requires of it.
        InvalidTableError: the adds aren't what was expected, or the metadata is broken. Nothing is
            published.
        StorageError: the store failed. If it was over the top level, that may be there all the same.
    """
    layout = sidecar_layout(small.protocol, small.metadata, table=table)
    with new_sidecars(storage, layout, version=version, table=table) as sidecars:
        written = sidecars.write(clustered(files))
        if expected is not None:
            expected.check(
                num_adds=sum(sidecar.facts.num_adds for sidecar in written),
                adds_size=sum(sidecar.facts.adds_size_sum for sidecar in written),
                version=version,
                table=table,
            )
    actions = [sidecar.action for sidecar in written]
    checkpoint = publish_top_level(storage, small, actions, path=path, version=version, table=table)
    return V2Written(checkpoint, len(actions), 0, checkpoint.size_in_bytes)


def publish_top_level(
    storage: Storage,
    small: SmallContent,
    sidecars: Sequence[Sidecar],
    *,
    path: str,
    version: int,
    table: str,
) -> CheckpointWritten:
    """Publish a checkpoint over sidecars that are there, under a name of the caller's choice.

    A file of that name is replaced: one of a classic name may be another writer's, which is as good,
    and one whose name has a UUID is there only where it is damaged.

    Args:
        storage: the table's storage.
        small: the state of the version but for its files.
        sidecars: what holds the file actions. Their tags ``numAdds``, ``numRemoves`` and
            ``addsSizeSum`` tell the totals.
        path: of `v2_checkpoint_path` or `checkpoint_path`; it decides the format.
        version: the version of the table.
        table: the table's location, for errors.

    Raises:
        StorageError: the store failed; the checkpoint may be there all the same.
    """
    actions = _top_level(small, sidecars, version)
    if path.endswith(".json"):
        lines = [{kind: action} for kind, group in actions.items() for action in group]
        content = "".join(f"{_dump(line)}\n" for line in lines).encode()
        storage.replace(path, content)
        size = len(content)
    else:
        size = _write_parquet(storage, actions, path=path, version=version, table=table)
    counts = {
        tag: sum(count_of(sidecar.tags, tag) or 0 for sidecar in sidecars)
        for tag in ("numAdds", "numRemoves", "addsSizeSum")
    }
    return CheckpointWritten(
        version=version,
        path=path,
        size_in_bytes=size + sum(sidecar.size_in_bytes for sidecar in sidecars),
        num_actions=sum(map(len, actions.values())) + counts["numAdds"] + counts["numRemoves"],
        num_adds=counts["numAdds"],
        adds_size_sum=counts["addsSizeSum"],
        hint_content=None if path == checkpoint_path(version) else _embedded(path, size, actions),
    )


def _top_level(
    small: SmallContent, sidecars: Sequence[Sidecar], version: int
) -> dict[str, list[Mapping[str, Any]]]:
    """The actions by kind, as JSON objects without fields that are null."""
    return {
        "checkpointMetadata": [CheckpointMetadata(version).to_json()],
        **{kind: [_present(row) for row in rows] for kind, rows in small_actions(small).items()},
        "sidecar": [sidecar.to_json() for sidecar in sidecars],
    }


def _write_parquet(
    storage: Storage,
    actions: Mapping[str, list[Mapping[str, Any]]],
    *,
    path: str,
    version: int,
    table: str,
) -> int:
    fields = [
        pa.field("checkpointMetadata", _CHECKPOINT_METADATA),
        # With the columns of file actions, empty: there are readers that look for them in any case.
        *checkpoint_schema(),
        pa.field("sidecar", _SIDECAR),
    ]
    with storage.writer(path, overwrite=True) as stream:
        with new_action_file(stream, pa.schema(fields), table=table, version=version) as rows:
            rows.write_small(actions)
        return int(stream.tell())


def _embedded(
    path: str, size: int, actions: Mapping[str, list[Mapping[str, Any]]]
) -> dict[str, Any]:
    """What ``_last_checkpoint`` repeats of a top level, so that readers needn't read it."""
    small = [{kind: row} for kind, rows in actions.items() if kind != "sidecar" for row in rows]
    sidecars = actions["sidecar"]
    content: dict[str, Any] = {
        "path": path.rpartition("/")[2],
        "sizeInBytes": size,
        "modificationTime": time.time_ns() // 1_000_000,
    }
    if len(small) <= _EMBEDDED:
        content["nonFileActions"] = small
    if len(sidecars) <= _EMBEDDED:
        content["sidecarFiles"] = sidecars
    return content


def _present(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _dump(action: Mapping[str, Any]) -> str:
    return json.dumps(action, separators=(",", ":"), ensure_ascii=False)

"""Write V2 checkpoints: sidecars with the file actions, and a top level that refers to them.

The top level holds the ``checkpointMetadata``, ``protocol``, ``metaData``, ``txn``, ``domainMetadata`` and
``sidecar`` actions: as JSON lines or Parquet under a name with a UUID, or as Parquet under the classic
name. It is written last, in one request. Until then nothing refers to the sidecars, so a checkpoint exists
as a whole or not at all.

The caller ensures that the protocol of the version has the feature ``v2Checkpoint`` and lets us write, and
that the version's commit exists. It also decides which tombstones and transactions have expired.

PROTOCOL.md, "V2 Spec", "Sidecar Files", "Checkpoint Naming Scheme".
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import STRING_MAP
from airflow_delta.engine.checkpoint.action_rows import FileActionTable, new_action_file
from airflow_delta.engine.checkpoint.idempotent_put import put_idempotently
from airflow_delta.engine.checkpoint.layout import checkpoint_schema
from airflow_delta.engine.checkpoint.sidecars.layout import clustered, sidecar_layout
from airflow_delta.engine.checkpoint.sidecars.tags import count_of
from airflow_delta.engine.checkpoint.sidecars.write import new_sidecars
from airflow_delta.engine.checkpoint.write import (
    CheckpointWritten,
    ExpectedFiles,
    NonFileContent,
    Written,
    non_file_actions,
)
from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.log.files import checkpoint_path
from airflow_delta.engine.model.actions import CheckpointMetadata, Sidecar
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.storage.base import Storage

__all__ = ["CheckpointTarget", "publish_top_level", "write_v2_checkpoint"]

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
"""The most actions of either kind that ``_last_checkpoint`` repeats, as in Delta Spark."""


@dataclass(frozen=True, slots=True)
class CheckpointTarget:
    """The version of a checkpoint, and the path of its top level.

    Attributes:
        path: from `v2_checkpoint_path` or `checkpoint_path`; it decides the format.
        version: the version of the table.
        table: the table's location, for errors.
        replaces: whether an existing file of that name is replaced: a damaged one. Another writer's
            file might be in use.
    """

    path: str
    version: int
    table: str
    replaces: bool = False

    @property
    def has_classic_name(self) -> bool:
        """Whether other writers may choose the same name."""
        return self.path == checkpoint_path(self.version)


def write_v2_checkpoint(
    storage: Storage,
    state: NonFileContent,
    files: Iterable[FileActionTable],
    target: CheckpointTarget,
    *,
    expected: ExpectedFiles | None = None,
) -> Written:
    """Write all of a checkpoint, and publish it.

    Args:
        storage: the table's storage.
        state: the non-file state of the version.
        files: the live adds and the unexpired removes, in tables of any size and in any order.
        target: the version and the path of the new checkpoint.
        expected: the expected totals of the live files; None if unknown.

    Raises:
        ObjectExistsError: there is a checkpoint of the classic name. Nothing is published.
        CorruptLogError: an action lacks a field that the protocol requires.
        InvalidTableError: the adds don't match the expected totals, or the metadata is broken.
            Nothing is published.
        StorageError: the store failed. If it failed while writing the top level, the checkpoint may
            exist all the same.
    """
    version, table = target.version, target.table
    layout = sidecar_layout(state.protocol, state.metadata, table=table)
    with (
        report_progress(
            "checkpoint", "files", None if expected is None else expected.num_adds
        ) as reporter,
        new_sidecars(storage, layout, version=version, table=table) as sidecars,
    ):
        written = sidecars.write(clustered(files), reporter)
        if expected is not None:
            expected.check(
                num_adds=sum(sidecar.facts.num_adds for sidecar in written),
                adds_size=sum(sidecar.facts.adds_size_sum for sidecar in written),
                version=version,
                table=table,
            )
        actions = [sidecar.action for sidecar in written]
        with sidecars.naming():
            checkpoint = publish_top_level(storage, state, actions, target)
    return Written(checkpoint, len(actions), 0, checkpoint.size_in_bytes)


def publish_top_level(
    storage: Storage,
    state: NonFileContent,
    sidecars: Sequence[Sidecar],
    target: CheckpointTarget,
) -> CheckpointWritten:
    """Publish a checkpoint with existing sidecars, under a name that the caller chooses.

    Args:
        storage: the table's storage.
        state: the non-file state of the version.
        sidecars: the sidecars with the file actions. Their tags ``numAdds``, ``numRemoves`` and
            ``addsSizeSum`` give the totals.
        target: the version and the path of the new checkpoint. A name with a UUID must be new, or
            that of a damaged checkpoint.

    Raises:
        ObjectExistsError: there is a checkpoint of the classic name.
        NothingWrittenError: the store refused the checkpoint, which doesn't exist.
        StorageError: the store failed; the checkpoint may exist all the same.
    """
    path, version = target.path, target.version
    actions = _top_level(state, sidecars, version)
    if path.endswith(".json"):
        lines = [{kind: action} for kind, group in actions.items() for action in group]
        content = "".join(f"{_dump(line)}\n" for line in lines).encode()
    else:
        content = _parquet(actions, version=version, table=target.table)
    size = len(content)
    if target.has_classic_name and not target.replaces:
        put_idempotently(storage, path, content)
    else:
        storage.replace(path, content)
    hint = None
    if not target.has_classic_name:
        # Several writers may replace a damaged checkpoint at once, each with sidecars of its own, and it is
        # unknown whose top level stays. So the hint doesn't repeat it then: it might refer to sidecars to
        # which no checkpoint refers, and which a cleanup deletes.
        hint = _in_hint(path, size) | ({} if target.replaces else _embedded(actions))
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
        hint_content=hint,
    )


def _top_level(
    state: NonFileContent, sidecars: Sequence[Sidecar], version: int
) -> dict[str, list[Mapping[str, Any]]]:
    """The actions by kind, as JSON objects without fields that are null."""
    return {
        "checkpointMetadata": [CheckpointMetadata(version).to_json()],
        **{kind: [_present(row) for row in rows] for kind, rows in non_file_actions(state).items()},
        "sidecar": [sidecar.to_json() for sidecar in sidecars],
    }


def _parquet(actions: Mapping[str, list[Mapping[str, Any]]], *, version: int, table: str) -> bytes:
    fields = [
        pa.field("checkpointMetadata", _CHECKPOINT_METADATA),
        # With the columns of file actions, empty, because some readers always look for them.
        *checkpoint_schema(),
        pa.field("sidecar", _SIDECAR),
    ]
    stream = io.BytesIO()
    with new_action_file(stream, pa.schema(fields), table=table, version=version) as rows:
        rows.write_non_file_actions(actions)
    return stream.getvalue()


def _in_hint(path: str, size: int) -> dict[str, Any]:
    """The top level as ``_last_checkpoint`` refers to it."""
    return {
        "path": path.rpartition("/")[2],
        "sizeInBytes": size,
        "modificationTime": now_ms(),
    }


def _embedded(actions: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, Any]:
    """The part of a top level that ``_last_checkpoint`` repeats, to save readers a request."""
    non_file = [{kind: row} for kind, rows in actions.items() if kind != "sidecar" for row in rows]
    sidecars = actions["sidecar"]
    content: dict[str, Any] = {}
    if len(non_file) <= _EMBEDDED:
        content["nonFileActions"] = non_file
    if len(sidecars) <= _EMBEDDED:
        content["sidecarFiles"] = sidecars
    return content


def _present(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _dump(action: Mapping[str, Any]) -> str:
    return json.dumps(action, separators=(",", ":"), ensure_ascii=False)

"""Find the sidecars that no checkpoint needs any more.

PROTOCOL.md, "Metadata Cleanup", steps 4 and 5. `plan_sidecar_cleanup` reads all remaining checkpoints, also
those with a classic name, and keeps

* the sidecars that they refer to;
* files younger than a day, as of midnight UTC: a writer may be making a checkpoint that refers to them;
* everything, if a checkpoint can't be read or its protocol is unknown: it may refer to sidecars in another
  way.

Every other ``<name>.parquet`` in ``_delta_log/_sidecars`` is deleted, with Hadoop's checksum of it
(``.<name>.parquet.crc``) and writers' temporary files (``.<name>.tmp``). Files with other names stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.checkpoint.v2 import sidecar_file
from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.log.files import SIDECAR_DIRECTORY, Checkpoint
from airflow_delta.engine.maintenance.metadata_cleanup.checkpoint_protection import explain_unknown
from airflow_delta.engine.maintenance.metadata_cleanup.expired_files import (
    FileGroup,
    list_checkpoints,
)
from airflow_delta.engine.model.actions import Protocol, Sidecar
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["SidecarPlan", "list_still_unneeded", "plan_sidecar_cleanup"]

_NAME = re.compile(r"[^.].*\.parquet|\..*\.(parquet\.crc|tmp|tmp\.crc)", re.DOTALL)

_WORKERS = 8
"""How many checkpoints are read at a time from a remote store."""


@dataclass(frozen=True, slots=True)
class SidecarPlan:
    """The plan for the sidecars.

    Attributes:
        unneeded: what is to be deleted.
        num_named: how many others a remaining checkpoint refers to, or may refer to.
        num_young: how many are younger than a day.
        reason: why none may be deleted, as a sentence; None if some may.
        checkpoints: the checkpoints that were read.
    """

    unneeded: FileGroup
    num_named: int
    num_young: int
    reason: str | None = None
    checkpoints: frozenset[Checkpoint] = field(default=frozenset(), repr=False)


def plan_sidecar_cleanup(storage: Storage, *, first_version: int, before_ms: int) -> SidecarPlan:
    """Find the sidecars that nobody needs once older checkpoints are deleted.

    Args:
        storage: where the table is.
        first_version: the version from which on checkpoints remain.
        before_ms: files written after this time, in epoch ms, may belong to a checkpoint in the making.

    Raises:
        StorageError: the store failed.
    """
    present = [info for info in storage.list(SIDECAR_DIRECTORY) if _NAME.fullmatch(info.name)]
    old = [info for info in present if info.modified_ms <= before_ms]
    young, none = len(present) - len(old), FileGroup.of("sidecars", ())
    if not old:
        return SidecarPlan(none, 0, young)
    checkpoints = list_checkpoints(storage, start=first_version)
    try:
        named = _collect_named(storage, checkpoints)
    except _UnreadableError as error:
        return SidecarPlan(none, len(old), young, str(error))
    unneeded = [info for info in old if not _is_named(info, named)]
    return SidecarPlan(
        FileGroup.of("sidecars", ((None, info) for info in unneeded)),
        len(old) - len(unneeded),
        young,
        checkpoints=frozenset(checkpoints),
    )


def list_still_unneeded(storage: Storage, plan: SidecarPlan) -> list[str]:
    """List the sidecars of a plan that may be deleted now: those that no newer checkpoint refers to.

    A new checkpoint may refer to sidecars of the one before. Its writer checks afterwards that they still
    exist; so the cleanup looks for new checkpoints just before it deletes sidecars.

    Args:
        storage: where the table is.
        plan: what was planned.

    Raises:
        StorageError: the store failed.
    """
    if not plan.unneeded.count:
        return []
    # From version 0 on: a writer may make a checkpoint of an old version.
    present = list_checkpoints(storage, start=0)
    new = [checkpoint for checkpoint in present if checkpoint not in plan.checkpoints]
    try:
        named = _collect_named(storage, new)
    except _UnreadableError:
        return []
    files = (FileInfo(path, 0, 0) for path in plan.unneeded.paths)
    return [info.path for info in files if not _is_named(info, named)]


class _UnreadableError(Exception):
    """Why the sidecars of a checkpoint are unknown."""


def _collect_named(storage: Storage, checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """Collect the paths of the sidecars that checkpoints refer to."""
    workers = _WORKERS if storage.capabilities.remote else 1
    found = map_ordered(partial(_read_named, storage), checkpoints, workers=workers)
    return frozenset(path for paths in found for path in paths)


def _read_named(storage: Storage, checkpoint: Checkpoint) -> list[str]:
    try:
        return list(_read(storage, checkpoint))
    except ObjectNotFoundError:
        return []  # another cleanup has deleted it
    except CorruptLogError as error:
        raise _UnreadableError(
            f"the checkpoint {checkpoint.path} can't be read, so it is unknown which sidecars it needs: "
            f"{error.message}"
        ) from error


def _read(storage: Storage, checkpoint: Checkpoint) -> Iterator[str]:
    table = storage.root
    for kind, action in open_checkpoint(storage, checkpoint, table=table).non_file_actions():
        where = f"{checkpoint.path}: {kind}"
        if kind == "sidecar":
            sidecar = Sidecar.from_json(action, where)
            yield sidecar_file(sidecar, table=table, checkpoint=checkpoint.path).path
        elif kind == "protocol":
            reason = explain_unknown(Protocol.from_json(action, where), table=table)
            if reason is not None:
                raise _UnreadableError(
                    f"the engine doesn't know the protocol of the checkpoint {checkpoint.path}, so it may "
                    f"need sidecars in other ways: {reason}"
                )


def _is_named(info: FileInfo, named: frozenset[str]) -> bool:
    """Whether a checkpoint refers to a file, or to the file of which it is Hadoop's checksum."""
    if info.path in named:
        return True
    name = info.name
    of = name[1:-4] if name.startswith(".") and name.endswith(".crc") else name
    return f"{SIDECAR_DIRECTORY}/{of}" in named

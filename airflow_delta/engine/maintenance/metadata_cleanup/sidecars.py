"""Which sidecars no checkpoint needs any more.

PROTOCOL.md, "Metadata Cleanup", steps 4 and 5: all checkpoints that remain are read, also those of the
classic name, and what they name is protected. So is what is younger than a day, as of midnight UTC: a
checkpoint that names it may be in the making. Every other ``<name>.parquet`` in ``_delta_log/_sidecars``
goes, with its checksum of Hadoop (``.<name>.parquet.crc``), and what a writer has left in the making
(``.<name>.tmp``). A file of any other name is no sidecar, and stays.

**In doubt nothing goes**: where a checkpoint can't be read, or is of a protocol that the engine doesn't
know, for such a one may name its sidecars in other ways.

**While checkpoints are written.** A new checkpoint may name sidecars of the one before. Whoever writes it
makes sure afterwards that they are still there; so who deletes them looks just before whether there are
checkpoints that the plan doesn't know (`list_still_unneeded`), of whichever version.
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
"""Checkpoints that are read at a time from a store behind a network."""


@dataclass(frozen=True, slots=True)
class SidecarPlan:
    """What becomes of the sidecars.

    Attributes:
        unneeded: what is to be deleted.
        num_named: how many of the others a remaining checkpoint names, or may name.
        num_young: how many are younger than a day.
        reason: why none may be deleted, as a sentence; None where that isn't so.
        checkpoints: those that were read.
    """

    unneeded: FileGroup
    num_named: int
    num_young: int
    reason: str | None = None
    checkpoints: frozenset[Checkpoint] = field(default=frozenset(), repr=False)


def plan_sidecar_cleanup(storage: Storage, *, first_version: int, before_ms: int) -> SidecarPlan:
    """Find the sidecars that nobody needs when older checkpoints are gone.

    Args:
        storage: where the table is.
        first_version: the version from which on checkpoints remain.
        before_ms: what was written after that, in epoch ms, may belong to a checkpoint in the making.

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
        named = _named_by(storage, checkpoints)
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
    """What of a plan may be deleted now: nothing that a checkpoint names that came since.

    Args:
        storage: where the table is.
        plan: what was planned.

    Raises:
        StorageError: the store failed.
    """
    if not plan.unneeded.count:
        return []
    # All of them: who writes one of an older version isn't kept from it by a cleanup.
    present = list_checkpoints(storage, start=0)
    new = [checkpoint for checkpoint in present if checkpoint not in plan.checkpoints]
    try:
        named = _named_by(storage, new)
    except _UnreadableError:
        return []
    files = (FileInfo(path, 0, 0) for path in plan.unneeded.paths)
    return [info.path for info in files if not _is_named(info, named)]


class _UnreadableError(Exception):
    """Why it can't be told what a checkpoint names."""


def _named_by(storage: Storage, checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """The paths of the sidecars that checkpoints name."""
    workers = _WORKERS if storage.capabilities.remote else 1
    found = map_ordered(partial(_sidecars_of, storage), checkpoints, workers=workers)
    return frozenset(path for paths in found for path in paths)


def _sidecars_of(storage: Storage, checkpoint: Checkpoint) -> list[str]:
    try:
        return list(_read(storage, checkpoint))
    except ObjectNotFoundError:
        return []  # somebody else has cleaned up: it doesn't remain
    except CorruptLogError as error:
        raise _UnreadableError(
            f"the checkpoint {checkpoint.path} can't be read, so nobody knows which sidecars it needs: "
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
                    f"the checkpoint {checkpoint.path} is of a protocol that the engine doesn't know, so "
                    f"it may need sidecars in other ways: {reason}"
                )


def _is_named(info: FileInfo, named: frozenset[str]) -> bool:
    """Whether a checkpoint names a file, or the one that Hadoop has left it as the checksum of."""
    if info.path in named:
        return True
    name = info.name
    of = name[1:-4] if name.startswith(".") and name.endswith(".crc") else name
    return f"{SIDECAR_DIRECTORY}/{of}" in named

"""Check the checkpoints that there are: are they whole, can they be opened, do they come often enough?

Of the newest one `checkpoint_content` reads all. Older ones, from which readers start who travel in time,
are opened here, and their sidecars are looked for in one listing.

Spec: PROTOCOL.md, "Checkpoints", "Sidecar File Information". Edge cases A4, A6, A8, J3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, islice

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.checkpoint.v2 import sidecar_file
from airflow_delta.engine.errors import CorruptLogError, InvalidTableError, ObjectNotFoundError
from airflow_delta.engine.log.completeness import missing_versions
from airflow_delta.engine.log.files import (
    SIDECAR_DIRECTORY,
    Checkpoint,
    CheckpointPart,
    ClassicCheckpoint,
    V2Checkpoint,
    parse_log_file,
)
from airflow_delta.engine.maintenance.check.findings import (
    CHECKPOINT,
    CLEANUP,
    MAX_NAMED,
    Finding,
    info,
    join_names,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.model.sizes import size_text

__all__ = ["CHECKS", "DEEP_CHECKS"]

_WORKERS = 8
"""Checkpoints that are opened at a time in a store behind a network."""

_OVERDUE = 10
"""So many times ``delta.checkpointInterval`` without a checkpoint is more than an oversight."""


def _incomplete(subject: Subject) -> Iterator[Finding]:
    """Whether multi-part checkpoints lack parts."""
    parts: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for file in map(parse_log_file, subject.log_files):
        if isinstance(file, CheckpointPart) and file.size:
            parts[file.version, file.parts].add(file.part)
    for (version, count), found in sorted(parts.items()):
        missing = missing_versions(found, first=1, last=count)
        if missing:
            num_missing = sum(gap.stop - gap.start for gap in missing)
            first_missing = [str(part) for part in islice(chain(*missing), MAX_NAMED)]
            yield warning(
                "checkpoint-incomplete",
                f"the checkpoint of version {version} in {count} parts lacks "
                f"{plural(num_missing, 'part')} ({join_names(first_missing, num_missing)}): nobody can read it",
                f"{CHECKPOINT} of that version or a later one; a cleanup takes the rest when it is old",
            )


def _empty(subject: Subject) -> Iterator[Finding]:
    """Whether checkpoints have zero bytes."""
    kinds = (ClassicCheckpoint, V2Checkpoint, CheckpointPart)
    found = [
        each.name
        for each in subject.log_files
        if not each.size and isinstance(parse_log_file(each), kinds)
    ]
    if found:
        yield warning(
            "checkpoint-empty",
            f"{plural(len(found), 'file')} of checkpoints ({join_names(found)}) of zero bytes, which nobody "
            "can read",
            f"{CHECKPOINT} of that version or a later one; a cleanup takes the file when it is old",
        )


def _without_commit(subject: Subject) -> Iterator[Finding]:
    """Whether the newest checkpoint stands without the commit of its version."""
    newest = subject.newest_checkpoint
    if newest is None or any(c.version == newest.version for c in subject.listing.commits):
        return
    last = newest.version == subject.latest_logged
    yield warning(
        "checkpoint-without-commit",
        f"the commit of version {newest.version} is gone, of which there is a checkpoint: its time isn't "
        f"known, and some engines can't {'append to' if last else 'open'} such a table",
        "put the commit back; or make a further commit and a checkpoint of it"
        if last
        else f"{CHECKPOINT} of a later version",
    )


def _lag(subject: Subject) -> Iterator[Finding]:
    """Whether a checkpoint is due."""
    if subject.snapshot is None or subject.properties is None:
        return
    checkpoint = subject.snapshot.segment.checkpoint
    since = subject.snapshot.version - (-1 if checkpoint is None else checkpoint.version)
    try:
        interval = subject.properties.checkpoint_interval
    except InvalidTableError:
        return  # `settings` tells of it
    if since < interval:
        return
    after = "and no checkpoint" if checkpoint is None else f"after version {checkpoint.version}"
    message = (
        f"{plural(since, 'commit')} {after}: all who open the table read them; delta.checkpointInterval is "
        f"{interval:,}"
    )
    if since < _OVERDUE * interval:
        yield info("checkpoint-due", message, CHECKPOINT)
    else:
        yield warning("checkpoint-overdue", message, CHECKPOINT)


def _older_ones_open(subject: Subject) -> Iterator[Finding]:
    """Whether the older checkpoints can be opened, and their sidecars are there."""
    newest = subject.newest_checkpoint
    older = [each for each in subject.listing.checkpoints if each != newest]
    present = {each.path: each.size for each in subject.storage.list(SIDECAR_DIRECTORY)}
    workers = _WORKERS if subject.storage.capabilities.remote else 1
    fault = partial(_fault, subject, present)
    for checkpoint, reason in zip(older, map_ordered(fault, older, workers=workers), strict=True):
        if reason is not None:
            yield warning(
                "checkpoint-damaged",
                f"the checkpoint {checkpoint.path} can't be used: {reason}",
                f"DeltaTable.checkpoint(version={checkpoint.version}), if older files of the log are "
                f"there; newer versions don't need it, and {CLEANUP} takes it when it is old",
            )


CHECKS = (_incomplete, _empty, _without_commit, _lag)
DEEP_CHECKS = (_older_ones_open,)


def _fault(subject: Subject, present: Mapping[str, int], checkpoint: Checkpoint) -> str | None:
    """Why a checkpoint can't be used, as far as opening it tells."""
    try:
        reader = open_checkpoint(subject.storage, checkpoint, table=subject.table)
        kinds = {kind for kind, _ in reader.non_file_actions()}
        lacking = sorted({"protocol", "metaData"} - kinds)
        if lacking:
            return f"it has no {' and no '.join(lacking)}"
        for sidecar in reader.sidecars:
            file = sidecar_file(sidecar, table=subject.table, checkpoint=checkpoint.path)
            if file.path not in present:
                return f"its sidecar {file.path} is missing"
            if present[file.path] != file.size:
                found, expected = size_text(present[file.path]), size_text(file.size)
                return f"its sidecar {file.path} has {found}, expected {expected}"
    except ObjectNotFoundError:
        return None  # a cleanup has taken it meanwhile
    except CorruptLogError as damage:
        return damage.message
    return None

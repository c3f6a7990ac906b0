"""Check the checkpoints: whether they are complete, can be opened, and are made often enough.

Spec: PROTOCOL.md, "Checkpoints", "Sidecar File Information". `checkpoint_content` reads all of the newest
one. Older ones, from which time travel starts, are opened here, and their sidecars are looked up in one
listing.
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
"""How many checkpoints are opened at a time in a remote store."""

_OVERDUE = 10
"""How many times ``delta.checkpointInterval`` without a checkpoint are a warning."""


def _check_parts(subject: Subject) -> Iterator[Finding]:
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
                f"the checkpoint of version {version} in {count} parts lacks {plural(num_missing, 'part')} "
                f"({join_names(first_missing, num_missing)}): nobody can read it",
                f"{CHECKPOINT} of that version or a later one; a cleanup deletes the rest when it is old",
            )


def _check_empty(subject: Subject) -> Iterator[Finding]:
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
            f"{plural(len(found), 'file')} of checkpoints ({join_names(found)}) of zero bytes, which "
            "nobody can read",
            f"{CHECKPOINT} of that version or a later one; a cleanup deletes the file when it is old",
        )


def _check_commit(subject: Subject) -> Iterator[Finding]:
    """Whether the commit of the newest checkpoint is missing."""
    newest = subject.newest_checkpoint
    if newest is None or any(c.version == newest.version for c in subject.listing.commits):
        return
    last = newest.version == subject.latest_logged
    yield warning(
        "checkpoint-without-commit",
        f"version {newest.version} has a checkpoint, but its commit is gone: its time isn't known, and "
        f"some engines can't {'append to' if last else 'open'} such a table",
        "put the commit back; or make another commit and a checkpoint of it"
        if last
        else f"{CHECKPOINT} of a later version",
    )


def _check_lag(subject: Subject) -> Iterator[Finding]:
    """Whether a checkpoint is due."""
    if subject.snapshot is None or subject.properties is None:
        return
    checkpoint = subject.snapshot.segment.checkpoint
    since = subject.snapshot.version - (-1 if checkpoint is None else checkpoint.version)
    try:
        interval = subject.properties.checkpoint_interval
    except InvalidTableError:
        return  # `settings` reports it
    if since < interval:
        return
    after = "and no checkpoint" if checkpoint is None else f"after version {checkpoint.version}"
    message = (
        f"{plural(since, 'commit')} {after}: every reader has to read them; delta.checkpointInterval is "
        f"{interval:,}"
    )
    if since < _OVERDUE * interval:
        yield info("checkpoint-due", message, CHECKPOINT)
    else:
        yield warning("checkpoint-overdue", message, CHECKPOINT)


def _check_older(subject: Subject) -> Iterator[Finding]:
    """Whether the older checkpoints can be opened, and their sidecars exist."""
    newest = subject.newest_checkpoint
    older = [each for each in subject.listing.checkpoints if each != newest]
    present = {each.path: each.size for each in subject.storage.list(SIDECAR_DIRECTORY)}
    workers = _WORKERS if subject.storage.capabilities.remote else 1
    explain = partial(_explain_fault, subject, present)
    for checkpoint, reason in zip(older, map_ordered(explain, older, workers=workers), strict=True):
        if reason is not None:
            yield warning(
                "checkpoint-damaged",
                f"the checkpoint {checkpoint.path} can't be used: {reason}",
                f"DeltaTable.checkpoint(version={checkpoint.version}), if older files of the log exist; "
                f"newer versions don't need it, and {CLEANUP} deletes it when it is old",
            )


CHECKS = (_check_parts, _check_empty, _check_commit, _check_lag)
DEEP_CHECKS = (_check_older,)


def _explain_fault(
    subject: Subject, present: Mapping[str, int], checkpoint: Checkpoint
) -> str | None:
    """Explain why a checkpoint can't be opened; None if it can."""
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
        return None  # a cleanup has deleted it concurrently
    except CorruptLogError as damage:
        return damage.message
    return None

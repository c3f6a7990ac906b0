"""Check ``_check_last_checkpoint``: whether it exists, is correct, and points to the newest checkpoint.

Spec: PROTOCOL.md, "Last Checkpoint File". To this engine it is only a hint. Others fail if it points past
the end of the log, or to parts that don't exist.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.log.files import LAST_CHECKPOINT_PATH, Checkpoint, MultipartCheckpoint
from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint, read_last_checkpoint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.check.findings import (
    CHECKPOINT,
    Finding,
    error,
    info,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject

__all__ = ["CHECKS"]


def _check_last_checkpoint(subject: Subject) -> Iterator[Finding]:
    """Whether the hint leads readers to the newest checkpoint."""
    newest = subject.newest_checkpoint
    hint, reason = _read(subject)
    if hint is None:
        if reason is not None:
            yield warning(
                "hint-damaged",
                f"{reason}: some engines retry for a while before they list the log",
                CHECKPOINT,
            )
        elif newest is not None:
            yield info(
                "hint-missing",
                f"there is no {LAST_CHECKPOINT_PATH}, so readers list the log from its start to find the "
                f"checkpoint of version {newest.version}",
                CHECKPOINT,
            )
        return
    present = [each for each in subject.listing.checkpoints if each.version == hint.version]
    if hint.version > subject.latest_logged:
        # The checkpoint may have been written after the listing, so look again.
        if list_log(subject.storage, start=hint.version).latest is None:
            yield error(
                "hint-past-the-end",
                f"{LAST_CHECKPOINT_PATH} points to version {hint.version}, and the log ends at "
                f"{subject.latest_logged}: some engines can't open the table",
                CHECKPOINT,
            )
    elif not present:
        yield warning(
            "hint-dangling",
            f"{LAST_CHECKPOINT_PATH} points to version {hint.version}, of which there is no complete "
            "checkpoint: readers look for an older one, and some fail",
            CHECKPOINT,
        )
    elif not any(_is_meant(hint, each) for each in present):
        yield warning(
            "hint-wrong",
            f"{LAST_CHECKPOINT_PATH} describes a checkpoint of version {hint.version} in "
            f"{plural(hint.parts or 1, 'part')}, but there is {present[-1].path}: some engines look for "
            "files that don't exist",
            CHECKPOINT,
        )
    elif newest is not None and hint.version < newest.version:
        yield info(
            "hint-behind",
            f"{LAST_CHECKPOINT_PATH} points to version {hint.version}, and there is a checkpoint of "
            f"version {newest.version}: readers list more than they need",
            CHECKPOINT,
        )


CHECKS = (_check_last_checkpoint,)


def _read(subject: Subject) -> tuple[LastCheckpointHint | None, str | None]:
    """Read the hint; if it is unusable, None and the reason; if it is missing, None twice."""
    with warnings.catch_warnings(record=True) as caught:
        # The reader warns about an unusable hint, and returns None as for a missing one.
        warnings.simplefilter("always", DeltaWarning)
        hint = read_last_checkpoint(subject.storage)
    reasons = [str(each.message) for each in caught if issubclass(each.category, DeltaWarning)]
    return hint, reasons[0].removeprefix(f"{subject.table}: ") if reasons else None


def _is_meant(hint: LastCheckpointHint, checkpoint: Checkpoint) -> bool:
    parts = len(checkpoint.parts) if isinstance(checkpoint, MultipartCheckpoint) else None
    return parts == hint.parts or (parts is None and hint.parts == 1)

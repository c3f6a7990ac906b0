"""Check the newest version checksum against what the log comes to, and whether one comes with each commit.

Checksums are optional. But Delta Spark compares its state with the one of the version, and by default
doesn't write checkpoints where they differ; and Delta Kernel believes the protocol and the metadata in
them unseen (edge cases A18 to A20). Older ones matter to nobody who reads the table.

Spec: PROTOCOL.md, "Version Checksum File".
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_delta.engine.errors import CorruptLogError, VersionNotFoundError
from airflow_delta.engine.log.files import Checksum
from airflow_delta.engine.log.version_checksum import read_checksum
from airflow_delta.engine.maintenance.check.findings import (
    Finding,
    error,
    info,
    join_names,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.remedies import PUT_FILE_BACK
from airflow_delta.engine.snapshot.opening import open_snapshot

__all__ = ["CHECKS", "QUICK_CHECKS"]

_DELETE = "delete the file, which is optional"


def _newest_can_be_read(subject: Subject) -> Iterator[Finding]:
    """Whether the newest checksum is one."""
    newest = _newest(subject)
    if newest is None:
        return
    try:
        read_checksum(subject.storage, newest.version)
    except CorruptLogError as damage:
        yield warning("checksum-damaged", damage.message, _DELETE)


def _commit_is_there(subject: Subject) -> Iterator[Finding]:
    """Whether the log has the commit that the newest checksum is of, which was made before it."""
    newest = _newest(subject)
    if newest is not None and newest.version > subject.version:
        yield error(
            "commit-lost",
            f"{newest.path} is there, so version {newest.version} was, and the log ends at "
            f"{subject.version}: the newest commits are lost",
            PUT_FILE_BACK,
        )


def _lag(subject: Subject) -> Iterator[Finding]:
    """Whether writers have stopped leaving checksums."""
    newest = _newest(subject)
    if newest is not None and newest.version < subject.latest_logged:
        behind = plural(subject.latest_logged - newest.version, "version")
        yield info(
            "checksum-behind",
            f"the newest version checksum is of version {newest.version}, {behind} behind: a writer of "
            "later ones leaves none",
        )


def _newest_agrees(subject: Subject) -> Iterator[Finding]:
    """Whether the newest checksum tells what the log comes to."""
    newest = _newest(subject)
    if newest is None or newest.version > subject.version:
        return
    try:
        if subject.snapshot is not None and newest.version == subject.snapshot.version:
            snapshot = subject.snapshot
        else:
            snapshot = open_snapshot(subject.storage, newest.version)
        read_checksum(subject.storage, newest.version)
    except (CorruptLogError, VersionNotFoundError):
        return  # other checks tell of it
    differences = snapshot.verify().differences
    if differences:
        facts = [f"{each.what} is {each.expected}, expected {each.found}" for each in differences]
        yield error(
            "checksum-disagrees",
            f"the checksum {newest.path} isn't what the log comes to: "
            f"{join_names([_cut(fact) for fact in facts])}",
            f"find out which is right, for a log that has changed since would show here; then {_DELETE}",
        )


QUICK_CHECKS = (_commit_is_there, _newest_can_be_read, _lag)
CHECKS = (_newest_agrees,)

_LONGEST = 200


def _newest(subject: Subject) -> Checksum | None:
    return subject.listing.checksums[-1] if subject.listing.checksums else None


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

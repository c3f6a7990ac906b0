"""Check the newest version checksum against the state of its version, and whether each commit leaves one.

Spec: PROTOCOL.md, "Version Checksum File". Checksums are optional. But Delta Spark compares its state with
the one of the version, and by default writes no checkpoint if they differ; and Delta Kernel relies on the
protocol and the metadata in it. Older checksums don't matter to readers of the table.
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


def _check_readable(subject: Subject) -> Iterator[Finding]:
    """Whether the newest checksum can be read."""
    newest = _find_newest(subject)
    if newest is None:
        return
    try:
        read_checksum(subject.storage, newest.version)
    except CorruptLogError as damage:
        yield warning("checksum-damaged", damage.message, _DELETE)


def _check_commit(subject: Subject) -> Iterator[Finding]:
    """Whether the log has the commit of the newest checksum."""
    newest = _find_newest(subject)
    if newest is not None and newest.version > subject.version:
        yield error(
            "commit-lost",
            f"{newest.path} exists, so version {newest.version} did too, but the log ends at "
            f"{subject.version}: the newest commits are lost",
            PUT_FILE_BACK,
        )


def _check_lag(subject: Subject) -> Iterator[Finding]:
    """Whether writers have stopped writing checksums."""
    newest = _find_newest(subject)
    if newest is not None and newest.version < subject.latest_logged:
        behind = plural(subject.latest_logged - newest.version, "version")
        yield info(
            "checksum-behind",
            f"the newest version checksum is of version {newest.version}, {behind} behind: the writer of "
            "later versions writes none",
        )


def _check_newest(subject: Subject) -> Iterator[Finding]:
    """Whether the newest checksum agrees with the state of its version."""
    newest = _find_newest(subject)
    if newest is None or newest.version > subject.version:
        return
    try:
        if subject.snapshot is not None and newest.version == subject.snapshot.version:
            snapshot = subject.snapshot
        else:
            snapshot = open_snapshot(subject.storage, newest.version)
        read_checksum(subject.storage, newest.version)
    except (CorruptLogError, VersionNotFoundError):
        return  # other checks report it
    differences = snapshot.verify().differences
    if differences:
        facts = [f"{each.what} is {each.expected}, expected {each.found}" for each in differences]
        yield error(
            "checksum-disagrees",
            f"the checksum {newest.path} differs from the log: "
            f"{join_names([_shorten(fact) for fact in facts])}",
            f"find out which is right, since the log may have been changed; then {_DELETE}",
        )


QUICK_CHECKS = (_check_commit, _check_readable, _check_lag)
CHECKS = (_check_newest,)

_LONGEST = 200


def _find_newest(subject: Subject) -> Checksum | None:
    return subject.listing.checksums[-1] if subject.listing.checksums else None


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

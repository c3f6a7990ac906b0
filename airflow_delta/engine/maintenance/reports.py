"""What maintenance has done or would do, as plain JSON values: for XCom, jobs and the command line.

A plan may name a million files. A report has their numbers and bytes, what stays and why, and up to which
version the table can be read and restored afterwards: it stays small however large the table is. Reports of
a dry run have the same keys; what wasn't done counts 0, or is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.snapshot.timestamps import utc_text

if TYPE_CHECKING:
    from airflow_delta.engine.maintenance.cleanup_execution import MetadataCleanupResult
    from airflow_delta.engine.maintenance.drop_feature.execution import DropFeatureResult
    from airflow_delta.engine.maintenance.restore import RestoreResult
    from airflow_delta.engine.maintenance.vacuum_execution import VacuumResult

__all__ = [
    "cleanup_report",
    "drop_feature_report",
    "report_lines",
    "restore_report",
    "vacuum_report",
]

_HOUR_MS = 60 * 60 * 1000
_EXAMPLES = 5
"""So many paths show what kind of files would go."""


def cleanup_report(result: MetadataCleanupResult) -> dict[str, Any]:
    """What a metadata cleanup has done.

    Returns:
        ``version`` (the newest one of the log), ``cutoff`` (ISO-8601) and ``cutoff_version``,
        ``checkpoint`` (the version of the one that the log begins with now, None where it stays as it is),
        ``earliest_version``, ``num_protected_versions`` (earlier ones that can be read all the same),
        ``files`` and ``bytes`` to be deleted, ``num_deleted``, ``num_spared``, ``deletes`` and ``keeps``
        (what goes and what stays, by kind), ``wanted_checkpoint`` and the ``reason`` why not more goes.
    """
    plan = result.plan
    return {
        "version": plan.version,
        "cutoff": utc_text(plan.cutoff.time_ms),
        "cutoff_version": plan.cutoff.commit,
        "checkpoint": plan.checkpoint,
        "earliest_version": plan.earliest_version,
        "num_protected_versions": len(plan.protected_versions),
        "files": plan.num_files,
        "bytes": plan.size_in_bytes,
        "num_deleted": result.num_deleted,
        "num_spared": result.num_spared,
        "deletes": [
            {
                "kind": group.kind,
                "files": group.count,
                "bytes": group.size_in_bytes,
                "first_version": group.first_version,
                "last_version": group.last_version,
            }
            for group in plan.deletes
        ],
        "keeps": [
            {"kind": kept.kind, "files": kept.count, "reason": kept.reason} for kept in plan.keeps
        ],
        "wanted_checkpoint": plan.wanted_checkpoint,
        "reason": plan.reason,
    }


def vacuum_report(result: VacuumResult) -> dict[str, Any]:
    """What a vacuum has done.

    Returns:
        ``version`` (the newest one), ``mode`` (``full``, ``lite`` or ``inventory``), ``retention_hours``,
        ``cutoff`` (ISO-8601; what is older may go), ``files`` and ``bytes`` to be deleted, ``by_kind`` the
        same of each kind of files, ``examples`` (a few of their paths), ``num_deleted`` and
        ``bytes_deleted``, ``kept`` (how many stay, by reason), ``oldest_restorable`` (from that version on
        all are whole) and the ``reason`` why nothing goes.
    """
    plan = result.plan
    kept = plan.kept
    return {
        "version": plan.version,
        "mode": plan.mode,
        "retention_hours": plan.retention.duration_ms / _HOUR_MS,
        "cutoff": utc_text(plan.retention.cutoff_ms),
        "files": plan.total.num_files,
        "bytes": plan.total.size_in_bytes,
        "by_kind": {
            kind: {"files": total.num_files, "bytes": total.size_in_bytes}
            for kind, total in plan.by_kind.items()
        },
        "examples": plan.files["path"].slice(0, _EXAMPLES).to_pylist(),
        "num_deleted": result.num_deleted,
        "bytes_deleted": result.bytes_deleted,
        "kept": {
            "referenced": kept.referenced,
            "young": kept.young,
            "hidden": kept.hidden,
            "other_tables": kept.other_tables,
        },
        "oldest_restorable": plan.oldest_restorable,
        "reason": plan.reason,
    }


def restore_report(result: RestoreResult) -> dict[str, Any]:
    """What a restore has done.

    Returns:
        ``version`` (that of its commit, of a dry run the newest one), ``restored_version``, ``committed``,
        ``repeated`` (whether it is the commit of an earlier try), ``files_restored``, ``files_removed``,
        ``bytes_restored``, ``bytes_removed``, and ``files`` and ``bytes`` of the table afterwards. Of an
        earlier try the numbers are what the history has of them, else None.
    """
    version, metrics = result.version, result.metrics
    if version is None and result.plan is not None:
        version = result.plan.base_version
    return {
        "version": version,
        "restored_version": result.restored_version,
        "committed": result.commit is not None,
        "repeated": result.commit is not None and result.commit.repeated,
        "files_restored": metrics.get("numRestoredFiles"),
        "files_removed": metrics.get("numRemovedFiles"),
        "bytes_restored": metrics.get("restoredFilesSize"),
        "bytes_removed": metrics.get("removedFilesSize"),
        "files": metrics.get("numOfFilesAfterRestore"),
        "bytes": metrics.get("tableSizeAfterRestore"),
    }


def drop_feature_report(result: DropFeatureResult) -> dict[str, Any]:
    """How far the drop of a feature has come.

    Returns:
        ``version`` (the one that dropped it, else the newest one), ``feature``, ``way`` (``at once``,
        ``hidden`` or ``truncated``), ``status`` (``planned``, ``needs rewrite``, ``waiting`` or
        ``dropped``) with the ``reason``, ``steps`` that are still to be done, ``ready_at`` (ISO-8601, when
        to come back to truncate the history; None unless that is known), ``files_to_rewrite`` and
        ``bytes_to_rewrite``, ``cleanup`` (of history that is truncated now: ``files``, ``bytes`` and the
        ``earliest_version`` that can be read then; else None), and ``num_commits`` that were made.
    """
    rewrite, ready_at_ms = result.rewrite, result.ready_at_ms
    truncation = None if result.plan is None else result.plan.truncation
    cleanup = None if truncation is None else truncation.cleanup
    left = () if result.plan is None or result.status == "dropped" else result.plan.steps
    return {
        "version": result.version,
        "feature": result.feature,
        "way": result.way,
        "status": result.status,
        "reason": result.reason,
        "steps": list(left),
        "ready_at": None if ready_at_ms is None else utc_text(ready_at_ms),
        "files_to_rewrite": 0 if rewrite is None else rewrite.num_files,
        "bytes_to_rewrite": 0 if rewrite is None else rewrite.size_in_bytes,
        "cleanup": None
        if cleanup is None
        else {
            "files": cleanup.num_files,
            "bytes": cleanup.size_in_bytes,
            "earliest_version": cleanup.earliest_version,
        },
        "num_commits": result.num_commits,
    }


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """A report for people: a line for each fact, and for each entry of a list."""
    width = max(map(len, report), default=0)
    lines: list[str] = []
    for key, value in report.items():
        first, *others = _texts(value)
        lines.append(f"{key.replace('_', ' '):<{width}}  {first}")
        lines += [f"{'':<{width}}  {text}" for text in others]
    return lines


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_text(entry) for entry in value] or ["-"]
    if isinstance(value, Mapping):
        return [f"{name.replace('_', ' ')}: {_text(fact)}" for name, fact in value.items()] or ["-"]
    return [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        facts = {name.replace("_", " "): fact for name, fact in value.items() if fact is not None}
        return ", ".join(f"{name} {_text(fact)}" for name, fact in facts.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)

"""Check whether the log is cleaned up: how much of it is older than necessary, and why it stays.

Spec: PROTOCOL.md, "Metadata Cleanup".
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_delta.engine.errors import (
    InvalidTableError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.maintenance.check.findings import (
    CLEANUP,
    Finding,
    info,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.maintenance.metadata_cleanup.cutoff import DAY_MS
from airflow_delta.engine.maintenance.metadata_cleanup.expired_files import ProposedCommits
from airflow_delta.engine.maintenance.metadata_cleanup.plan import (
    MetadataCleanupPlan,
    open_backfilled_part,
    plan_metadata_cleanup,
)
from airflow_delta.engine.maintenance.metadata_cleanup.unfinished_files import find_unfinished_files
from airflow_delta.engine.model.sizes import size_text
from airflow_delta.engine.model.times import duration_text

__all__ = ["CHECKS", "QUICK_CHECKS"]

_MANY_COMMITS = 100


def _check_unfinished(subject: Subject) -> Iterator[Finding]:
    """Whether dead writers have left temporary files."""
    hidden = [each for each in subject.log_files if each.name.startswith(".")]
    proposed = ProposedCommits.of(subject.storage)
    before = subject.now_ms - subject.now_ms % DAY_MS - DAY_MS
    found = find_unfinished_files(
        subject.storage, (*hidden, *proposed.hidden), latest=subject.latest_logged, before_ms=before
    ).abandoned
    if found.count:
        yield info(
            "files-abandoned",
            f"{plural(found.count, 'file')} of {size_text(found.size_in_bytes)} in the log are temporary "
            "files of writers that died more than a day ago",
            CLEANUP,
        )


def _check_disabled(subject: Subject) -> Iterator[Finding]:
    """Whether cleanups are disabled."""
    if subject.properties is not None and not subject.properties.enable_expired_log_cleanup:
        yield info(
            "cleanup-disabled",
            "delta.enableExpiredLogCleanup is false: the log grows with every commit",
            "set the property to true, unless that is intended",
        )


def _check_overdue(subject: Subject) -> Iterator[Finding]:
    """Whether a cleanup would delete much of the log, or can't."""
    if subject.snapshot is None or subject.properties is None:
        return
    if not subject.properties.enable_expired_log_cleanup:
        return
    try:
        plan = plan_metadata_cleanup(
            subject.storage,
            open_backfilled_part(subject.snapshot),
            newest=subject.snapshot,
            now_ms=subject.now_ms,
        )
    except (UnsupportedFeatureError, InvalidTableError):
        return  # `settings` reports it
    except VersionNotFoundError:
        return  # the newest commit is gone, and with it its time; `checkpoints` reports it
    yield from _report_due(subject, plan)
    yield from _report_blocked(subject, plan)


QUICK_CHECKS = (_check_unfinished, _check_disabled)
CHECKS = (_check_overdue,)


def _report_due(subject: Subject, plan: MetadataCleanupPlan) -> Iterator[Finding]:
    """Report what a cleanup would delete."""
    assert subject.properties is not None
    if not plan.needed:
        return
    retention = subject.properties.log_retention_ms
    count = plan.count("commits")
    message = (
        f"{plural(plan.num_files, 'file')} in the log, {plural(count, 'commit')} among them, with "
        f"{size_text(plan.size_in_bytes)}, are older than delta.logRetentionDuration, "
        f"{duration_text(retention)}"
    )
    if count >= _MANY_COMMITS and _measure_age_ms(subject) > 2 * retention + DAY_MS:
        yield warning("cleanup-overdue", message, CLEANUP)
    else:
        yield info("cleanup-due", message, CLEANUP)


def _report_blocked(subject: Subject, plan: MetadataCleanupPlan) -> Iterator[Finding]:
    """Report why a cleanup can't delete more."""
    assert subject.properties is not None
    wanted, commits = plan.wanted_checkpoint, subject.listing.commits
    first = max(plan.checkpoint or 0, commits[0].version if commits else 0)
    if wanted is not None and wanted - first >= subject.properties.checkpoint_interval:
        yield warning(
            "cleanup-blocked",
            f"a cleanup can't delete everything older than {plan.cutoff.time}: {plan.reason}",
            f"DeltaTable.checkpoint(version={wanted}), then {CLEANUP}",
        )


def _measure_age_ms(subject: Subject) -> int:
    """The age of the oldest commit, by the time of its file."""
    commits = subject.listing.commits
    return subject.now_ms - commits[0].modified_ms if commits else 0

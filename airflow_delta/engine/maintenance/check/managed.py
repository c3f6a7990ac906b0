"""Check a managed table: whether its commit owner answers, agrees with the log, and backfills.

Spec: RFC managed-commits. It also finds conversions that were interrupted, and commits proposed to an owner
that the table doesn't have any more.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.registry import OwnedTable
from airflow_delta.engine.errors import (
    CommitOwnerError,
    CommitOwnerUnavailableError,
    InvalidTableError,
)
from airflow_delta.engine.log.commit_file import is_as_ratified
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.log.proposed import proposed_commits
from airflow_delta.engine.maintenance.check.findings import (
    CLEANUP,
    Finding,
    error,
    info,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject

__all__ = ["CHECKS"]

_BACKFILL = "DeltaTable.backfill() or BackfillOperator"
_LONG_LAG = 100


def _check_owner(subject: Subject) -> Iterator[Finding]:
    """Whether the commit owner answers, and what it reports about the table."""
    if subject.definition is None:
        return
    try:
        owned = subject.owners.find_owned_table(subject.storage, *subject.definition)
        if owned is None:
            yield from _find_proposed(subject)
            return
        status = owned.owner.status(owned.table)
        yield from _compare_commits(subject, owned)
    except InvalidTableError:
        return  # `settings` reports it
    except CommitOwnerUnavailableError as failure:
        yield warning(
            "owner-unavailable",
            f"{failure.message}. So it is unknown whether version {subject.latest_logged} is the newest",
            "run the check where the commit owner can be reached, with its credentials",
        )
        return
    except CommitOwnerError as failure:
        yield error("owner-refuses", failure.message, "see the message")
        return
    name = owned.table.owner
    backfilled = find_latest_version(subject.storage, subject.latest_logged)
    lag = max(0, status.latest_version - backfilled)
    message = (
        f"{plural(lag, 'version')} up to {status.latest_version} "
        f"{'is' if lag == 1 else 'are'} ratified by the commit owner {name!r} and not backfilled: engines "
        "that only read the log don't see them, and no checkpoint can be made of them"
    )
    if lag >= _LONG_LAG:
        yield warning("backfill-overdue", message, _BACKFILL)
    elif lag:
        yield info("backfill-due", message, _BACKFILL)
    if status.standing is not Standing.ACTIVE:
        yield error(
            "conversion-unfinished",
            f"by the log the commit owner {name!r} manages the table, but to the owner the table is "
            f"{status.standing.value}: a conversion was interrupted, and nobody can commit",
            f"{_BACKFILL}, which completes a conversion to the file system; or convert again "
            "(DeltaTable.convert_to_managed, convert_to_file_system)",
        )


CHECKS = (_check_owner,)


def _compare_commits(subject: Subject, owned: OwnedTable) -> Iterator[Finding]:
    """Compare the commits of the log with those that were ratified."""
    tracked = owned.owner.get_commits(owned.table, 0).commits
    paths = [path for each in tracked for path in (commit_path(each.version), each.path)]
    contents = subject.storage.read_many(paths)
    # A loop over the commits that an owner tracks; there are few.
    for commit, logged, own in zip(tracked, contents[::2], contents[1::2], strict=True):
        if logged is None and own is None:
            yield error(
                "ratified-commit-lost",
                f"the commit owner {owned.table.owner!r} has ratified {commit.path} as version "
                f"{commit.version}, and the file is gone",
                "put the file back; if that is impossible, `airflow-delta commits --accept-log` gives up "
                "the version",
            )
        elif logged is None and own is not None and not is_as_ratified(commit, own):
            yield error(
                "ratified-commit-damaged",
                f"{commit.path}, which the commit owner {owned.table.owner!r} has ratified as version "
                f"{commit.version}, has {len(own):,} bytes, and {commit.size:,} were ratified"
                f"{', or others' if len(own) == commit.size else ''}: it was cut off, or changed since",
                "put the file back; if that is impossible, `airflow-delta commits --accept-log` gives up "
                "the version",
            )
        elif logged is not None and own is not None and logged != own:
            yield error(
                "ratified-commit-differs",
                f"{commit_path(commit.version)} isn't {commit.path}, which the commit owner "
                f"{owned.table.owner!r} has ratified as that version: a writer has bypassed the owner",
                "nothing here: find the writer, and put back what is lost",
            )


def _find_proposed(subject: Subject) -> Iterator[Finding]:
    """Find commits that were proposed to an owner, though the file system manages the table."""
    found = list(proposed_commits(subject.storage))
    later = [each for each in found if each.version > subject.version]
    if later:
        yield warning(
            "proposed-commits",
            f"{plural(len(later), 'file')} in _delta_log/_commits {'is' if len(later) == 1 else 'are'} of "
            f"versions after {subject.version}, the newest, though the table has no commit owner: a "
            "conversion was interrupted, or a writer has bypassed the log",
            "nothing here: look at the files; versions that weren't ratified may be deleted",
        )
    elif found:
        yield info(
            "proposed-commits",
            f"{plural(len(found), 'file')} in _delta_log/_commits {'is' if len(found) == 1 else 'are'} "
            "left over from a former commit owner of the table",
            CLEANUP,
        )

"""Check a table for all known problems at once. Nothing is changed.

=========  ============================================================  ================================
depth      looks at                                                      costs
=========  ============================================================  ================================
``quick``  the names in the log, the hint, protocol and metadata, the    one listing of the log and a few
           times of the oldest commits, the commit owner                 small reads
``log``    also the content of all commits, of the newest checkpoint     the log is read about twice
           and of compactions; older checkpoints are opened
``files``  also whether the files of the log exist, what else is in      a listing of the table, or a
           the directory, and footers of some files                      request for each file if few
=========  ============================================================  ================================

Each check is a function that yields findings, in a module about one part of a table. **A check doesn't fail
on a damaged table**: the error that stops it becomes a finding, and the next check runs. There is no report
only if there is no table, or the store doesn't answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TypeAlias

from airflow_delta.engine import clock
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    DeltaError,
    DeltaWarning,
    InvalidArgumentError,
    InvalidTableError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.maintenance.check import (
    checkpoint_content,
    checkpoints,
    checksums,
    cleanups,
    commits,
    compactions,
    files_in_log,
    hint,
    log_files,
    managed,
    settings,
    stored_files,
)
from airflow_delta.engine.maintenance.check.findings import (
    DEPTHS,
    CheckReport,
    Depth,
    Finding,
    error,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["check_table"]

_Check: TypeAlias = Callable[[Subject], Iterator[Finding]]

_CHECKS: tuple[tuple[Depth, tuple[_Check, ...]], ...] = (
    ("quick", log_files.CHECKS),
    ("quick", checkpoints.CHECKS),
    ("quick", hint.CHECKS),
    ("quick", settings.CHECKS),
    ("quick", managed.CHECKS),
    ("quick", checksums.QUICK_CHECKS),
    ("quick", cleanups.QUICK_CHECKS),
    ("log", commits.CHECKS),
    ("log", checkpoints.DEEP_CHECKS),
    ("log", checkpoint_content.CHECKS),
    ("log", checksums.CHECKS),
    ("log", compactions.CHECKS),
    ("log", cleanups.CHECKS),
    ("log", files_in_log.CHECKS),
    ("files", stored_files.CHECKS),
)
"""All checks, with the least depth at which each runs."""


def check_table(
    access: FileAccess,
    owners: CommitOwners,
    *,
    depth: Depth = "files",
    now_ms: int | None = None,
) -> CheckReport:
    """Check a table.

    Args:
        access: opens the table's files.
        owners: the commit owners to ask for the newest version.
        depth: how far to look; see the module.
        now_ms: the time, in epoch ms; by the clock unless given.

    Raises:
        TableNotFoundError: there is no table.
        InvalidArgumentError: the depth is unknown.
        StorageError: the store doesn't answer.
    """
    if depth not in DEPTHS:
        raise InvalidArgumentError(
            f"expected one of the depths {', '.join(DEPTHS)}: found {depth!r}",
            table=access.storage.root,
        )
    now_ms = clock.now_ms() if now_ms is None else now_ms
    wanted = DEPTHS[: DEPTHS.index(depth) + 1]
    with warnings.catch_warnings():
        # The checks find by themselves what the engine would warn about. This hides the warnings in all
        # threads.
        warnings.simplefilter("ignore", DeltaWarning)
        subject = Subject(access, owners, now_ms=now_ms)
        findings = [
            finding
            for least, checks in _CHECKS
            if least in wanted
            for check in checks
            for finding in _run(check, subject)
        ]
        new = [finding for finding in findings if not _repeats_commit(finding, subject)]
        return CheckReport.of(new, table=access.storage.root, version=subject.version, depth=depth)


def _repeats_commit(finding: Finding, subject: Subject) -> bool:
    """Whether a check broke off, or the table can't be opened, for a commit that has its own finding."""
    repeated = tuple(subject.reported_commits)
    return finding.code in ("unreadable", "version-unreadable") and finding.message.endswith(
        repeated
    )


def _run(check: _Check, subject: Subject) -> list[Finding]:
    """Run a check. An error that stops it becomes its last finding."""
    found: list[Finding] = []
    try:
        # One by one, so that what was found before an error counts.
        for finding in check(subject):
            found.append(finding)  # noqa: PERF402
    except DeltaError as failure:
        if isinstance(failure, StorageError) and not isinstance(failure, ObjectNotFoundError):
            subject.probe()
        code = "table-invalid" if isinstance(failure, InvalidTableError) else "unreadable"
        found.append(error(code, failure.message, "see the message"))
    except (MemoryError, AssertionError):
        raise
    except Exception as failure:  # noqa: BLE001 - a library failed on damage that nobody foresaw
        name = f"{check.__module__.rpartition('.')[2]}.{check.__name__.strip('_')}"
        found.append(
            warning(
                "check-broken-off",
                f"the check {name} failed: {type(failure).__name__}: {failure}",
                "nothing here: please report it, with the file that it is about",
            )
        )
    return found

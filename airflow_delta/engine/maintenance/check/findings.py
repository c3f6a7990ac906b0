"""The findings of a check, and its report.

A finding has a code that stays the same in all releases, so that alerts can rely on it. The page
``docs/how-to/check-a-table.md`` lists them. The severities:

===========  ==========================================================================================
``error``    something is wrong or can't be read, now or soon, for some engine, or is deleted too early
``warning``  a damaged part that others replace; or neglect that costs time and space, or soon will
``info``     worth knowing; needs no action
===========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

__all__ = [
    "CHECKPOINT",
    "CLEANUP",
    "DEPTHS",
    "MAX_NAMED",
    "OPTIMIZE",
    "VACUUM",
    "CheckReport",
    "Depth",
    "Finding",
    "Severity",
    "error",
    "info",
    "join_names",
    "join_ranges",
    "plural",
    "warning",
]

Severity: TypeAlias = Literal["error", "warning", "info"]
"""How serious a finding is; see the module."""

Depth: TypeAlias = Literal["quick", "log", "files"]
"""How much a check looks at: the names and the newest small parts of the log, the whole log, or also the
files in the table's directory."""

DEPTHS: tuple[Depth, ...] = ("quick", "log", "files")
"""All depths, from the least to the most."""

CHECKPOINT = "DeltaTable.checkpoint() or CheckpointOperator"
CLEANUP = "DeltaTable.cleanup_metadata() or MetadataCleanupOperator"
OPTIMIZE = "DeltaTable.optimize(); for Iceberg-compatible tables, OPTIMIZE in Spark"
VACUUM = "DeltaTable.vacuum() or VacuumOperator"

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
MAX_NAMED = 5
"""The most names in a message."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a check has found.

    Attributes:
        severity: how serious it is.
        code: the kind of problem, as a stable word.
        message: what was found and where, with names and numbers.
        remedy: the operation that repairs it, or that none does.
    """

    severity: Severity
    code: str
    message: str
    remedy: str

    @property
    def mend(self) -> str:
        """The former name of ``remedy``."""
        return self.remedy

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON values, with ``remedy`` also under its former name ``mend``."""
        return {**asdict(self), "mend": self.remedy}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of a check.

    Attributes:
        table: the table's location.
        version: the newest version; if it can't be opened, the newest one that has files in the log.
        depth: how much was checked.
        findings: errors first, then warnings.
    """

    table: str
    version: int
    depth: Depth
    findings: tuple[Finding, ...]

    @classmethod
    def of(
        cls, findings: Iterable[Finding], *, table: str, version: int, depth: Depth
    ) -> CheckReport:
        """Make a report of findings, without duplicates."""
        ordered = sorted(
            dict.fromkeys(findings), key=lambda found: _SEVERITIES.index(found.severity)
        )
        return cls(table, version, depth, tuple(ordered))

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.count("error")

    def count(self, severity: Severity) -> int:
        """Count the findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values, with all findings."""
        return {
            "table_uri": self.table,
            "version": self.version,
            "depth": self.depth,
            "ok": self.ok,
            **{f"num_{severity}s": self.count(severity) for severity in _SEVERITIES},
            "findings": [finding.to_dict() for finding in self.findings],
        }


def error(code: str, message: str, remedy: str) -> Finding:
    """Make a finding that is an error."""
    return Finding("error", code, message, remedy)


def warning(code: str, message: str, remedy: str) -> Finding:
    """Make a finding that is a warning."""
    return Finding("warning", code, message, remedy)


def info(code: str, message: str, remedy: str = "nothing need be done") -> Finding:
    """Make a finding that is for information."""
    return Finding("info", code, message, remedy)


def plural(count: int, one: str, many: str | None = None) -> str:
    """Write a count of something: ``1 file``, ``2,000 files``."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def join_names(names: Sequence[str], count: int | None = None) -> str:
    """Join the first few names, and say how many more there are.

    Args:
        names: the names, or at least the first few.
        count: how many there are; None for as many as there are names.
    """
    count = len(names) if count is None else count
    shown = names[:MAX_NAMED]
    rest = count - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")


def join_ranges(versions: Iterable[int]) -> str:
    """Join ascending versions into few words: ``3, 5 to 9``. A range of any length costs nothing."""
    found: list[list[int]] = []
    if isinstance(versions, range):
        found, versions = [[versions.start, versions.stop - 1]], ()
    for version in versions:
        if found and version == found[-1][1] + 1:
            found[-1][1] = version
        else:
            found.append([version, version])
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in found]
    return join_names(texts)

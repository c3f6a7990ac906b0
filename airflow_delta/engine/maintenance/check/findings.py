"""What a check of a table finds, and how it says so.

A finding has a code, which doesn't change from release to release, so that alerts can go by it; the page
``docs/how-to/check-a-table.md`` lists them. The severities:

===========  ==========================================================================================
``error``    something can't be read or is wrong, or will be for some engine, or deletes what it shouldn't
``warning``  a part that others make up for is damaged; or neglect costs time and room, or soon will
``info``     worth knowing; nothing need be done
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
"""How bad it is; see the module."""

Depth: TypeAlias = Literal["quick", "log", "files"]
"""How far a check looks: at the names and the newest small parts of the log, at all that the log says, or
also at the files that the log names and at those that it doesn't."""

DEPTHS: tuple[Depth, ...] = ("quick", "log", "files")
"""From the least to the most."""

CHECKPOINT = "DeltaTable.checkpoint() or CheckpointOperator"
CLEANUP = "DeltaTable.cleanup_metadata() or MetadataCleanupOperator"
VACUUM = "DeltaTable.vacuum() or VacuumOperator"

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
MAX_NAMED = 5
"""So many names a message has."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check has found.

    Attributes:
        severity: how bad it is.
        code: what it is, as a stable word.
        message: what was found where, with names and numbers.
        mend: the operation that mends it, or that nothing does.
    """

    severity: Severity
    code: str
    message: str
    mend: str

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check has found.

    Attributes:
        table: the table's location.
        version: the newest version; where that can't be opened, the newest that the log has files of.
        depth: how far the check has looked.
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
        """A report of findings, each told once."""
        ordered = sorted(
            dict.fromkeys(findings), key=lambda found: _SEVERITIES.index(found.severity)
        )
        return cls(table, version, depth, tuple(ordered))

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.count("error")

    def count(self, severity: Severity) -> int:
        """How many findings are of a severity."""
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


def error(code: str, message: str, mend: str) -> Finding:
    """A finding that is an error."""
    return Finding("error", code, message, mend)


def warning(code: str, message: str, mend: str) -> Finding:
    """A finding that is a warning."""
    return Finding("warning", code, message, mend)


def info(code: str, message: str, mend: str = "nothing need be done") -> Finding:
    """A finding that is for information."""
    return Finding("info", code, message, mend)


def plural(count: int, one: str, many: str | None = None) -> str:
    """So many of something: ``1 file``, ``2,000 files``."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def join_names(names: Sequence[str], count: int | None = None) -> str:
    """The first few of some names, and how many more there are.

    Args:
        names: the names; it is enough to have the first few.
        count: how many there are; None for as many as there are names.
    """
    count = len(names) if count is None else count
    told = names[:MAX_NAMED]
    rest = count - len(told)
    return ", ".join(told) + (f" and {rest:,} more" if rest else "")


def join_ranges(versions: Iterable[int]) -> str:
    """Ascending versions in few words: ``3, 5 to 9``. A range of any length costs nothing."""
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

"""Plan the steps that a table needs before row tracking can be enabled.

Row tracking may be enabled once every file has row ids (PROTOCOL.md, "Row Tracking"). Files that were
committed before the table supported the feature have none. They are committed again as they are, in
batches: that gives them theirs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.row_tracking import FEATURE, SUSPENDED
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["BATCH", "RowTrackingPlan", "files_without_row_ids", "plan_row_tracking"]

BATCH = 22_000
"""The maximum number of files in a commit, the same as Delta Spark's."""

_ROW_IDS = ("baseRowId", "defaultRowCommitVersion")


@dataclass(frozen=True, slots=True)
class RowTrackingPlan:
    """The plan of enabling row tracking.

    Attributes:
        version: the newest version.
        num_files: its number of files.
        num_without_ids: how many of them have no row ids.
        num_batches: the number of commits that give them row ids.
        adds_feature: whether the protocol must support the feature first.
        enables: whether the property ``delta.enableRowTracking`` must be set; false: row tracking is
            enabled already.
    """

    version: int
    num_files: int
    num_without_ids: int
    num_batches: int
    adds_feature: bool
    enables: bool

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps, in order; none if row tracking is enabled."""
        steps = []
        if self.adds_feature:
            steps.append(f"add the feature {FEATURE} to the protocol")
        if self.num_without_ids:
            steps.append(
                f"give row ids to {self.num_without_ids:,} files, in {self.num_batches:,} commits"
            )
        if self.enables:
            steps.append("set delta.enableRowTracking to true")
        return tuple(steps)

    def to_dict(self) -> dict[str, Any]:
        """The attributes, and the ``steps``, as plain JSON values."""
        return {**asdict(self), "steps": list(self.steps)}


def plan_row_tracking(base: Snapshot, *, batch: int = BATCH) -> RowTrackingPlan:
    """Plan what is to be done.

    Args:
        base: the newest version.
        batch: the maximum number of files in a commit.

    Raises:
        InvalidArgumentError: row tracking is suspended.
        ConstraintViolationError: a file without row ids has no number of records in its statistics.
            Facts: path.
        DeltaError: the table can't be read.
    """
    files = base.files(columns=("path", "stats", *_ROW_IDS))
    supported = FEATURE in supported_features(base.protocol)
    if supported and base.properties.row_tracking_enabled:
        return RowTrackingPlan(
            base.version, files.num_rows, 0, 0, adds_feature=False, enables=False
        )
    if base.properties.row_tracking_suspended:
        raise InvalidArgumentError(
            "row tracking is suspended, so that files get no row ids; unset the property "
            f"{SUSPENDED} first",
            table=base.table,
            property=SUSPENDED,
        )
    lacking = files_without_row_ids(files) if supported else files
    uncounted = lacking.filter(pc.is_null(num_records(lacking["stats"])))
    if uncounted.num_rows:
        path = uncounted["path"][0].as_py()
        raise ConstraintViolationError(
            f"{uncounted.num_rows} files have no number of records in their statistics, such as {path!r}; "
            "row tracking gives each record an id, so have these files rewritten, or their statistics "
            "computed, first",
            table=base.table,
            path=path,
        )
    return RowTrackingPlan(
        base.version,
        files.num_rows,
        lacking.num_rows,
        ceil(lacking.num_rows / batch),
        adds_feature=not supported,
        enables=True,
    )


def files_without_row_ids(files: pa.Table) -> pa.Table:
    """The files without row ids, or without a row commit version.

    Args:
        files: files of a table that supports row tracking.
    """
    return files.filter(pc.or_(*(pc.is_null(files[name]) for name in _ROW_IDS)))

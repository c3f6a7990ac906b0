"""Profiles of a version, for tasks: from the log if that is enough, otherwise by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook

if TYPE_CHECKING:
    from airflow_delta.engine import Snapshot
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["MOST_COLUMNS", "SnapshotProfile"]

MOST_COLUMNS = 200
"""The most columns of a profile in XCom: they are some 30 to 60 kB of JSON, or 150 kB with long texts."""

_JOB = "table_profile"


class SnapshotProfile:
    """The profile of one version of a table.

    Args:
        hook: gives access to the table.
        table_uri: the table.
        version: its version.
        columns: the columns to profile; None for all, and an empty list for the number of rows only.
        predicate: a Spark condition that selects the rows.
    """

    def __init__(
        self,
        hook: DeltaHook,
        *,
        table_uri: str,
        version: int,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> None:
        self._hook = hook
        self._table_uri = table_uri
        self._version = version
        self._columns = columns
        self._predicate = predicate

    def check(self) -> None:
        """Check, before Spark starts, that the columns exist, and aren't too many.

        Raises:
            InvalidArgumentError: one doesn't exist, or they are too many.
            DeltaError: the table can't be read.
        """
        from airflow_delta.engine.errors import InvalidArgumentError
        from airflow_delta.profiles.profile import checked_leaves

        leaves = checked_leaves(self._columns, self._snapshot.schema, table=self._table_uri)
        if len(leaves) > MOST_COLUMNS:
            raise InvalidArgumentError(
                f"a profile of {len(leaves)} columns is too large for XCom; the limit is "
                f"{MOST_COLUMNS}, counting each field of a struct: choose some with columns=[…]",
                table=self._table_uri,
            )

    def by_statistics(self) -> dict[str, Any] | None:
        """The profile, if only the number of rows is requested and the log contains it; else None.

        Raises:
            DeltaError: the table can't be read.
        """
        from airflow_delta.profiles.profile import profile_by_statistics, profile_report

        if self._columns is None or len(self._columns) or self._predicate:
            return None
        profile = profile_by_statistics(self._snapshot)
        return None if profile is None else profile_report(profile)

    def submit(self, job: SparkJobHook) -> Mapping[str, Any]:
        """Have Spark make the profile.

        The version of a managed table is backfilled first, so that the job finds it wherever its
        driver runs.

        Raises:
            DeltaError: the version can't be backfilled.
            AirflowException: the job failed.
        """
        self._hook.backfill_missing(self._table_uri, self._version)
        parameters: dict[str, Any] = {"table_uri": self._table_uri, "version": self._version}
        parameters |= {} if self._columns is None else {"columns": list(self._columns)}
        parameters |= {"predicate": self._predicate} if self._predicate else {}
        parameters |= self._hook.allowed_parameter(self._table_uri)
        options = self._hook.storage_options(self._table_uri)
        return job.run(_JOB, parameters, storage_options=options)

    @cached_property
    def _snapshot(self) -> Snapshot:
        return self._hook.table(self._table_uri).snapshot(self._version)

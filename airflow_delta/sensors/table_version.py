"""Wait until a Delta table has reached a version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.version_watch import VersionLook, VersionWatch, wanted_version
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import as_version, as_version_or_before
from airflow_delta.sensors.table_wait import TableWait
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import Context

__all__ = ["TableVersionSensor"]


class TableVersionSensor(TableWait):
    """Wait until a table has version ``min_version``, or one newer than ``after_version``.

    With neither of them it waits until the table exists. Returns a dictionary with ``table_uri``
    and ``version``, the newest one when the wait ended. `airflow_delta.sensors.table_wait` tells what
    becomes of a wait that fails.

    The look that finds the version reads the newest commit: one that breaks the protocol, or demands a
    feature that the engine lacks, fails the task. Earlier commits are read by those who open the table.

    To wait for something new since the last run, hand over what that run has seen::

        after_version="{{ (ti.xcom_pull(task_ids='wait', map_indexes=-1, include_prior_dates=True)
                           or {}).get('version', -1) }}"

    (Without ``map_indexes`` Airflow gives what all earlier runs have seen, as a list.)

    :param table_uri: the table's path or URI. (templated)
    :param min_version: wait for this version or a newer one. (templated)
    :param after_version: wait for a version newer than this. At most one of the two. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    :param deferrable: wait in the triggerer and not in a worker slot.
    """

    template_fields: Sequence[str] = (*TableWait.template_fields, "min_version", "after_version")
    arguments = with_readers(TableWait, min_version=as_version, after_version=as_version_or_before)
    exclusive = (("min_version", "after_version"),)

    def __init__(
        self,
        *,
        min_version: int | str | None = None,
        after_version: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_version = min_version
        self.after_version = after_version
        self._watch = VersionWatch()
        self.check_arguments()

    def begin(self) -> None:
        """Look at the log as for the first time."""
        self._watch = VersionWatch()

    @property
    def wanted(self) -> str:
        """What is waited for, in words."""
        return wanted_version(self._min_version())

    def look(self, context: Context) -> VersionLook:  # noqa: ARG002  (no look needs it but others)
        """Look at the log once.

        In one process, as with ``mode="poke"``, only the first look lists the log.

        :raises DeltaError: the table can't be read.
        """
        # Opened at every look, for credentials that expire during a long wait.
        return self._watch.look(self.hook().table(self.table_uri), wanted=self._min_version())

    def trigger(self, **arguments: Any) -> TableVersionTrigger:
        """The trigger that waits for the version."""
        return TableVersionTrigger(min_version=self._min_version(), **arguments)

    def _min_version(self) -> int:
        minimum, after = self.argument("min_version"), self.argument("after_version")
        if minimum is None:
            minimum = 0 if after is None else after + 1
        return int(minimum)

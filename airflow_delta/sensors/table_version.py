"""Wait until a Delta table has reached a version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.waits.version import VersionLook, VersionWatch
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import as_version, as_version_or_before
from airflow_delta.sensors.table_wait import TableWait
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import Context

__all__ = ["TableVersionSensor"]


class TableVersionSensor(TableWait):
    """Wait until a table has version ``min_version``, or one newer than ``after_version``.

    Without both it waits until the table exists. Returns a dictionary with ``table_uri`` and ``version``,
    the newest one at the end of the wait. For failures see `airflow_delta.sensors.table_wait`.

    The check that finds the version reads the newest commit. The task fails if this commit breaks
    the protocol or needs a feature that the engine doesn't support. Earlier commits aren't read.

    To wait for a new version since the last run, pass the version that the last run returned::

        after_version=(
            "{{ (ti.xcom_pull(task_ids='wait', map_indexes=-1, include_prior_dates=True) or {})"
            ".get('version', -1) }}"
        )

    (Without ``map_indexes`` Airflow returns a list with the versions of all earlier runs.)

    :param table_uri: the table's path or URI. (templated)
    :param min_version: wait for this version or a newer one. (templated)
    :param after_version: wait for a version newer than this. Give at most one of the two. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
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
        self._watch: VersionWatch | None = None
        self.check_arguments()

    def begin(self) -> None:
        """Forget the state of an earlier wait."""
        self._watch = None

    @property
    def wanted(self) -> str:
        """The state that is waited for, in words."""
        return VersionWatch(self._min_version()).wanted

    def look(self, context: Context) -> VersionLook:  # noqa: ARG002  (no look needs it but others)
        """Check the log once.

        Within one process, for example with ``mode="poke"``, only the first check lists the log.

        :raises DeltaError: the table can't be read.
        """
        if self._watch is None:
            self._watch = VersionWatch(self._min_version())
        # Opened at every check, because credentials may expire during a long wait.
        return self._watch.look(self.hook().table(self.table_uri))

    def trigger(self, **arguments: Any) -> TableVersionTrigger:
        """The trigger that waits for the version."""
        return TableVersionTrigger(min_version=self._min_version(), **arguments)

    def _min_version(self) -> int:
        minimum, after = self.argument("min_version"), self.argument("after_version")
        if minimum is None:
            minimum = 0 if after is None else after + 1
        return int(minimum)

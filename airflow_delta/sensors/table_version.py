"""Wait until a Delta table has reached a version."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.version_watch import VersionWatch
from airflow_delta.operators.template_values import as_version
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseSensorOperator,
    Context,
    PokeReturnValue,
    conf,
)

__all__ = ["TableVersionSensor"]


class TableVersionSensor(BaseSensorOperator):
    """Wait until a table has version ``min_version``, or one newer than ``after_version``.

    With neither of them it waits until the table exists. Returns a dictionary with ``table_uri``
    and ``version``, the newest one when the wait ended.

    To wait for something new since the last run, hand over what that run has seen::

        after_version="{{ (ti.xcom_pull(task_ids='wait', include_prior_dates=True)
                           or {}).get('version', -1) }}"

    :param table_uri: the table's path or URI. (templated)
    :param min_version: wait for this version or a newer one. (templated)
    :param after_version: wait for a version newer than this. At most one of the two. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param deferrable: wait in the triggerer and not in a worker slot.

    What becomes of a wait that fails is Airflow's rule for sensors, in the triggerer as in a worker
    slot:

    ==============  =================================  ==========================================
    argument        the table can't be read            the wait takes longer than ``timeout``
    ==============  =================================  ==========================================
    none of these   the task fails, and may be tried   the task fails, and is not tried again
                    again
    ``soft_fail``   the same                           skipped
    ``never_fail``  skipped                            skipped, but fails if it waited in a slot
    ``silent_fail`` logged, and looked at again        as without
    ==============  =================================  ==========================================

    ``mode``, ``exponential_backoff`` and ``max_wait`` are for the wait in a worker slot alone.
    """

    template_fields: Sequence[str] = ("table_uri", "min_version", "after_version", "delta_conn_id")
    ui_color = "#d7ecf3"

    def __init__(
        self,
        *,
        table_uri: str,
        min_version: int | str | None = None,
        after_version: int | str | None = None,
        delta_conn_id: str | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table_uri = table_uri
        self.min_version = min_version
        self.after_version = after_version
        self.delta_conn_id = delta_conn_id
        self.deferrable = deferrable
        self._watch = VersionWatch()

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002  (Airflow's signature)
        """Look at the log once.

        In one process, as with ``mode="poke"``, only the first look lists the log.

        :raises ValueError: both versions are given, or one isn't a number.
        :raises DeltaError: the table can't be read.
        """
        # Opened at every look, for credentials that expire during a long wait.
        latest = self._watch.look(DeltaHook(self.delta_conn_id).table(self.table_uri))
        wanted = self._wanted()
        self.log.info("%s: newest version %s, wanted %s", self.table_uri, latest, wanted)
        reached = latest is not None and latest >= wanted
        return PokeReturnValue(reached, {"table_uri": self.table_uri, "version": latest})

    def execute(self, context: Context) -> Any:
        """Wait in this slot, or hand the waiting over to the triggerer."""
        # Where one process runs a task more than once, its table may be another one each time.
        self._watch = VersionWatch()
        if not self.deferrable:
            return super().execute(context)
        found = self._first_look(context)
        if found.is_done:
            return found.xcom_value
        return self.defer(
            trigger=TableVersionTrigger(
                table_uri=self.table_uri,
                min_version=self._wanted(),
                delta_conn_id=self.delta_conn_id,
                poke_interval=self.poke_interval,
                silent_fail=self.silent_fail,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(
        self,
        context: Context,  # noqa: ARG002  (Airflow's signature)
        event: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Take over from the triggerer.

        :raises DeltaError: the trigger could not read the table. It is the error that poking would
            have raised; an `AirflowException` would be skipped with ``soft_fail``.
        """
        if event is None or event.get("status") != "success":
            found = event or {"message": f"{self.table_uri}: the trigger ended without an event"}
            error = DeltaHook.error(found.get("error", "DeltaError"), found["message"])
            if not self.never_fail:
                raise error
            self._skip(error, "never_fail")
        return {"table_uri": event["table_uri"], "version": event["version"]}

    def _first_look(self, context: Context) -> PokeReturnValue:
        """A poke before the waiting begins; what fails is judged as in `BaseSensorOperator`."""
        try:
            return self.poke(context)
        except AirflowSkipException:
            raise
        except (AirflowSensorTimeout, AirflowTaskTimeout, AirflowFailException) as error:
            if self.soft_fail or self.never_fail:
                self._skip(error, "soft_fail" if self.soft_fail else "never_fail")
            raise
        except Exception as error:
            if self.silent_fail:
                self.log.exception("%s: the first look failed", self.table_uri)
                return PokeReturnValue(is_done=False)
            if self.never_fail:
                self._skip(error, "never_fail")
            raise

    def _skip(self, error: BaseException, argument: str) -> NoReturn:
        raise AirflowSkipException(f"skipped, as {argument} is set: {error}") from error

    def _wanted(self) -> int:
        minimum = as_version(self.min_version, name="min_version")
        after = as_version(self.after_version, name="after_version")
        if minimum is not None and after is not None:
            raise ValueError(
                f"{self.table_uri}: both min_version={minimum} and after_version={after} are "
                "given; give one of them"
            )
        if minimum is not None:
            return minimum
        return 0 if after is None else after + 1

"""Wait for a state of a Delta table, in a worker slot or in the triggerer: what sensors have in common.

What becomes of a wait that fails is Airflow's rule for sensors, in the triggerer as in a worker slot:

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

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from typing import Any, NoReturn

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.operators.table_task import TableTask
from airflow_delta.triggers.table_poll import TablePoll
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

__all__ = ["TableWait"]


class TableWait(TableTask, BaseSensorOperator):
    """A sensor of one table. See the module for what becomes of a wait that fails.

    :param deferrable: wait in the triggerer and not in a worker slot.
    """

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable

    @abstractmethod
    def begin(self) -> None:
        """Forget what an earlier execution of this object has seen."""

    @abstractmethod
    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the table once."""

    @abstractmethod
    def trigger(self, **arguments: Any) -> TablePoll:
        """The trigger to which the wait is handed over after a first look.

        :param arguments: those that all triggers of tables have.
        """

    def execute(self, context: Context) -> Any:
        """Wait in this slot, or hand the waiting over to the triggerer."""
        # Where one process runs a task more than once, its table may be another one each time.
        self.begin()
        if not self.deferrable:
            return super().execute(context)
        found = self._first_look(context)
        if found.is_done:
            return found.xcom_value
        return self.defer(
            trigger=self.trigger(
                table_uri=self.table_uri,
                delta_conn_id=self.delta_conn_id,
                commit_owner_conn_id=self.commit_owner_conn_id,
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
        return {name: value for name, value in event.items() if name != "status"}

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

"""Wait for a state of a Delta table, in a worker slot or in the triggerer: what sensors have in common.

What becomes of a wait that fails, in the triggerer as in a worker slot:

==============  ========================  ==========================  ============================
argument        the table can't be read,  it can't be read, and       the wait takes longer than
                which may pass            another look won't help     ``timeout``
==============  ========================  ==========================  ============================
none of these   the task fails, and may   the task fails for good     the task fails for good
                be tried again
``soft_fail``   the same                  the same                    skipped
``never_fail``  skipped                   skipped                     skipped, but fails if it
                                                                      waited in a slot
``silent_fail`` logged, and looked at     the task fails for good     as without
                again
==============  ========================  ==========================  ============================

`airflow_delta.hooks.failures` tells what may pass. Airflow itself skips with ``soft_fail`` whatever fails
for good. Here a mistake or a damaged table is no reason to skip: only a wait that takes too long is.
Arguments that make no sense fail the task with ``never_fail`` as well, before it looks at the table.

``mode``, ``exponential_backoff`` and ``max_wait`` are for the wait in a worker slot alone.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import TableFailure, failures_by_policy
from airflow_delta.hooks.table_look import TableLook, WaitLog
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

_TRIGGER_GRACE = timedelta(minutes=1)
"""So much longer Airflow waits for the trigger, which ends the wait by itself and says what it has seen."""

_TIMED_OUT = "Sensor has timed out"
"""How Airflow's message begins where it skips a wait in a worker slot that takes too long."""


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
        self._log: WaitLog | None = None

    @abstractmethod
    def begin(self) -> None:
        """Forget what an earlier execution of this object has seen."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What is waited for, in words."""

    @abstractmethod
    def look(self, context: Context) -> TableLook | None:
        """Look at the table once.

        :returns: what was found; None where it is too early for a look.
        :raises DeltaError: the table can't be read.
        """

    @abstractmethod
    def trigger(self, **arguments: Any) -> TablePoll:
        """The trigger to which the wait is handed over after a first look.

        :param arguments: those that all triggers of tables have.
        """

    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the table once, and log what was seen if it is new.

        :raises TableFailure: the table can't be read, and another look won't help.
        :raises DeltaError: the table can't be read.
        """
        with failures_by_policy():
            found = self.look(context)
        if found is None:
            return PokeReturnValue(is_done=False)
        if self._log is None:
            self._log = WaitLog(self.log, self.table_uri, self.wanted)
        self._log.seen(found.seen)
        return PokeReturnValue(found.reached, found.facts)

    def execute(self, context: Context) -> Any:
        """Wait in this slot, or hand the waiting over to the triggerer."""
        # Where one process runs a task more than once, its table may be another one each time.
        self._log = None
        self.begin()
        with self._explained():
            if not self.deferrable:
                return super().execute(context)
            found = self._first_look(context)
        if found.is_done:
            return found.xcom_value
        timeout = timedelta(seconds=self.timeout)
        return self.defer(
            trigger=self.trigger(
                table_uri=self.table_uri,
                delta_conn_id=self.delta_conn_id,
                commit_owner_conn_id=self.commit_owner_conn_id,
                allowed_outside=self.allowed_outside,
                poke_interval=self.poke_interval,
                silent_fail=self.silent_fail,
                deadline=time.time() + self.timeout,
            ),
            method_name="execute_complete",
            timeout=timeout + _TRIGGER_GRACE,
        )

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Take over from the triggerer, or learn that it took too long."""
        with self._explained():
            return super().resume_execution(next_method, next_kwargs, context)

    def execute_complete(
        self,
        context: Context,  # noqa: ARG002  (Airflow's signature)
        event: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Take over from the triggerer.

        :raises AirflowSensorTimeout: the wait took longer than ``timeout``.
        :raises TableFailure: the trigger could not read the table, and another look won't help.
        :raises DeltaError: the trigger could not read the table. It is the error that poking would
            have raised; an `AirflowException` would be skipped with ``soft_fail``.
        """
        if event is not None and event.get("status") == "success":
            return {name: value for name, value in event.items() if name != "status"}
        if event is not None and event.get("status") == "timeout":
            raise _WaitTimeout(f"{event['message']}; it took longer than {self.timeout:g} seconds")
        found = event or {"message": f"{self.table_uri}: the trigger ended without an event"}
        error = DeltaHook.error(found.get("error", "DeltaError"), found["message"])
        if self.never_fail:
            self._skip(error, "never_fail")
        with failures_by_policy():
            raise error

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
            if self.never_fail:
                self._skip(error, "never_fail")
            if self.silent_fail:
                self.log.exception("%s: the first look failed", self.table_uri)
                return PokeReturnValue(is_done=False)
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Fail where Airflow would skip a mistake, and say in time-outs what was waited for."""
        try:
            yield
        except AirflowSkipException as skipped:
            cause = skipped.__cause__
            if isinstance(cause, TableFailure) and not self.never_fail:
                raise cause from cause.__cause__
            if isinstance(cause, AirflowSensorTimeout):
                argument = "soft_fail" if self.soft_fail else "never_fail"
                self._skip(self._timed_out(cause), argument)
            if cause is None and str(skipped).startswith(_TIMED_OUT):
                self._skip(self._timed_out(skipped), "soft_fail")
            raise
        except AirflowSensorTimeout as timeout:
            raise self._timed_out(timeout) from timeout

    def _timed_out(self, error: Exception) -> AirflowSensorTimeout:
        if isinstance(error, _WaitTimeout):
            return error
        if self._log is None:
            reason = "the trigger, which should have ended the wait, has reported nothing"
            return _WaitTimeout(f"{self.table_uri}: waiting for {self.wanted}; {reason}: {error}")
        return _WaitTimeout(f"{self._log.standing}; {error}")

    def _skip(self, error: BaseException, argument: str) -> NoReturn:
        raise AirflowSkipException(f"skipped, as {argument} is set: {error}") from error


class _WaitTimeout(AirflowSensorTimeout):
    """A wait took too long; its message names the table, what was waited for and what was seen."""

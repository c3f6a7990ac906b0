"""`TableWait`, the base class of sensors: wait for a table, in a worker slot or the triggerer.

Failures have the same result in a worker slot and in the triggerer:

==============  ========================  ==========================  ============================
argument        temporary error           permanent error             the wait takes longer than
                                                                      ``timeout``
==============  ========================  ==========================  ============================
none of these   the task fails, with      the task fails without      the task fails without
                retries                   retries                     retries
``soft_fail``   the same                  the same                    skipped
``never_fail``  skipped                   skipped                     skipped, but fails if it
                                                                      waited in a slot
``silent_fail`` logged, and checked       the task fails without      the task fails without
                again                     retries                     retries
==============  ========================  ==========================  ============================

`airflow_delta.hooks.failures` decides which errors are permanent. Airflow itself, with ``soft_fail``,
skips all permanent failures. Here a mistake or a damaged table doesn't skip the task, only a timeout
does. Invalid arguments fail the task even with ``never_fail``.

``mode``, ``exponential_backoff`` and ``max_wait`` only apply to the wait in a worker slot.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import (
    TableFailure,
    failures_by_policy,
    is_permanent,
    is_permanent_kind,
)
from airflow_delta.hooks.waits.look import TableLook, WaitLog
from airflow_delta.operators.lineage.task import with_lineage
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
"""Airflow waits so much longer for the trigger, which ends the wait itself and reports the last state."""

_TIMED_OUT = "Sensor has timed out"
"""The start of Airflow's message when it skips a wait in a worker slot after a timeout."""


class TableWait(TableTask, BaseSensorOperator):
    """A sensor of one table. See the module for failures.

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
        """Forget the state of an earlier execution of this object."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """The state that is waited for, in words."""

    @abstractmethod
    def look(self, context: Context) -> TableLook | None:
        """Check the table once.

        :returns: the result; None if it is too early for a check.
        :raises DeltaError: the table can't be read.
        """

    @abstractmethod
    def trigger(self, **arguments: Any) -> TablePoll:
        """Create the trigger that continues the wait after the first check.

        :param arguments: the common arguments of `TablePoll`.
        """

    def poke(self, context: Context) -> PokeReturnValue:
        """Check the table once, and log a changed state.

        :raises TableFailure: the table can't be read, because of a permanent error.
        :raises DeltaError: the table can't be read.
        """
        with failures_by_policy():
            found = self.look(context)
        if found is None:
            return PokeReturnValue(is_done=False)
        if self._log is None:
            self._log = WaitLog(self.log, self.table_uri, self.wanted)
        self._log.found(found)
        return PokeReturnValue(found.reached, found.facts)

    @with_lineage
    def execute(self, context: Context) -> Any:
        """Wait in this slot, or defer to the triggerer."""
        # If a process runs a task more than once, the table may be another one each time.
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
        """Resume the task after the trigger has fired or timed out."""
        with self._explained():
            return super().resume_execution(next_method, next_kwargs, context)

    @with_lineage
    def execute_complete(
        self,
        context: Context,  # noqa: ARG002  (Airflow's signature)
        event: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Resume the task after the trigger has fired.

        :raises AirflowSensorTimeout: the wait took longer than ``timeout``.
        :raises TableFailure: the trigger couldn't read the table, because of a permanent error.
        :raises DeltaError: the trigger couldn't read the table. It is the same error as in a worker
            slot; an `AirflowException` would be skipped with ``soft_fail``.
        """
        if event is not None and event.get("status") == "success":
            return {name: value for name, value in event.items() if name != "status"}
        if event is not None and event.get("status") == "timeout":
            raise _WaitTimeout(f"{event['message']}; it took longer than {self.timeout:g} seconds")
        found = event or {"message": f"{self.table_uri}: the trigger ended without an event"}
        kind = found.get("error", "DeltaError")
        error = DeltaHook.error(kind, found["message"])
        if self.never_fail:
            self._skip(error, "never_fail")
        if is_permanent_kind(kind) and not is_permanent(error):
            # A failure of the hook, such as a provider that isn't installed where the trigger runs.
            raise TableFailure(found["message"])
        with failures_by_policy():
            raise error

    def _first_look(self, context: Context) -> PokeReturnValue:
        """Poke once before deferring, with the same handling of failures as in `BaseSensorOperator`."""
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
                self.log.exception("%s: the first check failed", self.table_uri)
                return PokeReturnValue(is_done=False)
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Fail where Airflow would skip a permanent error, and add the wanted state to timeouts."""
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
    """A wait took too long; its message names the table, the wanted state and the last state found."""

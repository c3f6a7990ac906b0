"""Which errors fail a task for good, and which are worth another try: one table for all tasks.

A task that fails for good raises an `AirflowFailException`, which Airflow doesn't try again. That is for
what another try finds again: wrong arguments, a feature that is missing, what retention protects, a
version that isn't there, a damaged table. What may pass by itself is raised as it is, and tried again as
the task's ``retries`` say: a store or a commit owner that doesn't answer, another writer that was faster,
a version that isn't backfilled yet.

The table goes by the names of classes: the engine isn't imported where a DAG is parsed, and a Spark job or
a trigger reports no more of an error than its class and its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from airflow_delta.version_compat import AirflowException, AirflowFailException

__all__ = [
    "POLICY",
    "ArgumentError",
    "TableFailure",
    "failures_by_policy",
    "is_permanent",
    "is_permanent_kind",
    "with_failures_by_policy",
]

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])

POLICY = {
    # The root stands for what the engine doesn't know.
    "DeltaError": "retry",
    "TableStateError": "fail",
    "TableNotFoundError": "fail",
    "VersionNotFoundError": "fail",
    "TimestampOutOfRangeError": "fail",
    "CorruptLogError": "fail",
    "InvalidTableError": "fail",
    "DeletionVectorError": "fail",
    "ChangesNotAvailableError": "fail",
    "OutsidePathError": "fail",
    "UnsupportedFeatureError": "fail",
    # The next try begins with what the other writer has left.
    "CommitConflictError": "retry",
    "ProtocolChangedError": "retry",
    "MetadataChangedError": "retry",
    "ConcurrentAppendError": "retry",
    "ConcurrentDeleteReadError": "retry",
    "ConcurrentDeleteDeleteError": "retry",
    "ConcurrentTransactionError": "retry",
    "TableAlreadyExistsError": "retry",
    # Tasks that commit find their commit by its transaction identifier.
    "CommitOutcomeUnknownError": "retry",
    "CommitOwnerError": "retry",
    "CommitOwnerUnavailableError": "retry",
    "NoBooksError": "retry",
    "NotBackfilledError": "retry",
    "ConstraintViolationError": "fail",
    "RetentionError": "fail",
    "StorageError": "retry",
    # A cleanup may have taken a file of the log that was listed before; the next try lists anew.
    "ObjectNotFoundError": "retry",
    "MissingFilesError": "fail",
    "ObjectExistsError": "retry",
    "NothingWrittenError": "retry",
    "NotRegularFileError": "fail",
    "UnsafeStorageError": "fail",
    "InvalidArgumentError": "fail",
}
"""By the name of each class of ``airflow_delta.engine.errors``: ``fail`` for good, or ``retry``."""


class TableFailure(AirflowFailException):
    """A task has failed for good: another try would find the same. Its cause is the engine's error."""


class ArgumentError(TableFailure, ValueError):
    """An argument of a task makes no sense, or a template of it has rendered to nothing."""


def is_permanent(error: BaseException) -> bool:
    """Whether an error fails a task for good.

    :param error: of a class that isn't in `POLICY`, it counts as the nearest class above it that is; one
        that isn't the engine's may pass.
    """
    kinds = (kind.__name__ for kind in type(error).__mro__)
    return next((POLICY[kind] for kind in kinds if kind in POLICY), "retry") == "fail"


def is_permanent_kind(kind: str) -> bool:
    """Whether errors of a class fail a task for good.

    :param kind: the name of the class, as a trigger or a Spark job reports it.
    """
    return POLICY.get(kind) == "fail"


@contextmanager
def failures_by_policy() -> Iterator[None]:
    """Raise what fails a task for good as a `TableFailure`, and everything else as it is.

    :raises TableFailure: with the error's text, and the error as its cause.
    """
    try:
        yield
    except AirflowException:
        raise  # Whoever raised it has decided.
    except Exception as error:
        if is_permanent(error):
            raise TableFailure(str(error)) from error
        raise


def with_failures_by_policy(execute: _FunctionT) -> _FunctionT:
    """Have a method, such as an operator's ``execute``, raise its errors as `failures_by_policy` does."""

    @wraps(execute)
    def by_policy(*arguments: Any, **named: Any) -> Any:
        with failures_by_policy():
            return execute(*arguments, **named)

    return cast("_FunctionT", by_policy)

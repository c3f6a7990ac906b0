"""`POLICY`: which errors Airflow retries, and which fail a task without a retry.

A permanent error would occur again: invalid arguments, an unsupported feature, a missing version, a
damaged table, or files that the retention protects. It becomes an `AirflowFailException`, which
Airflow doesn't retry. A temporary error is raised unchanged, and the task's ``retries`` apply: a
store or commit owner doesn't answer, another writer was faster, or a version isn't backfilled yet.

The policy uses names of classes, because the engine isn't imported when a DAG is parsed, and
because Spark jobs and triggers report only the class and the text of an error.
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
    # The base class, for errors that the engine doesn't know.
    "DeltaError": "retry",
    "TableStateError": "fail",
    "TableNotFoundError": "fail",
    "VersionNotFoundError": "fail",
    "TimestampOutOfRangeError": "fail",
    "CorruptLogError": "fail",
    "InvalidTableError": "fail",
    "DeletionVectorError": "fail",
    "DataFileError": "fail",
    "ChangesNotAvailableError": "fail",
    "OutsidePathError": "fail",
    "UnsupportedFeatureError": "fail",
    # The next try is based on the other writer's version.
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
    # They might find a part of it. Somebody has to delete its file.
    "CommitCutOffError": "fail",
    "CommitOwnerError": "retry",
    "CommitOwnerUnavailableError": "retry",
    "CommitStoreMissingError": "retry",
    "NotBackfilledError": "retry",
    "ConstraintViolationError": "fail",
    "MultipleMatchesError": "fail",
    "RetentionError": "fail",
    "StorageError": "retry",
    # The same credentials would be refused again.
    "AccessDeniedError": "fail",
    "WriteDeniedError": "fail",
    # A cleanup may have deleted a file of the log after it was listed; the next try lists again.
    "ObjectNotFoundError": "retry",
    "MissingFilesError": "fail",
    "ObjectExistsError": "retry",
    "NothingWrittenError": "retry",
    # The location is wrong, or somebody has to create the bucket.
    "BucketNotFoundError": "fail",
    "NotRegularFileError": "fail",
    "UnsafeStorageError": "fail",
    "InvalidArgumentError": "fail",
}
"""For the name of each class of ``airflow_delta.engine.errors``: ``fail`` or ``retry``."""


class TableFailure(AirflowFailException):
    """A task has failed permanently: a retry would fail as well. Its cause is the engine's error."""


class ArgumentError(TableFailure, ValueError):
    """An argument of a task is invalid, or its template has rendered to nothing."""


def is_permanent(error: BaseException) -> bool:
    """Whether an error is permanent.

    :param error: the error; the nearest base class in `POLICY` decides. Errors of other classes are
        retried, except those that Airflow doesn't retry either.
    """
    if isinstance(error, AirflowFailException):
        return True
    kinds = (kind.__name__ for kind in type(error).__mro__)
    return next((POLICY[kind] for kind in kinds if kind in POLICY), "retry") == "fail"


def is_permanent_kind(kind: str) -> bool:
    """Whether errors of a class are permanent.

    :param kind: the name of the class, as reported by a trigger or a Spark job.
    """
    return POLICY.get(kind) == "fail" or kind in (TableFailure.__name__, ArgumentError.__name__)


@contextmanager
def failures_by_policy() -> Iterator[None]:
    """Raise permanent errors as `TableFailure`, and all others unchanged.

    :raises TableFailure: with the error's text, and the error as its cause.
    """
    try:
        yield
    except AirflowException:
        raise  # the code that raised it has decided
    except Exception as error:
        if is_permanent(error):
            raise TableFailure(str(error)) from error
        raise


def with_failures_by_policy(execute: _FunctionT) -> _FunctionT:
    """Decorate a method, such as an operator's ``execute``, with `failures_by_policy`."""

    @wraps(execute)
    def by_policy(*arguments: Any, **named: Any) -> Any:
        """Call the method, and raise its errors by policy."""
        with failures_by_policy():
            return execute(*arguments, **named)

    return cast("_FunctionT", by_policy)

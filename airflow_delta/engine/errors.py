"""All errors of the log engine, as one tree.

A message names the table, the version or file, what was found, what was expected and what to do next. The
same facts are attributes of the error, so callers needn't parse the text. Every error can be pickled,
because Airflow sends errors between processes::

    DeltaError
    ├── TableStateError                    the table is at fault
    │   ├── TableNotFoundError             no Delta log at this location
    │   ├── VersionNotFoundError           the log can't rebuild the requested version
    │   ├── TimestampOutOfRangeError       no version belongs to the requested timestamp
    │   ├── CorruptLogError                a file of the log breaks the protocol
    │   ├── InvalidTableError              the metadata contradicts the protocol
    │   ├── DeletionVectorError            a deletion vector can't be read as described
    │   ├── DataFileError                  a data file isn't as the log and the schema describe it
    │   ├── OutsidePathError               the table may not read a path of the log
    │   └── ChangesNotAvailableError       the changes of a range of versions are unknown
    ├── UnsupportedFeatureError            the engine lacks a feature of the table
    ├── CommitConflictError                another writer committed first
    │   ├── ProtocolChangedError
    │   ├── MetadataChangedError
    │   ├── ConcurrentAppendError
    │   ├── ConcurrentDeleteReadError
    │   ├── ConcurrentDeleteDeleteError
    │   ├── ConcurrentTransactionError
    │   └── TableAlreadyExistsError
    ├── CommitOutcomeUnknownError          a commit may or may not have been made
    │   └── CommitCutOffError              the store has kept only a part of it
    ├── CommitOwnerError                   the commit owner of a managed table refused or failed
    │   ├── CommitOwnerUnavailableError    it can't be found or can't be reached
    │   │   └── CommitStoreMissingError    its commit store doesn't exist
    │   └── NotBackfilledError             a version isn't backfilled yet
    ├── ConstraintViolationError           the data or the actions of a commit break a rule of the table
    ├── MultipleMatchesError               a row of the table matches several rows of a merge's source
    ├── RetentionError                     the operation would delete what the retention protects
    ├── StorageError                       the store failed
    │   ├── ObjectNotFoundError
    │   │   └── MissingFilesError          files that a version of the table needs
    │   ├── ObjectExistsError
    │   ├── NotRegularFileError            a link, a FIFO or a device is where a file should be
    │   ├── AccessDeniedError              the store refuses the credentials
    │   │   └── WriteDeniedError           and has written nothing; also a NothingWrittenError
    │   ├── NothingWrittenError            it failed before anything was written
    │   │   └── BucketNotFoundError        there is no such bucket or container
    │   └── UnsafeStorageError             the store lacks what a safe operation needs
    └── InvalidArgumentError               an argument is invalid

    DeltaWarning                           something is wrong, and the engine can continue
"""

from __future__ import annotations

from typing import Any

from airflow_delta.engine.public_text import message_text, public_text, without_password

__all__ = [
    "AccessDeniedError",
    "BucketNotFoundError",
    "ChangesNotAvailableError",
    "CommitConflictError",
    "CommitCutOffError",
    "CommitOutcomeUnknownError",
    "CommitOwnerError",
    "CommitOwnerUnavailableError",
    "CommitStoreMissingError",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentTransactionError",
    "ConstraintViolationError",
    "CorruptLogError",
    "DataFileError",
    "DeletionVectorError",
    "DeltaError",
    "DeltaWarning",
    "InvalidArgumentError",
    "InvalidTableError",
    "MetadataChangedError",
    "MissingFilesError",
    "MultipleMatchesError",
    "NoBooksError",
    "NotBackfilledError",
    "NotRegularFileError",
    "NothingWrittenError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "OutsidePathError",
    "ProtocolChangedError",
    "RetentionError",
    "StorageError",
    "TableAlreadyExistsError",
    "TableNotFoundError",
    "TableStateError",
    "TimestampOutOfRangeError",
    "UnsafeStorageError",
    "UnsupportedFeatureError",
    "VersionNotFoundError",
    "WriteDeniedError",
]


class DeltaWarning(UserWarning):
    """Something about a table is wrong, and the engine can continue without loss.

    Args:
        message: what is wrong; shown as in `DeltaError`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message_text(message))


class DeltaError(Exception):
    """The base class of all errors of the engine.

    Names and texts from a table may contain anything. In the message, control characters are escaped,
    passwords are removed from locations, and the middle of a long text is left out. Facts aren't changed.

    Args:
        message: problem, reason and remedy, in one or two sentences.
        table: the table's location, if it is known; it precedes the message.
        facts: further facts, which become attributes of the error (``version``, ``path``, …).
    """

    def __init__(self, message: str, *, table: str | None = None, **facts: Any) -> None:
        message = message_text(message)
        super().__init__(message)
        self.message = message
        self.table = None if table is None else without_password(table)
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        # Only called for names that aren't ordinary attributes. It must not recurse for `facts`: an error
        # has no attributes while it is being unpickled.
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__!r} error has no fact {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.table, self.facts)

    def __str__(self) -> str:
        return f"{public_text(self.table)}: {self.message}" if self.table else self.message


def _rebuild(
    cls: type[DeltaError], message: str, table: str | None, facts: dict[str, Any]
) -> DeltaError:
    return cls(message, table=table, **facts)


class TableStateError(DeltaError):
    """The table itself is wrong; repeating the call doesn't help."""


class TableNotFoundError(TableStateError):
    """There is no Delta log at the location."""


class VersionNotFoundError(TableStateError):
    """The log can no longer, or not yet, rebuild a version. Facts: version, earliest, latest."""


class TimestampOutOfRangeError(TableStateError):
    """No version belongs to a timestamp. Facts: timestamp_ms, earliest_ms, latest_ms."""


class CorruptLogError(TableStateError):
    """A file of the log breaks the protocol. Facts, where known: version, path, line."""


class InvalidTableError(TableStateError):
    """The metadata or protocol of a table contradicts the specification."""


class DeletionVectorError(TableStateError):
    """A deletion vector can't be read as its descriptor says. Facts, where known: path, offset."""


class DataFileError(TableStateError):
    """A data file isn't as the log and the schema of the table describe it. Facts: path, version."""


class OutsidePathError(TableStateError):
    """A path of the log is outside of the table, and not in an allowed location. Facts: path."""


class ChangesNotAvailableError(TableStateError):
    """The changes of a range of versions aren't known completely. Facts: start, end."""


class UnsupportedFeatureError(DeltaError):
    """The table needs features or protocol versions that the engine lacks. Facts: features."""


class CommitConflictError(DeltaError):
    """Another writer committed a conflicting change first. Facts: version (of the concurrent commit)."""


class ProtocolChangedError(CommitConflictError):
    """A concurrent commit changed the protocol."""


class MetadataChangedError(CommitConflictError):
    """A concurrent commit changed the metadata."""


class ConcurrentAppendError(CommitConflictError):
    """A concurrent commit added files to what this transaction had read."""


class ConcurrentDeleteReadError(CommitConflictError):
    """A concurrent commit removed a file that this transaction had read."""


class ConcurrentDeleteDeleteError(CommitConflictError):
    """A concurrent commit removed a file that this transaction removes too."""


class ConcurrentTransactionError(CommitConflictError):
    """A concurrent commit wrote the application transaction or domain that this one relies on."""


class TableAlreadyExistsError(CommitConflictError):
    """A table to be created exists already."""


class CommitOutcomeUnknownError(DeltaError):
    """A commit may or may not have been made. Facts: version, txn_id."""


class CommitCutOffError(CommitOutcomeUnknownError):
    """The store has kept only a part of a commit, and its file must be deleted. Facts: version, txn_id.

    A repetition of the operation might take that part for the whole commit.
    """


class CommitOwnerError(DeltaError):
    """The commit owner of a managed table refused, failed or can't be found. Facts: owner."""


class CommitOwnerUnavailableError(CommitOwnerError):
    """The commit owner of a managed table isn't known here, or can't be reached. Facts: owner.

    Backfilled versions can be read without it; commits need it.
    """


class CommitStoreMissingError(CommitOwnerUnavailableError):
    """The commit store of a commit owner doesn't exist: not created yet, or at another location."""


NoBooksError = CommitStoreMissingError
"""The former name of `CommitStoreMissingError`, for code that catches it and errors pickled by it."""


class NotBackfilledError(CommitOwnerError):
    """A version of a managed table isn't backfilled, but a checkpoint or a log compaction needs it.

    It isn't an invalid argument: the same call succeeds once the commit owner has backfilled the version.
    So callers may wait and try again.

    Facts: owner, version, latest_backfilled (the newest backfilled version), path.
    """


class ConstraintViolationError(DeltaError):
    """The actions of a commit, or the data behind them, break a rule of the table."""


class MultipleMatchesError(DeltaError):
    """A row of the table matches several rows of the source of a merge.

    Facts: num_rows (of the table), rows (of the source, as JSON, that one of them matches).
    """


class RetentionError(DeltaError):
    """The operation would delete something that a retention period protects."""


class StorageError(DeltaError):
    """The store failed. Facts, where known: path, operation."""


class ObjectNotFoundError(StorageError):
    """The object doesn't exist. Facts: path."""


class MissingFilesError(ObjectNotFoundError):
    """Files of a version of a table don't exist, perhaps because of a vacuum.

    Facts: version, path (the first), paths (the first hundred), num_missing (the search ends at a hundred).
    """


class ObjectExistsError(StorageError):
    """The object exists already. Facts: path."""


class NotRegularFileError(StorageError):
    """A path is, or goes through, a symbolic link, a FIFO, a socket or a device.

    In the directory of a table these are neither followed nor read. Facts: path, operation, found (the path
    itself, or a directory on the way to it).
    """


class NothingWrittenError(StorageError):
    """The store failed, and certainly has written nothing. Facts: path, operation."""


class AccessDeniedError(StorageError):
    """The store refuses the credentials: they are wrong or expired, or lack a permission.

    Facts: path, operation.
    """


class WriteDeniedError(AccessDeniedError, NothingWrittenError):
    """The store refuses the credentials for a write, and has written nothing. Facts: path, operation."""


class BucketNotFoundError(NothingWrittenError):
    """The store says that there is no such bucket or container. Facts: path, operation."""


class UnsafeStorageError(StorageError):
    """The store lacks what a safe operation needs. Facts: operation."""


class InvalidArgumentError(DeltaError, ValueError):
    """An argument is invalid."""

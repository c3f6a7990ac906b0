"""Every error the log engine raises, as one tree.

A message says which table, which version or file, what was found, what was expected and what to do
next; the same facts are fields of the error, so that callers need not parse text. Every error can be
pickled, because Airflow carries errors between processes::

    DeltaError
    ├── TableStateError                    the table is at fault
    │   ├── TableNotFoundError             no Delta log at this location
    │   ├── VersionNotFoundError           the log can't rebuild the version asked for
    │   ├── TimestampOutOfRangeError       no version belongs to the timestamp asked for
    │   ├── CorruptLogError                a file of the log breaks the protocol
    │   ├── InvalidTableError              the metadata contradicts the protocol
    │   ├── DeletionVectorError            a deletion vector can't be read as described
    │   ├── OutsidePathError               a path of the log leads where the table may not read
    │   └── ChangesNotAvailableError       the changes of a range of versions can't be told
    ├── UnsupportedFeatureError            the table needs a feature we lack
    ├── CommitConflictError                another writer was there first
    │   ├── ProtocolChangedError
    │   ├── MetadataChangedError
    │   ├── ConcurrentAppendError
    │   ├── ConcurrentDeleteReadError
    │   ├── ConcurrentDeleteDeleteError
    │   ├── ConcurrentTransactionError
    │   └── TableAlreadyExistsError
    ├── CommitOutcomeUnknownError          a commit may or may not have been made
    ├── CommitOwnerError                   the commit owner of a managed table refused or failed
    │   ├── CommitOwnerUnavailableError    it can't be found or can't be reached
    │   │   └── NoBooksError               its books aren't where they should be
    │   └── NotBackfilledError             it hasn't backfilled yet what the operation needs
    ├── ConstraintViolationError           the data or the actions of a commit break a rule of the table
    ├── RetentionError                     the operation would destroy what retention protects
    ├── StorageError                       the store failed
    │   ├── ObjectNotFoundError
    │   │   └── MissingFilesError          files that a version of the table needs
    │   ├── ObjectExistsError
    │   ├── NotRegularFileError            a link, a FIFO or a device is where a file should be
    │   ├── NothingWrittenError            it failed before anything was written
    │   │   └── BucketNotFoundError        there is no such bucket or container
    │   └── UnsafeStorageError             the store can't do what safety needs
    └── InvalidArgumentError               the caller asked for something that makes no sense

    DeltaWarning                           something was wrong and could be helped
"""

from __future__ import annotations

from typing import Any

from airflow_delta.engine.public_text import message_text, public_text, without_password

__all__ = [
    "BucketNotFoundError",
    "ChangesNotAvailableError",
    "CommitConflictError",
    "CommitOutcomeUnknownError",
    "CommitOwnerError",
    "CommitOwnerUnavailableError",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentTransactionError",
    "ConstraintViolationError",
    "CorruptLogError",
    "DeletionVectorError",
    "DeltaError",
    "DeltaWarning",
    "InvalidArgumentError",
    "InvalidTableError",
    "MetadataChangedError",
    "MissingFilesError",
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
]


class DeltaWarning(UserWarning):
    """Something about a table was wrong, and the engine could go on without loss.

    Args:
        message: what was wrong; shown as in `DeltaError`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message_text(message))


class DeltaError(Exception):
    """The root of all errors of the engine.

    What a table has put into names and texts may be anything: in the message its control characters are
    escaped, locations are without passwords, and of what is too long the middle is left out. Facts are as
    they are.

    Args:
        message: problem, reason and remedy, in one or two sentences.
        table: the table's location, where one is known; put in front of the message.
        facts: further facts, which become attributes of the error (``version``, ``path``, …).
    """

    def __init__(self, message: str, *, table: str | None = None, **facts: Any) -> None:
        message = message_text(message)
        super().__init__(message)
        self.message = message
        self.table = None if table is None else without_password(table)
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are not ordinary attributes. `facts` itself must not recurse:
        # while an error is being unpickled it has no attributes yet.
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
    """The table itself is at fault; repeating the call can't help."""


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


class OutsidePathError(TableStateError):
    """A path of the log leads out of the table, to where nobody has allowed it to read. Facts: path."""


class ChangesNotAvailableError(TableStateError):
    """The changes of a range of versions can't be told. Facts: start, end."""


class UnsupportedFeatureError(DeltaError):
    """The table needs features or protocol versions that the engine lacks. Facts: features."""


class CommitConflictError(DeltaError):
    """Another writer changed the table first. Facts: version (of the winning commit)."""


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
    """A table to be created is there already."""


class CommitOutcomeUnknownError(DeltaError):
    """A commit may or may not have been made. Facts: version, txn_id."""


class CommitOwnerError(DeltaError):
    """The commit owner of a managed table refused, failed or can't be found. Facts: owner."""


class CommitOwnerUnavailableError(CommitOwnerError):
    """The commit owner of a managed table isn't known here, or can't be reached. Facts: owner.

    Reading goes on without it, from what is backfilled; writing has to wait for it.
    """


class NoBooksError(CommitOwnerUnavailableError):
    """The books of a commit owner aren't there: nobody has begun them, or they are elsewhere."""


class NotBackfilledError(CommitOwnerError):
    """A version of a managed table isn't backfilled, as a checkpoint or a compaction of it needs.

    Not a wrong argument: the same call succeeds as soon as the version has been backfilled, which is up
    to the commit owner. Whoever waits for an owner, or asks it again, is right to do so here.

    Facts: owner, version, latest_backfilled (the newest version that is backfilled), path.
    """


class ConstraintViolationError(DeltaError):
    """The actions of a commit, or the data behind them, break a rule of the table."""


class RetentionError(DeltaError):
    """The operation would destroy something that a retention period protects."""


class StorageError(DeltaError):
    """The store failed. Facts, where known: path, operation."""


class ObjectNotFoundError(StorageError):
    """The object isn't there. Facts: path."""


class MissingFilesError(ObjectNotFoundError):
    """Files that a version of a table needs aren't there, because of a vacuum perhaps.

    Facts: version, path (the first), paths (the first hundred), num_missing (at most a hundred, where the
    search has ended).
    """


class ObjectExistsError(StorageError):
    """The object is there already. Facts: path."""


class NotRegularFileError(StorageError):
    """A symbolic link, a FIFO, a socket or a device is where a file or a directory should be.

    In the directory of a table these are neither followed nor read. Facts: path, operation, found (what
    it is: the path, or a directory on the way to it).
    """


class NothingWrittenError(StorageError):
    """The store failed, and certainly before anything was written. Facts: path, operation."""


class BucketNotFoundError(NothingWrittenError):
    """The store says that there is no such bucket or container. Facts: path, operation."""


class UnsafeStorageError(StorageError):
    """The store can't do what the safety of an operation needs. Facts: operation."""


class InvalidArgumentError(DeltaError, ValueError):
    """The caller asked for something that makes no sense."""

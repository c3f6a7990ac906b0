"""`TableBase`: where a table is and what it takes to open it; what all methods of `DeltaTable` share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.model.arguments import check_mapping, check_type
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.public_text import without_password
from airflow_delta.engine.snapshot.newest import NewestSnapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess, check_prefixes
from airflow_delta.engine.storage.location import open_storage

if TYPE_CHECKING:
    from airflow_delta.engine.commit.owner import CommitOwner
    from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["TableBase"]


class TableBase:
    """A table by its location. The arguments are those of `DeltaTable`."""

    def __init__(
        self,
        uri: str | os.PathLike[str],
        storage_options: Mapping[str, object] | None = None,
        commit_owners: Mapping[str, CommitOwner] | None = None,
        *,
        allowed_outside: Iterable[str] = (),
    ) -> None:
        location = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
        check_type("uri", location, str, "a path or a URI")
        self._uri = location
        if storage_options is not None:
            check_mapping("storage_options", storage_options, "a mapping, or None", table=location)
        self._options = dict(storage_options or {})
        if commit_owners is not None:
            expected = "a mapping of names to commit owners, or None"
            check_type("commit_owners", commit_owners, Mapping, expected, table=location)
        self._owners = CommitOwners(commit_owners)
        self._allowed_outside = check_prefixes(allowed_outside, table=location)

    def __getstate__(self) -> dict[str, Any]:
        # What is open or known here is of no use to another process.
        kept = ("_uri", "_options", "_owners", "_allowed_outside")
        return {name: self.__dict__[name] for name in kept}

    def __repr__(self) -> str:
        return f"DeltaTable({without_password(self._uri)!r})"

    @property
    def uri(self) -> str:
        """The location, as it was given; of a path its text."""
        return self._uri

    @lazy_property
    def storage(self) -> Storage:
        """The store that the table is in, bound to the table's root."""
        return open_storage(self._uri, self._options)

    @property
    def storage_options(self) -> dict[str, Any]:
        """The credentials and settings of the store, which may contain secrets."""
        return dict(self._options)

    @property
    def commit_owners(self) -> CommitOwners:
        """The commit owners that the table may have, both given and installed ones."""
        return self._owners

    @property
    def allowed_outside(self) -> tuple[str, ...]:
        """The locations outside of the table below which it may read."""
        return self._allowed_outside

    @property
    def file_access(self) -> FileAccess:
        """Opens the files that the log names, as far as the table may read them.

        Made anew each time, so that what links lead to is found out for each operation.
        """
        return FileAccess(self.storage, self._options, self._allowed_outside)

    @lazy_property
    def _newest(self) -> NewestSnapshot:
        return NewestSnapshot(self.storage, self._owners)

    def _begin(self, operation: str, **arguments: Any) -> OptimisticTransaction:
        """Begin a change of the newest version, with further arguments of `OptimisticTransaction`."""
        from airflow_delta.engine.transaction.commit_loop import monotonic_s
        from airflow_delta.engine.transaction.transaction import OptimisticTransaction

        newest_at_s = monotonic_s()
        return OptimisticTransaction(
            self.storage,
            self._newest.get(),
            operation,
            **arguments,
            newest_at_s=newest_at_s,
            owners=self._owners,
        )

"""`FileAccess`: opens the files that a table's log names, if the user allows the table to read there.

Anybody who can write into a table's directory chooses the paths in its log. So a path is opened only in
these cases:

==================================================  ===================================================
path                                                is
==================================================  ===================================================
below the table's root                              the table's own
elsewhere in the same bucket, or in the same        the table's own: the same credentials are sent to
container and account, for an object store          the same host
below a prefix of ``allowed_outside``               allowed
anything else: another bucket, account or kind of   an outside path: refused
store, or outside of a local table
with a ``..`` segment                               refused
==================================================  ===================================================

Spec: PROTOCOL.md, "Add File and Remove File", on absolute paths. docs/explanation/security.md has the
reasons.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    NotRegularFileError,
    OutsidePathError,
    StorageError,
)
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.named_store import LOCAL, Location, NamedStore, store_kind

__all__ = ["FileAccess", "check_prefixes"]

_STORES = ("file", "memory", "s3", "gs", "azure")
_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*):/")


def check_prefixes(prefixes: object, *, table: str | None = None) -> tuple[str, ...]:
    """Check the prefixes that a user allows, and return them.

    Raises:
        InvalidArgumentError: it isn't a list of texts; or a prefix is relative, has a ``..`` segment, or is
            in a store that the engine only opens through fsspec.
    """
    if isinstance(prefixes, str) or not isinstance(prefixes, Iterable):
        raise InvalidArgumentError(
            f"allowed_outside: expected a list of locations, found {type(prefixes).__name__}",
            table=table,
        )
    checked = tuple(prefixes)
    for prefix in checked:
        if not isinstance(prefix, str):
            raise InvalidArgumentError(
                f"allowed_outside: expected locations as texts, found {type(prefix).__name__}",
                table=table,
            )
        scheme = _PREFIX.match(prefix)
        if not (scheme or prefix.startswith("/")) or ".." in prefix.split("/") or "\0" in prefix:
            raise InvalidArgumentError(
                "allowed_outside: expected absolute locations without '..', such as s3://shared-lake/ or "
                f"/data/shared, found {_shown(prefix)}",
                table=table,
            )
        if scheme and store_kind(scheme[1]) not in _STORES:
            raise InvalidArgumentError(
                f"allowed_outside: {_shown(prefix)} is in a store where paths of a log aren't opened: "
                "expected a local path, or one of s3, gs, abfss and az",
                table=table,
            )
    return checked


@dataclass(frozen=True)
class FileAccess:
    """Opens the files that a table's log names, if the table may read them; see the module.

    Files are opened through stores that the user has named, never through the scheme or host of a path
    (`named_store`). So no credentials go to a host from the log. Through fsspec, only paths below the
    table's own root are opened. Prefixes are compared by whole segments: ``s3://shared`` doesn't allow
    ``s3://shared-too/x``.

    Args:
        storage: the table's storage.
        options: the storage options of the table. Allowed prefixes in the same kind of store are opened
            with them, too; for other kinds of stores, settings come from the environment.
        allowed_outside: prefixes outside of the table that it may read.

    Raises:
        InvalidArgumentError: see `check_prefixes`.
    """

    storage: Storage
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    allowed_outside: tuple[str, ...] = ()
    _opened: dict[str, Storage] = field(default_factory=dict, init=False, repr=False, compare=False)
    _real: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_prefixes(self.allowed_outside, table=self.storage.root)

    def locate(self, location: str) -> tuple[Storage, str]:
        """Return the storage that a file is opened with, and its path there.

        Args:
            location: the file's absolute location, decoded once, as `model.paths.resolve` returns it.

        Raises:
            OutsidePathError: the table may not read there, or the path has a ``..`` segment.
            NotRegularFileError: the path goes through a link below the root of the table or the prefix.
            CorruptLogError: it names no file.
            InvalidArgumentError: an allowed prefix can't be opened with the storage options.
        """
        storage, path = self._locate(location)
        if not path or path.endswith("/"):
            raise CorruptLogError(
                f"the path {location!r} names a directory: expected a file",
                table=self.storage.root,
                path=location,
            )
        return storage, path

    def check(self, location: str) -> None:
        """Make sure that the table may read a file, or the files of a directory.

        Args:
            location: as for `locate`; for a directory it ends with a slash.

        Raises:
            OutsidePathError, NotRegularFileError, CorruptLogError, InvalidArgumentError: see
                `locate`.
        """
        self._locate(location)

    def named_location(self, location: str) -> str:
        """Return a location that the table may read, with the user's name of its store.

        It is for callers that open files without the engine. Its scheme and host never come from the log.

        Args:
            location: as for `check`.

        Raises:
            OutsidePathError, NotRegularFileError, CorruptLogError, InvalidArgumentError: see
                `locate`.
        """
        storage, path = self._locate(location)
        named = f"{storage.root.rstrip('/')}/{path}"
        return f"{named}/" if location.endswith("/") and not named.endswith("/") else named

    def linked_names(self, location: str) -> frozenset[str]:
        """Return the names of the symbolic links in a local directory; none in another store.

        Args:
            location: the location of a directory that `check` accepts, with a slash at its end.

        Raises:
            StorageError: the directory can't be listed.
        """
        if not location.startswith("/") or not location.endswith("/"):
            return frozenset()
        try:
            with os.scandir(location) as entries:
                return frozenset(entry.name for entry in entries if entry.is_symlink())
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        except OSError as error:
            raise StorageError(
                f"list {location!r} failed: {error.strerror}",
                table=self.storage.root,
                path=location,
                operation="list",
            ) from error

    def is_allowed(self, location: str) -> bool:
        """Whether `check` accepts a location."""
        try:
            self.check(location)
        except (OutsidePathError, NotRegularFileError, CorruptLogError):
            return False
        return True

    @cached_property
    def _own(self) -> NamedStore:
        return NamedStore.of(self.storage)

    @cached_property
    def _allowed(self) -> tuple[tuple[NamedStore, Storage], ...]:
        opened = map(self._open_prefix, self.allowed_outside)
        return tuple((NamedStore.of(storage), storage) for storage in opened)

    def _open_prefix(self, prefix: str) -> Storage:
        scheme = _PREFIX.match(prefix)
        return open_storage(prefix, self._options_for(store_kind(scheme[1]) if scheme else LOCAL))

    def _options_for(self, kind: str) -> Mapping[str, object]:
        """Return the options for a kind of store; only the table's kind knows the table's options."""
        return self.options if self._own.kind in (kind, LOCAL, "memory") else {}

    def _locate(self, location: str) -> tuple[Storage, str]:
        storage, path = self._find_below_root(location) or self._find_elsewhere(location)
        if storage.root.startswith("/"):
            self._check_links(storage, path, location)
        return storage, path

    def _find_below_root(self, location: str) -> tuple[Storage, str] | None:
        """Find a location that begins with the root as the user wrote it, which most of them do."""
        root = f"{self.storage.root.rstrip('/')}/"
        if not location.startswith(root) or "\0" in location:
            return None
        path = location.removeprefix(root)
        if path.startswith("/"):  # in an object store that is another name
            return None
        # The root was chosen by the user, and may have such a segment.
        self._check_climbs(path, location)
        return self.storage, path

    def _find_elsewhere(self, location: str) -> tuple[Storage, str]:
        found = Location.of(location, table=self.storage.root)
        self._check_climbs(found.path, location)
        own = self._own
        if self._is_own(found):
            return self._open(found, own, self.storage)
        for store, storage in self._allowed:
            account = own.account or ("" if "@" in store.container else store.account)
            is_here = store.holds(found, account=account)
            if is_here and store.below(found.segments) is not None:
                return self._open(found, store, storage)
        raise self._make_error(found, "it lies outside of the table")

    def _check_climbs(self, path: str, location: str) -> None:
        # Azure treats a backslash as a slash. In other stores the check does no harm.
        if ".." not in path or ".." not in path.replace("\\", "/").split("/"):
            return
        shown = Location.of(location).shown
        raise OutsidePathError(
            f"the path {shown!r} has a '..' segment, with which a path leaves its directory: no engine "
            "writes such paths, so it isn't opened; remove the file from the table "
            "(DeltaTable.transaction and remove_file), or DeltaTable.restore() to a version without "
            "it",
            table=self.storage.root,
            path=shown,
        )

    def _is_own(self, found: Location) -> bool:
        own = self._own
        if not own.holds(found, account=own.account):
            return False
        # In an object store the credentials are the bucket's, not the directory's.
        in_bucket = own.kind in ("memory", "s3", "gs", "azure")
        return in_bucket or own.below(found.segments) is not None

    def _open(self, found: Location, store: NamedStore, storage: Storage) -> tuple[Storage, str]:
        """Return the storage and path of a location in a named store.

        Args:
            found: the location.
            store: the named store.
            storage: the storage of the store's directory.
        """
        inside = store.below(found.segments)
        if inside is not None and inside[:1] != ("",):
            return storage, "/".join(inside)
        opened = self._opened.get(store.container)
        if opened is None:
            # If two threads come here at once, the later one's storage is dropped.
            opened = open_storage(store.container, self._options_for(store.kind))
            opened = self._opened.setdefault(store.container, opened)
        return opened, found.path

    def _check_links(self, storage: Storage, path: str, location: str) -> None:
        """Refuse a local file that is reached by a link below the directory that the user has named."""
        path = path.strip("/")
        if not path:
            return  # the directory itself, which may be a link
        path = os.path.normpath(path)
        full = f"{storage.root.rstrip('/')}/{path}"
        directory, name = os.path.split(full)
        real = f"{self._real_directory(directory).rstrip('/')}/{name}"
        if os.path.islink(full):  # noqa: PTH114 - by the thousand, where a Path takes its time
            real = os.path.realpath(full)
        if real != f"{self._real_directory(storage.root).rstrip('/')}/{path}":
            shown = Location.of(location).shown
            raise NotRegularFileError(
                f"the path {shown!r} isn't opened, because a link leads from there to {real!r}: below the "
                "root of a table no link is followed, allowed_outside or not; put there what it leads to",
                table=self.storage.root,
                path=shown,
                operation="open",
                found=path,
            )

    def _real_directory(self, directory: str) -> str:
        real = self._real.get(directory)
        if real is None:
            real = self._real[directory] = os.path.realpath(directory)
        return real

    def _make_error(self, found: Location, reason: str) -> OutsidePathError:
        if found.kind in _STORES:
            directory = replace(found, text=f"{found.text.rpartition('/')[0]}/")
            remedy = (
                "a log may name any location, and the worker's credentials are for those that you name. If "
                "this table shall read there, as a shallow clone does, allow the root of the table that it "
                f"was cloned from: allowed_outside=[{directory.shown!r}], or a prefix of it"
            )
        else:
            remedy = (
                "paths of a log are opened in local file systems, S3, GCS and Azure only; remove the file "
                "from the table, or read the table with the engine that has written it"
            )
        return OutsidePathError(
            f"the path {found.shown!r} isn't opened, because {reason}: {remedy}",
            table=self.storage.root,
            path=found.shown,
        )


def _shown(prefix: str) -> str:
    scheme, separator, rest = prefix.partition("://")
    authority, slash, path = rest.partition("/")
    if separator and ":" in authority.rpartition("@")[0]:
        authority = authority.rpartition("@")[2]
    return repr(f"{scheme}{separator}{authority}{slash}{path}")

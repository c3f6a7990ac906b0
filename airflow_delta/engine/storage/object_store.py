"""A location in an object store (S3, GCS or Azure) as a storage, through obstore.

One class for all three, because obstore gives them one interface. What differs is told by the
modules `s3`, `gcs` and `azure`, which also read URIs and options.

**Creation.** ``create`` is a single conditional PUT: ``If-None-Match: *`` on S3 and Azure,
``x-goog-if-generation-match: 0`` on GCS. The store itself refuses the second writer.

**Ambiguous outcomes.** A PUT whose answer is lost is sent again by obstore, and the repetition then
meets the object of the first try: `ObjectExistsError` can mean that the caller's own bytes are
there. Any other failure, a timeout above all, leaves open whether they are. Who must know reads the
object back and compares; transactions do. `ObjectExistsError` is raised only where an object was
seen.

**Listing.** Stores that list in order and start anywhere (S3, GCS) are listed flat from the start
asked for, which spares the pages of names before it; whole sub-directories are jumped over. Others
are listed with a delimiter, and sorted here.

**Streaming.** ``writer`` collects the object in a temporary file and uploads it on a clean exit, so
that an abandoned one has cost the store nothing. With ``overwrite`` the upload is in parts;
without, it is one conditional PUT, for which obstore holds the object in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar, cast

from obstore.exceptions import AlreadyExistsError, BaseError, GenericError

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.storage.base import Capabilities, FileInfo, checked_path
from airflow_delta.engine.storage.checked_file import CheckedWriter
from airflow_delta.engine.storage.exclusive_put import prove_exclusive_put
from airflow_delta.engine.storage.object_file import ObjectFile
from airflow_delta.engine.storage.obstore_errors import failures

__all__ = ["ObjectStorage"]

_Result = TypeVar("_Result")

# A store answers a listing in pages of up to a thousand names.
_PAGE = 1000
# How many keys of a long list are taken at a time, where one request deletes one object.
_SINGLE_DELETES = 1000
_THREADS = 32

# Sorts after every name that can stand in its place.
_AFTER_ALL = "\U0010ffff"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class ObjectStorage:
    """A storage over the objects below one location of an object store.

    Args:
        root: the location as the user named it.
        store: obstore's store, bound to the location by its prefix.
        capabilities: what the store can do. With ``start_after`` it must list in the order of the
            names' UTF-8 bytes.
        delete_batch: how many objects one request of the store can delete.
        unfit: characters that the store can't keep in a name.
        unproven: a name for the store, where it must first be tried whether it honours conditional
            writes; see `exclusive_put`.
    """

    root: str
    store: Any = field(repr=False)  # obstore's stores show credentials in their attributes
    capabilities: Capabilities
    delete_batch: int = 1
    unfit: str = ""
    unproven: str | None = None

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.read`."""
        key = self._key(path)
        if length == 0:
            self.head(path)
            return b""
        with self._failures("read", path):
            if start == 0 and length is None:
                return bytes(self.store.get(key).bytes())
            span = {"offset": start} if length is None else (start, start + length)
            try:
                return bytes(self.store.get(key, options={"range": span}).bytes())
            except GenericError:
                # Stores refuse a range that begins at or after the end.
                if start < self.head(path).size:
                    raise
                return b""

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """See `Storage.read_many`; in parallel."""
        return [*self._in_parallel(self._read_or_none, paths)]

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        """See `Storage.open`."""
        self._key(path)
        known = self.head(path).size if size is None else size
        file = ObjectFile(
            lambda start, length: self.read(path, start=start, length=length), size=known
        )
        return cast("BinaryIO", file)

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        """See `Storage.list`."""
        prefix = self._prefix(directory)
        ordered = self.capabilities.start_after
        found = self._list_flat(prefix, start_after) if ordered else self._list_delimited(prefix)
        for info in found:
            if info.name > start_after:
                yield info

    def walk(self, directory: str) -> Iterator[FileInfo]:
        """See `Storage.walk`."""
        for page in self._pages(self._prefix(directory)):
            for meta in page:
                yield _info(meta)

    def head(self, path: str) -> FileInfo:
        """See `Storage.head`."""
        key = self._key(path)
        with self._failures("head", path):
            # Under the name that was asked for: before obstore 0.12 `head` told the prefix as well.
            return replace(_info(self.store.head(key)), path=path)

    def create(self, path: str, data: bytes) -> None:
        """See `Storage.create`, and the module for ambiguous outcomes."""
        self._create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """See `Storage.replace`."""
        key = self._key(path)
        with self._failures("replace", path):
            self.store.put(key, data, mode="overwrite")

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """See `Storage.writer`, and the module for what is kept where."""
        key = self._key(path)
        with ExitStack() as stack:
            with self._failures("writer", path):
                made = tempfile.TemporaryDirectory(prefix="airflow-delta-")
                local = Path(stack.enter_context(made), "object")
                file = local.open("wb")
            stack.callback(_abandon, file)
            yield cast("BinaryIO", CheckedWriter(file, lambda: self._failures("writer", path)))
            with self._failures("writer", path):
                file.close()
            if overwrite:
                with self._failures("replace", path):
                    self.store.put(key, local, mode="overwrite")
            else:
                self._create(path, local)

    def delete(self, paths: Iterable[str]) -> None:
        """See `Storage.delete`; in batches, or in parallel where the store has no batches."""
        remaining = iter(paths)
        size = self.delete_batch if self.delete_batch > 1 else _SINGLE_DELETES
        while batch := [self._key(path) for path in islice(remaining, size)]:
            self._delete_batch(batch)

    def _key(self, path: str) -> str:
        """The path, once it is known that the store will keep it as it is.

        Empty and ``.`` segments are refused: obstore drops some of them, and would then name a
        different object.
        """
        checked_path(path)
        segments = path.split("/")
        if "" in segments or "." in segments or any(unfit in path for unfit in self.unfit):
            raise InvalidArgumentError(
                f"{self.root} can't keep an object at {path!r}: expected a path without empty or "
                f"'.' segments{f' and without {self.unfit!r}' if self.unfit else ''}",
                path=path,
            )
        return path

    def _prefix(self, directory: str) -> str:
        directory = checked_path(directory).rstrip("/")
        return self._key(directory) if directory else ""

    def _read_or_none(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except ObjectNotFoundError:
            return None

    def _create(self, path: str, data: bytes | Path) -> None:
        key = self._key(path)
        with self._failures("create", path):
            if self.unproven is not None:
                prove_exclusive_put(self.store, path, store_name=self.unproven)
            try:
                self.store.put(key, data, mode="create")
            except AlreadyExistsError:
                # S3 also answers so (409) when two requests collided and neither has won yet.
                self._raise_exists(path)

    def _raise_exists(self, path: str) -> NoReturn:
        facts = {"table": self.root, "path": path, "operation": "create"}
        try:
            self.head(path)
        except ObjectNotFoundError:
            raise StorageError(
                f"create {path!r} collided with another request, and there is no such object: "
                "whether it will appear is unknown; look again and repeat",
                **facts,
            ) from None
        raise ObjectExistsError(
            f"create {path!r}: there is such an object already", **facts
        ) from None

    def _delete_batch(self, keys: Sequence[str]) -> None:
        at_once = self.delete_batch > 1
        if at_once:
            try:
                self.store.delete(keys)
            except (BaseError, FileNotFoundError):
                # Azure reports a batch as failed for an object that isn't there. What else may have
                # been wrong shows up again when each object is deleted for itself.
                at_once = False
        if not at_once:
            self._in_parallel(self._delete_one, keys)

    def _delete_one(self, key: str) -> None:
        with self._failures("delete", key), suppress(FileNotFoundError):
            self.store.delete(key)

    def _list_flat(self, prefix: str, start_after: str) -> Iterator[FileInfo]:
        below = f"{prefix}/" if prefix else ""
        offset = below + start_after if start_after else None
        more = True
        while more:
            more = False
            for page in self._pages(prefix, offset):
                for meta in page:
                    if "/" not in meta["path"][len(below) :]:
                        yield _info(meta)
                child, slash, _ = page[-1]["path"][len(below) :].partition("/")
                if slash and len(page) == _PAGE:
                    # The page ended inside a sub-directory: list on from behind it.
                    offset = f"{below}{child}/{_AFTER_ALL}"
                    more = True
                    break

    def _pages(self, prefix: str, offset: str | None = None) -> Iterator[Sequence[Any]]:
        """The objects below a prefix, at any depth, in the non-empty pages of the store."""
        with self._failures("list", prefix):
            for page in self.store.list(prefix or None, offset=offset, chunk_size=_PAGE):
                if page:
                    yield page

    def _list_delimited(self, prefix: str) -> Iterator[FileInfo]:
        with self._failures("list", prefix):
            result = self.store.list_with_delimiter(prefix or None)
        # Python orders text by code point, and that is the order of the UTF-8 bytes.
        yield from sorted(map(_info, result["objects"]), key=lambda info: info.path)

    def _in_parallel(
        self, function: Callable[[str], _Result], paths: Sequence[str]
    ) -> Sequence[_Result]:
        if len(paths) < 2:
            return [function(path) for path in paths]
        with ThreadPoolExecutor(min(_THREADS, len(paths))) as threads:
            return [*threads.map(function, paths)]

    def _failures(self, operation: str, path: str) -> AbstractContextManager[None]:
        return failures(operation, path, root=self.root)


def _abandon(file: BinaryIO) -> None:
    """Close a file of which the rest of the content needn't arrive."""
    with suppress(OSError):
        file.close()


def _info(meta: Any) -> FileInfo:
    modified = (meta["last_modified"] - _EPOCH) // _MILLISECOND
    return FileInfo(meta["path"], meta["size"], modified)

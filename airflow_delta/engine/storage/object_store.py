"""A location in an object store (S3, GCS or Azure) as a storage, through obstore.

The modules `s3`, `gcs` and `azure` parse URIs and options, and say how the stores differ.

* **Creation** is one conditional PUT: ``If-None-Match: *`` on S3 and Azure, ``x-goog-if-generation-match:
  0`` on GCS. Its outcome may be ambiguous; see `ObjectStorage.create`.
* **Listing.** S3 and GCS list in order from any name on, so listings are flat and skip whole
  sub-directories; a walk sends several requests at once (`parallel_listing`). Azure lists with a delimiter,
  and this module sorts.
* **Streaming.** ``writer`` writes to a temporary file and uploads it on a clean exit: small files by one
  PUT, large ones in parts (`upload_parts`).
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
from typing import Any, BinaryIO, TypeVar, cast

from obstore.exceptions import AlreadyExistsError, BaseError, GenericError

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.storage.base import Capabilities, FileInfo, Level, check_path
from airflow_delta.engine.storage.checked_file import CheckedWriter
from airflow_delta.engine.storage.exclusive_put import honours_conditional_put
from airflow_delta.engine.storage.object_file import ObjectFile
from airflow_delta.engine.storage.obstore_errors import is_object_exists_error, translate_errors
from airflow_delta.engine.storage.parallel_listing import AFTER_ALL, walk_in_parallel
from airflow_delta.engine.storage.upload_parts import upload_in_parts

__all__ = ["ObjectStorage"]

_Result = TypeVar("_Result")

# A store lists up to a thousand names in a page.
_PAGE = 1000
# The number of keys that are deleted at a time, if one request deletes one object.
_SINGLE_DELETES = 1000
_THREADS = 32
# Objects above this many bytes are uploaded in parts; the client holds smaller ones in memory.
_LARGE = 16 * 1024 * 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class ObjectStorage:
    """A storage over the objects below one location of an object store.

    Args:
        root: the location as the user wrote it.
        canonical_location: see `Storage.canonical_location`.
        store: obstore's store, with the location as its prefix.
        capabilities: what the store can do. With ``start_after`` it must list in the order of the names'
            UTF-8 bytes.
        delete_batch: the number of objects that one request can delete.
        unfit: characters that names in the store can't contain.
        unproven: a name for the store, if it must first be tried whether it honours conditional writes; see
            `exclusive_put`. Else None.
        single_writer: whether the user says that there is one writer; see `single_writer`.
    """

    root: str
    canonical_location: str
    store: Any = field(repr=False)  # obstore's stores show credentials in their attributes
    capabilities: Capabilities
    delete_batch: int = 1
    unfit: str = ""
    unproven: str | None = None
    single_writer: bool = False

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.read`."""
        key = self._key(path)
        if length == 0:
            self.head(path)
            return b""
        with self._translate_errors("read", path):
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
        """See `Storage.walk`; with several requests at a time if the store lists in order."""
        if self._is_unfit(directory):
            return
        prefix = self._prefix(directory)
        if self.capabilities.start_after:
            yield from walk_in_parallel(self._page, prefix, full_page=_PAGE, threads=_THREADS)
            return
        for page in self._pages(prefix):
            yield from map(_info, page)

    def level(self, directory: str) -> Level:
        """See `Storage.level`."""
        prefix = self._prefix(directory)
        with self._translate_errors("list", directory):
            found = self.store.list_with_delimiter(prefix or None)
        folders = [path.rstrip("/") for path in found["common_prefixes"]]
        return Level([*map(_info, found["objects"])], folders)

    def head(self, path: str) -> FileInfo:
        """See `Storage.head`."""
        key = self._key(path)
        with self._translate_errors("head", path):
            # With the requested path, because before obstore 0.12 `head` returned the prefix, too.
            return replace(_info(self.store.head(key)), path=path)

    def create(self, path: str, data: bytes) -> None:
        """See `Storage.create`.

        obstore repeats a PUT whose answer is lost, and the repetition may meet the object of the first try.
        So `ObjectExistsError` may mean that the caller's own bytes are there. After any other failure, such
        as a timeout, it is unknown whether they are. A caller that must know reads the object back, as
        commits do.
        """
        self._create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """See `Storage.replace`."""
        key = self._key(path)
        with self._translate_errors("replace", path):
            self.store.put(key, data, mode="overwrite")

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """See `Storage.writer`."""
        key = self._key(path)
        with ExitStack() as stack:
            with self._translate_errors("writer", path):
                made = tempfile.TemporaryDirectory(prefix="airflow-delta-")
                local = Path(stack.enter_context(made), "object")
                file = local.open("wb")
            stack.callback(_abandon, file)
            yield cast(
                "BinaryIO", CheckedWriter(file, lambda: self._translate_errors("writer", path))
            )
            with self._translate_errors("writer", path):
                file.close()
                large = local.stat().st_size > _LARGE
            if large:
                self._upload(path, local, overwrite=overwrite)
            elif overwrite:
                with self._translate_errors("replace", path):
                    self.store.put(key, local, mode="overwrite", use_multipart=False)
            else:
                self._create(path, local)

    def delete(self, paths: Iterable[str]) -> None:
        """See `Storage.delete`; in batches, or in parallel if the store has no batches."""
        # A log can contain a name that no object can have, so there is no such object.
        remaining = (self._key(path) for path in paths if not self._is_unfit(path))
        size = self.delete_batch if self.delete_batch > 1 else _SINGLE_DELETES
        while batch := [*islice(remaining, size)]:
            self._delete_batch(batch)

    def _key(self, path: str) -> str:
        """Return a path as a key, if the store keeps it unchanged.

        Empty and ``.`` segments are refused: obstore drops some of them, which makes it another object.
        """
        segments = check_path(path).split("/")
        if "" in segments or "." in segments or self._is_unfit(path):
            raise InvalidArgumentError(
                f"{self.root} can't keep an object at {path!r}: expected a path without empty or "
                f"'.' segments{f' and without {self.unfit!r}' if self.unfit else ''}",
                path=path,
            )
        return path

    def _is_unfit(self, path: str) -> bool:
        """Whether a path below the root has a character that names in the store can't contain."""
        return any(unfit in check_path(path) for unfit in self.unfit)

    def _prefix(self, directory: str) -> str:
        directory = check_path(directory).rstrip("/")
        return self._key(directory) if directory else ""

    def _read_or_none(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except ObjectNotFoundError:
            return None

    def _create(self, path: str, data: bytes | Path) -> None:
        key = self._key(path)
        with self._translate_errors("create", path):
            if not self._puts_exclusively(path):
                self._refuse_existing(path)
                self.store.put(key, data, mode="overwrite")
                return
            try:
                self.store.put(key, data, mode="create")
            except AlreadyExistsError as error:
                if is_object_exists_error(error) or self._is_there(path):
                    raise self._exists(path) from None
                raise StorageError(
                    f"create {path!r} collided with another request, and there is no such object: "
                    "whether it will appear is unknown; look again and repeat",
                    **self._facts(path),
                ) from None

    def _upload(self, path: str, file: Path, *, overwrite: bool) -> None:
        """Upload a large file in parts, and publish it.

        The publication can't be conditional. So it is checked before the upload, and again before the
        publication, that the object doesn't exist.
        """
        if not overwrite:
            self._puts_exclusively(path)  # A store that is refused is refused whatever the size.
            self._refuse_existing(path)
        with (
            self._translate_errors("writer", path),
            upload_in_parts(self.store, path, file) as publish,
        ):
            if overwrite:
                publish()
                return
            self._refuse_existing(path)
            try:
                publish()
            except (BaseError, OSError):
                # The answer was lost; or another writer was faster, and Azure dropped our blocks.
                self._refuse_existing(path)
                raise

    def _refuse_existing(self, path: str) -> None:
        if self._is_there(path):
            raise self._exists(path)

    def _puts_exclusively(self, path: str) -> bool:
        """Return whether the store creates exclusively; False only if there is one writer.

        Raises:
            UnsafeStorageError: it doesn't, and there may be several writers.
        """
        if not self.capabilities.put_if_absent:
            problem = "the store is set up without conditional writes"
        elif self.unproven is None or honours_conditional_put(
            self.store, path, store_name=self.unproven
        ):
            return True
        else:
            problem = f"{self.unproven} ignores 'If-None-Match'"
        if self.single_writer:
            return False
        raise UnsafeStorageError(
            f"create {path!r}: {problem}, so writers would overwrite each other's commits; use a "
            "store that honours conditional writes, or say with the storage option 'single_writer' "
            "that nobody else writes to the table",
            **self._facts(path),
        )

    def _is_there(self, path: str) -> bool:
        try:
            self.head(path)
        except ObjectNotFoundError:
            return False
        return True

    def _exists(self, path: str) -> ObjectExistsError:
        return ObjectExistsError(
            f"create {path!r}: there is such an object already", **self._facts(path)
        )

    def _facts(self, path: str) -> dict[str, str]:
        return {"table": self.root, "path": path, "operation": "create"}

    def _delete_batch(self, keys: Sequence[str]) -> None:
        at_once = self.delete_batch > 1
        if at_once:
            try:
                self.store.delete(keys)
            except (BaseError, FileNotFoundError):
                # Azure reports a batch with a missing object as failed. If there was another error, it
                # occurs again when each object is deleted individually.
                at_once = False
        if not at_once:
            self._in_parallel(self._delete_one, keys)

    def _delete_one(self, key: str) -> None:
        with self._translate_errors("delete", key), suppress(FileNotFoundError):
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
                    # The page ended inside a sub-directory: continue after it.
                    offset = f"{below}{child}/{AFTER_ALL}"
                    more = True
                    break

    def _pages(self, prefix: str, offset: str | None = None) -> Iterator[Sequence[Any]]:
        """Yield the objects below a prefix, at any depth, in the store's non-empty pages."""
        with self._translate_errors("list", prefix):
            for page in self.store.list(prefix or None, offset=offset, chunk_size=_PAGE):
                if page:
                    yield page

    def _page(self, prefix: str, offset: str | None) -> Sequence[FileInfo]:
        """Return the first of `_pages`."""
        return [*map(_info, next(self._pages(prefix, offset), ()))]

    def _list_delimited(self, prefix: str) -> Iterator[FileInfo]:
        # Python orders text by code point, and that is the order of the UTF-8 bytes.
        yield from sorted(self.level(prefix).files, key=lambda info: info.path)

    def _in_parallel(
        self, function: Callable[[str], _Result], paths: Sequence[str]
    ) -> Sequence[_Result]:
        if len(paths) < 2:
            return [function(path) for path in paths]
        with ThreadPoolExecutor(min(_THREADS, len(paths))) as threads:
            return [*threads.map(function, paths)]

    def _translate_errors(self, operation: str, path: str) -> AbstractContextManager[None]:
        return translate_errors(operation, path, root=self.root)


def _abandon(file: BinaryIO) -> None:
    """Close a file whose content isn't needed any more."""
    with suppress(OSError):
        file.close()


def _info(meta: Any) -> FileInfo:
    modified = (meta["last_modified"] - _EPOCH) // _MILLISECOND
    return FileInfo(meta["path"], meta["size"], modified)

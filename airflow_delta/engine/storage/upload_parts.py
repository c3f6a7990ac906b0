"""Upload a large file to an object store in parts, with little memory and over a slow line.

A single PUT would be held in memory by the client, sent again as a whole if it fails, take longer than a
request may, and be refused by S3 from 5 GiB on. Parts (S3 and GCS: a multi-part upload, Azure: blocks) are
small requests. Nobody sees them before the last request, which publishes them as one object.

The last request carries no condition: obstore doesn't support one there (object_store issue 289), and
neither does GCS. So an upload in parts can't be exclusive; see `ObjectStorage.writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from obstore import open_writer
from obstore.exceptions import BaseError

__all__ = ["upload_in_parts"]

# All stores take parts of 5 MiB and more, S3 and GCS at most 10,000 of them. A part should be worth its
# round trip, and the parts that are sent at once must arrive within the time limit for one request.
_PART = 8 * 1024 * 1024
_MAX_PARTS = 10_000
_AT_ONCE = 4


@contextmanager
def upload_in_parts(store: Any, key: str, file: Path) -> Iterator[Callable[[], None]]:
    """Upload a file in parts. Nobody sees them until they are published.

    At most six parts are in memory at a time: 48 MiB, and more only for files from 78 GiB on.

    Args:
        store: obstore's store.
        key: the object's name in it.
        file: the file, larger than one part.

    Yields:
        A function that publishes the object. If the block doesn't call it, or raises an error, the upload
        is aborted, and the store deletes its parts.

    Raises:
        BaseError, OSError: from obstore, or if the file can't be read.
    """
    part = max(_PART, -(-file.stat().st_size // _MAX_PARTS))
    upload = open_writer(store, key, buffer_size=part, max_concurrency=_AT_ONCE)
    try:
        with file.open("rb") as source:
            while piece := source.read(part):
                upload.write(piece)
        yield upload.close
    finally:
        if not upload.closed():
            # If it can't be aborted, the store's rules for incomplete uploads delete it later.
            with suppress(BaseError, OSError):
                _abort(upload)


def _abort(upload: Any) -> None:
    """Exit the upload's context with an error, which is the only way to abort it."""
    error = InterruptedError("the upload is abandoned")
    upload.__exit__(type(error), error, None)

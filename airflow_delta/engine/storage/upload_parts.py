"""Upload a large file to an object store in parts, which takes little memory and bears a slow line.

One PUT of a whole object would be held in memory by the client, be sent again as a whole where it fails,
take longer than a request may, and be refused by S3 from 5 GiB on. Parts (S3 and GCS: a multi-part
upload, Azure: blocks) are small requests, and nobody sees them before the last one, which publishes them
as one object.

That last request carries no condition: the client knows none there (object_store issue 289), and GCS
wouldn't take one. So an upload in parts can't be exclusive; see `ObjectStorage.writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from obstore import open_writer
from obstore.exceptions import BaseError

__all__ = ["upload_in_parts"]

# All stores take parts of 5 MiB and more, and S3 and GCS 10,000 of them at most. A part should be worth
# its round trip, and those under way be sent within the time for one request.
_PART = 8 * 1024 * 1024
_MAX_PARTS = 10_000
_AT_ONCE = 4


@contextmanager
def upload_in_parts(store: Any, key: str, file: Path) -> Iterator[Callable[[], None]]:
    """Upload the parts of a file, of which nobody sees anything until they are published.

    At most six parts are in memory at a time: 48 MiB, and more only for files from 78 GiB on.

    Args:
        store: obstore's store.
        key: the object's name in it.
        file: the file, larger than one part.

    Yields:
        A function that publishes the object. If the block ends without, or with an error, the upload is
        abandoned, and the store told to forget it.

    Raises:
        BaseError, OSError: as obstore does, and where the file can't be read.
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
            # The store's rules for incomplete uploads see to what can't be abandoned.
            with suppress(BaseError, OSError):
                _abort(upload)


def _abort(upload: Any) -> None:
    """Leave the upload's block with an error, which is the one way to abort it."""
    error = InterruptedError("the upload is abandoned")
    upload.__exit__(type(error), error, None)

"""Errors of obstore as errors of the storage contract.

obstore raises a few built-in exceptions and some of its own. Their text goes on for a page of debug
output, and may hold signed URLs and tokens; only its first paragraph is passed on, without queries
of URLs, and the errors are not chained, because a traceback would show them whole.

**Refusals.** A write that fails leaves open whether it took effect, but for two cases. The store
answered the first and only request with a refusal (HTTP 4xx: wrong credentials, no permission, no
such bucket). Or the request that failed wasn't one for the object: the client didn't come by
credentials, which it asks for before it sends anything. Both can just be read in obstore's text,
which tells of repetitions between the time and the answer; another text counts as "can't tell".
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError

from airflow_delta.engine.errors import (
    BucketNotFoundError,
    InvalidArgumentError,
    NothingWrittenError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.storage.client_settings import client_settings
from airflow_delta.engine.storage.store_arguments import StoreLocation, StoreOptions

__all__ = ["build_store", "failures", "reason", "saw_object"]

_QUERY = re.compile(r"\?\S+")
_DEBUG = "\n\nDebug source"
_CONTAINER_MISSING = ("<Code>NoSuchBucket</Code>", "<Code>ContainerNotFound</Code>")
_NO_CONTAINER = "the bucket or container doesn't exist"
_WRITES = ("create", "replace")
# Not the statuses that say when and in what state, not whether: timeout, conflict, precondition,
# too many requests.
_REFUSED = re.compile(
    r"Error performing \w+ \S+ in \S+ - Server returned non-2xx status code: "
    r"4(?!08|09|12|29)\d\d\b"
)
_SAW_OBJECT = re.compile(r"status code: 412\b|<Code>BlobAlreadyExists</Code>")
_REQUEST = re.compile(r"Error performing \w+ (\S+) in \S")
# Paths that look the same in every URL, however its writer encodes; commits have such.
_PLAIN = frozenset(string.ascii_letters + string.digits + "/._-")


def build_store(
    store_class: Callable[..., Any],
    container: str,
    location: StoreLocation,
    options: StoreOptions,
    *,
    variables: str,
) -> Any:
    """Obstore's store, bound to a location.

    Args:
        store_class: obstore's class of the stores of one kind.
        container: the bucket or container.
        location: where the store is bound to.
        options: what the user has set.
        variables: what the names of the store's environment variables begin with.

    Raises:
        InvalidArgumentError: the options contradict each other, or one can't be used.
    """
    try:
        return store_class(
            container,
            prefix=location.prefix or None,
            config=options.store,
            client_options=client_settings(options.client, variables=variables),
        )
    except (BaseError, OSError, ValueError) as error:
        raise InvalidArgumentError(
            f"{location.root!r} can't be opened with these storage options and this environment: "
            f"{reason(error)}",
            uri=location.root,
        ) from None


@contextmanager
def failures(operation: str, path: str, *, root: str) -> Iterator[None]:
    """Raise errors of the contract for what obstore raises in the block.

    Args:
        operation: what the block does; only ``read`` and ``head`` can find an object missing, and
            only ``create`` and ``replace`` write.
        path: for which object or directory.
        root: the root of the storage.

    Raises:
        ObjectNotFoundError: the object to be read isn't there.
        UnsafeStorageError: the store is set up without conditional writes.
        InvalidArgumentError: the store can't keep an object of that name.
        BucketNotFoundError: the store says that there is no such bucket or container.
        NothingWrittenError: the store refused the write, or it wasn't sent.
        StorageError: anything else.
    """
    facts = {"table": root, "path": path, "operation": operation}
    try:
        yield
    except FileNotFoundError as error:
        object_missing = not _names_container(str(error))
        if object_missing and operation in ("read", "head"):
            raise ObjectNotFoundError(
                f"{operation} {path!r}: there is no such object", **facts
            ) from None
        # An upload in parts, too, may be what isn't there.
        unclear = object_missing and operation == "writer"
        why = reason(error) if unclear else _NO_CONTAINER
        raise _failure(error, why, facts) from None
    except NotImplementedError:
        raise UnsafeStorageError(
            f"{operation} {path!r}: the store can't write so that it surely doesn't overwrite, and "
            "without that no commit is safe; see the storage option 'single_writer'",
            **facts,
        ) from None
    except InvalidArgumentError:
        raise
    except ValueError as error:
        raise InvalidArgumentError(
            f"{operation} {path!r}: the store can't keep such a name: {reason(error)}", **facts
        ) from None
    except (BaseError, OSError) as error:
        why = _NO_CONTAINER if _names_container(str(error)) else reason(error)
        raise _failure(error, why, facts) from None


def reason(error: Exception) -> str:
    """What obstore says was wrong, without what must not be logged."""
    return _QUERY.sub("?…", str(error).partition(_DEBUG)[0])


def saw_object(error: Exception) -> bool:
    """Whether a store certainly refused to create an object because there is one.

    S3 answers 409 when two requests collided and neither has won yet, and obstore raises the same error.
    """
    return _SAW_OBJECT.search(str(error)) is not None


def _failure(error: Exception, why: str, facts: dict[str, str]) -> StorageError:
    operation, path = facts["operation"], facts["path"]
    text = str(error)
    if operation not in _WRITES:
        kind = BucketNotFoundError if _names_container(text) else StorageError
        return kind(f"{operation} {path!r} failed: {why}", **facts)
    if _REFUSED.search(text) or _was_for_another(text, path):
        kind = BucketNotFoundError if _names_container(text) else NothingWrittenError
        return kind(f"{operation} {path!r} was refused, and nothing was written: {why}", **facts)
    return StorageError(f"{operation} {path!r} failed: {why}", **facts)


def _names_container(text: str) -> bool:
    """Whether the store has answered that the bucket or container is what isn't there."""
    return any(code in text for code in _CONTAINER_MISSING)


def _was_for_another(text: str, path: str) -> bool:
    """Whether the request that failed was certainly not one for the object."""
    request = _REQUEST.search(text)
    if request is None or not _PLAIN.issuperset(path):
        return False
    return not unquote(urlsplit(request[1]).path).endswith(f"/{path}")

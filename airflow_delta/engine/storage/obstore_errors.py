"""Turn the errors of obstore into those of the storage contract.

* **Messages** are the first paragraph of obstore's, without the queries of URLs.
* **Failed writes**: it is unknown whether the object was written, unless obstore's message shows that it
  wasn't (`NothingWrittenError`).
* **Refused credentials** are an `AccessDeniedError`, in a write a `WriteDeniedError`. If the function that
  provides them has failed for another reason, it is another error.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from airflow_delta.engine.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    InvalidArgumentError,
    NothingWrittenError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStorageError,
    WriteDeniedError,
)
from airflow_delta.engine.storage.client_settings import build_client_settings
from airflow_delta.engine.storage.store_arguments import (
    MAX_RETRIES,
    StoreLocation,
    StoreOptions,
)

__all__ = ["build_store", "describe_error", "is_object_exists_error", "translate_errors"]

_QUERY = re.compile(r"\?\S+")
_DEBUG = "\n\nDebug source"
_CONTAINER_MISSING = ("<Code>NoSuchBucket</Code>", "<Code>ContainerNotFound</Code>")
_NO_CONTAINER = "the bucket or container doesn't exist"
_WRITES = ("create", "replace")
# The store has refused the first and only request. This is without the statuses after which the request may
# have been executed, or may be repeated: timeout, conflict, precondition, too many requests.
_REFUSED = re.compile(
    r"Error performing \w+ \S+ in \S+ - Server returned non-2xx status code: "
    r"4(?!08|09|12|29)\d\d\b"
)
_SAW_OBJECT = re.compile(r"status code: 412\b|<Code>BlobAlreadyExists</Code>")
# The request that failed. It may be another than the one for the object, for example one for credentials.
_REQUEST = re.compile(r"Error performing \w+ (\S+) in \S")
# S3 refuses credentials that have expired with status 400. The answer to a HEAD has no body with the code,
# and nothing but the authorization makes a HEAD of ours a bad request.
_EXPIRED = re.compile(
    r"Error performing HEAD .*status code: 400\b"
    r"|status code: 400\b.*<Code>(?:ExpiredToken|InvalidToken|TokenRefreshRequired)</Code>",
    re.DOTALL,
)
# The function that provides the credentials has raised an error, so no request was sent.
_PROVIDER = re.compile(r"\bfor path External \w+ credential provider: (\w+)(?:: )?(.*)", re.DOTALL)
# What stores also answer with status 403: too many requests, or a clock that is wrong.
_BUSY = re.compile(r"(?i)RateLimitExceeded|QuotaExceeded|RequestTimeTooSkewed")
_DENIALS = (PermissionDeniedError, UnauthenticatedError)
_DENIED = "the credentials may be wrong or expired, or lack this permission"
# The characters that every client leaves unencoded in URLs. The paths of commits have no others.
_PLAIN = frozenset(string.ascii_letters + string.digits + "/._-")


def build_store(
    store_class: Callable[..., Any],
    container: str,
    location: StoreLocation,
    options: StoreOptions,
    *,
    variables: str,
) -> Any:
    """Make obstore's store for a location.

    Args:
        store_class: obstore's class for the kind of store.
        container: the bucket or container.
        location: the location.
        options: the user's options.
        variables: the prefix of the store's environment variables.

    Raises:
        InvalidArgumentError: the options contradict each other, or one can't be used.
    """
    client = dict(options.client)
    retries = client.pop(MAX_RETRIES, None)
    try:
        return store_class(
            container,
            prefix=location.prefix or None,
            config=options.store,
            client_options=build_client_settings(client, variables=variables),
            retry_config=None if retries is None else {"max_retries": int(retries)},
            credential_provider=options.credential_provider,
        )
    except (BaseError, OSError, OverflowError, ValueError) as error:
        raise InvalidArgumentError(
            f"{location.root!r} can't be opened with these storage options and this environment: "
            f"{describe_error(error)}",
            uri=location.root,
        ) from None


@contextmanager
def translate_errors(operation: str, path: str, *, root: str) -> Iterator[None]:
    """Turn errors of obstore in the block into those of the contract.

    Args:
        operation: what the block does. Only ``read`` and ``head`` can raise `ObjectNotFoundError`; only
            ``create`` and ``replace`` write.
        path: the object or directory.
        root: the root of the storage.

    Raises:
        ObjectNotFoundError: the object to read doesn't exist.
        BucketNotFoundError: the store says that there is no such bucket or container.
        UnsafeStorageError: the store is set up without conditional writes.
        InvalidArgumentError: the store can't have an object with that name.
        AccessDeniedError: the store refuses the credentials.
        NothingWrittenError: the store refused the write, or it wasn't sent.
        StorageError: any other error.
    """
    facts = {"table": root, "path": path, "operation": operation}
    # The new errors aren't chained: a traceback would show obstore's messages with their secrets.
    try:
        yield
    except FileNotFoundError as error:
        object_missing = not _names_container(str(error))
        if object_missing and operation in ("read", "head"):
            raise ObjectNotFoundError(
                f"{operation} {path!r}: there is no such object", **facts
            ) from None
        # For an upload in parts, the missing object may be the upload.
        unclear = object_missing and operation == "writer"
        why = describe_error(error) if unclear else _NO_CONTAINER
        raise _failure(error, why, facts) from None
    except NotImplementedError:
        raise UnsafeStorageError(
            f"{operation} {path!r}: the store can't create an object exclusively, and without that no "
            "commit is safe; see the storage option 'single_writer'",
            **facts,
        ) from None
    except InvalidArgumentError:
        raise
    except ValueError as error:
        raise InvalidArgumentError(
            f"{operation} {path!r}: the store can't have such a name: {describe_error(error)}",
            **facts,
        ) from None
    except (BaseError, OSError) as error:
        why = _NO_CONTAINER if _names_container(str(error)) else describe_error(error)
        raise _failure(error, why, facts) from None


def describe_error(error: Exception) -> str:
    """Return obstore's message without its page of debug output, and without signed URLs and tokens."""
    return _QUERY.sub("?…", str(error).partition(_DEBUG)[0])


def is_object_exists_error(error: Exception) -> bool:
    """Whether an error proves that the object exists.

    obstore raises the same error if S3 answers 409, because two requests collided and neither has won yet.
    """
    return _SAW_OBJECT.search(str(error)) is not None


def _failure(error: Exception, why: str, facts: dict[str, str]) -> StorageError:
    operation, path = facts["operation"], facts["path"]
    text = str(error)
    is_denied = _is_denied(error, text)
    provider = _PROVIDER.search(why)
    if provider is not None:
        why = provider[2] or f"the function that provides the credentials raised {provider[1]}"
    elif is_denied:
        why = f"{why}; {_DENIED}"
    if operation not in _WRITES:
        kind = StorageError
        if is_denied:
            kind = AccessDeniedError
        elif _names_container(text):
            kind = BucketNotFoundError
        return kind(f"{operation} {path!r} failed: {why}", **facts)
    if provider is not None or _REFUSED.search(text) or _was_for_another(text, path):
        kind = NothingWrittenError
        if is_denied:
            kind = WriteDeniedError
        elif _names_container(text):
            kind = BucketNotFoundError
        return kind(f"{operation} {path!r} was refused, and nothing was written: {why}", **facts)
    return StorageError(f"{operation} {path!r} failed: {why}", **facts)


def _is_denied(error: Exception, text: str) -> bool:
    """Whether the store has refused the credentials, or their provider says that they aren't valid."""
    if provider := _PROVIDER.search(text):
        return provider[1] == AccessDeniedError.__name__
    if _BUSY.search(text):
        return False
    return isinstance(error, _DENIALS) or _EXPIRED.search(text) is not None


def _names_container(text: str) -> bool:
    """Whether the store has answered that the bucket or container is what isn't there."""
    return any(code in text for code in _CONTAINER_MISSING)


def _was_for_another(text: str, path: str) -> bool:
    """Whether the failed request certainly wasn't one for the object."""
    request = _REQUEST.search(text)
    if request is None or not _PLAIN.issuperset(path):
        return False
    return not unquote(urlsplit(request[1]).path).endswith(f"/{path}")

"""Parse the arguments for object stores: URIs and storage options.

An option has several names: those of the vendors' environment variables, which deltalake uses, too, and
those of fsspec. The module of each store lists them; case doesn't matter. An unknown name is an error,
because a credential that is silently ignored would be replaced by another one from the environment.

The option ``credential_provider`` is a function that returns credentials, which expire and which the client
requests again. It replaces all other credentials.

Values of options may be secrets, so no message contains them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.single_writer import (
    SINGLE_WRITER,
    drop_single_writer,
    is_single_writer,
)

__all__ = [
    "BUCKET",
    "CLIENT_OPTIONS",
    "CONTAINER",
    "CREDENTIAL_PROVIDER",
    "MAX_RETRIES",
    "StoreLocation",
    "StoreOptions",
    "read_location",
    "read_options",
]

_MOST_NAMED = 3
"""Options that an error proposes for an unknown one."""

OptionNames = Mapping[str, tuple[str, ...]]

CREDENTIAL_PROVIDER = "credential_provider"
"""The option with a function that returns credentials; see `StoreOptions.credential_provider`."""

# obstore's names of the settings, of all stores, that are or choose credentials.
_CREDENTIALS = frozenset(
    {
        "access_key_id",
        "secret_access_key",
        "session_token",
        "role_arn",
        "web_identity_token_file",
        "service_account",
        "service_account_key",
        "application_credentials",
        "bearer_token",
        "account_key",
        "sas_key",
        "token",
        "client_id",
        "client_secret",
        "federated_token_file",
        "use_azure_cli",
        "skip_signature",
    }
)

MAX_RETRIES = "max_retries"
"""The option with the number of times that the client repeats a request after a temporary failure."""

# Settings of the HTTP client, the same for all stores: obstore's name, and the names users may use.
CLIENT_OPTIONS: OptionNames = {
    "allow_http": ("allow_http", "aws_allow_http", "azure_allow_http", "google_allow_http"),
    "allow_invalid_certificates": ("allow_invalid_certificates",),
    "connect_timeout": ("connect_timeout",),
    "timeout": ("timeout",),
    "read_timeout": ("read_timeout",),
    "proxy_url": ("proxy_url",),
    "proxy_ca_certificate": ("proxy_ca_certificate",),
    "proxy_excludes": ("proxy_excludes",),
    MAX_RETRIES: (MAX_RETRIES,),
}


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A location in an object store: ``<scheme>://<container>/<prefix>``.

    Attributes:
        root: the location as the user wrote it, without a trailing slash.
        container: the bucket, or the container with its account.
        prefix: the path below the container, without slashes at its ends; may be empty.
    """

    root: str
    container: str
    prefix: str


@dataclass(frozen=True, slots=True, repr=False)
class StoreOptions:
    """Options under obstore's names. It has no repr, because they may be secrets.

    Attributes:
        store: the settings of the store.
        client: the settings of its HTTP client.
        single_writer: whether the user says that there is one writer; see `single_writer`.
        credential_provider: a function without arguments that returns credentials, as a mapping of obstore:
            ``access_key_id``, ``secret_access_key`` and ``token`` for S3, ``token`` for GCS and Azure; each
            with ``expires_at``, an aware datetime or None. The client calls it before its first request,
            and again when the credentials have less than five minutes left, perhaps in another thread.
            With an attribute ``store_kind`` (``S3``, ``GCS`` or ``Azure``) it is only for that kind.
    """

    store: dict[str, str]
    client: dict[str, str]
    single_writer: bool = False
    credential_provider: Callable[[], Any] | None = None


BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""The names of buckets: without characters that would be a user, a port, a query or a fragment in a URL."""

CONTAINER = re.compile(r"[A-Za-z0-9$_][A-Za-z0-9._% -]*(@[A-Za-z0-9.-]*)?")
"""The names of Azure's containers and OneLake's workspaces, with the host of the account."""


def read_location(uri: str, names: re.Pattern[str] = BUCKET) -> StoreLocation:
    """Parse a URI; nothing in it is decoded.

    Args:
        uri: the URI.
        names: the valid names of containers.

    Raises:
        InvalidArgumentError: it has no container, or an invalid name of one; or an empty, ``.`` or ``..``
            segment.
    """
    root = uri.rstrip("/")
    scheme, separator, rest = root.partition("://")
    container, _, prefix = rest.partition("/")
    if not separator or not container:
        raise InvalidArgumentError(
            f"{uri!r} names no bucket or container: expected <scheme>://<bucket>/<path>", uri=uri
        )
    if not names.fullmatch(container):
        user, at, host = container.rpartition("@")
        if at and names is BUCKET:
            # The text before the bucket may be a password, so it isn't shown.
            raise InvalidArgumentError(
                f"{scheme}://…@{host}/{prefix} has something in front of the bucket: credentials go into "
                "the storage options; an Airflow connection is named in front of the bucket only where "
                "operators, sensors and hooks take a table_uri, else by delta_conn_id",
                uri=f"{scheme}://{host}/{prefix}",
            )
        shown = f"…@{host}" if ":" in user else container
        raise InvalidArgumentError(
            f"{scheme}://{shown}/{prefix}: {shown!r} can't be the name of a bucket or container",
            uri=f"{scheme}://{shown}/{prefix}",
        )
    if prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/")):
        raise InvalidArgumentError(
            f"{uri!r} has an empty, '.' or '..' segment, which object stores don't resolve", uri=uri
        )
    return StoreLocation(root, container, prefix)


def read_options(options: Mapping[str, object], names: OptionNames, *, kind: str) -> StoreOptions:
    """Translate options to obstore's names.

    Args:
        options: the user's options; values may be strings, numbers or booleans; the value of
            ``credential_provider`` is a function.
        names: obstore's names of the settings of a store, with the names that users may use for each.
        kind: the kind of store, for messages.

    Raises:
        InvalidArgumentError: a name is unknown, two mean the same, a value isn't a scalar, or there are
            credentials beside a ``credential_provider``.
    """
    known = {
        alias: name for name, aliases in {**names, **CLIENT_OPTIONS}.items() for alias in aliases
    }
    found: dict[str, str] = {}
    for option, value in drop_single_writer(options).items():
        if option == CREDENTIAL_PROVIDER:
            continue
        name = known.get(option.lower())
        if name is None:
            raise _unknown_option(option, known, kind=kind)
        if name in found:
            raise InvalidArgumentError(
                f"the storage option {option!r} is given twice for {kind}: drop one of "
                f"{', '.join(sorted(given for given in options if known.get(given.lower()) == name))}",
                option=option,
            )
        found[name] = _text(option, value)
    if any(found.get(name, "").startswith("http://") for name in ("endpoint", "base_url")):
        # An endpoint with http:// is consent to http.
        found.setdefault("allow_http", "true")
    return StoreOptions(
        store={name: text for name, text in found.items() if name not in CLIENT_OPTIONS},
        client={name: text for name, text in found.items() if name in CLIENT_OPTIONS},
        single_writer=is_single_writer(options),
        credential_provider=_provider(options, found, kind=kind),
    )


def _provider(
    options: Mapping[str, object], found: Iterable[str], *, kind: str
) -> Callable[[], Any] | None:
    provider = options.get(CREDENTIAL_PROVIDER)
    if provider is None:
        return None
    if not callable(provider):
        raise InvalidArgumentError(
            f"the storage option {CREDENTIAL_PROVIDER!r} is a {type(provider).__name__}: expected a "
            "function",
            option=CREDENTIAL_PROVIDER,
        )
    meant = getattr(provider, "store_kind", kind)
    if meant != kind:
        # Otherwise the token of one cloud would be sent to another.
        raise InvalidArgumentError(
            f"the storage option {CREDENTIAL_PROVIDER!r} has credentials for {meant}, and the location is "
            f"in {kind}",
            option=CREDENTIAL_PROVIDER,
        )
    others = sorted(_CREDENTIALS.intersection(found))
    if others:
        raise InvalidArgumentError(
            f"the storage options for {kind} have {CREDENTIAL_PROVIDER!r} and other credentials "
            f"({', '.join(others)}), so it isn't clear which ones to use: drop one of them",
            option=CREDENTIAL_PROVIDER,
        )
    return provider


def _unknown_option(option: str, known: Iterable[str], *, kind: str) -> InvalidArgumentError:
    """The error for an option that a store doesn't have. It names those that are spelt alike."""
    names = sorted({*known, SINGLE_WRITER})
    close = difflib.get_close_matches(option.lower(), names, n=_MOST_NAMED)
    if close:
        hint = f"did you mean {' or '.join(map(repr, close))}?"
    else:
        hint = f"the page docs/how-to/object-stores.md lists the {len(names)} names that there are"
    return InvalidArgumentError(
        f"unknown storage option {option!r} for {kind}: {hint}", option=option
    )


def _text(option: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    raise InvalidArgumentError(
        f"the storage option {option!r} is a {type(value).__name__}: expected a string, an integer "
        "or a boolean",
        option=option,
    )

"""What users pass to name and set up an object store: URIs and storage options.

The same option goes by several names: those of the vendors' environment variables, which deltalake
shares, and those of fsspec. Each store's module lists the names it takes; they are matched without
regard to case. A name that isn't listed is an error, because a credential that is silently ignored
turns into somebody else's credential found in the environment.

Values of options may be secrets: they appear in no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.single_writer import (
    SINGLE_WRITER,
    says_single_writer,
    without_single_writer,
)

__all__ = ["CLIENT_OPTIONS", "StoreLocation", "StoreOptions", "read_location", "read_options"]

OptionNames = Mapping[str, tuple[str, ...]]

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
}


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A location in an object store: ``<scheme>://<container>/<prefix>``.

    Attributes:
        root: the location as the user named it, without a trailing slash.
        container: what stands between the slashes: a bucket, or a container and its account.
        prefix: the path below the container, without slashes at its ends; may be empty.
    """

    root: str
    container: str
    prefix: str


@dataclass(frozen=True, slots=True, repr=False)
class StoreOptions:
    """Options under obstore's names. Without a repr, as they hold secrets.

    Attributes:
        store: the settings of the store.
        client: the settings of its HTTP client.
        single_writer: whether the user says that there is one writer; see `single_writer`.
    """

    store: dict[str, str]
    client: dict[str, str]
    single_writer: bool = False


def read_location(uri: str) -> StoreLocation:
    """Take a URI apart; nothing in it is decoded.

    Raises:
        InvalidArgumentError: it has no container, or an empty, ``.`` or ``..`` segment.
    """
    root = uri.rstrip("/")
    _, separator, rest = root.partition("://")
    container, _, prefix = rest.partition("/")
    if not separator or not container:
        raise InvalidArgumentError(
            f"{uri!r} names no bucket or container: expected <scheme>://<bucket>/<path>", uri=uri
        )
    if prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/")):
        raise InvalidArgumentError(
            f"{uri!r} has an empty, '.' or '..' segment, which object stores don't resolve", uri=uri
        )
    return StoreLocation(root, container, prefix)


def read_options(options: Mapping[str, object], names: OptionNames, *, kind: str) -> StoreOptions:
    """Bring options under obstore's names.

    Args:
        options: what the user passed; values may be strings, numbers or booleans.
        names: obstore's names of the settings of a store, and the names users may use for each.
        kind: the kind of store, for messages.

    Raises:
        InvalidArgumentError: a name is unknown, two mean the same, or a value isn't a scalar.
    """
    known = {
        alias: name for name, aliases in {**names, **CLIENT_OPTIONS}.items() for alias in aliases
    }
    found: dict[str, str] = {}
    for option, value in without_single_writer(options).items():
        name = known.get(option.lower())
        if name is None:
            raise InvalidArgumentError(
                f"unknown storage option {option!r} for {kind}: expected one of "
                f"{', '.join(sorted([*known, SINGLE_WRITER]))}",
                option=option,
            )
        if name in found:
            raise InvalidArgumentError(
                f"the storage option {option!r} is given twice for {kind}: drop one of "
                f"{', '.join(sorted(given for given in options if known.get(given.lower()) == name))}",
                option=option,
            )
        found[name] = _text(option, value)
    if any(found.get(name, "").startswith("http://") for name in ("endpoint", "base_url")):
        # Whoever writes out http:// has asked for it.
        found.setdefault("allow_http", "true")
    return StoreOptions(
        store={name: text for name, text in found.items() if name not in CLIENT_OPTIONS},
        client={name: text for name, text in found.items() if name in CLIENT_OPTIONS},
        single_writer=says_single_writer(options),
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

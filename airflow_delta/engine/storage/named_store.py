"""Parsed locations and stores, to find out whether two locations are in the same store.

`Location` is a location from the log. It isn't trusted: no request ever goes to the host that it names.
`NamedStore` is a store that the user has named: the table's, or that of a prefix that the table may read. A
file of the log is opened through a named store, with the user's name of it, or not at all.

A store has several names: ``s3://`` and ``s3a://``, or an account in the URI or in an option.
`NamedStore.holds` compares what they mean.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import CorruptLogError, InvalidArgumentError

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["AZURE_CLOUDS", "LOCAL", "Location", "NamedStore", "store_kind"]

LOCAL = "file"

_KINDS = {
    "file": LOCAL,
    "memory": "memory",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "azure",
    "abfss": "azure",
    "az": "azure",
    "wasb": "azure",
    "wasbs": "azure",
}
"""The kind of store for each scheme. All other schemes are read through fsspec."""

AZURE_CLOUDS = frozenset(
    {
        "core.windows.net",
        "core.usgovcloudapi.net",
        "core.chinacloudapi.cn",
        "core.cloudapi.de",
        "fabric.microsoft.com",
    }
)
"""The clouds of Azure: the ends of the hosts of their accounts."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*):(?=/)(//)?")
_AZURE_HOST = re.compile(r"([^.@/]+)\.(?:dfs|blob)\.([^@/]+)")
_AZURE_LOCATION = re.compile(r"abfss://([^@/]+)@([^.@/]+)\.dfs\.([^/]+)")


def store_kind(scheme: str) -> str:
    """Return the kind of store of a scheme; for a scheme of fsspec, the scheme itself."""
    return _KINDS.get(scheme.lower(), scheme.lower())


@dataclass(frozen=True, slots=True)
class Location:
    """A decoded, absolute location in parts.

    Attributes:
        kind: the kind of store.
        authority: the bucket, or container and account. For local files the host of a ``file:`` URI, else
            empty.
        path: the path in it, without a leading slash.
        text: the whole location.
    """

    kind: str
    authority: str
    path: str
    text: str

    @classmethod
    def of(cls, text: str, *, table: str | None = None) -> Location:
        """Parse a location.

        Args:
            text: the location.
            table: the location of the table whose log has it, for the error.

        Raises:
            CorruptLogError: it is relative, or contains a NUL, which file names can't. Facts: path.
        """
        match = _SCHEME.match(text)
        if "\0" in text or not (match or text.startswith("/")):
            raise CorruptLogError(
                f"the path {text!r} names no file: expected a path below the table's root, or an absolute "
                "one such as /data/t/part-0.parquet or s3://bucket/t/part-0.parquet",
                table=table,
                path=text,
            )
        if match is None:
            return cls(LOCAL, "", text.lstrip("/"), text)
        rest = text[match.end() :]
        authority, _, path = rest.partition("/") if match[2] else ("", "", rest[1:])
        return cls(store_kind(match[1]), authority, path, text)

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of the path; for a file system without empty ones and ``.``."""
        parts = self.path.split("/")
        if self.kind == LOCAL:
            return tuple(part for part in parts if part not in ("", "."))
        return tuple(parts)

    @property
    def shown(self) -> str:
        """The location for messages: without a user name and password before the host."""
        user, at, host = self.authority.rpartition("@")
        if not at or (self.kind == "azure" and ":" not in user):
            return self.text
        return self.text.replace(f"{user}@{host}", host, 1)


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A store that the user has named, with the named directory in it.

    Attributes:
        kind: the kind of store.
        container: the location of the bucket or container as the user wrote it; for a local path, the path.
        authority: the bucket, or in Azure the container.
        account: in Azure the account; else empty.
        cloud: in Azure the cloud; None for another server with its protocol, and outside of Azure.
        bases: the segments of the directory; for a local one also those with links resolved.
    """

    kind: str
    container: str
    authority: str
    account: str
    cloud: str | None
    bases: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, storage: Storage) -> NamedStore:
        """Return the store of a storage that the user has opened."""
        found = Location.of(storage.root)
        if found.kind == LOCAL:
            real = Location.of(os.path.realpath(storage.root))
            bases = tuple(dict.fromkeys((found.segments, real.segments)))
            return cls(LOCAL, storage.root, "", "", None, bases)
        path = found.path.rstrip("/")
        base = tuple(path.split("/")) if path else ()
        container = found.text[: len(found.text) - len(found.path)].rstrip("/")
        authority, account, cloud = found.authority, "", None
        if found.kind == "azure":
            authority, account, cloud = _parse_azure(storage.canonical_location, path)
        return cls(found.kind, container, authority, account, cloud, (base,))

    def holds(self, location: Location, *, account: str = "") -> bool:
        """Whether a location is in this store, in any directory.

        Args:
            location: a location from a log.
            account: in Azure, the account of locations that don't name one.
        """
        if location.kind != self.kind:
            return False
        if self.kind != "azure":
            return location.authority == self.authority
        container, at, host = location.authority.partition("@")
        if container != self.authority:
            return False
        if not at:
            return self.account == account
        match = _AZURE_HOST.fullmatch(host.lower())
        if match is None or match[1] != self.account:
            return False
        # Another server with Azure's protocol is set by an option, and may have the accounts of any cloud.
        return match[2] in AZURE_CLOUDS if self.cloud is None else match[2] == self.cloud

    def below(self, segments: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the segments below the named directory; None if they aren't below it."""
        for base in self.bases:
            if segments[: len(base)] == base:
                return segments[len(base) :]
        return None


def _parse_azure(location: str, path: str) -> tuple[str, str, str | None]:
    """Return container, account and cloud of a canonical location in Azure."""
    base = location.removesuffix(f"/{path}") if path else location
    if match := _AZURE_LOCATION.fullmatch(base):
        return match[1], match[2], match[3].lower()
    container, at, account = base.rpartition("/")[2].partition("@")
    if not at:
        raise InvalidArgumentError(f"{location!r} isn't a location in Azure")
    return container, account, None

"""Canonical locations: one spelling for each location, so that locations can be compared.

One location has many spellings: ``s3a://`` for ``s3://``, an account in the URI or in an option, a server
with or without its default port. One spelling may also mean several locations, such as a bucket name on two
servers. So a canonical location has everything that decides where a request goes, and nothing else; in
particular no credentials.

==========================================  ========================================================
store                                       canonical location
==========================================  ========================================================
Amazon S3                                   ``s3://<bucket>/<path>``
another server with the protocol of S3      ``s3+<endpoint>/<bucket>/<path>``
Google Cloud Storage                        ``gs://<bucket>/<path>``
another server with its protocol            ``gs+<endpoint>/<bucket>/<path>``
Azure                                       ``abfss://<container>@<account>.dfs.<cloud>/<path>``
another server for an account of Azure      ``abfss+<endpoint>/<container>@<account>/<path>``
a directory                                 its path, with links resolved
==========================================  ========================================================

It is for comparisons and messages. It can't be opened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from airflow_delta.engine.errors import InvalidArgumentError

__all__ = ["Endpoint", "join_path"]

_USUAL_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of a server, without credentials.

    Attributes:
        scheme: ``http`` or ``https``, in lower case.
        host: the host, in lower case.
        port: the port; None for the default port of the scheme.
        path: the prefix of all request paths, without a slash at its end.
    """

    scheme: str
    host: str
    port: int | None
    path: str

    @classmethod
    def of(cls, url: str) -> Endpoint:
        """Parse a URL.

        Raises:
            InvalidArgumentError: its host or port is invalid.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            # The URL may hold a password.
            raise InvalidArgumentError(
                "the endpoint of a store isn't a URL: expected one such as https://minio.example.org:9000"
            ) from None
        usual = port == _USUAL_PORTS.get(parts.scheme)
        return cls(parts.scheme, host, None if usual else port, parts.path.rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    def is_below(self, domain: str) -> bool:
        """Whether the host is a domain, or below it."""
        return self.host == domain or self.host.endswith(f".{domain}")

    def without_label(self, label: str) -> Endpoint:
        """Return the endpoint without a label at the start of its host, if it has that label."""
        return replace(self, host=self.host.removeprefix(f"{label.lower()}."))


def join_path(container: str, path: str) -> str:
    """Append a path to the canonical location of a bucket or container."""
    return f"{container}/{path}" if path else container

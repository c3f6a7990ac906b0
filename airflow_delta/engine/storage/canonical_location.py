"""Where a storage is, spelled alike by everybody who means the same place.

The same place in a store goes by many names: ``s3a://`` for ``s3://``, an account in the location or in
an option, a server with and without its usual port. And one name may mean different places: a bucket of
the same name on two servers. So a place is told by all that decides where a request goes, and by nothing
else; credentials, above all, are no part of it.

==========================================  ========================================================
store                                       place
==========================================  ========================================================
Amazon S3                                   ``s3://<bucket>/<path>``
a look-alike of S3                          ``s3+<endpoint>/<bucket>/<path>``
Google Cloud Storage                        ``gs://<bucket>/<path>``
a look-alike of it                          ``gs+<endpoint>/<bucket>/<path>``
Azure                                       ``abfss://<container>@<account>.dfs.<cloud>/<path>``
another server for an account of Azure      ``abfss+<endpoint>/<container>@<account>/<path>``
a directory                                 its path, with links resolved
==========================================  ========================================================

A place is for comparing and for messages. It can't be opened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from airflow_delta.engine.errors import InvalidArgumentError

__all__ = ["Endpoint", "join_path"]

_USUAL_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of a server, as far as it says where requests go: without credentials.

    Attributes:
        scheme: ``http`` or ``https``, in lower case.
        host: the host, in lower case.
        port: the port; None for the usual one.
        path: what the paths of all requests begin with, without a slash at its end.
    """

    scheme: str
    host: str
    port: int | None
    path: str

    @classmethod
    def of(cls, url: str) -> Endpoint:
        """Take a URL apart.

        Raises:
            InvalidArgumentError: it has no port that is one, or a host that can't be one.
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
        """Whether the host is one of a domain."""
        return self.host == domain or self.host.endswith(f".{domain}")

    def without_label(self, label: str) -> Endpoint:
        """The endpoint without the first part of its host's name, if it is that one."""
        return replace(self, host=self.host.removeprefix(f"{label.lower()}."))


def join_path(container: str, path: str) -> str:
    """The place of a path in a bucket or container, of which the place is given."""
    return f"{container}/{path}" if path else container

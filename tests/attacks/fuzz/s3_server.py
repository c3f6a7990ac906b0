"""An S3 that notes which objects it is asked for, to see that readers stay below the root."""

from __future__ import annotations

import http.client
import io
import threading
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree

from tests.attacks.fuzz.named import plain_key

__all__ = ["BUCKET", "S3Server"]

BUCKET = "fuzz"


class S3Server:
    """Moto behind a notebook."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, *_: object) -> None:
                """Say nothing."""

        self._application = DomainDispatcherApplication(create_backend_app)
        self._found: list[tuple[str, str]] = []
        self._server = make_server(
            "127.0.0.1", 0, self._noted, threaded=True, request_handler=Quiet
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.port: int = self._server.server_port
        self._make_bucket()

    @property
    def uri(self) -> str:
        """Of the bucket."""
        return f"s3://{BUCKET}"

    @property
    def options(self) -> dict[str, str]:
        """Of its storage."""
        return {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_endpoint_url": f"http://127.0.0.1:{self.port}",
        }

    def outside(self, roots: Iterable[str], named: Collection[str] = ()) -> list[str]:
        """What was asked for since the last call that isn't below any of the roots.

        A log may name objects elsewhere in the table's bucket. They are read with the credentials that the
        user gave for this bucket. So these reads are left out, but no other requests for them.

        Args:
            roots: the locations of tables.
            named: the keys that the log names, as `named.named_objects` finds them.
        """
        found, self._found = self._found, []
        below = tuple(f"/{root.removeprefix('s3://')}/" for root in roots)
        return [
            f"{method} {path}"
            for method, path in found
            if not (
                _is_below(path, below) or (method in ("GET", "HEAD") and _key_of(path) in named)
            )
        ]

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()

    def _noted(self, environ: dict[str, Any], start: Any) -> Any:
        # WSGI decodes the path once, as Latin-1.
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "surrogateescape")
        query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        method = "LIST" if "list-type" in query else environ["REQUEST_METHOD"]
        if method == "POST" and "delete" in query:
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            environ["wsgi.input"] = io.BytesIO(body)
            self._found += [("DELETE", f"/{BUCKET}/{key}") for key in _deleted_keys(body)]
        else:
            prefix = query.get("prefix", [""])[0]
            self._found.append((method, path + (f"/{prefix}" if prefix else "")))
        return self._application(environ, start)

    def _make_bucket(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        scope = "AWS4-HMAC-SHA256 Credential=key/20200101/us-east-1/s3/aws4_request"
        connection.request("PUT", f"/{BUCKET}", headers={"Authorization": scope})
        assert connection.getresponse().status == 200
        connection.close()
        self._found.clear()


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return f"{path}/".startswith(roots) and ".." not in path.split("/")


def _key_of(path: str) -> str | None:
    """The key of an object in the bucket, as `plain_key`."""
    beginning = f"/{BUCKET}/"
    return plain_key(path.removeprefix(beginning)) if path.startswith(beginning) else None


def _deleted_keys(body: bytes) -> list[str]:
    """The keys in the body of a bulk deletion (DeleteObjects)."""
    return [key.text or "" for key in ElementTree.fromstring(body).iterfind("{*}Object/{*}Key")]

"""An S3 that notes which objects it is asked for, to see that readers stay below the root."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, unquote

__all__ = ["S3Server"]

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
        self._found: list[str] = []
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

    def outside(self, roots: Iterable[str]) -> list[str]:
        """What was asked for since the last call that isn't below any of these.

        Reading an object elsewhere in the bucket isn't counted: a log may name it, and it is opened with
        the credentials that the user gave for this bucket. Whether the log does name it isn't checked here,
        nor are the names in the body of a bulk deletion.
        """
        found, self._found = self._found, []
        below = tuple(f"/{root.removeprefix('s3://')}/" for root in roots)
        return [
            asked
            for asked in found
            if not f"{asked.partition(' ')[2]}/".startswith(below) and not _reads_object(asked)
        ]

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()

    def _noted(self, environ: dict[str, Any], start: Any) -> Any:
        path = unquote(environ["PATH_INFO"])
        prefix = parse_qs(environ["QUERY_STRING"]).get("prefix", [""])[0]
        if environ["REQUEST_METHOD"] != "POST" or "delete" not in environ["QUERY_STRING"]:
            method = "LIST" if "list-type" in environ["QUERY_STRING"] else environ["REQUEST_METHOD"]
            self._found.append(f"{method} {path}" + (f"/{prefix}" if prefix else ""))
        return self._application(environ, start)

    def _make_bucket(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        scope = "AWS4-HMAC-SHA256 Credential=key/20200101/us-east-1/s3/aws4_request"
        connection.request("PUT", f"/{BUCKET}", headers={"Authorization": scope})
        assert connection.getresponse().status == 200
        connection.close()
        self._found.clear()


def _reads_object(asked: str) -> bool:
    method, _, path = asked.partition(" ")
    return method in ("GET", "HEAD") and path.startswith(f"/{BUCKET}/")

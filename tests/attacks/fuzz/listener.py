"""A host on the loopback interface that nobody may speak to: proxy, metadata service, evil host."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

__all__ = ["SECRETS", "Listener", "environment"]

_ANSWER = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAFAKEFAKEFAKEFAKE",
    "AWS_SECRET_ACCESS_KEY": "fake-aws-secret-6f1d",
    "AWS_SESSION_TOKEN": "fake-aws-token-6f1d",
    "AZURE_STORAGE_ACCOUNT_NAME": "account",
    "AZURE_STORAGE_ACCOUNT_KEY": "ZmFrZS1henVyZS1rZXktNmYxZA==",
    "AZURE_STORAGE_SAS_TOKEN": "sv=2020&sig=fake-azure-sas-6f1d",
    "AZURE_CLIENT_ID": "fake-azure-client-6f1d",
    "AZURE_CLIENT_SECRET": "fake-azure-secret-6f1d",
    "AZURE_TENANT_ID": "fake-azure-tenant-6f1d",
    "GOOGLE_BEARER_TOKEN": "fake-google-token-6f1d",
}
"""Credentials that must not be sent anywhere, nor be quoted."""


class Listener:
    """Accepts connections, notes how each begins, and sends it away."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._found: list[str] = []
        threading.Thread(target=self._run, daemon=True).start()

    def found(self) -> list[str]:
        """The connections since the last call."""
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            # Noted before anything is read: a connection alone is too much.
            number = len(self._found)
            self._found.append("connection")
            threading.Thread(target=self._answer, args=(connection, number), daemon=True).start()

    def _answer(self, connection: socket.socket, number: int) -> None:
        with suppress(OSError, IndexError), connection:
            connection.settimeout(0.5)
            head = connection.recv(2000)
            secret = next((s for s in SECRETS.values() if s.encode() in head), None)
            said = f"connection {head.splitlines()[:1]!r}" + (f" WITH {secret}" if secret else "")
            self._found[number] = said
            connection.sendall(_ANSWER)


def environment(port: int) -> dict[str, str]:
    """The variables of a process that has credentials, and whose every connection leads to the listener."""
    address = f"http://127.0.0.1:{port}"
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY"), address)
    proxies |= {name.lower(): address for name in proxies}
    return {
        **SECRETS,
        **proxies,
        "NO_PROXY": "",
        "no_proxy": "",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_METADATA_ENDPOINT": address,
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{address}/credentials",
        "IDENTITY_ENDPOINT": f"{address}/identity",
        "GCE_METADATA_HOST": f"127.0.0.1:{port}",
        "GCE_METADATA_ROOT": f"127.0.0.1:{port}",
    }

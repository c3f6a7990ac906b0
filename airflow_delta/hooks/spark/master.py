"""Check that a standalone Spark master answers before a job is submitted.

Spark itself gives up after more than a minute, with an error that names neither the master nor the cause.
"""

from __future__ import annotations

import queue
import re
import socket
import threading
import time

from airflow_delta.version_compat import AirflowException

__all__ = ["LIMIT_SECONDS", "check_master"]

LIMIT_SECONDS = 10.0
"""How long a master may take to accept a TCP connection, looking up its name included."""

_SCHEME = "spark://"
# The addresses of standby masters are separated by commas.
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:/@\s]+):(?P<port>[0-9]{1,5})")


def check_master(master: str, *, connection_id: str, limit_seconds: float = LIMIT_SECONDS) -> None:
    """Check that one of the masters of a standalone cluster accepts a TCP connection.

    Other masters (``local``, ``yarn``, ``k8s://…``) aren't checked: Spark may reach them through a proxy or
    Hadoop's settings.

    :param master: the URL of the master.
    :param connection_id: the Spark connection that names it, for the message.
    :param limit_seconds: how long to wait for any of them.
    :raises AirflowException: none has answered, or the URL has no host or no port.
    """
    if not master.startswith(_SCHEME):
        return
    addresses = [
        _address(text, master, connection_id) for text in master[len(_SCHEME) :].split(",")
    ]
    failures = _failures(addresses, limit_seconds)
    if failures is not None:
        causes = "; ".join(
            f"{_shown(address)}: {failures.get(address, f'no answer within {limit_seconds:g} seconds')}"
            for address in addresses
        )
        raise AirflowException(
            f"Spark connection {connection_id!r}: the master {master} can't be reached ({causes}). No job "
            "was submitted. Start the master, or correct the connection's host and port"
        )


def _address(text: str, master: str, connection_id: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise AirflowException(
            f"Spark connection {connection_id!r}: the master {master} isn't spark://<host>:<port>; give "
            "the connection's host and port, such as spark://master and 7077"
        )
    return found["host"].strip("[]"), int(found["port"])


def _failures(
    addresses: list[tuple[str, int]], limit_seconds: float
) -> dict[tuple[str, int], OSError] | None:
    """Connect to all addresses; return the errors that are known in time, or None once one has answered."""
    answers: queue.SimpleQueue[tuple[tuple[str, int], OSError | None]] = queue.SimpleQueue()

    def connect(address: tuple[str, int]) -> None:
        """Connect to one address, and put the outcome into the queue."""
        try:
            socket.create_connection(address, timeout=limit_seconds).close()
        except OSError as error:
            answers.put((address, error))
        else:
            answers.put((address, None))

    # In threads, because looking up a name has no time limit of its own.
    for address in addresses:
        threading.Thread(target=connect, args=(address,), daemon=True).start()
    failures: dict[tuple[str, int], OSError] = {}
    deadline = time.monotonic() + limit_seconds
    while len(failures) < len(set(addresses)):
        try:
            address, error = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if error is None:
            return None
        failures[address] = error
    return failures


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

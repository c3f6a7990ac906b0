"""Whether a standalone master answers, which a task finds out within a limit."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from airflow_delta.hooks.spark.master import check_master
from airflow_delta.version_compat import AirflowException


def gone_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://nowhere.invalid:443"])
def test_other_masters_are_not_looked_at(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("a connection"))
    check_master(master, connection_id="c")


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{gone_port()},127.0.0.1:{port}", connection_id="c")


def test_each_master_that_does_not_answer_is_named_with_its_cause() -> None:
    one, other = gone_port(), gone_port()
    with pytest.raises(AirflowException) as caught:
        check_master(f"spark://127.0.0.1:{one},127.0.0.1:{other}", connection_id="lake")
    text = str(caught.value)
    assert text.startswith("Spark connection 'lake': the master spark://127.0.0.1:")
    for port in (one, other):
        assert f"127.0.0.1:{port}: [Errno 111] Connection refused" in text


def test_a_name_that_is_looked_up_for_ever_takes_no_longer_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    def hang(*_: Any, **__: Any) -> None:
        over.wait(30)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", hang)
    began = time.monotonic()
    try:
        with pytest.raises(AirflowException, match=r"master:7077: no answer within 0\.2 seconds"):
            check_master("spark://master:7077", connection_id="c", limit_seconds=0.2)
    finally:
        over.set()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("master", ["spark://master", "spark://", "spark://a:b", "spark://a:70000"])
def test_a_master_without_host_and_port_is_an_error(master: str) -> None:
    with pytest.raises(AirflowException, match=r"'c': the master .* isn't spark://<host>:<port>"):
        check_master(master, connection_id="c")

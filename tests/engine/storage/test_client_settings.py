"""What the HTTP client is told, and what it takes from the environment."""

from __future__ import annotations

import pytest

from airflow_delta.engine.storage.client_settings import build_client_settings
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.object_store import ObjectStorage

PLACES = [("s3://b/t", "AWS_"), ("gs://b/t", "GOOGLE_"), ("az://c/t", "AZURE_")]
OPTIONS = {"az://c/t": {"account_name": "a"}}


def settings(uri: str, **options: str) -> dict[str, str]:
    storage = open_storage(uri, {**OPTIONS.get(uri, {}), **options})
    assert isinstance(storage, ObjectStorage)
    return dict(storage.store.client_options)


@pytest.mark.parametrize(("uri", "variables"), PLACES)
def test_silence_is_limited_and_not_how_long_an_object_takes(uri: str, variables: str) -> None:
    assert settings(uri) == {"timeout": "1h", "read_timeout": "60s"}
    assert settings(uri, read_timeout="5m") == {"timeout": "1h", "read_timeout": "5m"}


@pytest.mark.parametrize(("uri", "variables"), PLACES)
def test_a_limit_for_the_whole_request_is_the_only_one(uri: str, variables: str) -> None:
    assert settings(uri, timeout="10m") == {"timeout": "10m"}
    both = {"timeout": "10m", "read_timeout": "5s"}
    assert settings(uri, **both) == both


@pytest.mark.parametrize(("uri", "variables"), PLACES)
def test_what_no_option_says_is_taken_from_the_environment(
    uri: str, variables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{variables}READ_TIMEOUT", "7s")
    monkeypatch.setenv(f"{variables}USER_AGENT", "me")
    found = {"timeout": "1h", "read_timeout": "7s", "user_agent": "me"}
    assert settings(uri) == found
    assert settings(uri, read_timeout="9s") == {**found, "read_timeout": "9s"}
    monkeypatch.setenv(f"{variables}TIMEOUT", "8s")
    assert settings(uri) == {**found, "timeout": "8s"}


def test_variables_of_other_stores_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TIMEOUT", "8s")
    assert build_client_settings({}, variables="AWS_") == {"timeout": "1h", "read_timeout": "60s"}

"""How locations and options of GCS reach its client."""

from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.gcs import open_gcs


def test_location_and_options() -> None:
    storage = open_gcs("gs://bucket/a/t", {"GOOGLE_BEARER_TOKEN": "token", "base_url": "http://h"})
    assert storage.root == "gs://bucket/a/t"
    assert storage.store.prefix == "a/t"
    assert storage.store.config == {
        "bucket": "bucket",
        "bearer_token": "token",
        "base_url": "http://h",
    }
    assert storage.store.client_options["allow_http"] == "true"
    assert storage.capabilities.start_after


def test_a_key_that_is_no_service_account_is_not_shown() -> None:
    with pytest.raises(InvalidArgumentError, match="'gs://bucket/t'") as error:
        open_gcs("gs://bucket/t", {"service_account_key": '{"private_key": "SECRET"}'})
    assert "SECRET" not in str(error.value)

"""Google Cloud Storage: ``gs://<bucket>/<path>``, or ``gcs://``.

Settings that aren't storage options come from the environment: the ``GOOGLE_…`` variables, the application
default credentials, or the service account of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from obstore.store import GCSStore

from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.canonical_location import Endpoint, join_path
from airflow_delta.engine.storage.object_store import ObjectStorage
from airflow_delta.engine.storage.obstore_errors import build_store
from airflow_delta.engine.storage.store_arguments import (
    OptionNames,
    StoreLocation,
    read_location,
    read_options,
)

__all__ = ["GCS_OPTIONS", "open_gcs"]

GCS_OPTIONS: OptionNames = {
    "service_account": (
        "google_service_account",
        "google_service_account_path",
        "service_account_path",
        "service_account",
    ),
    "service_account_key": ("google_service_account_key", "service_account_key"),
    "application_credentials": ("google_application_credentials", "application_credentials"),
    "bearer_token": ("google_bearer_token", "bearer_token"),
    "skip_signature": ("google_skip_signature", "skip_signature", "anon"),
    "base_url": ("google_base_url", "base_url", "endpoint_url"),
}


def open_gcs(uri: str, options: Mapping[str, object]) -> ObjectStorage:
    """Make the storage of a location in GCS. No I/O is done.

    Args:
        uri: ``gs://<bucket>/<path>`` or ``gcs://<bucket>/<path>``.
        options: see `GCS_OPTIONS` and `CLIENT_OPTIONS`.

    Raises:
        InvalidArgumentError: the location or an option is malformed or unknown.
    """
    location = read_location(uri)
    known = read_options(options, GCS_OPTIONS, kind="GCS")
    server = known.store.get("base_url") or os.environ.get("GOOGLE_BASE_URL")
    return ObjectStorage(
        root=location.root,
        canonical_location=_canonical_location(location, server),
        store=build_store(GCSStore, location.container, location, known, variables="GOOGLE_"),
        capabilities=Capabilities(put_if_absent=True, start_after=True, remote=True),
    )


def _canonical_location(location: StoreLocation, server: str | None) -> str:
    """Build the canonical location; see the module `canonical_location`."""
    endpoint = None if server is None else Endpoint.of(server)
    google = endpoint is None or endpoint.is_below("googleapis.com")
    store = "gs:/" if google else f"gs+{endpoint}"
    return join_path(f"{store}/{location.container}", location.prefix)

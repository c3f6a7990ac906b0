"""Amazon S3 and other servers with its protocol: ``s3://<bucket>/<path>``, or ``s3a://``.

Settings that aren't storage options come from the environment: the ``AWS_…`` variables, a web identity
token, or the role of the container or machine.

Amazon S3 honours conditional writes. Other servers, which are set by an endpoint, have to prove that they
do; see `exclusive_put`. The directory buckets of S3 Express list in no order and can't start a listing at a
name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from obstore.store import S3Store

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.canonical_location import Endpoint, join_path
from airflow_delta.engine.storage.object_store import ObjectStorage
from airflow_delta.engine.storage.obstore_errors import build_store
from airflow_delta.engine.storage.store_arguments import (
    OptionNames,
    StoreLocation,
    StoreOptions,
    read_location,
    read_options,
)

__all__ = ["S3_OPTIONS", "open_s3"]

S3_OPTIONS: OptionNames = {
    "access_key_id": ("aws_access_key_id", "access_key_id", "key"),
    "secret_access_key": ("aws_secret_access_key", "secret_access_key", "secret"),
    "session_token": ("aws_session_token", "session_token", "token"),
    "region": ("aws_region", "aws_default_region", "region", "region_name"),
    "endpoint": ("aws_endpoint_url", "aws_endpoint_url_s3", "endpoint_url", "endpoint"),
    "skip_signature": ("aws_skip_signature", "skip_signature", "anon"),
    "virtual_hosted_style_request": (
        "aws_virtual_hosted_style_request",
        "virtual_hosted_style_request",
    ),
    "role_arn": ("aws_role_arn", "aws_iam_role_arn", "role_arn"),
    "role_session_name": (
        "aws_role_session_name",
        "aws_iam_role_session_name",
        "role_session_name",
    ),
    "web_identity_token_file": ("aws_web_identity_token_file", "web_identity_token_file"),
    "endpoint_url_sts": ("aws_endpoint_url_sts", "endpoint_url_sts"),
    "imdsv1_fallback": ("aws_imdsv1_fallback", "imdsv1_fallback"),
    "metadata_endpoint": ("aws_metadata_endpoint", "metadata_endpoint"),
    "server_side_encryption": ("aws_server_side_encryption", "server_side_encryption"),
    "sse_kms_key_id": ("aws_sse_kms_key_id", "sse_kms_key_id"),
    "sse_bucket_key_enabled": ("aws_sse_bucket_key_enabled", "sse_bucket_key_enabled"),
    "sse_customer_key_base64": ("aws_sse_customer_key_base64", "sse_customer_key_base64"),
    "checksum_algorithm": ("aws_checksum_algorithm", "checksum_algorithm"),
    "unsigned_payload": ("aws_unsigned_payload", "unsigned_payload"),
    "request_payer": ("aws_request_payer", "request_payer", "requester_pays"),
    "s3_express": ("aws_s3_express", "s3_express"),
    "conditional_put": ("aws_conditional_put", "conditional_put"),
}

# deltalake's options for commits without conditional writes. Two writers with different kinds of mutual
# exclusion wouldn't exclude each other.
_OTHER_COMMITS = frozenset(
    {"aws_s3_locking_provider", "aws_s3_allow_unsafe_rename", "delta_dynamo_table_name"}
)


_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

# The names of buckets are unique within each of these two, over all its regions.
_AMAZON = "amazonaws.com"
_AMAZON_IN_CHINA = "amazonaws.com.cn"


def open_s3(uri: str, options: Mapping[str, object]) -> ObjectStorage:
    """Make the storage of a location in S3. No I/O is done.

    Args:
        uri: ``s3://<bucket>/<path>`` or ``s3a://<bucket>/<path>``.
        options: see `S3_OPTIONS` and `CLIENT_OPTIONS`.

    Raises:
        InvalidArgumentError: the location or an option is malformed or unknown.
    """
    location = read_location(uri)
    for option in options:
        if option.lower() in _OTHER_COMMITS:
            raise InvalidArgumentError(
                f"the storage option {option!r} is for commits without conditional writes, and here every "
                "commit is a conditional write. If all writers of the table use conditional writes, drop "
                "the option; if there is only one writer, say so with 'single_writer'",
                option=option,
            )
    known = read_options(options, S3_OPTIONS, kind="S3")
    express = location.container.endswith("--x-s3") or known.store.get("s3_express") == "true"
    endpoint = known.store.get("endpoint") or _endpoint_of_environment()
    if endpoint:
        # The client reads the same variables, and some of them override the option.
        known.store["endpoint"] = endpoint
        if os.environ.get(_ENDPOINT_VARIABLES[0]):
            known.store[_ENDPOINT_VARIABLES[0].lower()] = endpoint
        if endpoint.startswith("http://") and "AWS_ALLOW_HTTP" not in os.environ:
            # A variable with http:// is consent to http, like an option. Without it the client fails with
            # "builder error".
            known.client.setdefault("allow_http", "true")
    return ObjectStorage(
        root=location.root,
        canonical_location=_canonical_location(
            location, endpoint, in_host=_names_bucket_in_host(known)
        ),
        store=build_store(S3Store, location.container, location, known, variables="AWS_"),
        capabilities=Capabilities(
            put_if_absent=(
                known.store.get("conditional_put", os.environ.get("AWS_CONDITIONAL_PUT"))
                != "disabled"
            ),
            start_after=not express,
            remote=True,
        ),
        delete_batch=1000,
        unproven=f"{endpoint} (bucket {location.container})" if endpoint else None,
        single_writer=known.single_writer,
    )


def _endpoint_of_environment() -> str | None:
    return next((os.environ[name] for name in _ENDPOINT_VARIABLES if os.environ.get(name)), None)


def _names_bucket_in_host(known: StoreOptions) -> bool:
    variable = os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "")
    return known.store.get("virtual_hosted_style_request", variable).lower() == "true"


def _canonical_location(location: StoreLocation, endpoint: str | None, *, in_host: bool) -> str:
    """Build the canonical location; see the module `canonical_location`.

    Args:
        location: the location.
        endpoint: the server; None for Amazon's.
        in_host: whether the endpoint's host includes the bucket.
    """
    server = None if endpoint is None else Endpoint.of(endpoint)
    if server is None or server.is_below(_AMAZON):
        store = "s3:/"
    elif server.is_below(_AMAZON_IN_CHINA):
        store = f"s3+https://{_AMAZON_IN_CHINA}"
    else:
        store = f"s3+{server.without_label(location.container) if in_host else server}"
    return join_path(f"{store}/{location.container}", location.prefix)

"""Credentials that the hooks of the clouds' official providers get, and that expire.

Where a provider isn't installed, a stand-in of it answers (`cloud_providers`); S3 and STS are moto's.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ClientError, EndpointConnectionError, ProfileNotFound

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import AccessDeniedError, InvalidArgumentError, StorageError
from airflow_delta.engine.model.schema import INTEGER, StructField, StructType
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.hooks import bounded_call, cloud_credentials, cloud_hooks
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import TableFailure, failures_by_policy
from airflow_delta.hooks.login_errors import describe_login_error
from airflow_delta.version_compat import Connection
from tests.airflow import cloud_providers
from tests.object_stores import new_place

SCHEMA = StructType((StructField("id", INTEGER),))
SECRET = "s3cr3t-of-the-base-identity"
ROLE = "arn:aws:iam::123456789012:role/lake"
IMPERSONATED = {"impersonation_chain": "lake@project.iam.gserviceaccount.com"}
IDENTITY = {"managed_identity_client_id": "identity", "workload_identity_tenant_id": "tenant"}


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share nothing with other tests."""
    monkeypatch.setattr(cloud_credentials, "_shared", cloud_credentials._Shared())


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table in a bucket, and the connection ``lake``, which assumes a role."""
    cloud_providers.install(monkeypatch, cloud_providers.AMAZON)
    uri, options = new_place("s3", tmp_path)
    DeltaTable.create(f"{uri}/t", SCHEMA, storage_options=options)
    endpoint = options["aws_endpoint_url"]
    extra = {
        "role_arn": ROLE,
        "region_name": "us-east-1",
        "endpoint_url": endpoint,
        "service_config": {"sts": {"endpoint_url": endpoint}},
    }
    define(monkeypatch, "lake", conn_type="aws", login="AKIABASE", password=SECRET, extra=extra)
    return f"{uri}/t"


def define(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


def test_a_table_is_read_with_the_role_of_its_connection(lake: str) -> None:
    table = DeltaHook("lake").table(lake)
    assert table.snapshot().version == 0
    waited = asyncio.run(DeltaHook("lake").table_async(lake))
    assert waited.snapshot().version == 0
    for opened in (table, waited):
        options = opened.storage_options
        assert sorted(options) == ["aws_endpoint_url", "aws_region", "credential_provider"]
        assert options["credential_provider"]()["access_key_id"].startswith("ASIA")
        assert SECRET not in repr(options)


def test_the_credentials_of_a_role_are_renewed(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # An hour is what they are valid for. So botocore renews them at every call.
    for timeout in ("_mandatory_refresh_timeout", "_advisory_refresh_timeout"):
        monkeypatch.setattr(RefreshableCredentials, timeout, 7200)
    credentials = DeltaHook("lake").table(lake).storage_options["credential_provider"]
    found = [credentials() for _ in range(3)]
    assert len({one["access_key_id"] for one in found}) == 3
    # The client asks again when five minutes are left, before which they can't have expired.
    left = found[-1]["expires_at"] - datetime.now(timezone.utc)
    assert timedelta(minutes=9) < left <= timedelta(minutes=10)


def test_another_process_gets_what_is_valid_now(
    lake: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[str] = []
    monkeypatch.setattr(cloud_credentials, "mask_secret", masked.append)
    hook = DeltaHook("lake")
    options = hook.common_storage_options(lake, f"{lake}-copy")
    logged = capfd.readouterr().out
    assert "'lake' are passed on to another process, which can't renew them" in logged
    assert options["aws_access_key_id"].startswith("ASIA")
    secrets = {options["aws_secret_access_key"], options["aws_session_token"]}
    assert set(masked) == secrets
    assert not [secret for secret in secrets if secret in logged]
    # They are options of the engine.
    assert DeltaTable(lake, options).snapshot().version == 0
    assert asyncio.run(hook.storage_options_async(lake)) == options


def test_tables_of_one_login_have_common_options(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each request returns other credentials, as if hours were between them.
    for timeout in ("_mandatory_refresh_timeout", "_advisory_refresh_timeout"):
        monkeypatch.setattr(RefreshableCredentials, timeout, 7200)
    hook = DeltaHook("lake")
    assert hook.storage_options(lake) != hook.storage_options(lake)
    options = hook.common_storage_options(lake, "/data/t", f"{lake}-copy")
    assert options["aws_access_key_id"].startswith("ASIA")


def test_tables_of_two_logins_have_none(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    define(monkeypatch, "pond", conn_type="aws", extra={"role_arn": ROLE})
    uris = [lake.replace("s3://", f"s3://{name}@") for name in ("lake", "pond")]
    with pytest.raises(TableFailure, match="need different credentials, and a job has one set"):
        DeltaHook().common_storage_options(*uris)
    with pytest.raises(TableFailure, match="are in different stores"):
        DeltaHook("lake").common_storage_options(lake, "gs://lake/t")
    assert DeltaHook("lake").all_storage_options(lake)["credential_provider"]._renew is None


def test_credentials_are_passed_on_by_the_id_of_their_connection(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaHook("lake").table(lake)
    found = table.storage_options["credential_provider"]()
    passed_on = pickle.dumps((table, DeltaHook("lake").all_storage_options(lake)))
    for secret in (SECRET, found["secret_access_key"], found["token"]):
        assert secret.encode() not in passed_on
    again, options = pickle.loads(passed_on)
    assert again.snapshot().version == 0
    provide = options["credential_provider"]
    assert provide is not table.storage_options["credential_provider"]
    assert provide()["access_key_id"].startswith("ASIA")
    # Where it is unpickled, the connection may be another one, or unknown.
    define(monkeypatch, "lake", conn_type="delta")
    with pytest.raises(AccessDeniedError, match=r"'lake' can't .* is of type 'delta' here"):
        pickle.loads(passed_on)[0].snapshot()
    monkeypatch.delenv("AIRFLOW_CONN_LAKE")
    with pytest.raises(AccessDeniedError, match=r"'lake' can't .* DeltaHook\.storage_options"):
        pickle.loads(passed_on)[0].snapshot()


def test_what_a_login_prints_is_not_among_the_results(
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("ERROR", logger="werkzeug")  # of the store, which is in this process

    def log_in(connection: Connection) -> Any:
        print("a line of the hook")
        return cloud_hooks.open_amazon(connection)

    source = cloud_credentials._SOURCES["aws"]._replace(open=log_in)
    monkeypatch.setitem(cloud_credentials._SOURCES, "aws", source)
    assert main(["describe", lake, "--conn-id", "lake", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["version"] == 0
    assert captured.err.count("a line of the hook") == 1


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_what_is_printed_when_a_long_command_logs_in_again_is_not_among_the_results(
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    format_: str,
) -> None:
    caplog.set_level("ERROR", logger="werkzeug")  # of the store, which is in this process

    def log_in(connection: Connection) -> Any:
        renew = cloud_hooks.open_amazon(connection)

        def print_and_renew() -> dict[str, Any]:
            print("a line of the hook")
            return renew()

        return print_and_renew

    source = cloud_credentials._SOURCES["aws"]._replace(open=log_in)
    monkeypatch.setitem(cloud_credentials._SOURCES, "aws", source)
    assert main(["scan", lake, "--conn-id", "lake", "--format", format_]) == 0
    captured = capfd.readouterr()
    # Of the command, which hides the secrets, and of the client of the store.
    assert captured.err.count("a line of the hook") >= 2
    assert captured.out == ("" if format_ == "json" else '"id"\n')
    assert sys.stdout is not sys.stderr
    print("after the command")
    assert capfd.readouterr().out == "after the command\n"


def test_hooks_share_a_session_for_ten_minutes(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def provider() -> object:
        return DeltaHook("lake").table(lake).storage_options["credential_provider"]

    now = 1000.0
    monkeypatch.setattr(cloud_credentials.time, "monotonic", lambda: now)
    first = provider()
    assert provider() is first
    now += 601
    second = provider()
    assert second is not first
    define(monkeypatch, "lake", conn_type="aws", extra={"role_arn": f"{ROLE}-2"})
    assert provider() is not second, "the connection has changed"


@pytest.mark.parametrize(
    ("fields", "package"),
    [
        ({"conn_type": "aws", "extra": {"role_arn": ROLE}}, "amazon"),
        ({"conn_type": "google_cloud_platform", "extra": IMPERSONATED}, "google"),
        ({"conn_type": "adls", "host": "lake", "extra": IDENTITY}, "microsoft-azure"),
        ({"conn_type": "wasb", "login": "lake", "extra": IDENTITY}, "microsoft-azure"),
    ],
    ids=lambda value: value["conn_type"] if isinstance(value, dict) else value,
)
def test_without_the_provider_package_the_error_names_it(
    fields: dict[str, Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_credentials, "_is_installed", lambda module: False)
    define(monkeypatch, "lake", **fields)
    with pytest.raises(TableFailure, match=f"pip install apache-airflow-providers-{package};"):
        DeltaHook("lake").table("s3://lake/t")


def test_a_module_is_installed_if_it_can_be_found() -> None:
    assert cloud_credentials._is_installed("airflow.sdk")
    assert not cloud_credentials._is_installed("airflow.providers.no_such.hooks")


def credentials(monkeypatch: pytest.MonkeyPatch, module: str, **fields: Any) -> Any:
    """The credentials of a connection; skipped where they would need Google or Azure."""
    if cloud_providers.is_installed(module):
        pytest.skip(f"{module} is installed, and there is no cloud here")
    cloud_providers.install(monkeypatch, module, "google.auth.transport.requests")
    extra = fields.pop("extra")
    connection = Connection(conn_id="lake", extra=json.dumps(extra), **fields)
    return cloud_credentials.credentials_of(connection, extra)


def test_a_google_account_is_impersonated(monkeypatch: pytest.MonkeyPatch) -> None:
    provide = credentials(
        monkeypatch, cloud_providers.GOOGLE, conn_type="google_cloud_platform", extra=IMPERSONATED
    )
    first, again = provide(), provide()
    assert first == again, "it is valid for an hour"
    assert first["token"] == f"token-1-of-{IMPERSONATED['impersonation_chain']}"
    options, expires_at = provide.as_options()
    assert options == {"google_bearer_token": first["token"]}
    assert expires_at == first["expires_at"]
    assert timedelta(minutes=55) < expires_at - datetime.now(timezone.utc) <= timedelta(hours=1)
    monkeypatch.setattr(cloud_hooks, "_VALID_AT_LEAST", timedelta(hours=2))
    assert provide()["token"].startswith("token-2-of"), "too little of its time is left"


@pytest.mark.parametrize(
    ("conn_type", "module"),
    [("wasb", cloud_providers.WASB), ("adls", cloud_providers.DATA_LAKE)],
)
def test_an_azure_identity(conn_type: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provide = credentials(monkeypatch, module, conn_type=conn_type, host="lake", extra=IDENTITY)
    assert provide() == {
        "token": "https://storage.azure.com/.default for identity",
        "expires_at": datetime(2100, 1, 1, tzinfo=timezone.utc),
    }


def client_error(status: int, code: str) -> ClientError:
    found = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(found, "AssumeRole")  # type: ignore[arg-type]  # a part of it


class GoogleAuthError(Exception):
    """Like the base class of google-auth's errors."""

    retryable = False


class RefreshError(GoogleAuthError):
    """A refusal."""


class TransportError(GoogleAuthError):
    """No answer."""


class ClientAuthenticationError(Exception):
    """Like azure-core's."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (client_error(403, "AccessDenied"), AccessDeniedError),
        (client_error(403, "ExpiredToken"), AccessDeniedError),
        (client_error(400, "Throttling"), StorageError),
        (client_error(500, "InternalFailure"), StorageError),
        (ProfileNotFound(profile="lake"), AccessDeniedError),
        (EndpointConnectionError(endpoint_url="https://sts"), StorageError),
        (RefreshError("no"), AccessDeniedError),
        (TransportError("no"), StorageError),
        (ClientAuthenticationError("no answer, or a refusal"), StorageError),
        (client_error(429, "TooManyRequestsException"), StorageError),
        (client_error(400, "IDPCommunicationError"), StorageError),
        (RefreshError("no token", '{"error": {"code": 503}}'), StorageError),
        (json.JSONDecodeError("no JSON", "<html>", 0), StorageError),
        (ValueError("wrong extras"), AccessDeniedError),
        (OSError("no token file"), StorageError),
    ],
    ids=repr,
)
def test_refusals_are_permanent_and_outages_are_not(
    lake: str, error: Exception, kind: type[StorageError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: Connection) -> Any:
        raise error

    source = cloud_credentials._SOURCES["aws"]._replace(open=fail)
    monkeypatch.setitem(cloud_credentials._SOURCES, "aws", source)
    match = (
        f"failed: the credentials of connection 'lake' can't be obtained: {type(error).__name__}"
    )
    with pytest.raises(StorageError, match=match) as caught:
        DeltaHook("lake").table(lake).snapshot()
    assert type(caught.value) is kind
    # A task fails at once by the former, and is retried after the latter.
    expected = TableFailure if kind is AccessDeniedError else StorageError
    with pytest.raises(expected), failures_by_policy():
        DeltaHook("lake").storage_options(lake)


def test_an_error_of_a_login_is_shown_with_its_cause(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = "the-private-half"
    extra = {
        "role_arn": ROLE,
        "nested": {"token": ["t0ken-of-a-list"], "key_name": "shown"},
        "credentials": {"value": "Summer?2026"},
        "keyfile_dict": json.dumps({"type": "service_account", "private_key": private}),
    }
    define(monkeypatch, "lake", conn_type="aws", login="AKIABASE", password=SECRET, extra=extra)

    def fail(connection: Connection) -> Any:
        cause = OSError(
            f"{SECRET}, {private}, t0ken-of-a-list, Summer?2026, shown, service_account"
        )
        text = "none works.\n\tIdentity: https://sts/?Signature=abc\x1b[2J"
        raise ClientAuthenticationError(text) from cause

    source = cloud_credentials._SOURCES["aws"]._replace(open=fail)
    monkeypatch.setitem(cloud_credentials._SOURCES, "aws", source)
    with pytest.raises(StorageError) as caught:
        DeltaHook("lake").storage_options("s3://lake/t")
    assert caught.value.message == (
        "the credentials of connection 'lake' can't be obtained: ClientAuthenticationError: none works. "
        "Identity: https://sts/?… caused by OSError: ***, ***, ***, ***, shown, service_account"
    )
    assert caught.value.__cause__ is None
    with pytest.raises(StorageError, match="none works"):
        DeltaHook("lake").table(lake).snapshot()


def test_a_cause_that_is_quoted_already_is_shown_once() -> None:
    error = RefreshError("\x1b[2J no answer: timed out")
    error.__context__ = TimeoutError("timed out")
    error.__context__.__context__ = KeyError()
    shown = describe_login_error(error, None)
    assert shown == "RefreshError: \x1b[2J no answer: timed out caused by KeyError"
    assert "\x1b" not in StorageError(shown).message


def test_a_login_that_hangs_is_not_waited_for(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    begun: list[str] = []

    def hang(connection: Connection) -> Any:
        begun.append(connection.conn_id)
        assert answers.wait(30)
        return cloud_hooks.open_amazon(connection)

    source = cloud_credentials._SOURCES["aws"]._replace(open=hang)
    monkeypatch.setitem(cloud_credentials._SOURCES, "aws", source)
    monkeypatch.setattr(cloud_credentials, "_LOGIN_SECONDS", 0.05)
    table = DeltaHook("lake").table(lake)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"TimeoutError: no answer within 0\.05 s") as caught:
            table.snapshot()
        assert type(caught.value) is StorageError, "which tasks retry"
    monkeypatch.setattr(cloud_credentials, "_LOGIN_SECONDS", 30.0)
    answers.set()
    assert table.snapshot().version == 0
    assert begun == ["lake"], "one login hangs, however often it is tried"


def test_a_login_that_never_ends_is_repeated_in_the_end(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    end = threading.Event()
    monkeypatch.setattr(bounded_call, "_LOST_SECONDS", 0.0)

    def hang_once(connection: Connection) -> Any:
        begun.append(connection.conn_id)
        if len(begun) == 1:
            end.wait(30)
        return cloud_hooks.open_amazon(connection)

    source = cloud_credentials._SOURCES["aws"]._replace(open=hang_once)
    monkeypatch.setitem(cloud_credentials._SOURCES, "aws", source)
    monkeypatch.setattr(cloud_credentials, "_LOGIN_SECONDS", 0.05)
    table = DeltaHook("lake").table(lake)
    with pytest.raises(StorageError, match="no answer"):
        table.snapshot()
    monkeypatch.setattr(cloud_credentials, "_LOGIN_SECONDS", 30.0)
    assert table.snapshot().version == 0
    end.set()
    assert begun == ["lake", "lake"]


def test_the_credentials_of_a_cloud_are_sent_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    provide = credentials(
        monkeypatch, cloud_providers.GOOGLE, conn_type="google_cloud_platform", extra=IMPERSONATED
    )
    for uri in ("s3://lake/t", "abfss://files@lake.dfs.core.windows.net/t"):
        with pytest.raises(InvalidArgumentError, match="has credentials for GCS, and the location"):
            open_storage(uri, {"credential_provider": provide})
    assert open_storage("gs://lake/t", {"credential_provider": provide}).root == "gs://lake/t"


def test_one_half_of_an_azure_identity_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"managed_identity_client_id": "identity"}
    define(monkeypatch, "lake", conn_type="adls", host="lake", extra=extra)
    with pytest.raises(TableFailure, match=r"only if there are both"):
        DeltaHook("lake").table("az://files/t")


SAML = {"principal_arn": "arn:idp", "idp_auth_method": "http_spegno_auth", "idp_url": "https://idp"}
LOGINS: dict[str, tuple[str, dict[str, Any]]] = {
    "role": ("aws", {"role_arn": ROLE, "assume_role_kwargs": {"ExternalId": "x"}}),
    "saml": (
        "aws",
        {
            "role_arn": ROLE,
            "assume_role_method": "assume_role_with_saml",
            "assume_role_with_saml": SAML,
        },
    ),
    "web identity": (
        "aws",
        {
            "role_arn": ROLE,
            "assume_role_method": "assume_role_with_web_identity",
            "assume_role_with_web_identity_federation": "file",
            "assume_role_with_web_identity_token_file": "/run/token",
        },
    ),
    "profile": ("aws", {"profile_name": "lake"}),
    "session": ("aws", {"session_kwargs": {"aws_access_key_id": "AKIA"}}),
    "impersonation": ("google_cloud_platform", {**IMPERSONATED, "key_path": "/key.json"}),
    "secret manager": ("google_cloud_platform", {"key_secret_name": "key-of-the-lake"}),
    "external identity": ("google_cloud_platform", {"credential_config_file": "/config.json"}),
    "identity provider": (
        "google_cloud_platform",
        {"idp_issuer_url": "https://idp", "client_id": "i", "client_secret": SECRET},
    ),
    "adls identity": ("adls", IDENTITY),
    "wasb identity": ("wasb", IDENTITY),
}
TABLES = {
    "aws": "s3://lake/t",
    "google_cloud_platform": "gs://lake/t",
    "adls": "az://files/t",
    "wasb": "az://files/t",
}


@pytest.mark.parametrize("login", LOGINS)
def test_the_hook_gets_all_that_a_login_needs(login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`test_cloud_logins.py` has the real hooks."""
    conn_type, extra = LOGINS[login]
    given: list[Connection] = []

    def open_hook(connection: Connection) -> Any:
        given.append(connection)
        expires = datetime.now(timezone.utc) + timedelta(hours=1)
        return lambda: {"token": "t0ken-of-the-hook", "expires_at": expires}

    source = cloud_credentials._SOURCES[conn_type]._replace(open=open_hook)
    monkeypatch.setitem(cloud_credentials._SOURCES, conn_type, source)
    monkeypatch.setattr(cloud_credentials, "_is_installed", lambda module: True)
    define(monkeypatch, "lake", conn_type=conn_type, host="lake", login="lake", extra=extra)
    found = DeltaHook("lake").all_storage_options(TABLES[conn_type])
    assert found.pop("credential_provider")()["token"] == "t0ken-of-the-hook"
    assert found in ({}, {"azure_storage_account_name": "lake"})
    assert [connection.extra_dejson for connection in given] == [extra]


def test_names_of_old_forms_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the identity of the worker would be used."""
    monkeypatch.setattr(cloud_credentials, "_is_installed", lambda module: False)
    extra = {"extra__google_cloud_platform__impersonation_chain": "lake@project"}
    define(monkeypatch, "lake", conn_type="google_cloud_platform", extra=extra)
    with pytest.raises(TableFailure, match="'lake' has impersonation_chain"):
        DeltaHook("lake").table("gs://lake/t")

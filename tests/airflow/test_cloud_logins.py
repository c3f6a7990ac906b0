"""Logins by the real hooks of the clouds' official providers, each in a process of its own.

``make cloud-providers`` installs the providers beside the environment. S3 and STS are moto's; a server here
gives out the tokens of the other clouds. ``test_cloud_credentials.py`` has stand-ins for the hooks, and
tests what is made of their credentials.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import INTEGER, StructField, StructType
from tests.object_stores import new_place
from tests.serving import serving

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[2]
PROVIDERS = Path(sysconfig.get_path("data")) / "cloud-providers"
SCHEMA = StructType((StructField("id", INTEGER),))
ROLE = "arn:aws:iam::123456789012:role/lake"
GOOGLE_TABLE = "gs://lake/t"
AZURE_TABLE = "abfss://files@lake.dfs.core.windows.net/t"
ACCOUNT = "lake@project.iam.gserviceaccount.com"
TOKEN_OF_A_POD = "token-of-the-pod"

# Requests for tokens go to the server of the test, which learns from a header which host was meant. The
# clients of Google and Azure send all of them by `requests`.
PROGRAM = """
import json, sys
from urllib.parse import urlsplit
from requests.adapters import HTTPAdapter

def send(self, request, *arguments, send=HTTPAdapter.send, **named):
    address = urlsplit(request.url)
    if address.hostname != "127.0.0.1":
        request.headers["X-Meant"] = address.hostname
        request.url = sys.argv[2] + address._replace(scheme="", netloc="").geturl()
    return send(self, request, *arguments, **named)

HTTPAdapter.send = send
{before}
from airflow_delta.hooks.delta import DeltaHook
provide = DeltaHook("lake").all_storage_options(sys.argv[1])["credential_provider"]
found = [provide(), provide()]
{after}
modules = [name for name in sys.modules if name.startswith("airflow.providers.")]
print("\\n" + json.dumps(dict(found=found, modules=modules), default=str))
"""
READ = 'assert DeltaHook("lake").table(sys.argv[1]).snapshot().version == 0'


@dataclass
class Tokens:
    """Gives out tokens, each for the host that was asked for one.

    Attributes:
        asked: for each request its host and path, headers, and body.
    """

    url: str = ""
    asked: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)

    def answer(self, host: str) -> dict[str, Any]:
        """What the service at a host would answer; each finds its own names in it."""
        until = datetime.now(timezone.utc) + timedelta(hours=1)
        token = f"token-of-{host}"
        return {
            "access_token": token,
            "token_type": "Bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "expires_in": 3600,
            "expires_on": str(int(time.time()) + 3600),
            "accessToken": token,
            "expireTime": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "projectId": "project",
        }

    @property
    def hosts(self) -> list[str]:
        return [target.partition("/")[0] for target, _, _ in self.asked]


@pytest.fixture
def tokens() -> Iterator[Tokens]:
    made = Tokens()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            host = self.headers.get("X-Meant", "this machine")
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made.asked.append((host + self.path, dict(self.headers), body))
            answer = json.dumps(made.answer(host)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    with serving(server):
        yield made


LogIn = Callable[..., dict[str, Any]]


@pytest.fixture
def log_in(tokens: Tokens, tmp_path: Path) -> LogIn:
    """Opens a table with the connection ``lake`` in another process, and returns its credentials."""
    if not (PROVIDERS / ".installed").exists():
        remedy = "the clouds' providers aren't installed: make cloud-providers"
        if os.environ.get("CI"):
            pytest.fail(remedy)
        pytest.skip(remedy)

    def log_in(
        uri: str,
        hook: str,
        *,
        environment: Mapping[str, str] | None = None,
        before: str = "",
        after: str = "",
        **connection: Any,
    ) -> dict[str, Any]:
        clouds = ("AWS_", "AZURE_", "GOOGLE_", "IDENTITY_", "MSI_", "GCP_", "AIRFLOW_CONN_")
        kept = {
            name: value
            for name, value in os.environ.items()
            # The server of the test isn't behind a proxy.
            if not name.startswith(clouds) and not name.lower().endswith("_proxy")
        }
        variables = {
            **kept,
            "HOME": str(tmp_path),  # without a profile of whoever runs the tests
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(PROVIDERS)]),
            "AIRFLOW_CONN_LAKE": json.dumps(connection),
            **(environment or {}),
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(before=before, after=after), uri, tokens.url],
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        result = json.loads(done.stdout.splitlines()[-1])
        assert hook in result["modules"]
        first, second = result["found"]
        valid_for = datetime.fromisoformat(first["expires_at"]) - datetime.now(timezone.utc)
        assert timedelta(minutes=5) < valid_for <= timedelta(hours=1)
        return {**first, "second": second}

    return log_in


@pytest.fixture
def lake(tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """A table in S3, and the extras of a connection to its store."""
    uri, options = new_place("s3", tmp_path)
    DeltaTable.create(f"{uri}/t", SCHEMA, storage_options=options)
    endpoint = options["aws_endpoint_url"]
    extra = {
        "region_name": "us-east-1",
        "endpoint_url": endpoint,
        "service_config": {"sts": {"endpoint_url": endpoint}},
    }
    return f"{uri}/t", extra


AMAZON = "airflow.providers.amazon.aws.hooks.base_aws"
GOOGLE = "airflow.providers.google.common.hooks.base_google"
WASB = "airflow.providers.microsoft.azure.hooks.wasb"
DATA_LAKE = "airflow.providers.microsoft.azure.hooks.data_lake"

# An hour is what credentials of a role are valid for. So botocore renews them at every call.
ALWAYS_EXPIRED = """
from botocore.credentials import RefreshableCredentials
RefreshableCredentials._mandatory_refresh_timeout = 7200
RefreshableCredentials._advisory_refresh_timeout = 7200
"""


def test_amazon_assumes_a_role_and_renews_it(log_in: LogIn, lake: tuple[str, Any]) -> None:
    uri, extra = lake
    extra = {**extra, "role_arn": ROLE, "assume_role_kwargs": {"RoleSessionName": "delta"}}
    named = {"conn_type": "aws", "login": "AKIABASE", "password": "s3cr3t", "extra": extra}
    found = log_in(uri, AMAZON, before=ALWAYS_EXPIRED, after=READ, **named)
    assert found["access_key_id"].startswith("ASIA")
    assert found["token"]
    assert found["second"]["access_key_id"] != found["access_key_id"]


def test_amazon_assumes_a_role_by_a_web_identity(
    log_in: LogIn, lake: tuple[str, Any], tmp_path: Path
) -> None:
    uri, extra = lake
    (tmp_path / "token").write_text(TOKEN_OF_A_POD)
    extra |= {
        "role_arn": ROLE,
        "assume_role_method": "assume_role_with_web_identity",
        "assume_role_with_web_identity_federation": "file",
        "assume_role_with_web_identity_token_file": str(tmp_path / "token"),
    }
    found = log_in(uri, AMAZON, after=READ, conn_type="aws", extra=extra)
    assert found["access_key_id"].startswith("ASIA")
    assert found["token"]


# The request to the identity provider needs Kerberos.
ASSERTED = """
from airflow.providers.amazon.aws.hooks.base_aws import BaseSessionFactory
BaseSessionFactory._fetch_saml_assertion_using_http_spegno_auth = lambda self, config: {assertion!r}
"""
ASSERTION = f"""<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol">
<Assertion xmlns="urn:oasis:names:tc:SAML:2.0:assertion"><AttributeStatement>
<Attribute Name="https://aws.amazon.com/SAML/Attributes/RoleSessionName">
<AttributeValue>delta</AttributeValue></Attribute>
<Attribute Name="https://aws.amazon.com/SAML/Attributes/Role">
<AttributeValue>{ROLE},arn:aws:iam::123456789012:saml-provider/idp</AttributeValue></Attribute>
</AttributeStatement></Assertion></samlp:Response>"""


def test_amazon_assumes_a_role_by_saml(log_in: LogIn, lake: tuple[str, Any]) -> None:
    uri, extra = lake
    extra |= {
        "role_arn": ROLE,
        "assume_role_method": "assume_role_with_saml",
        "assume_role_with_saml": {
            "principal_arn": "arn:aws:iam::123456789012:saml-provider/idp",
            "idp_auth_method": "http_spegno_auth",
        },
    }
    before = ASSERTED.format(assertion=base64.b64encode(ASSERTION.encode()).decode())
    found = log_in(uri, AMAZON, before=before, after=READ, conn_type="aws", extra=extra)
    assert found["access_key_id"].startswith("ASIA")


KEYS = {"aws_access_key_id": "AKIALAKE", "aws_secret_access_key": "s3cr3t"}


@pytest.mark.parametrize(
    "extra", [{"profile_name": "lake"}, {"session_kwargs": KEYS}], ids=["profile", "session"]
)
def test_amazon_uses_keys_that_it_finds_itself(
    log_in: LogIn, lake: tuple[str, Any], tmp_path: Path, extra: dict[str, Any]
) -> None:
    profiles = tmp_path / "profiles"
    profiles.write_text(
        "\n".join(["[lake]", *(f"{name} = {value}" for name, value in KEYS.items()), ""])
    )
    environment = {"AWS_SHARED_CREDENTIALS_FILE": str(profiles)}
    uri, common = lake
    named = {"conn_type": "aws", "extra": {**common, **extra}}
    found = log_in(uri, AMAZON, environment=environment, after=READ, **named)
    assert {f"aws_{name}": found[name] for name in ("access_key_id", "secret_access_key")} == KEYS


IDENTITY = {"managed_identity_client_id": "identity", "workload_identity_tenant_id": "tenant"}
AZURE = pytest.mark.parametrize(
    ("hook", "fields"),
    [
        (WASB, {"conn_type": "wasb", "login": "lake"}),
        (DATA_LAKE, {"conn_type": "adls", "host": "lake"}),
    ],
    ids=["wasb", "adls"],
)


@AZURE
def test_azure_uses_a_managed_identity(
    log_in: LogIn, tokens: Tokens, hook: str, fields: dict[str, str]
) -> None:
    environment = {"IDENTITY_ENDPOINT": f"{tokens.url}/msi", "IDENTITY_HEADER": "of-the-machine"}
    found = log_in(AZURE_TABLE, hook, environment=environment, extra=IDENTITY, **fields)
    assert found["token"] == "token-of-this machine"
    [(target, headers, _)] = tokens.asked
    assert parse_qs(target.partition("?")[2])["client_id"] == ["identity"]
    assert parse_qs(target.partition("?")[2])["resource"] == ["https://storage.azure.com"]
    assert headers["X-IDENTITY-HEADER"] == "of-the-machine"


@AZURE
def test_azure_uses_a_workload_identity(
    log_in: LogIn, tokens: Tokens, tmp_path: Path, hook: str, fields: dict[str, str]
) -> None:
    (tmp_path / "token").write_text(TOKEN_OF_A_POD)
    environment = {"AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token")}
    found = log_in(AZURE_TABLE, hook, environment=environment, extra=IDENTITY, **fields)
    assert found["token"] == "token-of-login.microsoftonline.com"
    target, _, body = tokens.asked[-1]
    assert target == "login.microsoftonline.com/tenant/oauth2/v2.0/token"
    sent = parse_qs(body.decode())
    assert (sent["client_id"], sent["client_assertion"]) == (["identity"], [TOKEN_OF_A_POD])
    assert sent["scope"] == ["https://storage.azure.com/.default"]


@pytest.fixture(scope="module")
def key() -> dict[str, str]:
    """The key of a service account of Google."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

    private = generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": "base@project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }


def test_google_impersonates_an_account(log_in: LogIn, tokens: Tokens, key: dict[str, str]) -> None:
    extra = {"keyfile_dict": json.dumps(key), "impersonation_chain": ACCOUNT}
    found = log_in(GOOGLE_TABLE, GOOGLE, conn_type="google_cloud_platform", extra=extra)
    assert found["token"] == "token-of-iamcredentials.googleapis.com"
    assert tokens.hosts == ["oauth2.googleapis.com", "iamcredentials.googleapis.com"]
    target, headers, _ = tokens.asked[-1]
    assert target.endswith(f"/serviceAccounts/{ACCOUNT}:generateAccessToken")
    assert headers["authorization"] == "Bearer token-of-oauth2.googleapis.com"


# Secret Manager speaks gRPC.
SECRET_MANAGER = """
from airflow.providers.google.cloud._internal_client.secret_manager_client import _SecretManagerClient
def get_secret(self, secret_id, **_):
    assert secret_id == "key-of-the-lake"
    return {key!r}
_SecretManagerClient.get_secret = get_secret
"""


def test_google_finds_a_key_in_secret_manager(
    log_in: LogIn, tokens: Tokens, key: dict[str, str], tmp_path: Path
) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps(key))
    found = log_in(
        GOOGLE_TABLE,
        GOOGLE,
        environment={"GOOGLE_APPLICATION_CREDENTIALS": str(own)},
        before=SECRET_MANAGER.format(key=json.dumps(key)),
        conn_type="google_cloud_platform",
        extra={"key_secret_name": "key-of-the-lake"},
    )
    assert found["token"] == "token-of-oauth2.googleapis.com"
    assert tokens.hosts == ["oauth2.googleapis.com"]


def test_google_uses_an_external_identity(log_in: LogIn, tokens: Tokens, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN_OF_A_POD)
    config = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/a/providers/b",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": {"file": str(tmp_path / "token")},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    extra = {"credential_config_file": str(tmp_path / "config.json")}
    found = log_in(GOOGLE_TABLE, GOOGLE, conn_type="google_cloud_platform", extra=extra)
    assert found["token"] == "token-of-sts.googleapis.com"
    # The provider also looks for the project's name.
    sent = [
        parse_qs(body.decode()) for target, _, body in tokens.asked if target.startswith("sts.")
    ]
    assert [one["subject_token"] for one in sent] == [[TOKEN_OF_A_POD]] * len(sent)
    assert sent

"""Interpret the errors of a login: whether a repetition may help, and what may be shown of them.

The errors are those of the clouds' clients, which the hooks of Airflow's providers use: botocore,
google-auth and azure-identity. Their messages may have many lines, and quote requests and extras.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_delta.version_compat import Connection

__all__ = ["describe_login_error", "is_permanent_refusal"]

_MOST_CAUSES = 4
"""Errors of a chain that are shown."""
_QUERY = re.compile(r"\?\S+")
_HIDDEN = "***"
_SHORTEST = 3
"""Texts of so many characters aren't hidden: they would be found in many words."""
_SECRET = re.compile(
    r"secret|key|token|passw|passphrase|sas|credential|cert|connection_string", re.IGNORECASE
)
_NO_SECRET = re.compile(r"(?:_file|_path|_id|_name|_arn|_uri|_url|_method)$", re.IGNORECASE)


def describe_login_error(error: BaseException, connection: Connection | None) -> str:
    """The classes and texts of an error and of its causes, in one line and without secrets.

    :param error: the error of a login.
    :param connection: the connection that logs in, whose secrets are hidden; None if it isn't known.
    """
    shown: list[str] = []
    for cause in _chain(error):
        text = " ".join(str(cause).split())
        # Many clients quote the cause in their own text.
        if not (text and any(text in earlier for earlier in shown)):
            shown.append(f"{type(cause).__name__}: {text}" if text else type(cause).__name__)
    line = " caused by ".join(shown)
    secrets = [] if connection is None else _secrets(connection)
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, _HIDDEN)
    # Afterwards, because a secret may have a question mark.
    return _QUERY.sub("?…", line)


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if current is None:
            return
        yield current
        hidden = current.__cause__ is not None or current.__suppress_context__
        current = current.__cause__ if hidden else current.__context__


def _secrets(connection: Connection) -> set[str]:
    """The texts in a connection that may be secrets: its password, and extras with names of secrets."""
    found = {str(connection.password or ""), *_texts(connection.extra_dejson, is_secret=False)}
    return {" ".join(text.split()) for text in found if len(text) > _SHORTEST}


def _texts(value: Any, *, is_secret: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, entry in value.items():
            is_named = is_secret or bool(_SECRET.search(str(name)))
            yield from _texts(entry, is_secret=is_named and not _NO_SECRET.search(str(name)))
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry, is_secret=is_secret)
    elif is_secret and isinstance(value, str):
        yield value
        yield from _texts(_parsed(value), is_secret=False)


def _parsed(text: str) -> Any:
    """The JSON object in a text, such as the key of a service account; None if there is none."""
    try:
        return json.loads(text) if text.lstrip().startswith("{") else None
    except ValueError:
        return None


def is_permanent_refusal(error: Exception) -> bool:
    """Whether the connection must be changed, or the cloud has refused; not whether it didn't answer."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore's ClientError
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = response.get("Error", {}).get("Code", "")
        return 400 <= status < 500 and status not in _TEMPORARY and _BUSY.search(code) is None
    names = {kind.__name__ for kind in type(error).__mro__}
    if "GoogleAuthError" in names:
        is_temporary = "TransportError" in names or getattr(error, "retryable", False)
        # Impersonation has the service's answer as text, whatever its status was.
        return not (is_temporary or _BUSY_ANSWER.search(str(error)))
    return not names.isdisjoint(_PERMANENT) and "JSONDecodeError" not in names


_TEMPORARY = frozenset({408, 429})
_BUSY = re.compile(r"Throttl|TooManyRequests|IDPCommunicationError")
_BUSY_ANSWER = re.compile(r'"code": *(?:408|429|5\d\d)\b')

# By name, because most of the classes are those of packages that may be missing.
_PERMANENT = frozenset(
    {
        # botocore: none, a part of them, an unknown profile
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        # Wrong or contradictory extras, a package that a way to log in needs. Not those of azure-identity:
        # it raises the same error for a refusal and for a service that doesn't answer.
        "AirflowException",
        "AttributeError",
        "ImportError",
        "KeyError",
        "NotImplementedError",
        "TypeError",
        "ValueError",
    }
)

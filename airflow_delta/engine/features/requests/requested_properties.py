"""Parse the properties that a user requests: some are stored with the table, others are about its protocol.

A feature is requested by ``delta.feature.<name>`` = ``supported``, in any case, or by a version that
implies it.

PROTOCOL.md, "Table Features for New and Existing Tables".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_delta.engine.errors import InvalidArgumentError, UnsupportedFeatureError
from airflow_delta.engine.features.known_properties import (
    FEATURE_PREFIX,
    PROTOCOL_PROPERTIES,
    READER_VERSION,
    WRITER_VERSION,
    canonical_name,
    canonical_value,
    check_settable,
)
from airflow_delta.engine.features.protocol import FEATURES_READER_VERSION, FEATURES_WRITER_VERSION
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.arguments import check_mapping

__all__ = ["RequestedProperties", "parse_requested_properties"]


@dataclass(frozen=True, slots=True)
class RequestedProperties:
    """The properties that a user requests, by kind.

    Attributes:
        properties: the properties to store, with names and values as they are stored.
        features: the features that are requested by name.
        reader_version: the requested reader version; None if none is requested.
        writer_version: the requested writer version; None if none is requested.
    """

    properties: dict[str, str]
    features: frozenset[str]
    reader_version: int | None
    writer_version: int | None


def parse_requested_properties(given: Mapping[str, str], *, table: str) -> RequestedProperties:
    """Parse the properties that a user requests.

    Args:
        given: the properties.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: a name is unknown, is given twice in different case, or may only be set by
            commits; a value isn't a text; or a request of a feature or version is malformed.
        UnsupportedFeatureError: a requested feature or version is unknown.
    """
    named = _by_stored_name(given, table)
    return RequestedProperties(
        {
            name: canonical_value(name, value)
            for name, value in named.items()
            if name not in PROTOCOL_PROPERTIES and not name.startswith(FEATURE_PREFIX)
        },
        _features(named, table),
        _version(named, READER_VERSION, FEATURES_READER_VERSION, table),
        _version(named, WRITER_VERSION, FEATURES_WRITER_VERSION, table),
    )


def _by_stored_name(given: Mapping[str, str], table: str) -> dict[str, str]:
    found: dict[str, str] = {}
    check_mapping("properties", given, "a mapping of names to texts", table=table)
    for key, value in given.items():
        name = canonical_name(key, table=table)
        check_settable(name, table=table)
        if not isinstance(value, str):
            raise InvalidArgumentError(
                f"the property {key} is {value!r}: expected a text",
                table=table,
                property=name,
            )
        if name in found:
            raise InvalidArgumentError(
                f"the property {name} is given twice, in different case", table=table, property=name
            )
        found[name] = value
    return found


def _features(named: Mapping[str, str], table: str) -> frozenset[str]:
    by_lower_case = {name.lower(): name for name in FEATURES}
    requested = set()
    for key, value in named.items():
        if not key.startswith(FEATURE_PREFIX):
            continue
        if value.strip().lower() not in ("supported", "enabled"):
            raise InvalidArgumentError(
                f"the property {key} is {value!r}: expected 'supported'", table=table
            )
        name = key.removeprefix(FEATURE_PREFIX)
        if name.lower() not in by_lower_case:
            raise UnsupportedFeatureError(
                f"the engine doesn't know the feature {name!r} that the property {key} requests; "
                f"it knows {', '.join(sorted(FEATURES))}",
                table=table,
                features=(name,),
            )
        requested.add(by_lower_case[name.lower()])
    return frozenset(requested)


def _version(named: Mapping[str, str], key: str, newest: int, table: str) -> int | None:
    text = named.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise InvalidArgumentError(
            f"the property {key} is {text!r}: expected a number from 1 to {newest}", table=table
        )
    if int(text) > newest:
        raise UnsupportedFeatureError(
            f"the property {key} requests version {text}, but the engine has {newest}",
            table=table,
            features=(),
        )
    return int(text)

"""What a user's properties ask for: some are stored with the table, others are about its protocol.

Spec: PROTOCOL.md, "Table Features for New and Existing Tables"; edge case E18. A feature is requested
by ``delta.feature.<name>`` = ``supported``, in any case, or by a version that implies it.
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
    """What is requested.

    Attributes:
        properties: those to store, with names and values as they are stored.
        features: those requested by name.
        reader_version: the least reader version; None for any.
        writer_version: the least writer version; None for any.
    """

    properties: dict[str, str]
    features: frozenset[str]
    reader_version: int | None
    writer_version: int | None


def parse_requested_properties(given: Mapping[str, str], *, table: str) -> RequestedProperties:
    """Take apart what a user gives.

    Args:
        given: the properties.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: a name is unknown, is given twice in different case, or is for commits
            alone to write; a value is no text; or what is requested of the protocol makes no sense.
        UnsupportedFeatureError: the engine doesn't know a feature or version that is requested.
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
                f"the property {key} is {value!r}: expected a text, as all properties are",
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
                f"the engine doesn't know the feature {name!r} that the property {key} asks for; "
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
            f"the property {key} asks for version {text}, the engine has {newest}",
            table=table,
            features=(),
        )
    return int(text)

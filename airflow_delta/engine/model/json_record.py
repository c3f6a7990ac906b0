"""`JsonRecord`: a frozen dataclass for an object of the log, read and written by a table of its fields.

A class lists its fields once::

    @dataclass(frozen=True, slots=True)
    class Txn(JsonRecord):
        app_id: str
        version: int
        last_updated: int | None = None

        log_fields = fields(
            app_id=required("appId", str),
            version=required("version", int),
            last_updated=optional("lastUpdated", int),
        )

Reading is strict, with the readers of `json_fields`. Fields without a value aren't written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_delta.engine.model import json_fields as read

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "JsonField",
    "JsonRecord",
    "fields",
    "nested",
    "optional",
    "optional_map",
    "read_fields",
    "required",
    "required_map",
    "write_fields",
]

Reader = Callable[[Mapping[str, Any], str, str], Any]
T = TypeVar("T", str, int, bool)


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of an object of the log.

    Attributes:
        key: its name in the log.
        read: reads its value from an object, a key, and a name of the object for messages.
        write: converts a value that isn't None for the log; None if no conversion is needed.
        plain: the type of JSON values that are taken as they are, ``str`` (only in ASCII) or ``bool``; None
            if all go through ``read``.
    """

    key: str
    read: Reader
    write: Callable[[Any], Any] | None = None
    plain: type | None = None


class JsonRecord:
    """A frozen dataclass that ``log_fields`` maps to an object of the log."""

    __slots__ = ()

    log_fields: ClassVar[Mapping[str, JsonField]]

    @classmethod
    def from_json(cls, obj: Any, where: str) -> Self:
        """Read the object. Unknown fields are ignored.

        Args:
            obj: the parsed JSON object.
            where: a name of the object, for messages.

        Raises:
            CorruptLogError: this is no object, or a field is missing or of the wrong type. Facts: where.
        """
        make: Callable[..., Self] = cls
        return make(**read_fields(cls.log_fields, read.json_object(obj, where), where))

    def to_json(self) -> dict[str, Any]:
        """The object as in the log."""
        return write_fields(self.log_fields, self)

    def to_dict(self) -> dict[str, Any]:
        """The object as plain JSON values: as in the log, under the protocol's names."""
        return self.to_json()


def read_fields(
    table: Mapping[str, JsonField], obj: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Read the values of an object's fields, by the names of the attributes.

    Raises:
        CorruptLogError: a field is missing or of the wrong type. Facts: where.
    """
    values = {}
    for name, field in table.items():
        value = obj.get(field.key)
        # Most values. A table may have 100,000 metadata domains, and `read` takes five times as long.
        if type(value) is field.plain and (not isinstance(value, str) or value.isascii()):
            values[name] = value
        else:
            values[name] = field.read(obj, field.key, where)
    return values


def write_fields(table: Mapping[str, JsonField], record: Any) -> dict[str, Any]:
    """Convert the fields of a record that have a value, by their names in the log."""
    written = {}
    for name, field in table.items():
        value = getattr(record, name)
        if value is not None:
            written[field.key] = value if field.write is None else field.write(value)
    return written


def fields(**by_attribute: JsonField) -> Mapping[str, JsonField]:
    """The fields of a record, by the names of its attributes, in the order in which they are written."""
    return MappingProxyType(by_attribute)


def required(key: str, kind: type[T]) -> JsonField:
    """A required string, number or flag."""
    return JsonField(
        key, lambda obj, key, where: read.required(obj, key, kind, where), plain=_plain(kind)
    )


def optional(key: str, kind: type[T]) -> JsonField:
    """An optional string, number or flag."""
    return JsonField(
        key, lambda obj, key, where: read.optional(obj, key, kind, where), plain=_plain(kind)
    )


def _plain(kind: type) -> type | None:
    return None if kind is int else kind  # An integer may have too many bits.


def required_map(key: str) -> JsonField:
    """A required map of strings to strings or nulls."""
    return JsonField(key, read.required_string_map, dict)


def optional_map(key: str) -> JsonField:
    """An optional map of strings to strings or nulls."""
    return JsonField(key, read.nullable_string_map, dict)


def nested(key: str, record: type[JsonRecord]) -> JsonField:
    """An optional object inside the object."""

    def _read(obj: Mapping[str, Any], key: str, where: str) -> JsonRecord | None:
        value = obj.get(key)
        return None if value is None else record.from_json(value, f"{where}.{key}")

    return JsonField(key, _read, record.to_json)

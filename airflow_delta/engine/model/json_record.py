"""`JsonRecord`: a frozen value that is an object of the log, told by a table of its fields.

A class lists its fields once, and both reading and writing follow from the list::

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

Reading is as strict as `json_fields`, where the readers are. Writing leaves out what has no value:
absent is how the log says null.
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
        read: gives its value of an object, a key, and a name for the object.
        write: what the log holds for a value that isn't None; None: the value itself.
    """

    key: str
    read: Reader
    write: Callable[[Any], Any] | None = None


class JsonRecord:
    """A frozen dataclass whose ``log_fields`` tell how the log holds it."""

    __slots__ = ()

    log_fields: ClassVar[Mapping[str, JsonField]]

    @classmethod
    def from_json(cls, obj: Any, where: str) -> Self:
        """Read the object; fields that aren't known are ignored.

        Args:
            obj: the object, as JSON has it.
            where: what it is, for messages.

        Raises:
            CorruptLogError: it is no object, or a field is missing or of the wrong type. Facts:
                where.
        """
        make: Callable[..., Self] = cls
        return make(**read_fields(cls.log_fields, read.json_object(obj, where), where))

    def to_json(self) -> dict[str, Any]:
        """The object as the log holds it."""
        return write_fields(self.log_fields, self)

    def to_dict(self) -> dict[str, Any]:
        """The object as plain JSON values: as the log holds it, under the protocol's names."""
        return self.to_json()


def read_fields(
    table: Mapping[str, JsonField], obj: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The values of an object's fields, by the names of the attributes.

    Raises:
        CorruptLogError: a field is missing or of the wrong type. Facts: where.
    """
    return {name: field.read(obj, field.key, where) for name, field in table.items()}


def write_fields(table: Mapping[str, JsonField], record: Any) -> dict[str, Any]:
    """The fields of a record that have a value, by their names in the log."""
    written = {}
    for name, field in table.items():
        value = getattr(record, name)
        if value is not None:
            written[field.key] = value if field.write is None else field.write(value)
    return written


def fields(**by_attribute: JsonField) -> Mapping[str, JsonField]:
    """The fields of a record, by the names of its attributes, in the order they are written."""
    return MappingProxyType(by_attribute)


def required(key: str, kind: type[T]) -> JsonField:
    """A string, number or flag that must be there."""
    return JsonField(key, lambda obj, key, where: read.required(obj, key, kind, where))


def optional(key: str, kind: type[T]) -> JsonField:
    """A string, number or flag; None where there is none."""
    return JsonField(key, lambda obj, key, where: read.optional(obj, key, kind, where))


def required_map(key: str) -> JsonField:
    """A map of strings to strings or nulls that must be there."""
    return JsonField(key, read.required_string_map, dict)


def optional_map(key: str) -> JsonField:
    """A map of strings to strings or nulls; None where there is none."""
    return JsonField(key, read.nullable_string_map, dict)


def nested(key: str, record: type[JsonRecord]) -> JsonField:
    """An object in the object; None where there is none."""

    def _read(obj: Mapping[str, Any], key: str, where: str) -> JsonRecord | None:
        value = obj.get(key)
        return None if value is None else record.from_json(value, f"{where}.{key}")

    return JsonField(key, _read, record.to_json)

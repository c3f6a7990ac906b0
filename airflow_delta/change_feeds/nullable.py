"""A schema without its promises about nulls. No PySpark."""

from __future__ import annotations

from collections.abc import Collection

from airflow_delta.engine.model.schema import ArrayType, DataType, MapType, StructField, StructType

__all__ = ["nullable"]


def nullable(struct: StructType, *, kept_metadata: Collection[str] = ()) -> StructType:
    """The same columns, which may hold null at every level.

    Args:
        struct: a schema.
        kept_metadata: the keys of the columns' metadata that stay; all others are left out.
    """

    def without_promises(data_type: DataType) -> DataType:
        """A type whose members may be null, in the same way."""
        match data_type:
            case StructType():
                return nullable(data_type, kept_metadata=kept_metadata)
            case ArrayType(element):
                return ArrayType(without_promises(element))
            case MapType(key, value):
                return MapType(without_promises(key), without_promises(value))
            case _:
                return data_type

    return StructType(
        tuple(
            StructField(
                field.name,
                without_promises(field.data_type),
                metadata={k: v for k, v in field.metadata.items() if k in kept_metadata},
            )
            for field in struct
        )
    )

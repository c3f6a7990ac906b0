"""Make a schema nullable at every level, as readers see it."""

from __future__ import annotations

from collections.abc import Collection

from airflow_delta.engine.model.schema import ArrayType, DataType, MapType, StructField, StructType

__all__ = ["nullable"]


def nullable(struct: StructType, *, kept_metadata: Collection[str] = ()) -> StructType:
    """The same columns, nullable at every level.

    Args:
        struct: a schema.
        kept_metadata: the keys of column metadata to keep; all others are dropped.
    """

    def nullable_type(data_type: DataType) -> DataType:
        """The type, nullable at every level below."""
        match data_type:
            case StructType():
                return nullable(data_type, kept_metadata=kept_metadata)
            case ArrayType(element):
                return ArrayType(nullable_type(element))
            case MapType(key, value):
                return MapType(nullable_type(key), nullable_type(value))
            case _:
                return data_type

    return StructType(
        tuple(
            StructField(
                field.name,
                nullable_type(field.data_type),
                metadata={k: v for k, v in field.metadata.items() if k in kept_metadata},
            )
            for field in struct
        )
    )

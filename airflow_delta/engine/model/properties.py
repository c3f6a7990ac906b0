"""`TableProperties`: the ``delta.*`` properties of a table, typed, with their defaults.

Names are case-sensitive, values are text. A value is only parsed when it is used: a malformed retention
must stop a vacuum, but no reader. Other keys of the configuration belong to users (see `raw`).

PROTOCOL.md, "Change Metadata" (``configuration``), and the section of each property's feature. Defaults
that the specification leaves open are those of the reference implementation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.intervals import parse_interval
from airflow_delta.engine.model.sql_names import split_names

__all__ = ["CHOICES", "CODECS", "CONSTRAINT_PREFIX", "TableProperties"]

CODECS = ("uncompressed", "none", "snappy", "gzip", "lzo", "brotli", "lz4", "lz4_raw", "zstd")
"""The values of ``delta.parquet.compression.codec``, which are Spark's names."""

CONSTRAINT_PREFIX = "delta.constraints."
"""The prefix of CHECK constraints' names in the configuration."""

CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "delta.checkpointPolicy": ("classic", "v2"),
        "delta.columnMapping.mode": ("none", "name", "id"),
        "delta.isolationLevel": ("Serializable", "WriteSerializable", "SnapshotIsolation"),
    }
)
"""The possible values of properties with few values. The default comes first. The case doesn't matter."""

_T = TypeVar("_T")

_DAY_MS = 24 * 60 * 60 * 1000
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_INTERVAL = "an interval such as 'interval 7 days'"
_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
_SIZE = re.compile(r"(\d{1,19})\s*([kmgt]?)(?:i?b|byte|bytes)?", re.ASCII)
_SIZE_SHIFTS: Mapping[str, int] = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The configuration of a table, with typed properties.

    Every property raises `InvalidTableError` if the table has an invalid value for it. The error's facts
    are ``property`` and ``value``.

    Attributes:
        raw: the whole ``metaData.configuration``, as in the log.
        table: the table's location, for messages.
    """

    raw: Mapping[str, str]
    table: str

    def to_dict(self) -> dict[str, str]:
        """The whole configuration, as in the log."""
        return dict(self.raw)

    def flag(self, name: str) -> bool:
        """Whether a property is ``true``; false unless set."""
        return self._boolean(name, default=False)

    # Log and retention

    @property
    def checkpoint_interval(self) -> int:
        """After how many commits a checkpoint is due; 10 unless set."""
        return self._integer("delta.checkpointInterval", 10, minimum=1, maximum=_MAX_INT)

    @property
    def checkpoint_policy(self) -> str:
        """The specification that new checkpoints follow: ``classic``, the default, or ``v2``."""
        return self._choice("delta.checkpointPolicy")

    @property
    def write_stats_as_json(self) -> bool:
        """Whether checkpoints contain statistics as JSON text (``stats``); true unless set."""
        return self._boolean("delta.checkpoint.writeStatsAsJson", default=True)

    @property
    def write_stats_as_struct(self) -> bool:
        """Whether checkpoints contain statistics as a struct (``stats_parsed``); false unless set."""
        return self.flag("delta.checkpoint.writeStatsAsStruct")

    @property
    def log_retention_ms(self) -> int:
        """The time that commits stay before metadata cleanup may delete them; 30 days unless set."""
        return self._interval("delta.logRetentionDuration", 30 * _DAY_MS)

    @property
    def enable_expired_log_cleanup(self) -> bool:
        """Whether metadata cleanup is on; true unless set."""
        return self._boolean("delta.enableExpiredLogCleanup", default=True)

    @property
    def deleted_file_retention_ms(self) -> int:
        """The time that a removed file, and its ``remove``, is kept; 1 week unless set."""
        return self._interval("delta.deletedFileRetentionDuration", 7 * _DAY_MS)

    @property
    def set_transaction_retention_ms(self) -> int | None:
        """The time that a ``txn`` is kept after its last update; None, the default: for ever."""
        return self._optional("delta.setTransactionRetentionDuration", parse_interval, _INTERVAL)

    @property
    def drop_feature_truncate_history_retention_ms(self) -> int:
        """The history that is kept when dropping a feature truncates it; 24 hours unless set."""
        return self._interval("delta.dropFeatureTruncateHistory.retentionDuration", _DAY_MS)

    @property
    def require_checkpoint_protection_before_version(self) -> int:
        """Below this version metadata cleanup must follow "Checkpoint Protection"; 0 unless set."""
        name = "delta.requireCheckpointProtectionBeforeVersion"
        return self._integer(name, 0, minimum=0, maximum=_MAX_LONG)

    # In-commit timestamps and managed commits

    @property
    def in_commit_timestamps_enabled(self) -> bool:
        """Whether commits have in-commit timestamps, if the table has the feature ``inCommitTimestamp``."""
        return self.flag("delta.enableInCommitTimestamps")

    @property
    def in_commit_timestamp_enablement(self) -> tuple[int, int] | None:
        """Version and timestamp (epoch ms) at which in-commit timestamps were turned on.

        None if they were on from the first version, or are off. One without the other is an error, because
        the history couldn't be searched.
        """
        names = (
            "delta.inCommitTimestampEnablementVersion",
            "delta.inCommitTimestampEnablementTimestamp",
        )
        version, timestamp = (self._optional(name, _whole_number, "an integer") for name in names)
        if version is None and timestamp is None:
            return None
        if version is None or timestamp is None:
            missing, there = names if version is None else reversed(names)
            raise InvalidTableError(
                f"table property {there} is set but {missing} is not; both are needed to know "
                "which versions have in-commit timestamps, so set both or remove both",
                table=self.table,
                property=missing,
                value=None,
            )
        return version, timestamp

    @property
    def commit_owner(self) -> str | None:
        """The name of the commit owner; None if the table has none."""
        return self.raw.get("delta.managedCommit.commitOwner")

    @property
    def commit_owner_conf(self) -> Mapping[str, str]:
        """The commit owner's configuration for the table, by which it finds the table; may be empty."""
        name = "delta.managedCommit.commitOwnerConf"
        return self._read(name, _string_map, "a JSON object of strings", {})

    # Data

    @property
    def append_only(self) -> bool:
        """Whether no data may be removed from the table; false unless set."""
        return self.flag("delta.appendOnly")

    @property
    def isolation_level(self) -> str:
        """``Serializable`` (the default), ``WriteSerializable`` or ``SnapshotIsolation``."""
        return self._choice("delta.isolationLevel")

    @property
    def constraints(self) -> Mapping[str, str]:
        """The SQL expressions of the CHECK constraints, by name ("CHECK Constraints")."""
        return {
            key.removeprefix(CONSTRAINT_PREFIX): expression
            for key, expression in self.raw.items()
            if key.startswith(CONSTRAINT_PREFIX)
        }

    @property
    def data_skipping_num_indexed_cols(self) -> int:
        """The number of first leaf columns that get statistics; -1 for all; 32 unless set."""
        return self._integer("delta.dataSkippingNumIndexedCols", 32, minimum=-1, maximum=_MAX_INT)

    @property
    def data_skipping_stats_columns(self) -> list[tuple[str, ...]] | None:
        """The columns that get statistics, each as the parts of its name; overrides their number."""
        return self._optional("delta.dataSkippingStatsColumns", split_names, "column names")

    @property
    def data_skipping_string_prefix_length(self) -> int:
        """To how many characters strings in statistics are truncated; 32 unless set."""
        name = "delta.dataSkippingStringPrefixLength"
        return self._integer(name, 32, minimum=0, maximum=_MAX_INT)

    @property
    def target_file_size(self) -> int | None:
        """The size in bytes that writers aim at for data files; None unless set."""
        expected = "a size of at least 1 byte, such as '104857600' or '100mb'"
        return self._optional("delta.targetFileSize", _size_in_bytes, expected)

    @property
    def optimize_write(self) -> bool | None:
        """Whether writers shuffle rows so that few files come of them; None unless set."""
        name = "delta.autoOptimize.optimizeWrite"
        return self._optional(name, _boolean, "'true' or 'false'")

    @property
    def auto_compact(self) -> bool:
        """Whether writers compact small files after a commit; false unless set.

        Other values than ``true``, such as ``auto`` of other implementations, don't count.
        """
        names = ("delta.autoOptimize", "delta.autoOptimize.autoCompact")
        return any(self.raw.get(name, "").lower() == "true" for name in names)

    @property
    def parquet_compression_codec(self) -> str | None:
        """The compression of data files, such as ``zstd``, in lower case; None unless set."""
        expected = f"one of {', '.join(CODECS)}"
        return self._optional("delta.parquet.compression.codec", _codec, expected)

    # Features that a property turns on

    @property
    def column_mapping_mode(self) -> str:
        """``none`` (the default), ``name`` or ``id`` ("Column Mapping")."""
        return self._choice("delta.columnMapping.mode")

    @property
    def column_mapping_max_column_id(self) -> int | None:
        """The largest column id that was ever assigned; None before column mapping."""
        return self._optional("delta.columnMapping.maxColumnId", _whole_number, "an integer")

    @property
    def deletion_vectors_enabled(self) -> bool:
        """Whether writers may create deletion vectors; false unless set. It doesn't matter to readers."""
        return self.flag("delta.enableDeletionVectors")

    @property
    def change_data_feed_enabled(self) -> bool:
        """Whether writers must record changed rows; false unless set."""
        return self.flag("delta.enableChangeDataFeed")

    @property
    def row_tracking_enabled(self) -> bool:
        """Whether all rows have row ids; false unless set."""
        return self.flag("delta.enableRowTracking")

    @property
    def row_tracking_suspended(self) -> bool:
        """Whether no row ids are assigned, though the table supports them; false unless set."""
        return self.flag("delta.rowTrackingSuspended")

    @property
    def row_id_column_name(self) -> str | None:
        """The name of the hidden column of materialised row ids in data files; None if there is none."""
        return self.raw.get("delta.rowTracking.materializedRowIdColumnName")

    @property
    def row_commit_version_column_name(self) -> str | None:
        """The name of the hidden column of materialised row commit versions; None if there is none."""
        return self.raw.get("delta.rowTracking.materializedRowCommitVersionColumnName")

    @property
    def type_widening_enabled(self) -> bool:
        """Whether column types may be widened; false unless set."""
        return self.flag("delta.enableTypeWidening")

    @property
    def iceberg_compat_v1_enabled(self) -> bool:
        """Whether "Iceberg Compatibility V1" binds writers; false unless set."""
        return self.flag("delta.enableIcebergCompatV1")

    @property
    def iceberg_compat_v2_enabled(self) -> bool:
        """Whether "Iceberg Compatibility V2" binds writers; false unless set."""
        return self.flag("delta.enableIcebergCompatV2")

    def _boolean(self, name: str, *, default: bool) -> bool:
        return self._read(name, _boolean, "'true' or 'false'", default)

    def _integer(self, name: str, default: int, *, minimum: int, maximum: int) -> int:
        def _parse(text: str) -> int:
            number = _whole_number(text)
            if not minimum <= number <= maximum:
                raise ValueError
            return number

        expected = f"an integer of at least {minimum} and at most {maximum}"
        return self._read(name, _parse, expected, default)

    def _interval(self, name: str, default_ms: int) -> int:
        return self._read(name, parse_interval, _INTERVAL, default_ms)

    def _choice(self, name: str) -> str:
        choices = CHOICES[name]
        by_lower_case = {choice.lower(): choice for choice in choices}

        def _parse(text: str) -> str:
            return by_lower_case[text.lower()]

        return self._read(name, _parse, f"one of {', '.join(choices)}", choices[0])

    def _read(self, name: str, parse: Callable[[str], _T], expected: str, default: _T) -> _T:
        value = self._optional(name, parse, expected)
        return default if value is None else value

    def _optional(self, name: str, parse: Callable[[str], _T], expected: str) -> _T | None:
        text = self.raw.get(name)
        if text is None:
            return None
        try:
            return parse(text)
        except (ValueError, LookupError, RecursionError) as error:
            problem = f"expected {expected}, found {text!r}"
            raise self._malformed(name, text, problem) from error
        except InvalidTableError as error:
            raise self._malformed(name, text, error.message) from error

    def _malformed(self, name: str, value: str, problem: str) -> InvalidTableError:
        return InvalidTableError(
            f"table property {name}: {problem}", table=self.table, property=name, value=value
        )


def _boolean(text: str) -> bool:
    return _BOOLEANS[text.lower()]


def _codec(text: str) -> str:
    return {name: name for name in CODECS}[text.lower()]


def _size_in_bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip().lower())
    size = int(match[1]) << _SIZE_SHIFTS[match[2]] if match else 0
    if not 1 <= size <= _MAX_LONG:
        raise ValueError(text)
    return size


def _string_map(text: str) -> Mapping[str, str]:
    value = json.loads(text)
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ValueError(text)
    return value


def _whole_number(text: str) -> int:
    if _INTEGER.fullmatch(text) is None or abs(int(text)) > _MAX_LONG:
        raise ValueError(text)
    return int(text)

"""Partition values as writers write them, asked for by value in every form of the log.

Texts and values are those of PROTOCOL.md, "Partition Value Serialization", and odd ones of other writers.
"""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc
import pytest

from airflow_delta.engine import Snapshot
from tests.log_builder import PROTOCOL, add, metadata
from tests.matrix.log_forms import FORMS
from tests.table_builder import Action, MemoryTable

pytestmark = pytest.mark.filterwarnings(
    # Our checkpoints hold null for such a text beside it, and say so (`test_typed_columns`).
    r"ignore:.*null for it in partitionValues_parsed:airflow_delta.engine.errors.DeltaWarning"
)

NO_VALUE = object()
"""In the place of a value: the text is none of its type, so that its file can't be left out."""

MIDNIGHT = datetime(2024, 1, 1, tzinfo=timezone.utc)

VALUES: dict[str, dict[str | None, Any]] = {
    "string": {
        None: None,
        "": None,
        "null": "null",
        "__HIVE_DEFAULT_PARTITION__": "__HIVE_DEFAULT_PARTITION__",
        "1e3": "1e3",
        "-0": "-0",
    },
    "long": {None: None, "": None, "-0": 0, "0": 0, "1e3": NO_VALUE, "null": NO_VALUE},
    "double": {None: None, "1e3": 1000.0, "1000": 1000.0, "-0": 0.0, "0.0": 0.0},
    "decimal(10,1)": {
        "": None,
        "1.10": Decimal("1.1"),
        "1.1": Decimal("1.1"),
        "1e3": Decimal(1000),
        "-0": Decimal(0),
        "1.15": NO_VALUE,
    },
    "date": {
        None: None,
        "0001-01-01": date(1, 1, 1),
        "2024-1-1": date(2024, 1, 1),
        "2024-01-01": date(2024, 1, 1),
        "__HIVE_DEFAULT_PARTITION__": NO_VALUE,
    },
    "timestamp": {
        None: None,
        "2024-01-01 00:00:00": MIDNIGHT,
        "2024-01-01T00:00:00.000000Z": MIDNIGHT,
        "2024-01-01 05:30:00+05:30": MIDNIGHT,
        "2024-01-01 00:00:00.000001": MIDNIGHT.replace(microsecond=1),
        "2016-12-31 23:59:60": NO_VALUE,
    },
    "timestamp_ntz": {
        "2024-01-01 00:00:00": datetime(2024, 1, 1),
        "2024-01-01": datetime(2024, 1, 1),
        "2024-01-01T00:00:00Z": NO_VALUE,
    },
    "boolean": {None: None, "true": True, "TRUE": True, "false": False, "1": NO_VALUE},
    "binary": {None: None, "": None, "\u00ff": b"\xc3\xbf", "a": b"a"},
}


def history(type_: str) -> list[list[Action]]:
    """A file for each text; its path is the text's number."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("p", type_))
    ]
    first = metadata(
        schema={"type": "struct", "fields": fields},
        partition_columns=["p"],
        configuration={"delta.checkpoint.writeStatsAsStruct": "true"},
    )
    texts = [*VALUES[type_]]
    adds = [add(str(number), partitionValues={"p": text}) for number, text in enumerate(texts)]
    return [[PROTOCOL, first, *adds[:1]], adds[1:]]


def kept(snapshot: Snapshot, predicate: Any, texts: list[str | None]) -> set[str | None]:
    paths = snapshot.files(["path"], predicate=predicate)["path"].to_pylist()
    return {texts[int(path)] for path in paths}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("type_", VALUES)
def test_files_are_found_by_the_values_that_their_texts_stand_for(type_: str, form: str) -> None:
    values = VALUES[type_]
    texts = [*values]
    unclear = {text for text, value in values.items() if value is NO_VALUE}
    p = pc.field("p")
    with MemoryTable(FORMS[form](history(type_))) as table:
        snapshot = table.delta().snapshot()
        for wanted in {value for value in values.values() if value not in (None, NO_VALUE)}:
            same = {text for text, value in values.items() if value == wanted}
            assert kept(snapshot, p == wanted, texts) == same | unclear
            assert kept(snapshot, p.isin([wanted]), texts) == same | unclear
        nulls = {text for text, value in values.items() if value is None}
        assert kept(snapshot, p.is_null(), texts) == nulls | unclear
        assert kept(snapshot, p.is_valid(), texts) == set(texts) - nulls


@pytest.mark.parametrize("form", FORMS)
def test_the_texts_themselves_are_kept_to_the_letter(form: str) -> None:
    """A remove must repeat them, and so must a clone or a rewrite."""
    for type_, values in VALUES.items():
        with MemoryTable(FORMS[form](history(type_))) as table:
            rows = table.delta().snapshot().files(["path", "partitionValues"]).to_pylist()
        told = {row["path"]: dict(row["partitionValues"])["p"] for row in rows}
        assert told == {str(number): text for number, text in enumerate(values)}

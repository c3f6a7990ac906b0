"""Statistics at their edges, in every form of the log and in both of a checkpoint's (G8 to G11, L11).

Each file holds one value that its statistics only just allow: a predicate for that value must keep
the file, and one that the bounds exclude shows that they are used at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow.compute as pc
import pytest

from airflow_delta.engine import Snapshot
from tests.log_builder import add, metadata
from tests.matrix.log_forms import FORMS
from tests.table_builder import Action, MemoryTable

t, f, ts, a = (pc.field(name) for name in ("t", "f", "ts", "a"))
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}
FEATURES: Action = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
}
FACE = "\U0001f600"  # a pair of surrogates in UTF-16
LARGEST = "\U0010ffff"


@dataclass(frozen=True)
class File:
    """A file, what its statistics say, and what follows.

    Attributes:
        stats: JSON text.
        matches: predicates of which a row of the file is, or may be, true.
        excluded: predicates that no row of it can match.
        vector: whether some of its rows are deleted.
    """

    stats: str | None
    matches: tuple[Any, ...]
    excluded: tuple[Any, ...] = ()
    vector: bool = False


def bounds(name: str, low: Any, high: Any, **more: Any) -> str:
    found = {
        "numRecords": 10,
        "minValues": {} if low is None else {name: low},
        "maxValues": {} if high is None else {name: high},
        "nullCount": {name: 0},
        **more,
    }
    return json.dumps(found)


def text(value: str, low: str, high: str | None) -> File:
    """A file of one string, with its bounds as Spark cuts them."""
    excluded = [t < low[:1], t == "\x01"]
    if high is not None:
        excluded.append(t > LARGEST * 70)
    matches = (t == value, t >= value, t <= value)
    return File(bounds("t", low, high), matches, tuple(excluded))


FILES = {
    "31 characters": text("x" * 31, "x" * 31, "x" * 31),
    "32 characters": text("x" * 32, "x" * 32, "x" * 32),
    "33 characters": text("x" * 33, "x" * 32, "x" * 32 + "\x7f"),
    "a surrogate pair at the cut": text("x" * 32 + FACE, "x" * 32, "x" * 32 + LARGEST),
    "a surrogate pair over the cut": text("x" * 31 + FACE + "b", "x" * 31 + FACE, None),
    "a run of 0x7F": text("x" * 32 + "\x7f" * 40, "x" * 32, "x" * 32 + LARGEST),
    "a run of U+10FFFF": text("x" * 32 + LARGEST * 40, "x" * 32, None),
    "NaN beside 1.0": File(
        bounds("f", 1.0, 1.0), (f == 1.0, f > 5, f != 1, f == float("nan")), (f < 0.5, f == 5)
    ),
    "minus zero": File(bounds("f", -0.0, -0.0), (f == 0.0, f == -0.0), (f < 0, f == 1)),
    "zero": File(bounds("f", 0.0, 0.0), (f == -0.0, f >= 0), (f < -0.0,)),
    "no bound for infinity": File(
        bounds("f", 1.0, None), (f == float("inf"), f > 1e300), (f < 0.5,)
    ),
    "infinity as text": File(
        bounds("f", "-Infinity", "Infinity"), (f == float("inf"), f == float("-inf"), f == 3)
    ),
    "a microsecond before 1970": File(
        bounds("ts", "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        (ts == EPOCH - timedelta(microseconds=1), ts < EPOCH, ts > EPOCH - timedelta(seconds=1)),
        (ts > EPOCH, ts < EPOCH - timedelta(milliseconds=2)),
    ),
    "microseconds beyond the millisecond": File(
        bounds("ts", "2024-01-01T00:00:00.002Z", "2024-01-01T00:00:00.002Z"),
        (ts == datetime(2024, 1, 1, 0, 0, 0, 2500, timezone.utc),),
        (ts >= datetime(2024, 1, 1, 0, 0, 0, 3001, timezone.utc),),
    ),
    "nulls alone": File(
        '{"numRecords":10,"minValues":{},"maxValues":{},"nullCount":{"a":10}}',
        (a.is_null(), a.isin([1, None])),
        (a.is_valid(), a == 1, a != 1),
    ),
    "wide bounds beside a deletion vector": File(
        bounds("a", 1, 9, tightBounds=False, nullCount={"a": 3}),
        (a == 1, a == 9, a.is_null(), a.is_valid()),
        (a > 9, a < 1),
        vector=True,
    ),
    "no statistics": File(None, (a == 1, a.is_null(), t == "", f > 5)),
    "empty statistics": File("{}", (a == 1, a.is_null(), t == "", f > 5)),
    "statistics of no bytes": File("", (a == 1, a.is_null())),
    "a deletion vector without a number of records": File(
        '{"minValues":{"a":1},"maxValues":{"a":9},"nullCount":{"a":10}}',
        (a.is_null(), a.is_valid(), a == 5),
        (a > 9,),
        vector=True,
    ),
}


def history(configuration: dict[str, str]) -> list[list[Action]]:
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in (("t", "string"), ("f", "double"), ("ts", "timestamp"), ("a", "long"))
    ]
    first = metadata(schema={"type": "struct", "fields": fields}, configuration=configuration)
    adds = []
    for name, file in FILES.items():
        fields_ = {"deletionVector": VECTOR} if file.vector else {}
        adds.append(add(name.replace(" ", "-"), stats=file.stats, **fields_))
    return [[FEATURES, first, *adds[:3]], adds[3:]]


CONFIGURATIONS = {
    "text": {"delta.checkpoint.writeStatsAsStruct": "false"},
    "text and struct": {"delta.checkpoint.writeStatsAsStruct": "true"},
    "struct": {
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "false",
    },
}
LOGS = [
    *((form, "text") for form in FORMS),
    *((form, kind) for form in ("our checkpoint", "our checkpoint and a tail")
      for kind in ("text and struct", "struct")),
]  # fmt: skip


def kept(snapshot: Snapshot, predicate: Any) -> set[str]:
    paths = snapshot.files(["path"], predicate=predicate)["path"].to_pylist()
    return {path.replace("-", " ") for path in paths}


@pytest.mark.parametrize(("form", "kind"), LOGS)
def test_a_file_is_left_out_where_its_statistics_allow_it_and_never_else(
    form: str, kind: str
) -> None:
    with MemoryTable(FORMS[form](history(CONFIGURATIONS[kind]))) as table:
        snapshot = table.delta().snapshot()
        assert snapshot.num_files == len(FILES)
        # Some files don't tell, and one must that has a deletion vector: nobody knows the total.
        assert snapshot.num_rows is None
        for name, file in FILES.items():
            for predicate in file.matches:
                assert name in kept(snapshot, predicate), str(predicate)
            for predicate in file.excluded:
                assert name not in kept(snapshot, predicate), str(predicate)

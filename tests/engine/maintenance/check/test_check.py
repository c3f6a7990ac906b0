"""Checks as a whole: of good tables nothing wrong is said, and no damage makes a check fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import InvalidArgumentError, StorageError, TableNotFoundError
from airflow_delta.engine.features.feature import Support
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.maintenance.check.checking import check_table
from airflow_delta.engine.maintenance.check.findings import (
    DEPTHS,
    CheckReport,
    Depth,
    Finding,
    join_names,
    join_ranges,
    plural,
)
from airflow_delta.engine.model.schema import LONG, TIMESTAMP_NTZ, StructField, StructType
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.checked_tables import LAST, MIDDLE, STATES, checked, codes, healthy
from tests.conftest import NO_GOLDEN, golden_manifest
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.table_builder import (
    Files,
    MemoryTable,
    checksum,
    commit_file,
    compaction,
    multipart_checkpoint,
    v2_checkpoint,
)

WHOLE = [
    case["name"]
    for case in golden_manifest()
    if case.get("expect", "ok") == "ok" and not case.get("data_files_missing")
]

TRUE_ERRORS = {
    # Its checkpoint has another table id than its commits.
    "parquet_row_group_skipping": {"checkpoint-disagrees"},
}


@pytest.mark.skipif(not WHOLE, reason=NO_GOLDEN)
@pytest.mark.parametrize("name", WHOLE)
def test_golden_tables_that_are_whole_have_no_errors(
    name: str, golden_case: Callable[[str], Path]
) -> None:
    report = DeltaTable(str(golden_case(name))).check()
    assert {f.code for f in report.findings if f.severity == "error"} == TRUE_ERRORS.get(
        name, set()
    )
    assert "check-broken-off" not in codes(report)


@pytest.mark.skipif(not WHOLE, reason=NO_GOLDEN)
@pytest.mark.parametrize(
    "name", [c["name"] for c in golden_manifest() if c.get("expect") == "error"]
)
def test_golden_tables_that_are_refused_have_errors(
    name: str, golden_case: Callable[[str], Path]
) -> None:
    try:
        report = DeltaTable(str(golden_case(name))).check()
    except TableNotFoundError:
        return
    assert not report.ok
    assert "check-broken-off" not in codes(report)


def test_tables_that_deltalake_writes_have_nothing(sales_copy: Path) -> None:
    table = DeltaTable(str(sales_copy))
    now_ms = 1_750_000_000_000

    def check() -> CheckReport:
        return check_table(FileAccess(table.storage), CommitOwners(), now_ms=now_ms)

    assert check().findings == ()
    peer = Peer(str(sales_copy))
    peer.create_checkpoint()
    assert check().findings == ()
    peer.optimize.compact()
    write_deltalake(peer, peer.to_pyarrow_table(), mode="overwrite")
    Peer(str(sales_copy)).create_checkpoint()
    assert codes(check()) == {}


@pytest.mark.parametrize("depth", DEPTHS)
def test_our_own_maintenance_leaves_nothing_to_say(sales_copy: Path, depth: Depth) -> None:
    table = DeltaTable(str(sales_copy))
    table.compact_log(1, 3)
    table.checkpoint(2)
    table.checkpoint()
    assert codes(table.check(depth=depth), but=["cleanup-due", "vacuum-due"]) == {}


PROPERTIES: dict[str, str | None] = {
    "delta.checkpointPolicy": "v2",
    "delta.columnMapping.mode": "name",
    # Only a commit of the engine's own sets it.
    "delta.requireCheckpointProtectionBeforeVersion": None,
}
"""The values that turn features on; of other properties it is ``true``."""


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, feature in FEATURES.items()
        # A managed table needs an owner, see `tests.faults.test_managed_commits`.
        if Support.NO not in (feature.read, feature.append) and name != "managedCommit"
    ],
)
def test_a_feature_alone_leaves_nothing_to_say(tmp_path: Path, name: str) -> None:
    properties = {f"delta.feature.{name}": "supported"}
    property_ = FEATURES[name].table_property
    if property_ and (value := PROPERTIES.get(property_, "true")):
        properties[property_] = value
    schema = StructType((StructField("id", LONG), StructField("at", TIMESTAMP_NTZ)))
    table = DeltaTable.create(str(tmp_path), schema, properties=properties)
    assert name in supported_features(table.snapshot().protocol)
    assert table.check(depth="files").findings == ()


def test_where_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        DeltaTable(str(tmp_path)).check()
    with pytest.raises(InvalidArgumentError, match="quick, log, files: found 'deep'"):
        DeltaTable(str(tmp_path)).check(depth="deep")  # type: ignore[arg-type]


# Damage of any kind.

EVERYTHING: Files = {
    **healthy(checkpoint=None),
    **multipart_checkpoint(STATES[1], 1, parts=2),
    **v2_checkpoint(STATES[MIDDLE], MIDDLE, form="json", sidecars=2),
    **v2_checkpoint(STATES[4], 4, form="parquet", sidecars=1),
    **checksum(STATES[MIDDLE], MIDDLE),
    **compaction(STATES[LAST], LAST, expired=True),
    "_delta_log/_last_checkpoint": b'{"version":4,"size":9}',
}


def damaged(content: bytes, how: str, at: float, other: bytes) -> bytes | None:
    """Some content, damaged; None for a file that is gone."""
    middle = int(at * len(content))
    return {
        "gone": None,
        "empty": b"",
        "cut": content[:middle],
        "flipped": content[:middle] + bytes(b ^ 0xFF for b in content[middle : middle + 3])
        + content[middle + 3 :],
        "longer": content + content[:middle],
        "another's": other,
        "no text": b"\xff\xfe\x00" + content,
    }[how]  # fmt: skip


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(EVERYTHING)),
            st.sampled_from(["gone", "empty", "cut", "flipped", "longer", "another's", "no text"]),
            st.floats(0, 1, exclude_max=True),
            st.sampled_from(sorted(EVERYTHING)),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_no_damage_makes_a_check_fail(damages: list[tuple[str, str, float, str]]) -> None:
    files: dict[str, Any] = dict(EVERYTHING)
    for path, how, at, other in damages:
        files[path] = damaged(EVERYTHING[path], how, at, EVERYTHING[other])
    report = checked({path: content for path, content in files.items() if content is not None})
    assert "check-broken-off" not in codes(report)


@pytest.mark.parametrize("path", sorted(EVERYTHING))
def test_a_lost_file_is_reported_if_it_matters(path: str) -> None:
    assert codes(checked(EVERYTHING)) == {}
    report = checked({other: EVERYTHING[other] for other in EVERYTHING if other != path})
    # What makes up for others may be there or not; and a cleanup takes the beginning of a log.
    optional = (f"{MIDDLE:020}.crc", ".compacted.json", f"/{MIDDLE:020}.checkpoint")
    expected = not (path == commit_file(0) or any(mark in path for mark in optional))
    assert bool(codes(report)) == (expected or "_sidecars" in path)


# A store that fails.


@pytest.mark.parametrize("suffix", [
    commit_file(1), commit_file(LAST), ".checkpoint.parquet", ".crc", "_last_checkpoint",
])  # fmt: skip
@pytest.mark.parametrize("operation", ["read", "read_many", "open"])
def test_a_file_that_the_store_cant_read(suffix: str, operation: str) -> None:
    with MemoryTable(healthy()) as table:
        faulty = FaultyStorage(table.storage, Fault(operation, 0, How.FAIL, suffix))
        report = check_table(FileAccess(faulty), CommitOwners())
    assert report.ok == (not faulty.met)
    assert "check-broken-off" not in codes(report)


def test_a_store_that_doesnt_answer() -> None:
    with MemoryTable(healthy()) as table:
        with pytest.raises(StorageError):
            check_table(
                FileAccess(FaultyStorage(table.storage, Fault("*", 0, How.FAIL))), CommitOwners()
            )
        sound = FaultyStorage(table.storage)
        check_table(FileAccess(sound), CommitOwners())
        # From the n-th call on nothing answers: no report is better than a wrong one.
        for nth in range(2, len(sound.calls), 5):
            dying = Dying(table.storage, nth)
            with pytest.raises(StorageError):
                check_table(FileAccess(dying), CommitOwners())


class Dying(FaultyStorage):
    """A storage that answers so many calls."""

    def __init__(self, inner: MemoryStorage, calls: int) -> None:
        super().__init__(inner)
        self.left = calls

    def step(self, *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise StorageError("the store doesn't answer")
        return super().step(*arguments, **options)


def test_a_listing_that_missed_a_commit_is_no_gap() -> None:
    files = healthy()
    late = {commit_file(4): files.pop(commit_file(4))}
    with MemoryTable(files) as table:
        # It comes before the second look.
        fault = Fault("list", 2, None, meanwhile=lambda: table.put(late))
        report = check_table(FileAccess(FaultyStorage(table.storage, fault)), CommitOwners())
        assert "commit-missing" not in codes(report)


# Reports.


def test_reports() -> None:
    findings = [
        Finding("info", "a", "x", "m"),
        Finding("error", "b", "x", "m"),
        Finding("warning", "c", "x", "m"),
        Finding("error", "b", "x", "m"),
    ]
    report = CheckReport.of(findings, table="t", version=3, depth="log")
    assert [each.code for each in report.findings] == ["b", "c", "a"]
    assert not report.ok
    assert report.to_dict() == {
        "table_uri": "t",
        "version": 3,
        "depth": "log",
        "ok": False,
        "num_errors": 1,
        "num_warnings": 1,
        "num_infos": 1,
        "findings": [
            {"severity": severity, "code": code, "message": "x", "remedy": "m", "mend": "m"}
            for severity, code in (("error", "b"), ("warning", "c"), ("info", "a"))
        ],
    }


def test_the_words_of_messages() -> None:
    assert plural(1, "file") == "1 file"
    assert plural(2000, "property", "properties") == "2,000 properties"
    assert join_ranges([1, 3, 4, 5, 9]) == "1, 3 to 5, 9"
    assert join_names(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert join_names(["a"], 3) == "a and 2 more"


def test_the_page_lists_each_code_and_no_other() -> None:
    root = Path(__file__).resolve().parents[4]
    sources = (root / "airflow_delta/engine/maintenance/check").glob("*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    # First arguments of findings, and the codes that are chosen before.
    used = set(re.findall(r'"([a-z]+(?:-[a-z]+)+|unreadable)"', text)) - {"check-a-table"}
    page = (root / "docs/how-to/check-a-table.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {code for cell in rows for code in re.findall(r"`([^`]+)`", cell)}
    assert listed - set(DEPTHS) - {"files"} == used

"""Checks of checkpoints, the hint, version checksums and compactions: all that repeats what commits say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_delta.engine.maintenance.check.findings import Depth
from tests.checked_tables import HISTORY, LAST, MIDDLE, STATES, checked, codes, file, healthy, only
from tests.log_builder import metadata
from tests.table_builder import (
    Action,
    Files,
    State,
    checksum,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    hint,
    lines,
    multipart_checkpoint,
    parquet,
    small_rows,
    states,
    v2_checkpoint,
)

FORMS: dict[str, Callable[[State, int], Files]] = {
    "classic": classic_checkpoint,
    "parts": lambda state, version: multipart_checkpoint(state, version, parts=2),
    "v2 json": lambda state, version: v2_checkpoint(state, version, form="json", sidecars=2),
    "v2 parquet": lambda state, version: v2_checkpoint(state, version, form="parquet", sidecars=2),
}
PATH = f"_delta_log/{MIDDLE:020}.checkpoint.parquet"


def logged(*others: Files, checkpoint: int | None = None) -> Files:
    """The commits, and what else there is."""
    files = healthy(checkpoint=checkpoint)
    for other in others:
        files |= other
    return files


@pytest.mark.parametrize("form", FORMS)
def test_whole_checkpoints_of_each_form_have_nothing(form: str) -> None:
    older, newer = (FORMS[form](STATES[version], version) for version in (1, MIDDLE))
    parts = 2 if form == "parts" else None
    assert checked(logged(older, newer, hint(MIDDLE, parts=parts))).findings == ()


def test_parts_that_are_missing() -> None:
    parts = multipart_checkpoint(STATES[MIDDLE], MIDDLE, parts=3)
    del parts[sorted(parts)[1]]
    report = checked(logged(parts), depth="quick")
    assert codes(report) == {"checkpoint-incomplete": "warning"}
    assert "lacks 1 part (2)" in only(report, "checkpoint-incomplete").message


def test_checkpoints_of_zero_bytes() -> None:
    report = checked(logged({PATH: b""}), depth="quick")
    assert codes(report) == {"checkpoint-empty": "warning"}


def cut(files: Files) -> Files:
    """The files, the last of them cut in half."""
    last = sorted(files)[-1]
    return {**files, last: files[last][: len(files[last]) // 2]}


def flipped(files: Files) -> Files:
    """The files, half of the last one changed; not its end, where the footer of Parquet is."""
    last = sorted(files)[-1]
    size = len(files[last])
    start, stop = size // 8, 5 * size // 8
    changed = bytes(byte ^ 0xFF for byte in files[last][start:stop])
    return {**files, last: files[last][:start] + changed + files[last][stop:]}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("damage", [cut, flipped])
def test_a_damaged_newest_checkpoint_is_an_error(
    form: str, damage: Callable[[Files], Files]
) -> None:
    files = logged(damage(FORMS[form](STATES[MIDDLE], MIDDLE)))
    report = checked(files, depth="log")
    assert codes(report, but=["hint-missing"]) == {"checkpoint-damaged": "error"}
    assert f"of version {MIDDLE}" in only(report, "checkpoint-damaged").message


@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_older_checkpoint_is_a_warning(form: str) -> None:
    files = logged(cut(FORMS[form](STATES[1], 1)), checkpoint=MIDDLE)
    report = checked(files, depth="log")
    assert codes(report) == {"checkpoint-damaged": "warning"}
    assert f"{1:020}" in only(report, "checkpoint-damaged").message


@pytest.mark.parametrize(("version", "code", "severity"), [
    (MIDDLE, "sidecar-missing", "error"), (1, "checkpoint-damaged", "warning"),
])  # fmt: skip
def test_sidecars_that_are_missing(version: int, code: str, severity: str) -> None:
    made = v2_checkpoint(STATES[version], version, form="json", sidecars=2)
    lost = next(path for path in made if "_sidecars" in path)
    del made[lost]
    files = logged(made, checkpoint=None if version == MIDDLE else MIDDLE)
    report = checked(files, depth="log")
    assert codes(report, but=["hint-missing"]) == {code: severity}
    assert lost in only(report, code).message


def test_a_checkpoint_that_lacks_the_protocol() -> None:
    rows = small_rows(STATES[MIDDLE])[1:]
    report = checked(logged({PATH: parquet(rows)}), depth="log")
    # Nothing is read around it, as in other engines.
    assert codes(report)["checkpoint-damaged"] == "error"
    assert codes(report)["version-unreadable"] == "error"


def rewritten(state: State, **changes: Any) -> Files:
    return classic_checkpoint(replace(state, **changes), MIDDLE)


def with_file(state: State, path: str, **changes: Any) -> dict[Any, Action]:
    (key,) = [key for key in state.files if key[0] == path]
    return {**state.files, key: {**state.files[key], **changes}}


SOUND = STATES[MIDDLE]
A = "part=x/a.parquet"
WRONG = {
    "it lacks 1 live file (part=x/a.parquet)": {
        "files": {key: row for key, row in SOUND.files.items() if key[0] != A}
    },
    "it has wrongly 1 live file (part=x/other.parquet)": {
        "files": {
            **SOUND.files,
            ("part=x/other.parquet", None): {
                **SOUND.files[A, None],
                "path": "part=x/other.parquet",
            },
        }
    },
    "it has another size for 1 file": {"files": with_file(SOUND, A, size=7)},
    "it has another partitionValues for 1 file": {
        "files": with_file(SOUND, A, partitionValues={"part": "y"})
    },
    "it has another modificationTime for 1 file": {
        "files": with_file(SOUND, A, modificationTime=7)
    },
    "it has another baseRowId for 1 file": {"files": with_file(SOUND, A, baseRowId=7)},
    "it has the protocol": {
        "protocol": (3, 7, frozenset({"deletionVectors"}), frozenset({"deletionVectors"}))
    },
    "its metadata differ in name": {"metadata": {**(SOUND.metadata or {}), "name": "other"}},
    "it differs in 1 transaction (app)": {"transactions": {"app": (2, None)}},
    "it differs in 1 transaction (app": {"transactions": {}},
    "it differs in 1 domain (d)": {"domains": {}},
}


@pytest.mark.parametrize("message", WRONG)
def test_a_checkpoint_that_disagrees_with_the_commits(message: str) -> None:
    report = checked(logged(rewritten(SOUND, **WRONG[message])), depth="log")
    found = only(report, "checkpoint-disagrees")
    assert found.severity == "error"
    assert message in found.message


def test_a_checkpoint_is_compared_with_the_one_before_where_commits_are_gone() -> None:
    files = logged(classic_checkpoint(STATES[1], 1), rewritten(SOUND, domains={}))
    for version in (0, 1):
        del files[commit_file(version)]
    assert "checkpoint-disagrees" in codes(checked(files, depth="log"))
    del files[f"_delta_log/{1:020}.checkpoint.parquet"]
    assert "checkpoint-disagrees" not in codes(checked(files, depth="log"))


def test_without_commits_the_checksum_contradicts_the_checkpoint() -> None:
    less = {key: row for key, row in SOUND.files.items() if key[0] != A}
    files = logged(rewritten(SOUND, files=less), checksum(SOUND, MIDDLE))
    for version in range(MIDDLE + 1):
        del files[commit_file(version)]
    assert codes(checked(files, depth="log"))["checksum-disagrees"] == "error"


def test_tombstones_that_are_missing() -> None:
    report = checked(logged(rewritten(SOUND, tombstones={})), depth="log")
    assert codes(report, but=["hint-missing"]) == {"tombstones-missing": "warning"}
    assert "part=x/gone.parquet" in only(report, "tombstones-missing").message


def test_tombstones_that_have_expired_may_be_missing() -> None:
    history = [list(commit) for commit in HISTORY]
    history[2][0] = {"remove": {**history[2][0]["remove"], "deletionTimestamp": 1}}
    files = logged(commits(history), rewritten(states(history)[MIDDLE], tombstones={}), hint(3))
    assert checked(files, depth="log").findings == ()


def test_a_checkpoint_that_holds_a_file_twice() -> None:
    rows = [*small_rows(SOUND), *(2 * [file("a")]), file("b%20b"), file("c")]
    report = checked(logged({PATH: parquet(rows)}), depth="log")
    assert codes(report)["checkpoint-damaged"] == "error"
    assert "twice" in only(report, "checkpoint-damaged").message


@pytest.mark.parametrize("expired", [True, False])
def test_many_tombstones(expired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_delta.engine.maintenance.check import checkpoint_content

    monkeypatch.setattr(checkpoint_content, "_MANY_TOMBSTONES", 3)
    time = 1 if expired else 2**42
    gone = {
        (f"{n}", None): {**SOUND.tombstones["part=x/gone.parquet", None], "path": f"{n}",
                         "deletionTimestamp": time}
        for n in range(5)
    }  # fmt: skip
    # The checkpoint itself keeps expired ones, as one does that was written long ago.
    rows = [*small_rows(SOUND), *({"add": row} for row in SOUND.files.values()),
            *({"remove": row} for row in gone.values())]  # fmt: skip
    report = checked(logged({PATH: parquet([clean(row) for row in rows])}), depth="log")
    expected = {"tombstones-expired": "warning"} if expired else {"tombstones-many": "info"}
    assert expected.items() <= codes(report).items()
    code = next(iter(expected))
    assert "5 tombstones of 8 file actions (62%)" in only(report, code).message


def clean(row: Action) -> Action:
    return {kind: {k: v for k, v in value.items() if v is not None} for kind, value in row.items()}


def test_a_checkpoint_without_its_commit() -> None:
    files = healthy(checkpoint=LAST)
    for version in range(LAST + 1):
        del files[commit_file(version)]
    assert codes(checked(files)) == {"checkpoint-without-commit": "warning"}


def test_checkpoints_that_are_due_and_overdue() -> None:
    history = [*HISTORY, *([file(f"f{n}")] for n in range(4))]
    report = checked(logged(commits(history)), depth="quick")
    assert codes(report, but=["checksum-behind"]) == {"checkpoint-due": "info"}
    assert "10 commits and no checkpoint" in only(report, "checkpoint-due").message
    often = metadata(partition_columns=["part"], configuration={"delta.checkpointInterval": "1"})
    history[0] = [HISTORY[0][0], often]
    report = checked(logged(commits(history)), depth="quick")
    assert codes(report)["checkpoint-overdue"] == "warning"


# The hint.


def raw_hint(text: str) -> Files:
    return {"_delta_log/_last_checkpoint": text.encode()}


@pytest.mark.parametrize(
    ("hint_file", "expected"),
    [
        (raw_hint("{"), {"hint-damaged": "warning"}),
        (raw_hint('{"version":3,"size":1,"checksum":"0"}'), {"hint-damaged": "warning"}),
        (raw_hint(""), {"hint-missing": "info"}),
        (hint(99), {"hint-past-the-end": "error"}),
        (hint(2), {"hint-dangling": "warning"}),
        (hint(MIDDLE, parts=2), {"hint-wrong": "warning"}),
        (hint(1), {"hint-behind": "info"}),
        (hint(MIDDLE, parts=1), {}),
    ],
)
@pytest.mark.parametrize("depth", ["quick", "log"])
def test_hints(hint_file: Files, expected: dict[str, str], depth: Depth) -> None:
    files = logged(classic_checkpoint(STATES[1], 1), checkpoint=MIDDLE) | hint_file
    assert codes(checked(files, depth=depth)) == expected


def test_a_hint_to_parts_that_lack_one() -> None:
    parts = multipart_checkpoint(STATES[LAST], LAST, parts=2)
    parts.popitem()
    report = checked(logged(parts, hint(LAST, parts=2)), depth="quick")
    assert codes(report) == {"checkpoint-incomplete": "warning", "hint-dangling": "warning"}


# Checksums.


def changed_checksum(**fields: Any) -> Files:
    ((path, content),) = checksum(STATES[LAST], LAST).items()
    return {path: json.dumps({**json.loads(content), **fields}).encode()}


@pytest.mark.parametrize(
    "fields",
    [
        {"numFiles": 3},
        {"tableSizeBytes": 1},
        {"setTransactions": []},
        {"domainMetadata": []},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metadata": metadata()["metaData"]},
    ],
)
def test_checksums_that_disagree(fields: dict[str, Any]) -> None:
    report = checked(logged(changed_checksum(**fields)), depth="log")
    assert codes(report) == {"checksum-disagrees": "error"}
    assert next(iter(fields)) in only(report, "checksum-disagrees").message


def test_an_older_newest_checksum_is_compared_with_its_version() -> None:
    files = {path: content for path, content in logged().items() if not path.endswith(".crc")}
    report = checked(files | checksum(STATES[4], 4), depth="log")
    assert codes(report) == {"checksum-behind": "info"}
    wrong = {f"_delta_log/{4:020}.crc": changed_checksum(numFiles=9).popitem()[1]}
    assert codes(checked(files | wrong, depth="log"))["checksum-disagrees"] == "error"


def test_a_checksum_of_a_version_that_isnt_there() -> None:
    files = healthy()
    del files[commit_file(LAST)]
    for depth in ("quick", "files"):
        report = checked(files, depth=depth)
        assert codes(report) == {"commit-lost": "error"}
        assert "version 5 did too, but the log ends at 4" in only(report, "commit-lost").message


def test_checksums_that_cant_be_read() -> None:
    files = logged({f"_delta_log/{LAST:020}.crc": b"{"})
    for depth in ("quick", "log"):
        assert codes(checked(files, depth=depth)) == {"checksum-damaged": "warning"}


# Compactions.


def compacted(start: int, end: int, actions: list[Action]) -> Files:
    return {f"_delta_log/{start:020}.{end:020}.compacted.json": lines(actions)}


def test_compactions_that_agree() -> None:
    whole = compaction(STATES[LAST], LAST, expired=True)
    part = compacted(2, 3, [*HISTORY[2], *HISTORY[3]])
    assert checked(logged(whole, part), depth="log").findings == ()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([*HISTORY[2]], "lacks 1 live file"),
        ([*HISTORY[2], *HISTORY[3], file("z")], "has wrongly 1 live file"),
        ([*HISTORY[2], HISTORY[3][0], file("c", size=7)], "another size of 1 file"),
        ([HISTORY[2][0], *HISTORY[3]], "differs in 1 other action"),
    ],
)
def test_compactions_that_disagree(actions: list[Action], message: str) -> None:
    report = checked(logged(compacted(2, 3, actions)), depth="log")
    assert only(report, "compaction-disagrees").severity == "error"
    assert message in only(report, "compaction-disagrees").message


def test_compactions_that_bring_back_what_was_deleted() -> None:
    # As engines write them that leave out what has expired.
    report = checked(logged(compacted(2, 3, [HISTORY[2][1], *HISTORY[3]])), depth="log")
    assert codes(report) == {"compaction-forgets": "error"}
    undone = {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}}
    history = [*HISTORY[:4], [undone, *HISTORY[4]], HISTORY[5]]
    files = logged(commits(history), compacted(4, 5, [*HISTORY[4], *HISTORY[5]]))
    assert codes(checked(files, depth="log")) == {"compaction-forgets": "error"}
    # Nothing is before version 0.
    files = logged(compaction(STATES[LAST], LAST, expired=False))
    assert checked(files, depth="log").findings == ()


def test_compactions_that_cant_be_read() -> None:
    bad = {f"_delta_log/{2:020}.{3:020}.compacted.json": b"{"}
    assert codes(checked(logged(bad), depth="log")) == {"compaction-damaged": "warning"}

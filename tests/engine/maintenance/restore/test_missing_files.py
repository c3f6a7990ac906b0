"""The files of a version are looked for before it is brought back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.deletion_vectors.read import get_relative_path
from airflow_delta.engine.errors import MissingFilesError
from airflow_delta.engine.maintenance.table_files import missing_files as search
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.paths import encode_path
from tests.engine.transaction.prepare.attempts import protocol
from tests.log_builder import add, metadata, remove, touch_files, write_commit, write_table

NAMES = ["a", "part=x/b c", "part=a%20b/c", "part=é/d", "_hidden/e", ".f", "g#h?i"]
COUNTED = {"stats": '{"numRecords":9}'}


def vector(value: str, kind: str = "u") -> dict[str, Any]:
    return {
        "storageType": kind,
        "pathOrInlineDv": value,
        "offset": 1,
        "sizeInBytes": 40,
        "cardinality": 6,
    }


VECTOR = vector("ab^-aqEH.-t@S}K{vb[*k^")
VECTOR_FILE = get_relative_path(
    DeletionVectorDescriptor("u", str(VECTOR["pathOrInlineDv"]), 1, 40, 6)
)


def emptied(root: Path, *files: dict[str, Any]) -> DeltaTable:
    """A table that had some files in version 0, and none in version 1."""
    write_commit(root, 0, protocol("deletionVectors"), metadata(), *files)
    removes = [
        remove(
            file["add"]["path"],
            **({"deletionVector": v} if (v := file["add"].get("deletionVector")) else {}),
        )
        for file in files
    ]
    write_commit(root, 1, *removes)
    return DeltaTable(str(root), allowed_outside=[str(root.parent)])


@pytest.mark.parametrize("listed_from", [1, 10_000])
@pytest.mark.parametrize("gone", NAMES)
def test_a_data_file_that_is_gone_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str, listed_from: int
) -> None:
    monkeypatch.setattr(search, "_LISTED_FROM", listed_from)
    table = emptied(tmp_path, *(add(encode_path(name)) for name in NAMES))
    touch_files(tmp_path, *NAMES)
    table.restore(0, dry_run=True)
    (tmp_path / gone).unlink()
    for dry_run in (True, False):
        with pytest.raises(MissingFilesError, match="version 0 can't be restored") as refused:
            table.restore(0, dry_run=dry_run)
        assert (refused.value.paths, refused.value.version) == ((gone,), 0)
    assert table.latest_version() == 1
    assert table.restore(0, ignore_missing_files=True).version == 2
    assert table.snapshot().num_files == len(NAMES)


def test_the_versions_that_do_without_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(
        tmp_path, [add("a%20b"), add("c")], [add("d")], [remove("a%20b")], [remove("c")], [add("e")]
    )
    touch_files(tmp_path, "c", "d", "e")
    table = DeltaTable(str(tmp_path))
    for version in (0, 1):
        with pytest.raises(MissingFilesError, match="restore version 2 or a later one"):
            table.restore(version)
    (tmp_path / "c").unlink()
    with pytest.raises(MissingFilesError, match="restore version 3 or a later one"):
        table.restore(1)
    # Where many commits would have to be read nobody looks.
    monkeypatch.setattr(search, "_MOST_COMMITS", 2)
    with pytest.raises(MissingFilesError, match="restore a later version"):
        table.restore(1)


def test_only_files_that_come_back_are_looked_for(tmp_path: Path) -> None:
    write_table(tmp_path, [add("stays"), add("back")], [remove("back"), add("goes")])
    touch_files(tmp_path, "back")
    assert DeltaTable(str(tmp_path)).restore(0).version == 2


@pytest.mark.parametrize("inside", [True, False])
def test_a_deletion_vector_that_is_gone_is_found_out(tmp_path: Path, *, inside: bool) -> None:
    root, elsewhere = tmp_path / "table", tmp_path / "else where"
    file = root / VECTOR_FILE if inside else elsewhere / "v.bin"
    descriptor = VECTOR if inside else vector(f"file://{quote(str(file))}", "p")
    table = emptied(root, add("a", **COUNTED, deletionVector=descriptor))
    touch_files(root, "a")
    with pytest.raises(MissingFilesError) as refused:
        table.restore(0)
    assert refused.value.paths == (VECTOR_FILE if inside else str(file),)
    touch_files(file.parent, file.name)
    assert table.restore(0).version == 2


def test_inline_deletion_vectors_have_no_file(tmp_path: Path) -> None:
    inline = {**vector("^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "i")}
    del inline["offset"]
    table = emptied(tmp_path, add("a", **COUNTED, deletionVector=inline))
    touch_files(tmp_path, "a")
    assert table.restore(0).version == 2


def test_files_elsewhere_are_looked_for_there(tmp_path: Path) -> None:
    """As of a shallow clone; a file of the table may be named by its absolute location, too."""
    root, elsewhere = tmp_path / "table", tmp_path / "else where"
    own = f"file://{quote(str(root))}/a%20b"
    table = emptied(root, add(own), add(quote(f"{elsewhere}/c d")), add(f"file:{tmp_path}/e"))
    with pytest.raises(MissingFilesError) as refused:
        table.restore(0)
    assert {*refused.value.paths} == {"a b", f"{elsewhere}/c d", f"{tmp_path}/e"}
    touch_files(root, "a b")
    touch_files(elsewhere, "c d")
    touch_files(tmp_path, "e")
    assert table.restore(0).version == 2


def test_a_restore_is_refused_if_a_vacuum_has_deleted_the_files(sales_copy: Path) -> None:
    """Of a table that another engine has written: version 3 deletes rows, and rewrites a file."""
    table = DeltaTable(str(sales_copy))
    before = {*table.snapshot(2).file_uris()}
    vacuumed = sales_copy.with_name("vacuumed")
    shutil.copytree(sales_copy, vacuumed)
    assert table.restore(2).version == 4
    assert {*table.snapshot().file_uris()} == before
    assert table.snapshot().num_rows == 30

    table = DeltaTable(str(vacuumed))
    plan = table.vacuum(retention_hours=0, enforce_retention=False).plan
    with pytest.raises(MissingFilesError, match="1 of the files that it needs are gone") as refused:
        table.restore(2)
    assert [*refused.value.paths] == plan.files["path"].to_pylist()

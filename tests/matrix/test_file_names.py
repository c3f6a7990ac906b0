"""Files with odd names, from the log to the disk and back (B3 to B5, L9).

The encoded names are written out, as Delta Spark writes them; the data files are real, and what is
found at the end is one's own content. Windows' and object stores' rules for names are not the
table's business: the log says where a file is.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from pyroaring import BitMap64

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.deletion_vectors import file_format, roaring
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.actions import AddFile, RemoveFile
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.local import LocalStorage
from tests.deletion_vectors import read_deletion_vector
from tests.engine.changes.logs import FEED_ON, cdc
from tests.log_builder import PROTOCOL, add, commit_path, metadata, write_commit
from tests.matrix.log_forms import FORMS
from tests.table_builder import FAR_FUTURE_MS, MemoryTable

# Names on the disk, and in the log.
NAMES = [
    ("a b", "a%20b"),
    ("a%20b", "a%2520b"),
    ("a%2520b", "a%252520b"),
    ("a+b", "a+b"),
    ("a#b?c", "a%23b%3Fc"),
    ("é", "é"),
    ("\N{PILE OF POO}", "\N{PILE OF POO}"),
    ("a/b", "a/b"),
    ("=", "="),
    (":", "%3A"),
    ("k=1:2/x", "k=1%3A2/x"),
    ("part=a%20b/c d.parquet", "part=a%2520b/c%20d.parquet"),
    ("trailing.", "trailing."),
    ("~", "~"),
]
PARAMETERS = pytest.mark.parametrize(("name", "encoded"), NAMES)
# Places on the disk that a table names absolutely.
ABSOLUTE = ["/{}", "file:/{}", "file:///{}"]


def on_disk(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def contents(table: DeltaTable) -> list[str]:
    """What the live files hold, opened by the names that the engine gives."""
    return sorted(Path(uri).read_text(encoding="utf-8") for uri in table.snapshot().file_uris())


def table_with(root: Path, *paths: str) -> DeltaTable:
    write_commit(root, 0, PROTOCOL, metadata(), *map(add, paths))
    return DeltaTable(str(root))


def life_of(table: DeltaTable, root: Path, path: str, content: str) -> None:
    """A file that is live in version 0 through checkpoint, removal and a second commit."""
    assert contents(table) == [content]
    assert table.checkpoint().written
    commit_path(root, 0).unlink()
    assert contents(DeltaTable(str(root))) == [content]

    removal = table.transaction("DELETE")
    removal.remove_file(RemoveFile(path, data_change=True, deletion_timestamp=FAR_FUTURE_MS))
    removal.commit()
    assert contents(DeltaTable(str(root))) == []
    assert table.snapshot().tombstones()["path"].to_pylist() == [path]

    again = table.transaction("WRITE")
    again.add_file(AddFile(path, {}, 1, 1, data_change=True))
    again.commit()
    assert contents(DeltaTable(str(root))) == [content]
    assert table.snapshot().tombstones().num_rows == 0


@PARAMETERS
def test_a_file_below_the_table(tmp_path: Path, name: str, encoded: str) -> None:
    on_disk(tmp_path / name, name)
    assert encode_path(name) == encoded
    life_of(table_with(tmp_path, encoded), tmp_path, encoded, name)


def test_files_whose_names_differ_in_their_encoding_alone(tmp_path: Path) -> None:
    for name, _ in NAMES:
        on_disk(tmp_path / name, name)
    table = table_with(tmp_path, *(encoded for _, encoded in NAMES))
    assert contents(table) == sorted(name for name, _ in NAMES)
    removal = table.transaction("DELETE")
    removal.remove_file(RemoveFile("a%2520b", data_change=True))
    removal.commit()
    assert contents(table) == sorted(name for name, _ in NAMES if name != "a%20b")


@pytest.mark.parametrize("form", ABSOLUTE)
@PARAMETERS
def test_a_file_elsewhere(tmp_path: Path, name: str, encoded: str, form: str) -> None:
    root, elsewhere = tmp_path / "table", tmp_path / "else where"
    on_disk(elsewhere / name, name)
    path = form.format(f"{quote(str(elsewhere)).lstrip('/')}/{encoded}")
    life_of(table_with(root, path), root, path, name)


def test_a_file_elsewhere_is_one_file_in_any_spelling(tmp_path: Path) -> None:
    root = tmp_path / "table"
    on_disk(tmp_path / "x", "x")
    table = table_with(root, f"file:{tmp_path}/x")
    removal = table.transaction("DELETE")
    removal.remove_file(RemoveFile(f"{tmp_path}/x", data_change=True))
    removal.commit()
    assert contents(table) == []


@pytest.mark.parametrize("path", ["s3://bucket/x%20y", "/abs/x", "file:/abs/x", "abfss://c@a/x"])
def test_a_path_of_another_store_is_kept_to_the_letter(path: str) -> None:
    for form in FORMS.values():
        with MemoryTable(form([[PROTOCOL, metadata()], [add(path)]])) as table:
            assert table.delta().snapshot().files(["path"])["path"].to_pylist() == [path]


@pytest.mark.parametrize("path", ["a%", "a%2", "a%zz/b", "%ff"])
def test_a_path_that_is_not_encoded_right_is_an_error_that_names_it(
    tmp_path: Path, path: str
) -> None:
    table = table_with(tmp_path, path)
    with pytest.raises(CorruptLogError, match=path) as caught:
        table.snapshot().file_uris()
    assert caught.value.path == path


ROWS = [3, 4, 7]
UUID_NAME = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
UUID_TEXT = "^-aqEH.-t@S}K{vb[*k^"


@PARAMETERS
def test_a_deletion_vector(tmp_path: Path, name: str, encoded: str) -> None:
    """Below a directory named so, which the descriptor tells undecoded; and at an absolute path."""
    data = roaring.serialize(BitMap64(ROWS))
    storage = LocalStorage(str(tmp_path / "table"))
    content = b"\x01" + file_format.frame(data)
    storage.replace(f"{name}/{UUID_NAME}", content)
    on_disk(tmp_path / "else" / name, "")
    (tmp_path / "else" / name).write_bytes(content)
    relative = DeletionVectorDescriptor("u", f"{name}{UUID_TEXT}", 1, len(data), len(ROWS))
    absolute = DeletionVectorDescriptor(
        "p", f"file:{quote(str(tmp_path))}/else/{encoded}", 1, len(data), len(ROWS)
    )
    access = FileAccess(storage, allowed_outside=(f"{tmp_path}/else",))
    for descriptor in (relative, absolute):
        found = read_deletion_vector(descriptor, storage, table="t", open_uri=access.locate)
        assert list(found) == ROWS


@PARAMETERS
def test_a_change_data_file(tmp_path: Path, name: str, encoded: str) -> None:
    on_disk(tmp_path / "_change_data" / name, name)
    features = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
    write_commit(tmp_path, 0, features, metadata(configuration=FEED_ON), modified_ms=1000)
    write_commit(tmp_path, 1, cdc(f"_change_data/{encoded}"), modified_ms=2000)
    (path,) = DeltaTable(str(tmp_path)).changes(1).files["path"].to_pylist()
    assert Path(resolve(str(tmp_path), path)).read_text(encoding="utf-8") == name


def test_a_change_data_file_elsewhere_keeps_its_path(tmp_path: Path) -> None:
    features = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
    write_commit(tmp_path, 0, features, metadata(configuration=FEED_ON), modified_ms=1000)
    write_commit(tmp_path, 1, cdc("s3://bucket/x%20y"), modified_ms=2000)
    files = DeltaTable(str(tmp_path)).changes(1).files
    assert files["path"].to_pylist() == ["s3://bucket/x%20y"]

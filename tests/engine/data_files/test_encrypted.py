"""Files with encrypted columns and a readable footer are refused.

pyarrow ends the whole process when it is asked for the metadata of such a column, so everything is tried in
a process of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ENCRYPTED = """
import base64, sys
import pyarrow as pa, pyarrow.parquet as pq, pyarrow.parquet.encryption as pe

class Kms(pe.KmsClient):
    def __init__(self, config):
        super().__init__()
    def wrap_key(self, key, master):
        return base64.b64encode(key)
    def unwrap_key(self, key, master):
        return base64.b64decode(key)

properties = pe.CryptoFactory(lambda config: Kms(config)).file_encryption_properties(
    pe.KmsConnectionConfig(),
    pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["b"]}, plaintext_footer=True),
)
rows = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
"""

_TRY = """
import json
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaError

def tried(action):
    try:
        return str(action())
    except DeltaError as error:
        return f"{type(error).__name__}: {error}"
"""


def _run(script: str, *arguments: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files, each of which has an encrypted column."""
    target = tmp_path / "table"
    target.mkdir()
    write = 'pq.write_table(rows, sys.argv[1], encryption_properties=properties); print("{}")'
    _run(_ENCRYPTED + write, str(target / "0.parquet"))
    shutil.copy(target / "0.parquet", target / "1.parquet")
    return target


def test_converting(folder: Path) -> None:
    script = """
import sys
print(json.dumps({
    "with": tried(lambda: DeltaTable.convert(sys.argv[1])),
    "without": tried(lambda: DeltaTable.convert(sys.argv[1], collect_statistics=False).version),
}))
"""
    found = _run(_TRY + script, str(folder))
    assert found["with"].startswith("UnsupportedFeatureError")
    assert ".parquet' has encrypted columns" in found["with"]
    assert "collect_statistics=False" in found["with"]
    assert found["without"] == "0"


def test_reading(folder: Path) -> None:
    script = """
import sys
table = DeltaTable.convert(sys.argv[1], collect_statistics=False) and DeltaTable(sys.argv[1])
print(json.dumps({
    "all": tried(lambda: table.snapshot().to_arrow()),
    "plain": tried(lambda: table.snapshot().to_arrow(columns=["a"])),
    "predicate": tried(lambda: table.snapshot().to_arrow(predicate="b = 'x'")),
    "optimize": tried(table.optimize),
}))
"""
    found = _run(_TRY + script, str(folder))
    for name, answer in found.items():
        assert answer.startswith("UnsupportedFeatureError"), (name, answer)
        assert ".parquet' of version 0 has encrypted columns" in answer, name


def test_checking(folder: Path) -> None:
    script = """
import sys
DeltaTable.convert(sys.argv[1], collect_statistics=False)
print(json.dumps({"check": tried(lambda: DeltaTable(sys.argv[1]).check(depth="files"))}))
"""
    # It compares footers with statistics, and there are none.
    assert "number of rows in the table is unknown" in _run(_TRY + script, str(folder))["check"]


def test_the_footers_of_a_write(folder: Path) -> None:
    script = """
import sys
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark.reader.data_files import list_data_files
print(json.dumps({"write": tried(lambda: list_data_files(open_storage(sys.argv[1]), ""))}))
"""
    answer = _run(_TRY + script, str(folder))["write"]
    assert answer.startswith("UnsupportedFeatureError")
    assert "parquet.encryption" in answer


def test_a_checkpoint(folder: Path) -> None:
    script = """
import sys
from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.storage.location import open_storage
storage = open_storage(sys.argv[1])
source = ParquetSource(storage, storage.head("0.parquet"), slice_rows=1000)
print(json.dumps({"open": tried(lambda: source.footer)}))
"""
    answer = _run(_TRY + script, str(folder))["open"]
    assert answer.startswith("CorruptLogError")
    assert "encrypted columns" in answer

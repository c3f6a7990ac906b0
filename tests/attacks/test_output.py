"""What is shown of a table: no control characters of its texts, no bytes of other files, no passwords."""

from __future__ import annotations

import json
import logging
import pickle
import struct
import tracemalloc
import warnings
import zlib
from pathlib import Path

import fsspec
import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.post_commit import warn_after_commit
from airflow_delta.engine.commit.sql.database import SqlDatabase
from airflow_delta.engine.deletion_vectors import file_format, roaring
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeletionVectorError,
    DeltaError,
    DeltaWarning,
    InvalidArgumentError,
    StorageError,
)
from airflow_delta.engine.log.last_checkpoint import read_last_checkpoint
from airflow_delta.engine.public_text import printable, without_password, without_user
from airflow_delta.engine.storage.generic import GenericStorage
from airflow_delta.engine.storage.generic_writer import GenericWriter
from airflow_delta.engine.storage.memory import MemoryStorage
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.reports import log_report
from tests.log_builder import PROTOCOL, add, metadata, write_commit

# A sequence for terminals, another one in a byte, a line of its own, and a change of direction.
EVIL = "a\x1b[2J\x9b31m\r\nERROR forged\u202egpj\u2028\x00"
SHOWN = r"a\x1b[2J\x9b31m\r\nERROR forged\u202egpj\u2028\x00"

SECRET = "hid@den"


def test_what_isnt_printable_is_escaped() -> None:
    assert printable(EVIL) == SHOWN
    assert printable("\ud800") == r"\ud800"
    for text in ("", "plain", "日本 é 😀 ∑", "a\\b 'c'"):
        assert printable(text) == text


def test_escapes_take_memory_in_proportion_to_the_text() -> None:
    text = "\x1b" * 1_000_000
    tracemalloc.start()
    try:
        assert printable(text) == r"\x1b" * 1_000_000
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()


def test_errors_and_warnings_are_of_one_line() -> None:
    error = CorruptLogError(f"the column {EVIL}", table=f"/lake/{EVIL}", path=EVIL)
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert str(each) == f"/lake/{SHOWN}: the column {SHOWN}"
        assert each.message == f"the column {SHOWN}"
        assert each.path == EVIL  # a fact, by which a file can be found
    assert str(DeltaWarning(EVIL)) == SHOWN
    with pytest.warns(DeltaWarning) as told:
        warnings.warn(EVIL, DeltaWarning, stacklevel=1)
    assert str(told[0].message) == SHOWN


def test_a_warning_that_is_logged_instead_is_of_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_after_commit(EVIL)
    assert caplog.messages == [SHOWN]


@pytest.fixture
def evil_table(tmp_path: Path) -> Path:
    """A table with such texts wherever there can be one, and with damage that is told of."""
    field = {"name": EVIL, "type": "long", "nullable": True, "metadata": {"comment": EVIL}}
    definition = metadata(
        schema={"type": "struct", "fields": [field]},
        configuration={EVIL: EVIL, "delta.checkpointInterval": EVIL},
    )
    definition["metaData"] |= {"name": EVIL, "description": EVIL}
    info = {"commitInfo": {"operation": EVIL, "operationParameters": {EVIL: EVIL}}}
    protocol = {"protocol": {**PROTOCOL["protocol"], "minReaderVersion": 1}}
    write_commit(tmp_path, 0, info, protocol, definition)
    name = EVIL.replace("\x00", "")
    write_commit(tmp_path, 1, info, add(name), {"txn": {"appId": EVIL, "version": 1}})
    (tmp_path / "_delta_log" / f"{name}5.json").touch()
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text(json.dumps({EVIL: 1}))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        *(["describe"], ["history"], ["doctor"], ["commits"], ["vacuum", "--dry-run"]),
        *(["describe", "--json"], ["history", "--json"], ["doctor", "--json"]),
        *(["describe", "--version", "9"], ["restore", "--version", "0", "--dry-run"]),
        *(["files"], ["files", "--json"], ["diff", "0"], ["diff", "0", "--files", "--json"]),
        ["drop-feature", EVIL.replace("\x00", "")],
    ],
)
def test_the_command_line_prints_no_control_characters(
    evil_table: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*command[:1], str(evil_table), *command[1:]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(words)
    out, err = capsys.readouterr()
    assert out + err
    for line in [*out.split("\n"), *err.split("\n")]:
        assert line.isprintable(), line
        assert not line.startswith("ERROR forged")


def test_a_report_in_a_log_keeps_its_lines(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("airflow_delta.test")
    with caplog.at_level(logging.INFO):
        log_report(logger, "check", {"table_uri": "/t", "reason": EVIL, "names": [EVIL, "b"]})
    assert caplog.messages == [f"check of /t\nreason  {SHOWN}\nnames   {SHOWN}\n        b"]


def test_errors_over_vectors_quote_no_bytes_of_the_file() -> None:
    data = roaring.serialize(roaring.BitMap64([1]))
    secret = b"root:x:0:0:root:/root:/bin/sh"
    framed = struct.pack(">I", len(data)) + data + secret[:4]
    for content, read in (
        (secret, lambda: file_format.unframe(secret, size=9)),
        (framed, lambda: file_format.unframe(framed, size=len(data))),
        (secret, lambda: file_format.check_version(secret)),
        (secret, lambda: roaring.deserialize(secret)),
    ):
        with pytest.raises(DeletionVectorError) as raised:
            read()
        for start in range(len(content) - 3):
            part = content[start : start + 4]
            for shown in (part.hex(), str(int.from_bytes(part, "big"))):
                assert shown not in str(raised.value)
        assert f"{zlib.crc32(data):08x}" not in str(raised.value)


@pytest.mark.parametrize(
    "content",
    [
        b"root:x:0:0:root:/root:/bin/sh\n",
        b'{"version": "hidden", "size": 1}',
        b'{"version": 1, "size": 1, "checksum": "hidden"}',
        b'{"version": 1, "size": ["hidden"]}',
        b'"hidden"',
    ],
)
def test_a_hint_that_is_none_isnt_quoted(content: bytes) -> None:
    storage = MemoryStorage("memory://quoted/table")
    storage.replace("_delta_log/_last_checkpoint", content)
    with pytest.warns(DeltaWarning) as told:
        assert read_last_checkpoint(storage) is None
    assert "hidden" not in str(told[0].message)
    assert "root" not in str(told[0].message)


class _Server(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system whose errors quote the location."""

    protocol = "attackedserver"

    def cat_file(self, path: str, **_: object) -> bytes:
        raise OSError(f"attackedserver://me:{SECRET}@host/{path}: no route, for {SECRET}")

    def ls(self, path: str, **_: object) -> list[str]:
        raise OSError(f"{path}: no route")


LOCATION = f"attackedserver://me:{SECRET}@host/t"


def test_passwords_of_locations_are_shown_nowhere() -> None:
    fsspec.register_implementation(_Server.protocol, _Server, clobber=True)
    storage = GenericStorage(LOCATION, _Server(), "/t")
    writer = GenericWriter(LOCATION, _Server(), "/t")
    with pytest.raises(StorageError) as raised:
        storage.read("a")
    error = raised.value
    assert error.__cause__ is None  # it would be in the traceback
    table = DeltaTable(LOCATION)
    texts = [storage, writer, error, error.table, table, DeltaError(f"at {LOCATION!r}: x")]
    for text in (*map(str, texts), *map(repr, texts), storage.canonical_location):
        assert "hid" not in text
        assert "den" not in text
    with pytest.raises(StorageError, match=r"attackedserver://host/t: read '_delta_log"):
        table.snapshot()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sftp://me:hid@den@host:22/t", "sftp://host:22/t"),
        ("s3://KEY:hidden@bucket/k@v:w", "s3://bucket/k@v:w"),
        ("sftp://me@mail.example:hidden@host/t", "sftp://host/t"),
        ("a 'ftp://:hidden@h/x' and s3a://k:hidden@b", "a 'ftp://h/x' and s3a://b"),
        ("abfss://container@account.dfs.core.windows.net/t", None),
        ("hdfs://user@host:8020/a@b", None),
        ("/plain/a:b@c", None),
        ("://" * 3, None),
    ],
)
def test_passwords_are_taken_away(text: str, shown: str | None) -> None:
    assert without_password(text) == (text if shown is None else shown)


def test_a_user_goes_up_to_the_last_at_sign() -> None:
    assert without_user("s3://connection@bucket/a@b") == "s3://bucket/a@b"
    assert without_user("sftp://me:hid@den@host/t") == "sftp://host/t"


@pytest.mark.parametrize("url", ["me:hid@den@host/commits", "me:hid/x@den@host/commits"])
def test_an_owners_url_with_an_at_sign_in_the_password_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="%40") as raised:
        SqlDatabase(f"postgresql://{url}")
    assert "den" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_owners_url_shows_nothing_that_may_be_of_a_password() -> None:
    database = SqlDatabase("postgresql://me:hid@den/x@host/commits")
    assert database.name == "postgresql+psycopg://me:***@***/"
    assert "den" not in repr(database)
    assert SqlDatabase("postgresql://me:hid%40den@host/b").name.endswith("//me:***@host/b")


@pytest.mark.parametrize("location", [LOCATION, "s3://KEY:hidden@bucket/t"])
def test_airflow_is_given_no_location_with_a_password(location: str) -> None:
    # Airflow shows it in rendered templates and in XCom, whatever we do.
    hook = DeltaHook(None)
    for give in (hook.storage_options, hook.table, lambda uri: hook.pin(uri)):
        with pytest.raises(InvalidArgumentError, match="delta_conn_id") as raised:
            give(location)
        assert "hid" not in str(raised.value)


def test_the_command_line_shows_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    fsspec.register_implementation(_Server.protocol, _Server, clobber=True)
    for words in (["describe", LOCATION], ["doctor", LOCATION, "--json"], ["history", LOCATION]):
        assert main(words) == 1
    out, err = capsys.readouterr()
    assert "hid" not in out + err
    assert "den@" not in out + err

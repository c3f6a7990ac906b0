from __future__ import annotations

import hashlib
import json
import tarfile
import warnings
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.log.files import checkpoint_path
from airflow_delta.engine.log.last_checkpoint import (
    LastCheckpointHint,
    json_checksums,
    read_last_checkpoint,
    write_last_checkpoint,
)
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.log.logs import make_log
from tests.faulty_storage import Fault, FaultyStorage

PATH = "_delta_log/_last_checkpoint"


def holding(content: bytes) -> MemoryStorage:
    storage = make_log([])
    storage.replace(PATH, content)
    return storage


def test_the_checksum_of_the_specification():
    sample = (
        """{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": """
        """["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}"""
    )
    digest = "6a92d155a59bf2eecbd4b4ec7fd1f875"
    assert json_checksums(sample) == (digest, digest)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        # The rules of "JSON checksum", with its own examples where it has one.
        (
            '{"a": 10, "b": {"y": null, "x": "https://delta.io"} }',
            '"a"=10,"b"+"x"="https%3A%2F%2Fdelta.io","b"+"y"=null',
        ),
        ('{"k":[null, "hi ho", 2.71]}', '"k"+0=null,"k"+1="hi%20ho","k"+2=2.71'),
        ('{"k1": "v1", "checksum": "<anything>", "k3": 23}', '"k1"="v1","k3"=23'),
        ('{"a":{"checksum":1}}', '"a"+"checksum"=1'),
        ('{"a":true,"b":false}', '"a"=true,"b"=false'),
        ('{"a":{},"b":[],"c":1}', '"c"=1'),
        ('{"b":1.50,"a":1e3,"c":-0}', '"a"=1e3,"b"=1.50,"c"=-0'),
        ('{"a b":"-._~é>"}', '"a%20b"="-._~%C3%A9%3E"'),
    ],
)
def test_the_canonical_form_is_that_of_the_protocol(text, canonical):
    digest = hashlib.md5(canonical.encode()).hexdigest()
    assert json_checksums(text) == (digest, digest)


ELEVEN = {
    "version": 4,
    "size": 9,
    "v2Checkpoint": {"nonFileActions": [{"protocol": {"writerFeatures": [*"abcdefghijk"]}}]},
}


def digest_of_eleven(*, spark: bool) -> str:
    """Both orders written out: paths with eleven elements are where they part."""
    prefix = '"v2Checkpoint"+"nonFileActions"+0+"protocol"+"writerFeatures"'
    order = [0, 10, *range(1, 10)] if spark else [0, 1, 10, *range(2, 10)]
    features = [f'{prefix}+{index}="{"abcdefghijk"[index]}"' for index in order]
    return hashlib.md5(",".join(['"size"=9', *features, '"version"=4']).encode()).hexdigest()


@pytest.mark.parametrize("spark", [True, False])
def test_both_sort_orders_are_accepted(spark):
    content = json.dumps({**ELEVEN, "checksum": digest_of_eleven(spark=spark)})
    hint = read_last_checkpoint(holding(content.encode()))
    assert hint is not None
    assert hint.version == 4


def test_spark_order_is_written():
    hint = LastCheckpointHint(4, 9, v2_checkpoint=ELEVEN["v2Checkpoint"])
    assert json.loads(hint.to_json())["checksum"] == digest_of_eleven(spark=True)
    assert digest_of_eleven(spark=True) != digest_of_eleven(spark=False)


def test_every_checksum_that_spark_wrote_is_confirmed(golden_root: Path):
    """Files of Delta Spark, schemas of nested types and embedded actions among them."""
    confirmed = 0
    for archive in sorted((golden_root / "cases").glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.endswith("_last_checkpoint"):
                    file = tar.extractfile(member)
                    assert file is not None
                    content = file.read()
                    if b'"checksum"' in content:
                        stored = json.loads(content)["checksum"]
                        assert stored in json_checksums(content.decode()), archive.name
                        assert read_last_checkpoint(holding(content)) is not None
                        confirmed += 1
    assert confirmed > 20


def test_a_hint_round_trips():
    written = LastCheckpointHint(
        version=7,
        size=21,
        parts=3,
        size_in_bytes=1000,
        num_of_add_files=5,
        checkpoint_schema={"type": "struct", "fields": []},
        v2_checkpoint={"path": "é.json"},
        tags={"a": "b c"},
    )
    storage = make_log([])
    assert write_last_checkpoint(storage, written)
    found = read_last_checkpoint(storage)
    assert found is not None
    assert found.checksum is not None
    assert (
        LastCheckpointHint(
            **{
                name: getattr(found, name)
                for name in found.__dataclass_fields__
                if name != "checksum"
            }
        )
        == written
    )


def test_version_size_and_parts_come_first_and_the_checksum_last():
    text = LastCheckpointHint(7, 21, parts=3, size_in_bytes=9, tags={}).to_json()
    assert text.startswith('{"version":7,"size":21,"parts":3,')
    assert list(json.loads(text))[-1] == "checksum"
    assert "\n" not in text


@pytest.mark.parametrize("content", [None, b"", b" \n\n"])
def test_missing_and_empty_say_nothing(content):
    storage = make_log([]) if content is None else holding(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_last_checkpoint(storage) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{bad", "not valid JSON"),
        (b'{"version":1', "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"version":1,"size":NaN}', "NaN"),
        (b"[1]", "list where an object"),
        (b'{"size":1}', "version is missing"),
        (b'{"version":1}', "size is missing"),
        (b'{"version":"1","size":1}', "version is of type str"),
        (b'{"version":true,"size":1}', "version is of type bool"),
        (b'{"version":1.0,"size":1}', "version is of type float"),
        (b'{"version":-1,"size":1}', "-1 is no version"),
        (b'{"version":9223372036854775808,"size":1}', "is no version"),
        (b'{"version":1,"size":1,"parts":"2"}', "parts is of type str"),
        (b'{"version":1,"version":2,"size":1}', "duplicate key"),
        (b'{"version":1,"size":1,"tags":{"a":"1","a":"2"}}', "duplicate key"),
        (b'{"version":1,"size":1,"checksum":"0"}', "checksum isn't that of its content"),
        (b'{"version":1,"size":1,"tags":{"a":"\\ud800"},"checksum":"0"}', "can't be computed"),
    ],
)
def test_what_can_not_be_relied_on_is_reported_and_ignored(content, reason):
    with pytest.warns(DeltaWarning, match="_last_checkpoint is ignored") as caught:
        assert read_last_checkpoint(holding(content)) is None
    assert reason in str(caught[0].message)


@pytest.mark.parametrize(
    "content",
    [
        b'{"version":5,"size":-1}',
        b'{"version":5,"size":1}\n{bad',
        b'{"version":5,"size":1}\r\n',
        b'{"version":5,"size":1,"checkpointSchema":null,"fromTheFuture":{"a":[1]}}',
        '{"version":5,"size":1,"tags":{"é":"ü"}}'.encode(),
    ],
)
def test_only_the_first_line_and_the_known_fields_count(content):
    hint = read_last_checkpoint(holding(content))
    assert hint is not None
    assert hint.version == 5


def version_on_disk(storage: MemoryStorage) -> Any:
    return json.loads(storage.read(PATH))["version"]


@pytest.mark.parametrize(
    ("present", "new", "log_end", "after"),
    [
        (5, 6, None, 6),
        (5, 5, None, 5),
        (5, 4, None, 5),
        (5, 4, 5, 5),
        (5, 4, 9, 5),
        # A hint past the end of the log is wrong, and readers stumble over it until it is replaced.
        (99, 4, 9, 4),
        (1, 0, 0, 0),
    ],
)
def test_writing_never_goes_backwards_within_the_log(present, new, log_end, after):
    storage = holding(LastCheckpointHint(present, 1).to_json().encode())
    written = write_last_checkpoint(
        storage, LastCheckpointHint(new, 2), log_end=None if log_end is None else lambda: log_end
    )
    assert version_on_disk(storage) == after
    assert json.loads(storage.read(PATH))["size"] == (2 if written else 1)


def test_of_writers_at_once_the_newest_has_the_last_word():
    """Each of two others comes between our look at the hint and our put; one of them dies before his."""
    inner = make_log([])
    parts = [f"_delta_log/{7:020}.checkpoint.{part:010}.{2:010}.parquet" for part in (1, 2)]

    def finishes():
        inner.create(checkpoint_path(6), b"6")
        assert write_last_checkpoint(inner, LastCheckpointHint(6, 60))

    def dies():
        for path in parts:
            inner.create(path, b"7")

    storage = FaultyStorage(
        inner,
        Fault("replace", 1, suffix=PATH, meanwhile=finishes),
        Fault("replace", 2, suffix=PATH, meanwhile=dies),
    )
    assert write_last_checkpoint(storage, LastCheckpointHint(5, 50))
    hint = read_last_checkpoint(inner)
    assert (hint.version, hint.parts, hint.size) == (7, 2, -1)
    assert storage.count("replace") == 3


def test_a_newer_hint_that_comes_in_between_is_kept():
    inner = make_log([])

    def finishes():
        inner.create(checkpoint_path(6), b"6")
        assert write_last_checkpoint(inner, LastCheckpointHint(6, 60))

    look = Fault("list", 1, meanwhile=finishes)
    assert write_last_checkpoint(FaultyStorage(inner, look), LastCheckpointHint(5, 50))
    assert read_last_checkpoint(inner).size == 60


@pytest.mark.parametrize("content", [b"", b"{bad", b'{"version":9,"size":1,"checksum":"0"}'])
def test_writing_repairs_what_can_not_be_relied_on(content):
    storage = holding(content)
    assert write_last_checkpoint(storage, LastCheckpointHint(4, 1))
    assert version_on_disk(storage) == 4

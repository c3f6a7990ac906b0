from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_delta.engine.checkpoint.layout import checkpoint_schema, file_structs, null_structs
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.checkpoint.write import write_classic_checkpoint
from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.log.files import (
    Checkpoint,
    ClassicCheckpoint,
    MultipartCheckpoint,
    V2Checkpoint,
    parse_log_file,
    v2_checkpoint_path,
)
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.model.actions import CheckpointMetadata
from airflow_delta.engine.storage.base import FileInfo
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.checkpoint.contents import (
    METADATA,
    add_row,
    add_table,
    content,
    memory,
    remove_row,
    remove_table,
)

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
PROTOCOL_JSON = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["v2Checkpoint"],
    "writerFeatures": ["v2Checkpoint"],
}
SIDECAR = pa.struct(
    [
        ("path", pa.string()),
        ("sizeInBytes", pa.int64()),
        ("modificationTime", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)
CHECKPOINT_METADATA = pa.struct([("version", pa.int64())])
PROTOCOL = checkpoint_schema().field("protocol").type


def paths(tables: Any) -> list[str]:
    return [path for table in tables for path in table["path"].to_pylist()]


def sidecar_bytes(add_numbers: Sequence[int], remove_numbers: Sequence[int] = ()) -> bytes:
    schema = pa.schema([checkpoint_schema().field("add"), checkpoint_schema().field("remove")])
    add_type, remove_type = schema.field("add").type, schema.field("remove").type
    live = file_structs(add_table([add_row(n) for n in add_numbers]), add_type)
    gone = file_structs(remove_table([remove_row(n) for n in remove_numbers]), remove_type)
    columns = [
        pa.chunked_array([*live.chunks, null_structs(len(gone), add_type)]),
        pa.chunked_array([null_structs(len(live), remove_type), *gone.chunks]),
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), buffer)
    return buffer.getvalue()


def put_sidecar(storage: MemoryStorage, name: str, data: bytes, path: str | None = None) -> Any:
    storage.create(f"_delta_log/_sidecars/{name}", data)
    return {
        "path": path or name,
        "sizeInBytes": len(data),
        "modificationTime": 1_700_000_000_000,
        "tags": {"t": None},
    }


def put_json(
    storage: MemoryStorage, actions: Sequence[dict[str, Any]], version: int = 7
) -> V2Checkpoint:
    path = v2_checkpoint_path(version, UUID, "json")
    storage.create(path, "\n".join(map(json.dumps, actions)).encode())
    checkpoint = checkpoint_at(storage, path)
    assert isinstance(checkpoint, V2Checkpoint)
    return checkpoint


def checkpoint_at(storage: MemoryStorage, path: str) -> Any:
    return parse_log_file(storage.head(path))


def put_parquet(storage: MemoryStorage, sidecars: list[Any], path: str, version: int = 7) -> Any:
    """A V2 checkpoint in Parquet, all of whose file actions are in sidecars."""
    rows = 2 + len(sidecars)
    stored = [{**sidecar, "tags": list(sidecar["tags"].items())} for sidecar in sidecars]
    table = pa.table(
        {
            "checkpointMetadata": pa.array(
                [{"version": version}] + [None] * (rows - 1), CHECKPOINT_METADATA
            ),
            "protocol": pa.array([None, PROTOCOL_JSON] + [None] * (rows - 2), PROTOCOL),
            "sidecar": pa.array([None, None, *stored], SIDECAR),
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    storage.create(path, buffer.getvalue())
    return checkpoint_at(storage, path)


def test_a_classic_checkpoint_gives_back_what_was_written() -> None:
    storage = memory()
    added = add_table([add_row(1), add_row(2)])
    removed = remove_table([remove_row(8)])
    given = content(adds=[added], removes=[removed])
    result = write_classic_checkpoint(storage, given, version=7, table="t")
    checkpoint = checkpoint_at(storage, result.path)
    assert isinstance(checkpoint, ClassicCheckpoint)
    reader = open_checkpoint(storage, checkpoint, table="t")
    assert (reader.version, reader.path) == (7, result.path)
    assert reader.metadata is None
    assert reader.sidecars == ()
    assert reader.non_file_actions() == [
        ("protocol", given.protocol.to_json()),
        ("metaData", METADATA.to_json()),
        *(("txn", txn.to_json()) for txn in given.transactions),
        *(("domainMetadata", domain.to_json()) for domain in given.domains),
    ]
    (live,) = reader.adds()
    (gone,) = reader.removes()
    assert live.drop_columns("dataChange").equals(added.drop_columns("dataChange"))
    assert gone.drop_columns("dataChange").equals(removed.drop_columns("dataChange"))
    assert not any(live["dataChange"].to_pylist())


def test_all_parts_of_a_multipart_checkpoint_are_read() -> None:
    storage = memory()
    parts = []
    for part, numbers in enumerate(([1, 2], [3], []), start=1):
        path = f"_delta_log/{7:020}.checkpoint.{part:010}.{3:010}.parquet"
        storage.create(path, sidecar_bytes(numbers, numbers))
        parts.append(storage.head(path))
    reader = open_checkpoint(storage, MultipartCheckpoint(7, tuple(parts)), table="t")
    assert reader.non_file_actions() == []
    assert paths(reader.adds(["size"])) == [add_row(n)["path"] for n in (1, 2, 3)]
    assert paths(reader.removes()) == [remove_row(n)["path"] for n in (1, 2, 3)]


@pytest.mark.parametrize("form", ["json", "parquet", "classic"])
def test_sidecars_are_followed_from_every_kind_of_top_level(form: str) -> None:
    storage = memory()
    sidecars = [
        put_sidecar(storage, "a.parquet", sidecar_bytes([1, 2], [8])),
        put_sidecar(storage, "b.parquet", sidecar_bytes([3])),
    ]
    if form == "json":
        checkpoint: Checkpoint = put_json(
            storage,
            [
                {"checkpointMetadata": {"version": 7, "tags": {}}},
                {"protocol": PROTOCOL_JSON},
                *({"sidecar": sidecar} for sidecar in sidecars),
            ],
        )
    elif form == "parquet":
        checkpoint = put_parquet(storage, sidecars, v2_checkpoint_path(7, UUID, "parquet"))
    else:
        checkpoint = put_parquet(storage, sidecars, f"_delta_log/{7:020}.checkpoint.parquet")
    reader = open_checkpoint(storage, checkpoint, table="t")
    assert paths(reader.adds()) == [add_row(n)["path"] for n in (1, 2, 3)]
    assert paths(reader.removes()) == [remove_row(8)["path"]]
    assert reader.metadata is not None
    assert reader.metadata.version == 7
    assert [sidecar.path for sidecar in reader.sidecars] == ["a.parquet", "b.parquet"]
    assert ("protocol", PROTOCOL_JSON) in reader.non_file_actions()


def test_file_actions_may_stand_in_the_lines_themselves() -> None:
    storage = memory()
    file_actions = [
        {"add": {**add_row(n), "partitionValues": {"p": "x"}, "tags": {"a": "b"}}} for n in (1, 2)
    ]
    checkpoint = put_json(
        storage,
        [
            {"checkpointMetadata": {"version": 7}},
            file_actions[0],
            {"metaData": METADATA.to_json()},
            file_actions[1],
            {"remove": {**remove_row(3), "partitionValues": {"p": "x"}}},
        ],
    )
    reader = open_checkpoint(storage, checkpoint, table="t")
    assert reader.metadata == CheckpointMetadata(7)
    assert reader.non_file_actions()[1] == ("metaData", METADATA.to_json())
    (live,) = reader.adds()
    assert [row["tags"] for row in live.to_pylist()] == [[("a", "b")]] * 2
    assert paths([live]) == [add_row(1)["path"], add_row(2)["path"]]
    (narrow,) = reader.adds(["size"])
    assert narrow.column_names == ["path", "size", "deletionVector"]
    assert paths(reader.removes()) == [remove_row(3)["path"]]


@pytest.mark.parametrize(
    "path",
    [
        "side%20car.parquet",
        "file:/data/table/_delta_log/_sidecars/side%20car.parquet",
        "s3://bucket/table/_delta_log/_sidecars/side%20car.parquet",
        "_delta_log/_sidecars/side%20car.parquet",
    ],
)
def test_sidecar_paths_are_decoded_and_may_be_long(path: str) -> None:
    storage = memory()
    sidecar = put_sidecar(storage, "side car.parquet", sidecar_bytes([1]), path)
    checkpoint = put_json(storage, [{"checkpointMetadata": {"version": 7}}, {"sidecar": sidecar}])
    assert len(paths(open_checkpoint(storage, checkpoint, table="t").adds())) == 1


@pytest.mark.parametrize(
    "path", ["../a.parquet", "/elsewhere/a.parquet", "x_delta_log/_sidecars/a", ""]
)
def test_sidecars_elsewhere_are_refused(path: str) -> None:
    storage = memory()
    sidecar = {"path": path, "sizeInBytes": 1, "modificationTime": 1}
    checkpoint = put_json(storage, [{"checkpointMetadata": {"version": 7}}, {"sidecar": sidecar}])
    with pytest.raises(CorruptLogError, match="expected a file in _delta_log/_sidecars"):
        paths(open_checkpoint(storage, checkpoint, table="t").adds())


def test_a_missing_sidecar_is_damage_to_the_checkpoint_and_named() -> None:
    storage = memory()
    there = put_sidecar(storage, "a.parquet", sidecar_bytes([1]))
    gone = put_sidecar(storage, "b.parquet", sidecar_bytes([2]))
    storage.delete(["_delta_log/_sidecars/b.parquet"])
    checkpoint = put_parquet(storage, [there, gone], v2_checkpoint_path(7, UUID, "parquet"))
    reader = open_checkpoint(storage, checkpoint, table="t")
    assert len(reader.non_file_actions()) == 4
    with pytest.raises(
        CorruptLogError, match=r"sidecar _delta_log/_sidecars/b\.parquet is missing"
    ):
        paths(reader.adds())


@pytest.mark.parametrize(
    "spelling",
    ["%61.parquet", "_delta_log/_sidecars/a.parquet", "s3://b/t/_delta_log/_sidecars/%61.parquet"],
)
def test_a_sidecar_that_is_named_twice_is_damage(spelling: str) -> None:
    """However it is spelled: its files would count twice."""
    storage = memory()
    there = put_sidecar(storage, "a.parquet", sidecar_bytes([1]))
    first: dict[str, Any] = {"checkpointMetadata": {"version": 7}}
    other = {"sidecar": {**there, "path": spelling}}
    checkpoint = put_json(storage, [first, {"sidecar": there}, other])
    with pytest.raises(CorruptLogError, match="names a sidecar twice"):
        paths(open_checkpoint(storage, checkpoint, table="t").adds())
    storage.delete([checkpoint.path])
    once = put_json(storage, [first, other])
    assert len(paths(open_checkpoint(storage, once, table="t").adds())) == 1


def test_a_missing_checkpoint_is_missing() -> None:
    gone = ClassicCheckpoint(7, f"_delta_log/{7:020}.checkpoint.parquet", 10, 0)
    with pytest.raises(ObjectNotFoundError, match="checkpoint"):
        open_checkpoint(memory(), gone, table="t").non_file_actions()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([{"checkpointMetadata": {"version": 8}}], "of version 8, expected 7"),
        ([{"checkpointMetadata": {"version": 7}}] * 2, "more than one checkpointMetadata action"),
        ([{"protocol": PROTOCOL_JSON}], "no checkpointMetadata"),
        ([{"checkpointMetadata": {}}], r"checkpointMetadata\.version"),
        (
            [{"checkpointMetadata": {"version": 7}}, {"sidecar": {"path": "a"}}],
            r"sidecar\.sizeInBytes",
        ),
        ([{"checkpointMetadata": {"version": 7}}, {"add": 5}], "file actions is wrong"),
    ],
)
def test_a_v2_checkpoint_that_breaks_its_rules_is_damage(actions: Any, message: str) -> None:
    storage = memory()
    reader = open_checkpoint(storage, put_json(storage, actions), table="t")
    with pytest.raises(CorruptLogError, match=message):
        paths(reader.adds())


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[1]",
        b'{"checkpointMetadata": {"version": 7}}\n\x00',
        b'{"novel":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["open", "list", "zero", "deep"],
)
def test_broken_lines_are_damage(text: bytes) -> None:
    storage = memory()
    path = v2_checkpoint_path(7, UUID, "json")
    storage.create(path, text)
    with pytest.raises(CorruptLogError, match=f"{path} is damaged: line"):
        open_checkpoint(storage, checkpoint_at(storage, path), table="t").non_file_actions()


def test_an_action_beside_a_null_is_found() -> None:
    storage = memory()
    path = v2_checkpoint_path(7, UUID, "json")
    kinds = [("checkpointMetadata", {"version": 7}), ("protocol", PROTOCOL_JSON)]
    rows = [f'{{"add":null,"{kind}":{json.dumps(value)}}}' for kind, value in kinds]
    storage.create(path, "\n".join([*rows, '{"remove":null}', '{"add":{}']).encode())
    reader = open_checkpoint(storage, checkpoint_at(storage, path), table="t")
    assert list(reader.non_file_actions()) == kinds


def naive_rows(root: Path, checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The actions of a checkpoint by the plainest means: every file as Python objects."""

    def rows(path: str) -> list[dict[str, Any]]:
        if path.endswith(".json"):
            return [json.loads(line) for line in (root / path).read_text().splitlines() if line]
        file = pq.ParquetFile(root / path)
        names = [name for name in file.schema_arrow.names if name != "commitInfo"]
        found: list[dict[str, Any]] = file.read(columns=names).to_pylist()
        return found

    actions = [row for file in checkpoint.files for row in rows(file.path)]
    sidecars = [row["sidecar"]["path"] for row in actions if row.get("sidecar")]
    return actions + [
        row for path in sidecars for row in rows(f"_delta_log/_sidecars/{path.split('/')[-1]}")
    ]


@pytest.mark.parametrize(
    "case",
    [
        "checkpoint-v2-table",
        "delta-0.2.0",
        "app-txn-checkpoint",
        "basic-dv-with-checkpoint",
        "parquet_row_group_skipping",
        "table-with-domain-metadata",
        "v1-multi-part-partitioned-struct-stats-only",
        "v2-checkpoint-parquet",
        "v2-checkpoints-json-with-sidecars",
        "v2-checkpoints-json-without-sidecars",
        "v2-classic-checkpoint-json",
    ],
)
def test_checkpoints_of_other_engines_read_as_plain_parquet_does(
    golden_case: Callable[[str], Path], case: str
) -> None:
    root = golden_case(case)
    checkpoints = list_log(LocalStorage(str(root))).checkpoints
    assert checkpoints
    for checkpoint in checkpoints:
        reader = open_checkpoint(LocalStorage(str(root)), checkpoint, table=str(root))
        naive = naive_rows(root, checkpoint)
        kinds = Counter(
            kind
            for row in naive
            for kind, value in row.items()
            if value is not None and kind not in ("add", "remove")
        )
        assert Counter(kind for kind, _ in reader.non_file_actions()) == kinds
        for kind, tables in (("add", reader.adds()), ("remove", reader.removes())):
            found = [row for table in tables for row in table.to_pylist()]
            expected = [row[kind] for row in naive if row.get(kind)]
            assert len(found) == len(expected)
            for ours, theirs in zip(found, expected, strict=True):
                for name in ("path", "size", "modificationTime", "deletionTimestamp"):
                    assert ours.get(name) == theirs.get(name)
                assert dict(ours["partitionValues"] or ()) == dict(
                    theirs.get("partitionValues") or ()
                )


def test_reading_stops_when_the_caller_does() -> None:
    storage = memory()
    sidecars = [
        put_sidecar(storage, f"{number}.parquet", sidecar_bytes([number])) for number in range(5)
    ]
    broken = [f"broken{number}" for number in range(40)]
    for name in broken:
        storage.create(f"_delta_log/_sidecars/{name}", b"x")
        sidecars.append({"path": name, "sizeInBytes": 1, "modificationTime": 1, "tags": {}})
    checkpoint = put_parquet(storage, sidecars, v2_checkpoint_path(7, UUID, "parquet"))
    tables = open_checkpoint(storage, checkpoint, table="t").adds()
    assert paths([next(tables)]) == [add_row(0)["path"]]
    assert isinstance(tables, Generator)
    tables.close()


def test_file_infos_of_parts_are_enough() -> None:
    storage = memory()
    result = write_classic_checkpoint(storage, content(), version=7, table="t")
    modified_ms = storage.head(result.path).modified_ms
    checkpoint = ClassicCheckpoint(7, result.path, result.size_in_bytes, modified_ms)
    assert checkpoint.files == (FileInfo(result.path, result.size_in_bytes, modified_ms),)
    assert len(paths(open_checkpoint(storage, checkpoint, table="t").adds())) == 3


OPEN = """
import json, sys
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.storage.local import LocalStorage
storage = LocalStorage(sys.argv[1])
for checkpoint in list_log(storage).checkpoints:
    reader = open_checkpoint(storage, checkpoint, table="t")
    print(json.dumps([reader.non_file_actions(), len(reader.sidecars)]))
print(*sorted({"pyarrow", "numpy"} & set(sys.modules)))
"""


def opened(root: Path) -> tuple[list[Any], str]:
    """What a fresh interpreter finds in the checkpoint of a table, and what it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(root)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    actions, loaded = done.stdout.removesuffix("\n").split("\n")
    return json.loads(actions), loaded


def put_own(root: Path) -> None:
    write_classic_checkpoint(LocalStorage(str(root)), content(), version=7, table="t")


def put_top_level(root: Path) -> None:
    storage = MemoryStorage(f"memory://{root}")
    sidecar = put_sidecar(storage, "a.parquet", sidecar_bytes([1, 2]))
    put_json(storage, [{"checkpointMetadata": {"version": 7}}, {"sidecar": sidecar}])
    for file in storage.walk(""):
        LocalStorage(str(root)).create(file.path, storage.read(file.path))


def put_json_with_files(root: Path) -> None:
    lines = [
        {"checkpointMetadata": {"version": 7}},
        {"add": {"path": "a"}},
        {"protocol": PROTOCOL_JSON},
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    LocalStorage(str(root)).create(v2_checkpoint_path(7, UUID, "json"), content)


@pytest.mark.parametrize("put", [put_own, put_top_level, put_json_with_files])
def test_non_file_actions_are_read_without_pyarrow(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    # Importing it takes longer than opening a table.
    put(tmp_path)
    (found, num_sidecars), loaded = opened(tmp_path)
    assert loaded == ""
    (checkpoint,) = list_log(LocalStorage(str(tmp_path))).checkpoints
    reader = open_checkpoint(LocalStorage(str(tmp_path)), checkpoint, table="t")
    assert [(kind, value) for kind, value in found] == reader.non_file_actions()
    assert num_sidecars == len(reader.sidecars)


def test_checkpoints_of_deltalake_are_opened_without_pyarrow(sales_copy: Path) -> None:
    DeltaTable(str(sales_copy)).create_checkpoint()
    (found, _), loaded = opened(sales_copy)
    assert loaded == ""
    assert {kind for kind, _ in found} >= {"protocol", "metaData"}


def test_adds_and_removes_are_compressed_and_nothing_else() -> None:
    storage = memory()
    properties = {"delta.checkpoint.writeStatsAsStruct": "true"}
    given = content(metadata=replace(METADATA, configuration=properties))
    path = write_classic_checkpoint(storage, given, version=7, table="t").path
    footer = pq.read_metadata(io.BytesIO(storage.read(path)))
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            chunk = footer.row_group(group).column(number)
            of_files = chunk.path_in_schema.startswith(("add.", "remove."))
            assert chunk.compression == ("ZSTD" if of_files else "UNCOMPRESSED")
    leaves = {footer.schema.column(number).path for number in range(footer.num_columns)}
    assert {"add.stats_parsed.minValues.id", "add.partitionValues_parsed.p"} <= leaves


def with_codec(data: bytes, compression: str) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(data)), buffer, compression=compression)
    return buffer.getvalue()


def test_what_only_pyarrow_can_read_is_read_with_it() -> None:
    storage = memory()
    path = write_classic_checkpoint(storage, content(), version=7, table="t").path
    plain = open_checkpoint(storage, checkpoint_at(storage, path), table="t").non_file_actions()
    storage.replace(path, with_codec(storage.read(path), "zstd"))
    packed = open_checkpoint(storage, checkpoint_at(storage, path), table="t").non_file_actions()
    assert packed == plain


def test_damage_is_told_as_pyarrow_finds_it() -> None:
    storage = memory()
    path = write_classic_checkpoint(storage, content(), version=7, table="t").path
    storage.replace(path, storage.read(path)[:-1])
    with pytest.raises(CorruptLogError, match=rf"{path} is damaged: it can't be read as Parquet"):
        open_checkpoint(storage, checkpoint_at(storage, path), table="t").non_file_actions()

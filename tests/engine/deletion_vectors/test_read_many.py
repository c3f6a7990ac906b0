from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pyroaring import BitMap64

from airflow_delta.engine.deletion_vectors import file_format, roaring, z85
from airflow_delta.engine.deletion_vectors.read import get_relative_path, read_deletion_vectors
from airflow_delta.engine.errors import DeletionVectorError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.storage.base import Capabilities, Storage
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.local import LocalStorage

NAMES = ["^-aqEH.-t@S}K{vb[*k^", "ab^-aqEH.-t@S}K{vb[*k^", "vBn[lx{q8@P<9BNH/isA"]


@dataclass(frozen=True)
class Counting(LocalStorage):
    """Tells what is read; as remote as a test needs it."""

    remote: bool = False
    reads: list[tuple[str, int]] = field(default_factory=list)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, remote=self.remote)

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append((path, start))
        return super().read(path, start=start, length=length)


def written(
    storage: LocalStorage, encoded: str, vectors: list[BitMap64], *, gap: int = 0
) -> list[DeletionVectorDescriptor]:
    """The descriptors of vectors in a new file, with bytes of no vector between them."""
    data, found = b"\x01", []
    for rows in vectors:
        content = roaring.serialize(rows)
        found.append(DeletionVectorDescriptor("u", encoded, len(data), len(content), len(rows)))
        data += file_format.frame(content) + bytes(gap)
    storage.replace(get_relative_path(found[0]), data)
    return found


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("gap", [0, 3, 70_000])
def test_vectors_of_many_files_in_any_order(tmp_path: Path, gap: int, remote: bool) -> None:
    chance = random.Random(gap)
    storage = Counting(str(tmp_path), remote=remote)
    wanted = [BitMap64(chance.sample(range(10**6), chance.randrange(50))) for _ in range(60)]
    descriptors = [
        descriptor
        for part, name in enumerate(NAMES)
        for descriptor in written(storage, name, wanted[20 * part : 20 * part + 20], gap=gap)
    ]
    absolute = [
        replace(d, storage_type="p", path_or_inline_dv=f"file:{tmp_path}/{get_relative_path(d)}")
        for d in descriptors[:20]
    ]
    data = roaring.serialize(wanted[7])
    text = z85.encode(data + bytes(-len(data) % 4))
    inline = DeletionVectorDescriptor("i", text, None, len(data), len(wanted[7]))
    pairs = list(
        zip(
            [*descriptors, *absolute, inline, *descriptors[:3]],
            [*wanted, *wanted[:20], wanted[7], *wanted[:3]],
            strict=True,
        )
    )
    chance.shuffle(pairs)
    found = read_deletion_vectors(
        [descriptor for descriptor, _ in pairs],
        storage,
        table="t",
        open_uri=FileAccess(storage).locate,
    )
    assert found == [rows for _, rows in pairs]
    if gap < 70_000:
        # The first file is read once more, for those that name it by its absolute path.
        files = [get_relative_path(d) for d in (descriptors[0], *descriptors[::20])]
        assert sorted(storage.reads) == sorted((path, 0) for path in files)


@pytest.mark.parametrize("remote", [False, True])
def test_a_damaged_vector_is_named_among_others(tmp_path: Path, remote: bool) -> None:
    storage = Counting(str(tmp_path), remote=remote)
    vectors = [BitMap64([n]) for n in range(30)]
    first, second = (written(storage, name, vectors) for name in NAMES[:2])
    path = tmp_path / get_relative_path(second[17])
    data = bytearray(path.read_bytes())
    assert second[17].offset is not None
    data[second[17].offset + 20] ^= 1
    path.write_bytes(data)
    message = rf"vector at offset {second[17].offset} of {get_relative_path(second[17])} .*CRC-32"
    with pytest.raises(DeletionVectorError, match=message) as caught:
        read_deletion_vectors([*first, *second], storage, table="t")
    assert caught.value.offset == second[17].offset


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cardinality": 2}, "holds 1 positions, its descriptor states 2"),
        ({"offset": 0}, "offset 0"),
        ({"offset": 2**31}, "numbers of 32 bits"),
        ({"size_in_bytes": -8}, "size -8"),
        ({"size_in_bytes": 2**63 - 1}, "numbers of 32 bits"),
        ({"size_in_bytes": 35}, "doesn't state the descriptor's size of 35 bytes"),
        ({"offset": 10_000}, "cut off: found 0"),
        ({"path_or_inline_dv": "short"}, "holds no UUID"),
        ({"path_or_inline_dv": NAMES[2]}, "put the file back"),
        ({"storage_type": "i"}, "decodes to"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_descriptor_among_others(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    storage = LocalStorage(str(tmp_path))
    descriptors = written(storage, NAMES[0], [BitMap64([n]) for n in range(30)])
    descriptors[11] = replace(descriptors[11], **change)  # type: ignore[arg-type]
    with pytest.raises(DeletionVectorError, match=message) as caught:
        read_deletion_vectors(descriptors, storage, table="t")
    assert caught.value.offset == descriptors[11].offset


def test_a_file_of_another_version_is_refused_though_its_vectors_are_far_behind(
    tmp_path: Path,
) -> None:
    storage = Counting(str(tmp_path))
    descriptors = written(storage, NAMES[0], [BitMap64([n]) for n in range(5)], gap=100_000)
    path = tmp_path / get_relative_path(descriptors[0])
    path.write_bytes(b"\x02" + path.read_bytes()[1:])
    with pytest.raises(
        DeletionVectorError, match=r"offset 400\d\d\d of .* found a file of another format"
    ):
        read_deletion_vectors(descriptors[4:], storage, table="t")


@pytest.mark.parametrize("remote", [False, True])
def test_a_second_file_of_another_version_is_named(tmp_path: Path, remote: bool) -> None:
    storage = Counting(str(tmp_path), remote=remote)
    vectors = [BitMap64([n]) for n in range(5)]
    first, second = (written(storage, name, vectors, gap=100_000) for name in NAMES[:2])
    path = tmp_path / get_relative_path(second[0])
    path.write_bytes(b"\x02" + path.read_bytes()[1:])
    message = f"offset {second[3].offset} of {get_relative_path(second[0])}"
    with pytest.raises(DeletionVectorError, match=message):
        read_deletion_vectors([*first, *second[3:]], storage, table="t")
    path.unlink()
    with pytest.raises(DeletionVectorError, match=message):
        read_deletion_vectors([*first, *second[3:]], storage, table="t")


@dataclass(frozen=True)
class Meeting(Counting):
    """Reads go on only when there are two at a time."""

    remote: bool = True
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=20))

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        self.barrier.wait()
        return super().read(path, start=start, length=length)


def test_a_remote_store_is_asked_for_several_parts_at_a_time(tmp_path: Path) -> None:
    storage = Meeting(str(tmp_path))
    wanted = [BitMap64([n]) for n in range(2)]
    descriptors = [written(storage, NAMES[n], [wanted[n]])[0] for n in range(2)]
    assert read_deletion_vectors(descriptors, storage, table="t") == wanted


def test_storages_elsewhere_are_one_for_each_place(tmp_path: Path) -> None:
    """Each has connections of its own: a table may have thousands of such files."""
    elsewhere, opened = LocalStorage(str(tmp_path)), []
    read_from = set()

    class Opened(Counting):
        def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
            read_from.add(id(self))
            return super().read(path, start=start, length=length)

    def open_uri(uri: str) -> tuple[Storage, str]:
        opened.append(Opened(str(tmp_path)))
        return opened[-1], uri.rpartition("/")[2]

    descriptors = []
    for number in range(6):
        name = f"{number}.bin"
        data = roaring.serialize(BitMap64([number]))
        elsewhere.replace(name, b"\x01" + file_format.frame(data))
        uri = f"memory://elsewhere/{name}"
        descriptors.append(DeletionVectorDescriptor("p", uri, 1, len(data), 1))
    found = read_deletion_vectors(
        descriptors, LocalStorage(str(tmp_path / "t")), table="t", open_uri=open_uri
    )
    assert found == [BitMap64([number]) for number in range(6)]
    assert (len(opened), len(read_from)) == (6, 1)


def test_no_vectors(tmp_path: Path) -> None:
    assert read_deletion_vectors([], LocalStorage(str(tmp_path)), table="t") == []

from __future__ import annotations

import pytest

from airflow_delta.engine.checkpoint.idempotent_put import open_idempotent_writer, put_idempotently
from airflow_delta.engine.errors import ObjectExistsError, StorageError
from tests.engine.checkpoint.contents import memory
from tests.faulty_storage import Fault, FaultyStorage, How

PATH = "_delta_log/x.checkpoint.parquet"
PIECES = [b"PAR1", b"rows" * 9, b"footer"]
CONTENT = b"".join(PIECES)


def publish(storage: FaultyStorage, *, replaces: bool = False) -> None:
    with open_idempotent_writer(storage, PATH, replaces=replaces) as file:
        for piece in PIECES:
            file.write(piece)
        assert file.tell() == len(CONTENT)


def meeting(content: bytes) -> FaultyStorage:
    """A store in which there is a file when ours is published, and wasn't before."""
    storage = memory()
    appear = Fault("writer", meanwhile=lambda: storage.create(PATH, content))
    return FaultyStorage(storage, appear)


def test_a_file_is_published_whole() -> None:
    storage = FaultyStorage(memory())
    publish(storage)
    assert storage.inner.read(PATH) == CONTENT
    # What is there is looked at only where there is something.
    assert [call.operation for call in storage.calls] == ["writer"]


def test_a_file_that_meets_itself_is_published() -> None:
    publish(meeting(CONTENT))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(CONTENT[:-1] + b"!", id="another end"),
        pytest.param(CONTENT[4:], id="the same end, and shorter"),
        pytest.param(b"rows" + CONTENT, id="the same end, and longer"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_the_file_of_another_writer_is_kept(other: bytes) -> None:
    storage = meeting(other)
    with pytest.raises(ObjectExistsError, match="there is such an object"):
        publish(storage)
    assert storage.inner.read(PATH) == other


def test_a_file_that_is_to_be_replaced_is() -> None:
    storage = meeting(b"damaged")
    publish(storage, replaces=True)
    assert storage.inner.read(PATH) == CONTENT


def test_what_fails_in_the_block_is_no_meeting() -> None:
    """Not even if it looks like one."""
    storage = memory()
    storage.create(PATH, b"")
    with (
        pytest.raises(ObjectExistsError, match="of something else"),
        open_idempotent_writer(storage, PATH, replaces=False),
    ):
        raise ObjectExistsError("of something else", path=PATH)


def test_a_store_that_can_not_be_asked_is_an_error() -> None:
    storage = meeting(CONTENT)
    failing = FaultyStorage(storage, Fault("head", how=How.FAIL))
    with pytest.raises(StorageError, match="the connection broke"):
        publish(failing)


def test_content_that_meets_itself_is_put() -> None:
    storage = memory()
    put_idempotently(FaultyStorage(storage, Fault("create", how=How.REPEAT)), PATH, CONTENT)
    assert storage.read(PATH) == CONTENT
    with pytest.raises(ObjectExistsError, match="there is such an object"):
        put_idempotently(storage, PATH, CONTENT[:-1] + b"!")
    assert storage.read(PATH) == CONTENT

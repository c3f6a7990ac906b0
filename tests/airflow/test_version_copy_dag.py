"""The example DAG that copies, and that of the guide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.copies.marker import MARKER, CopyMarker
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from tests.airflow.maintenance import run_dag
from tests.airflow.test_copy_expiry import LONG_AGO, files_copy
from tests.conftest import write_sales


def load_dag() -> Any:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    assert bag.import_errors == {}
    return bag.dags["delta_version_copy"]


@pytest.mark.deep
def test_a_run_copies_to_a_place_of_its_own(airflow_database: Path, tmp_path: Path) -> None:
    write_sales(tmp_path / "sales", version=2)
    (tmp_path / "pins").mkdir()
    old = files_copy(tmp_path, "pins/sales_20200101T000000", expires=LONG_AGO)
    state, returned = run_dag(
        load_dag(), table_uri=f"{tmp_path}/sales/", target_dir=str(tmp_path / "pins"), keep="P1D"
    )
    assert state == "success"
    told = returned["copy"]
    target = Path(told["target_uri"])
    assert re.fullmatch(r"sales_\d{8}T\d{6}_[0-9a-f-]{36}", target.name)
    assert told["deleted_copies"] == [str(old)]
    assert Peer(target).to_pyarrow_table().num_rows == 30
    marker = CopyMarker.from_json((target / MARKER).read_text())
    assert (marker.expires_at_ms or 0) - (marker.made_at_ms or 0) == 86_400_000


def test_the_dag_of_the_guide_can_be_loaded() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "copy-a-version.md"
    code = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)[0]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, str(page), "exec"), names)
    (operator,) = (
        found for found in names.values() if isinstance(found, TimeTravelSnapshotOperator)
    )
    assert operator.expire_after == "P7D"

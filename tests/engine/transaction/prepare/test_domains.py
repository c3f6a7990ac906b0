"""Who may set which metadata domain: PROTOCOL.md, "Domain Metadata"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.features.clustering import clustering_domain
from airflow_delta.engine.model.actions import DomainMetadata, Protocol
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.domains import check_domains
from airflow_delta.engine.transaction.staged import Actions
from tests.engine.transaction.prepare.attempts import NOW, attempt, file, table, write

FEATURE = ("domainMetadata",)


def setting(name: str, text: str = "{}", *, removed: bool = False) -> dict[str, DomainMetadata]:
    return {name: DomainMetadata(name, text, removed)}


def stored(name: str, text: str) -> dict[str, Any]:
    return {"domainMetadata": DomainMetadata(name, text).to_json()}


def checked(root: Path, protocol: Protocol, domains: dict[str, DomainMetadata]) -> Actions:
    """What the stage makes of a commit that leaves a protocol with fewer features."""
    base = DeltaTable(str(root)).snapshot()
    context = CommitContext(base.table, base.version + 1, NOW, protocol, base.metadata, base)
    return check_domains(Actions(protocol=protocol, domains=domains), context)


def test_a_table_without_the_feature_has_no_domains(tmp_path: Path) -> None:
    table(tmp_path, ())
    with pytest.raises(ConstraintViolationError, match=r"\['mine'\], and the table lacks"):
        attempt(tmp_path, domains=setting("mine"))


def test_users_set_and_remove_their_own(tmp_path: Path) -> None:
    table(tmp_path, FEATURE)
    write(tmp_path, attempt(tmp_path, domains=setting("mine", "1")))
    assert DeltaTable(str(tmp_path)).snapshot().domains["mine"].configuration == "1"
    written = write(tmp_path, attempt(tmp_path, domains=setting("mine", "", removed=True)))
    # The pre-image of the configuration is accurate, whatever was staged.
    assert written["domainMetadata"] == [{"domain": "mine", "configuration": "1", "removed": True}]
    assert not DeltaTable(str(tmp_path)).snapshot().domains


def test_what_is_not_there_is_not_removed(tmp_path: Path) -> None:
    table(tmp_path, FEATURE, stored("other", "1"))
    with pytest.raises(ConstraintViolationError, match=r"'mine', and the table has \['other'\]"):
        attempt(tmp_path, domains=setting("mine", removed=True))


@pytest.mark.parametrize("removed", [False, True])
def test_domains_of_the_protocol_that_nobody_knows_stay_as_they_are(
    tmp_path: Path, removed: bool
) -> None:
    table(tmp_path, FEATURE, stored("delta.later", "1"))
    with pytest.raises(ConstraintViolationError, match="is unknown to the engine"):
        attempt(tmp_path, domains=setting("delta.later", removed=removed))
    write(tmp_path, attempt(tmp_path, adds=(file(),), domains=setting("mine")))
    assert DeltaTable(str(tmp_path)).snapshot().domains.keys() == {"delta.later", "mine"}


@pytest.mark.parametrize("removed", [False, True])
def test_nobody_sets_the_high_water_mark(tmp_path: Path, removed: bool) -> None:
    mark = '{"rowIdHighWaterMark":3}'
    table(tmp_path, (*FEATURE, "rowTracking"), stored("delta.rowTracking", mark))
    with pytest.raises(ConstraintViolationError, match="only the feature rowTracking sets"):
        attempt(tmp_path, domains=setting("delta.rowTracking", mark, removed=removed))


def test_a_domain_of_the_protocol_needs_its_feature(tmp_path: Path) -> None:
    domains = {"delta.clustering": clustering_domain([("id",)])}
    table(tmp_path, FEATURE)
    with pytest.raises(ConstraintViolationError, match="needs the feature clustering"):
        attempt(tmp_path, domains=domains)
    table(tmp_path / "clustered", (*FEATURE, "clustering"))
    attempt(tmp_path / "clustered", domains=domains)


def test_a_domain_of_the_protocol_goes_with_its_feature(tmp_path: Path) -> None:
    clustered = {"domainMetadata": clustering_domain([("id",)]).to_json()}
    table(tmp_path, (*FEATURE, "clustering"), clustered)
    removal = setting("delta.clustering", removed=True)
    with pytest.raises(ConstraintViolationError, match="can't be removed while"):
        attempt(tmp_path, domains=removal)
    without = Protocol(1, 7, None, frozenset(FEATURE))
    # No protocol shrinks yet; the stage knows what to do once one does.
    dropped = checked(tmp_path, without, removal)
    assert dropped.domains["delta.clustering"].removed


def test_all_domains_go_with_the_feature_itself(tmp_path: Path) -> None:
    table(tmp_path, FEATURE, stored("mine", "1"))
    without = Protocol(1, 7, None, frozenset())
    assert checked(tmp_path, without, setting("mine", removed=True)).domains["mine"].removed
    with pytest.raises(ConstraintViolationError, match="lacks the feature domainMetadata"):
        checked(tmp_path, without, setting("mine"))

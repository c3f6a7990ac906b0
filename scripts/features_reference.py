"""Write docs/reference/features.md from the registry, so that both agree."""

from __future__ import annotations

from pathlib import Path

from airflow_delta.engine.features.feature import Drop, Feature
from airflow_delta.engine.features.registry import FEATURES

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "features.md"
HEADER = """\
# Table features

What the engine does with each feature of the protocol. Made by `python scripts/features_reference.py`
from `airflow_delta.engine.features.registry`.

*Read*: tables that support the feature are read. *Append*: data files are committed to them.
*Checkpoint*: checkpoints of them are written. "If enforced" means that while the table uses the
feature, and doesn't just list it, data files are taken only from a writer that declares that it
enforced the feature's rules on its rows; commits without data files need no such declaration. A
feature that isn't here is unknown: tables that ask it of readers are
refused, tables that ask it of writers are read only.

*Dropping*: how a table [gets rid of the feature](../how-to/drop-a-feature.md), or why it can't. "Hidden"
stands for the features whose versions are hidden behind protected checkpoints, or truncated; the
others go at once.

| feature | binds | read | append | checkpoint | what the engine does | dropping |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    rows = (
        f"| `{feature.name}` | {feature.kind.value} | {feature.read.value} | "
        f"{feature.append.value} | {feature.checkpoint.value} | {feature.note} | {_dropping(feature)} |\n"
        for feature in FEATURES.values()
    )
    return HEADER + "".join(rows)


def _dropping(feature: Feature) -> str:
    if not isinstance(feature.drop, Drop):
        return f"no: {feature.drop}"
    return f"hidden: {feature.drop.note}" if feature.drop.hides_history else feature.drop.note


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")

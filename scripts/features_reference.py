"""Write docs/reference/features.md from the registry, so that the page can't say anything else."""

from __future__ import annotations

from pathlib import Path

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

| feature | binds | read | append | checkpoint | what the engine does |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    rows = (
        f"| `{feature.name}` | {feature.kind.value} | {feature.read.value} | "
        f"{feature.append.value} | {feature.checkpoint.value} | {feature.note} |\n"
        for feature in FEATURES.values()
    )
    return HEADER + "".join(rows)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")

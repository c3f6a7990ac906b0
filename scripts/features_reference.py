"""Write docs/reference/features.md from the registry, so that both agree."""

from __future__ import annotations

from pathlib import Path

from airflow_delta.engine.features.feature import Drop, Feature, Support
from airflow_delta.engine.features.registry import FEATURES

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "features.md"
HEADER = """\
# Table features

This page lists what the engine does with each feature of the protocol. It is made from
`airflow_delta.engine.features.registry` by `python -m scripts.features_reference`.

* *Binds*: a writer feature has rules for writers, a reader-writer feature also for readers.
* *Read*: the engine reads tables with the feature.
* *Append*: the engine commits data files to such tables. "If enforced": a table may only list the
  feature, or also use it. If it uses it, the engine accepts data files only from a writer that declares
  that its rows obey the rules of the feature. Commits without data files need no declaration.
* *Spark writer*: [`write`](../how-to/write-with-spark.md), `delete`, `update` and
  [`merge`](../how-to/upsert.md) change rows of such tables, and follow all rules of the feature.
* *Checkpoint*: the engine writes checkpoints of such tables.
* *Dropping*: how the feature is [dropped](../how-to/drop-a-feature.md), or why it can't be. *hidden*:
  clients without the feature could misread earlier versions. So these are hidden behind protected
  checkpoints, or deleted.

A feature that isn't in the list is unknown. A table with an unknown reader feature is refused; a table
with an unknown writer feature is read-only.

| feature | binds | read | append | Spark writer | checkpoint | what the engine does | dropping |
|---|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    rows = (
        f"| `{feature.name}` | {feature.kind.value} | {feature.read.value} | "
        f"{feature.append.value} | {_spark(feature)} | {feature.checkpoint.value} | {feature.note} | "
        f"{_dropping(feature)} |\n"
        for feature in FEATURES.values()
    )
    return HEADER + "".join(rows)


def _spark(feature: Feature) -> str:
    """What the Spark writer does: all that the engine commits."""
    return "no" if feature.append is Support.NO else "yes"


def _dropping(feature: Feature) -> str:
    if not isinstance(feature.drop, Drop):
        return f"no: {feature.drop}"
    return f"hidden; {feature.drop.note}" if feature.drop.hides_history else feature.drop.note


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")

"""Changes of the columns of an existing table, as pure functions from schema to schema.

* `column_paths` finds and replaces columns at any depth; `position` inserts them;
* `structure` adds, renames, drops and moves columns; `widening` widens types;
* `attributes` changes nullability, comment and default value;
* `dependents` finds what relies on a column, such as constraints, in SQL text (`sql_columns`);
* `statistics_columns` updates the property that lists columns by their names.

All else stays as it is, even unknown keys of the metadata. The callers then assign ids and physical names
(``requests/assigned_metadata.py``), and compute the protocol (``negotiation/upgrade.py``).

PROTOCOL.md, "Change Metadata", "Column Mapping", "Default Columns" and "Schema Serialization Format".
Questions that it leaves open are decided as in the reference implementation.
"""

from __future__ import annotations

__all__: list[str] = []

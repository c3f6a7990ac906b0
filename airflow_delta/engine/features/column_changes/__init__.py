"""Changes of the columns of a table that is there, as pure functions from schema to schema.

* `places`: how a column is named and found, at any depth; `position`: where it goes;
* `structure`: add, rename, drop and move columns;
* `attributes`: nullability, comment and default value;
* `widening`: wider types;
* `dependents`: what stands in the way of a change, such as a constraint over the column, found in
  its SQL text (`sql_columns`);
* `statistics_columns`: the property that lists columns by their names.

What a function isn't asked to change stays as it is, keys of the metadata that nobody knows included.
Ids and physical names come afterwards (`features.assigned`), and the protocol after them
(`features.upgrade`).

Spec: PROTOCOL.md, "Change Metadata", "Column Mapping", "Default Columns" and "Schema Serialization
Format". Where it leaves a change open, the reference implementation decides.
"""

from __future__ import annotations

__all__: list[str] = []

"""The rules of the protocol and its table features, as pure functions of frozen values.

Nothing here does I/O, knows Arrow or looks at a clock: what a rule needs comes in as arguments.

* `registry`: one row per feature (`feature`, `activations`), with what the engine supports of it;
  those of later editions of the protocol are in `later_features`;
* `protocol_lists`: what a protocol says; `protocol`: whether the engine may read or write the table;
* `upgrade`: the protocol that a table needs, and whether its metadata fit together;
  `transitions`: what may change from one metadata to the next, and what its files must be like for
  that;
* `new_table`, `property_changes`, `column_changes`: what users ask for (`asked`, `known_properties`),
  and what comes of it (`assigned`);
* `column_names`, `statistics_columns`: what columns may be called, and which get statistics;
  `schema_walk`: how the others look through a schema;
* one module per feature with rules of its own: `column_mapping` and `nested_ids`,
  `in_commit_timestamps`, `managed_commits`, `clustering` and `clustering_choice`, `row_tracking`,
  `identity`, `iceberg_compat`, `type_widening`.

Spec: PROTOCOL.md, "Table Features" and the sections that the registry names.
"""

from __future__ import annotations

__all__: list[str] = []

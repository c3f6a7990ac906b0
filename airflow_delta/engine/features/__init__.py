"""The rules of the protocol and its table features, as pure functions of frozen values.

Nothing here does I/O, knows Arrow or looks at a clock: what a rule needs comes in as arguments.

* `registry`: one row per feature (`feature`), with what the engine supports of it;
* `protocol`: what a table's protocol and metadata add up to, and whether the engine may read or
  write the table;
* `new_table`: the protocol that a new table needs;
* one module per feature with rules of its own: `column_mapping`, `in_commit_timestamps`,
  `managed_commits`, `clustering`, `row_tracking`, `type_widening`.

Spec: PROTOCOL.md, "Table Features" and the sections that the registry names.
"""

from __future__ import annotations

__all__: list[str] = []

"""The rules of the protocol and its table features, as pure functions of frozen values.

Nothing here does I/O, knows Arrow or looks at a clock: what a rule needs comes in as arguments.

* `registry` has one row per feature; `protocol` decides whether the engine may read or write a table;
* ``negotiation/`` computes the protocol that a table needs, and checks changes of its metadata;
* ``requests/`` computes protocol and metadata from the properties that users request;
* ``column_changes/`` changes the columns of a schema;
* each feature with rules of its own has a module.

PROTOCOL.md, "Table Features" and the sections that the registry names.
"""

from __future__ import annotations

__all__: list[str] = []

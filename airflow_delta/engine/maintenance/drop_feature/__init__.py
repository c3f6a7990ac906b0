"""Drop a table feature: prepare the table, and take the feature out of its protocol.

* `plan`: which steps that takes, and whether it is possible at all;
* `preparation`: the steps after which the newest version doesn't use the feature. `preparing` commits
  them, with `row_ids`, `unmapping` and `vector_tombstones`; a `rewrite` of data files is left to the
  caller;
* `barriers`: checkpoints that hide versions with the feature from readers without it;
* `truncation`: the alternative, which lets these versions expire;
* `downgrade`: the commit that drops the feature;
* `execution`: runs all of it in order; `result`: how far it has come.

The row of each feature in the registry says how it is dropped (`Drop`).
"""

from __future__ import annotations

__all__: list[str] = []

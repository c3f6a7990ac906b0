"""Drop a table feature: prepare the table, and take the feature out of its protocol.

* `plan`: what dropping a feature of a table takes, and whether it can be dropped that way at all;
* `preparation`: what takes the feature's traces out of the newest version, step by step;
  `row_ids`, `unmapping` and `vector_tombstones` are some of the steps, `rewrite` is for somebody else to
  do, and `preparing` commits the others;
* `barriers`: checkpoints that hide the versions with the feature from readers who don't know it;
* `truncation`: the other way, which has these versions expire;
* `downgrade`: the commit that drops it;
* `execution`: all of it, in its order; `result`: how far it has come.

How each feature is dropped is said by its row of the registry (`Feature.drop`).
"""

from __future__ import annotations

__all__: list[str] = []

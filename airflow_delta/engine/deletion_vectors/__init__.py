"""Deletion vectors: the deleted rows of data files.

A deletion vector is a set of row positions, counted from 0 in the physical order of a file. The log has a
small descriptor of it (`model.dv_descriptor`). The set itself is in the descriptor, or in a file with many
vectors. From the outside in:

* `columns`: read the vectors for a column of descriptors;
* `read`: read vectors by their descriptors, and check them;
* `write`: write vectors into new files;
* `read_plan`: which ranges of a file to read for several vectors;
* `file_format`: the frame of a vector in a file;
* `roaring`: the serialised set;
* `z85`: bytes as text in the log.

Spec: PROTOCOL.md, "Deletion Vectors" and the appendix "Deletion Vector Format".
"""

from __future__ import annotations

__all__: list[str] = []

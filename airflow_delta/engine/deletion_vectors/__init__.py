"""Deletion vectors: which rows of a data file are deleted, and where that is written.

A deletion vector is a set of row positions, counted from 0 in the file's physical order. The log
holds a small descriptor of it (`model.dv_descriptor`); the set itself is bytes, either in the
descriptor or in a file shared by several vectors. From the outside in:

* `columns`: from a column of descriptors to the sets;
* `read`: from descriptors to the sets, with every check that the descriptors allow;
* `spans`: which parts of a file to read for some of its vectors;
* `file_format`: the frame of one vector in a file;
* `roaring`: the serialised set;
* `z85`: the text form of bytes inside the log.

Spec: PROTOCOL.md, "Deletion Vectors" and the appendix "Deletion Vector Format".
"""

from __future__ import annotations

__all__: list[str] = []

"""Scans: leave out the files that can't have rows that match a predicate.

A predicate is a `pyarrow.compute.Expression` over the logical columns of the table. `predicates` parses
the other forms that users write. `expressions` converts it to a small tree. `bounds` are what is known of
a column in each file: exact for partition columns (`partition_bounds`), wide from statistics
(`statistics_bounds`). `may_match` evaluates the tree on the bounds of all files at once, and
`file_pruner` combines these steps.

A file may be kept needlessly, but never left out wrongly. Whatever is unknown or malformed keeps it.

Spec: PROTOCOL.md, "Per-file Statistics", "Partition Value Serialization".
"""

# Other packages of the engine avoid the functions of pyarrow that import pandas if it is installed. Here
# that would be useless, because creating an expression from a Python value is one of them.

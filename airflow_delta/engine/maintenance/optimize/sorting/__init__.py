"""Sort the rows of files along a curve, so that files hold rows that are close in several columns.

* `order`: the columns by which rows are sorted: those of a Z-order, or the clustering columns;
* `selection`: which files are sorted together;
* `ranks` and `text_ranks`: the rank of a value among the values of its column;
* `curves`: one number for the ranks of several columns: Z-order and Hilbert curve;
* `keys`: the sort key of each row, by a sample of all rows;
* `buckets`: rows by ranges of keys, in memory or in temporary files;
* `external_sort`: the sorted rows of a bin.

`airflow_delta.engine.maintenance.optimize.sorted_writer` writes them to files.

PROTOCOL.md, "Clustered Table"; Z-order isn't part of the protocol.
"""

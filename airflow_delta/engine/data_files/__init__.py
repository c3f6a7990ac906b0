"""Read the rows of data files, as record batches with the columns of the table; and what writers need.

From the outside in:

* `scan`: `Scan`, the rows of some files of one version;
* `request`: what to read, of which table;
* `read_ahead`: read several files at once, in threads and bounded memory;
* `file_rows`: the rows of one file: row groups, deletion vectors, predicate;
* `row_predicate`: the predicate on rows;
* `footer_bounds`: whether the bounds in a footer can be used;
* `row_group_bounds`: the bounds of columns in each row group, by which row groups are skipped;
* `file_columns`: which columns of a file are those of the table, by name or id;
* `conversion`: values of a file's types as values of the table's types;
* `vectors`: the deletion vectors of the files, read when they are needed;
* `data_file`: one open file, with its footer and its errors.

For writers:

* `stored_schema`: the columns that files hold, by their names there;
* `footer_statistics`: the ``stats`` of a new file, from its footer.

pyarrow decodes Parquet. docs/explanation/reading-rows.md explains the choices.
"""

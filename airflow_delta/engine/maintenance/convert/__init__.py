"""CONVERT TO DELTA: a directory of Parquet files becomes a table in place; no data file is changed.

* `source_files`: the files: a listing of the directory, or a list of paths;
* `partition_paths`: the partition values in names of directories, as Hive and Spark write them;
* `file_schema`: the schema of a Parquet file in types of the protocol;
* `merging`: the schema of the table from those of its files;
* `footers`: the footers of all files, read in threads: their schemas and statistics;
* `plan`: what the table will be;
* `execution`: commits version 0.

docs/how-to/convert-to-delta.md is the guide.
"""

"""OPTIMIZE with Spark: the plan and the commits of the engine, new files by Spark.

* `optimize`: the entrance;
* `rounds`: the Spark jobs that write the new files of bins, several at once;
* `grouping`: which bins become one file, and which files are written by one job;
* `sorting`: rows in the order of their sort keys, divided into files;
* `new_files`: the directories of the new files.

Spec: PROTOCOL.md, "Add File and Remove File", "Clustered Table", "Row Tracking".
"""

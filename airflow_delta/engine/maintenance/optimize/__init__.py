"""OPTIMIZE: rewrite data files so that readers have less to do; no row changes.

* `settings`: what a caller may choose, with the table's defaults;
* `candidates`: the live files that are worth rewriting, from the log alone;
* `packing`: which of them are rewritten together: bins, by partition;
* `plan`: the plan of a run;
* `execution`: carries out a plan: bins in threads, commits, conflicts;
* `bin_writer`: the new files of bins, by copying row groups (`copying`) or by encoding rows;
* `trial`: how large new files will be, by some of their rows;
* `sorting`: the new files of bins whose rows are sorted: Z-order and clustering.

docs/how-to/optimize-a-table.md is the guide, docs/explanation/optimizing.md explains the choices.
"""

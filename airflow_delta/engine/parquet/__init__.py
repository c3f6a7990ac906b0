"""Read non-file actions of checkpoints, copy row groups, and edit footers, with the standard library alone.

The rest of the engine imports this module, and none of those below it. It offers

* `read_non_file_rows` for opening a table, where importing pyarrow would take longer than all the rest;
* `read_stored_file`, `check_pages`, `replace_columns` and `StitchedFile` for writing checkpoints;
* `read_file_end` and `has_encrypted_columns` for all footers that pyarrow parses;
* `hide_arrow_schema` for data files with types that Arrow restores and then can't read;
* `footer_start` and `add_field_ids` for data files whose writer can't write all field ids;
* `IndexedFooter`, `read_pages`, `read_page_bounds` and `column_file` for the pages of data files.

If a file isn't exactly as expected, they raise `PyarrowFallback`, and the caller uses pyarrow.
docs/explanation/why-parquet-footers-are-read-by-hand.md has the reasons.
"""

# Records are named tuples in this package. Creating the class of a frozen data class takes ten times as
# long, which counts when a table is opened in milliseconds.

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.field_ids import FOOTER_END, add_field_ids, footer_start
from airflow_delta.engine.parquet.file_end import has_encrypted_columns, read_file_end
from airflow_delta.engine.parquet.page_index import (
    ChunkPages,
    IndexedFooter,
    column_file,
    index_range,
    read_page_bounds,
    read_pages,
)
from airflow_delta.engine.parquet.plain_footer import ARROW_SCHEMA, hide_arrow_schema
from airflow_delta.engine.parquet.rows import read_non_file_rows
from airflow_delta.engine.parquet.stitch import StitchedFile, replace_columns
from airflow_delta.engine.parquet.stored_file import (
    StoredFile,
    StoredGroup,
    check_pages,
    parse_stored_file,
    read_stored_file,
)

__all__ = [
    "ARROW_SCHEMA",
    "FOOTER_END",
    "ChunkPages",
    "IndexedFooter",
    "PyarrowFallback",
    "StitchedFile",
    "StoredFile",
    "StoredGroup",
    "add_field_ids",
    "check_pages",
    "column_file",
    "footer_start",
    "has_encrypted_columns",
    "hide_arrow_schema",
    "index_range",
    "parse_stored_file",
    "read_file_end",
    "read_non_file_rows",
    "read_page_bounds",
    "read_pages",
    "read_stored_file",
    "replace_columns",
]

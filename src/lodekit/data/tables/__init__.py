"""Readers of tables: text files in any CSV dialect, Parquet files and DataFrames, with columns found by name.

- `strings`, `cells`, `dates`: columns of texts, and their conversion to numbers and dates.
- `columns`: mapping of columns to channels, and units in column names.
- `frames`, `parquet`, `text`: tables in memory, Parquet files and text files.
- `reader`: tables as arrays of times and values.
"""

from lodekit.data.tables.columns import parse_mapping
from lodekit.data.tables.dates import read_time_list
from lodekit.data.tables.reader import TableData, read_table

__all__ = ["TableData", "parse_mapping", "read_table", "read_time_list"]

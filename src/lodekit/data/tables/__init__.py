"""Measurement files: CSV in its many dialects, white space and Parquet, with columns found by name."""

from lodekit.data.tables.columns import read_mapping
from lodekit.data.tables.lists import read_date, read_list
from lodekit.data.tables.reading import read_table
from lodekit.data.tables.table import Table

__all__ = ["Table", "read_date", "read_list", "read_mapping", "read_table"]

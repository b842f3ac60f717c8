"""Measurement files: CSV in its many dialects, white space and Parquet, with columns found by name.

Read `table` first: a table is a source of blocks of records, and a plan says what is read of them. There are three
kinds: `text` (whole `lines`, split by the rules of a `dialect`), `parquet` (with what `arrow` notes there) and `frames`
in memory. `reading` opens them, and makes arrays of their blocks.

On the way: `columns` finds out which column is what, `headers` the units in their names. Cells are columns of `texts`
at once, which become numbers in `cells` (by `decimals`) or moments in `dates`; `kinds` is the same for columns that
have a type. `instants` and `lists` are times that come alone. `order` tells whether times are some, `noise` what is
known of it; `places` and `advice` are for messages.
"""

from lodekit.data.tables.columns import parse_mapping
from lodekit.data.tables.dates import parse_date, read_time_list
from lodekit.data.tables.reader import TableData, read_table

__all__ = ["TableData", "parse_date", "parse_mapping", "read_table", "read_time_list"]

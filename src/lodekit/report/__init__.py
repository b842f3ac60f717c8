"""One self-contained HTML page on a fitted model.

`document` writes the page from top to bottom. `time_series` and `responses` write the sections with plots, which
`panels` stacks.
"""

from lodekit.report.document import make_report

__all__ = ["make_report"]

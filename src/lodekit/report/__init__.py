"""One self-contained HTML page on a fitted model.

`document` writes the page from top to bottom. `time_series` and `responses` write the sections with plots, and `panels`
stacks these.
"""

from lodekit.report.document import make_report

__all__ = ["make_report"]

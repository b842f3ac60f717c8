"""One self-contained HTML page on a fitted model.

`document` writes the page from top to bottom, `time_series` the sections with plots over time; `panels` stacks plots.
"""

from lodekit.report.document import make_report

__all__ = ["make_report"]

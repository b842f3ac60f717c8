"""One self-contained HTML page from a fitted model: what came out, how far to trust it, how to get it again.

`document` is the page from top to bottom. Its `subject` is a fit with units and truth; `curves`, `plant` and
`residuals` are sections with plots, which `panels` stacks; `recipe` is the last section.
"""

from lodekit.report.document import make_report

__all__ = ["make_report"]

"""One self-contained HTML page from a fitted model: what came out, how far to trust it, how to get it again."""

from lodekit.report.document import make_report

__all__ = ["make_report"]

"""Complete runs from files to results, for the command line, the studio and scripts.

`pipeline` reads a system and data, fits, and writes the results. `new_data` reads further files for a fitted model and
monitors growing ones. `system_proposal` proposes a system file for a data file.
"""

from importlib import import_module
from typing import Any

from lodekit.workflow.pipeline import compute_results, fit_file, write_results

__all__ = ["compute_results", "fit_file", "read_record", "write_results"]


def __getattr__(name: str) -> Any:
    if name == "read_record":
        # This loads the estimator, which most commands do not need.
        return import_module("lodekit.workflow.new_data").read_record
    raise AttributeError(f"module 'lodekit.workflow' has no attribute {name!r}")

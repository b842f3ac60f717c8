"""What to try next, in the words of whoever asked: arguments of Python, or options of the command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Advice"]


@dataclass(frozen=True)
class Advice:
    """Advice about columns.

    Parameters
    ----------
    in_shell : bool
        Whether the command line asked.

    Examples
    --------
    >>> Advice().map({"T": "temp 1"}), Advice(in_shell=True).map({"T": "temp 1"})
    ("columns={'T': 'temp 1'}", "--map T='temp 1'")
    """

    in_shell: bool = False

    def map(self, columns: Mapping[str, str | int]) -> str:
        """Return how observables are told their columns."""
        if self.in_shell:
            return " ".join(f"--map {shlex.quote(name)}={shlex.quote(str(own))}" for name, own in columns.items())
        return f"columns={dict(columns)!r}"

    @property
    def records(self) -> str:
        """How a column that says which record a line belongs to is told."""
        return "--records COLUMN" if self.in_shell else "records=COLUMN"

    @property
    def join(self) -> str:
        """How files that are pieces of one record are told from those that are records of their own."""
        return "one pattern in quotes" if self.in_shell else "a pattern, or a list in the list: [[a, b], c]"

    @property
    def step_name(self) -> str:
        """What tells the time between two rows."""
        return "--dt" if self.in_shell else "dt"

    @property
    def step(self) -> str:
        """How the time between two rows is told, where there is no column of times."""
        return f"{self.step_name} STEP" if self.in_shell else f"{self.step_name}=STEP"

"""From the text of an observable to its compiled row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lodekit.algebra.operators import OperatorMatrix
from lodekit.inference.problem import Rows, Scaling
from lodekit.prior.compile import compile_rows
from lodekit.system.grammar import parse_expression
from lodekit.system.linear import Reader
from lodekit.system.signals import Signal
from lodekit.system.system import System

__all__ = ["ObservableReader"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ObservableReader:
    """Reads linear differential expressions in the channels of a system.

    Parameters
    ----------
    system : System
    """

    system: System

    def read(self, observables: Sequence[str]) -> tuple[OperatorMatrix, list[Signal]]:
        """Return the operators on the channels, and the known functions of time beside them."""
        operator = self.system.operator
        reader = Reader(operator.ring, self.system.channels)
        entries, known = [], []
        for text in observables:
            form = reader.form(parse_expression(text))
            entries.append([form.channels.get(name, []) for name in self.system.channels])
            known.append(form.known)
        return OperatorMatrix.from_scalars(operator.ring, entries, operator.width, operator.variable), known

    def rows(self, observables: Sequence[str], scaling: Scaling, scales: Array) -> Rows:
        """Return observables compiled and scaled."""
        matrix, known = self.read(observables)
        return Rows(compile_rows(self.system, matrix, known), scaling, scales)

"""A chosen basis of the free functions, checked exactly and put in place of the minimal one; errors say why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lodekit.algebra.bases import (
    diagonal_by,
    invariants_of,
    invert,
    with_columns,
    with_rows,
    with_transformation,
)
from lodekit.algebra.degeneracy import unsuitable_factors
from lodekit.algebra.finite_field import Element
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.parametrization import Parametrization
from lodekit.algebra.scalars import Scalar, join_terms
from lodekit.errors import EquationError, VerificationError
from lodekit.system.writing import operator_terms

__all__ = ["Choice"]

#: How many sets of channels are tried, and how many are named, where a choice will not do.
_MOST_TRIED = 40
_MOST_NAMED = 5


@dataclass(frozen=True)
class Choice:
    """What somebody wants the free functions to be.

    Parameters
    ----------
    matrix : OperatorMatrix
        Rows that read the free functions off a solution, or the free columns, or a whole V.
    texts : tuple of str
        The rows as expressions; empty where columns were given.
    """

    matrix: OperatorMatrix
    texts: tuple[str, ...] = ()

    @cached_property
    def shown(self) -> list[str] | list[list[str]]:
        """The choice as plain values: expressions, or rows of entries."""
        return list(self.texts) or self.matrix.to_lists()

    def apply(self, minimal: Parametrization, channels: Sequence[str]) -> Parametrization:
        """Return the parametrization with the chosen free functions.

        Parameters
        ----------
        minimal : Parametrization
            With the minimal basis.
        channels : sequence of str
            Their names, for errors.
        """
        if not minimal.free.width:
            raise EquationError("a basis was given, but the equations leave no function free; leave basis= out")
        if self.texts:
            return self._apply_rows(minimal, channels)
        width, free = self.matrix.width, minimal.free.width
        if width == free:
            return self._apply_columns(minimal)
        if width == len(channels):
            return self._apply_transformation(minimal)
        raise EquationError(
            f"expected a basis matrix with {free} columns, one for each free function, or a whole V with "
            f"{len(channels)} columns; got {width}"
        )

    def _apply_rows(self, minimal: Parametrization, channels: Sequence[str]) -> Parametrization:
        free = minimal.free.width
        if len(self.texts) != free:
            count = f"{free} expressions" if free > 1 else "one expression"
            raise EquationError(
                f"expected {count} as a basis, one for each free function, got {len(self.texts)}: "
                f"{', '.join(self.texts)}.{_suggestion(minimal, channels)}"
            )
        square = self.matrix @ minimal.free
        inverse = invert(square)
        if inverse is None:
            raise EquationError(f"{self._why_not(square)}.{_suggestion(minimal, channels)}")
        return with_rows(minimal, self.matrix, inverse)

    def _why_not(self, square: OperatorMatrix) -> str:
        """Return why rows E are no basis, from E B."""
        ring, shown = square.ring, " and ".join(self.texts)
        invariants = invariants_of(square)
        if len(invariants) < square.width:
            if square.width == 1:
                return f"{shown} cannot be the free function: nothing that can be chosen freely occurs in it"
            return f"{shown} cannot be the free functions: what can be chosen freely in them depends on each other"
        rest = [entry for entry in invariants if len(entry) > 1]
        lost = sum(len(entry) - 1 for entry in rest)
        monic = [[Scalar(ring, value, entry[-1]) for value in entry] for entry in rest]
        equations = " and ".join(dict.fromkeys(f"{join_terms(operator_terms(entry, 'z'))} = 0" for entry in monic))
        verb, noun = ("determines", "") if square.width == 1 else ("determine", "s")
        numbers = "a constant" if lost == 1 else f"{lost} constants"
        return f"{shown} {verb} the free function{noun} only up to {numbers} of integration: solutions of {equations}"

    def _apply_columns(self, minimal: Parametrization) -> Parametrization:
        if (minimal.operator @ self.matrix).is_nonzero():
            raise EquationError("the columns of the basis matrix do not solve the equations: A B = 0 does not hold")
        weights = minimal.free_observables @ self.matrix
        VerificationError.unless(minimal.free @ weights == self.matrix, "columns of the kernel are B W")
        inverse = invert(weights)
        if inverse is None:
            raise EquationError(
                "the columns of the basis matrix solve the equations, but do not reach all solutions: they are B W "
                f"with W not invertible over the operators. The minimal basis is B = {minimal.free.to_lists()}"
            )
        return with_columns(minimal, self.matrix, inverse)

    def _apply_transformation(self, minimal: Parametrization) -> Parametrization:
        inverse = invert(self.matrix)
        if inverse is None:
            raise EquationError(
                "expected V unimodular, with a determinant that is neither zero nor contains derivatives; it is not"
            )
        diagonal = diagonal_by(minimal.operator, self.matrix)
        if diagonal is None:
            raise EquationError("V does not make A diagonal: there is no unimodular U with U A V diagonal")
        return with_transformation(minimal, self.matrix, inverse, diagonal)

    def verify(self, parametrization: Parametrization) -> str:
        """Return what was proved, after checking that a parametrization is the chosen one."""
        if self.texts:
            statement = "the free functions are the chosen expressions"
            holds = parametrization.free_observables == self.matrix
        else:
            statement = "the free columns are the chosen ones"
            given = [self.matrix.take_columns([k]) for k in range(self.matrix.width)]
            columns = [parametrization.free.take_columns([j]) for j in range(parametrization.free.width)]
            holds = all(column in given for column in columns)
        VerificationError.unless(holds, statement)
        return statement

    def unsuitable_factors(self, parametrization: Parametrization) -> list[Element]:
        """Return the parameter factors at whose zeros the choice is no basis of `parametrization`, though it is one."""
        columns = parametrization.free
        if not self.texts and self.matrix.width != columns.width:
            inverse = invert(self.matrix)
            return unsuitable_factors(self.matrix, () if inverse is None else (inverse,))
        return unsuitable_factors(columns, (parametrization.free_observables,))


def _suggestion(minimal: Parametrization, channels: Sequence[str]) -> str:
    """Return which channels would do, as a sentence."""
    found = []
    for chosen in minimal.input_sets(_MOST_TRIED):
        if invert(minimal.free.take_rows(chosen)) is not None:
            found.append("[" + ", ".join(f'"{channels[i]}"' for i in chosen) + "]")
            if len(found) == _MOST_NAMED:
                break
    if not found:
        return " No channels alone will do; leave basis= out, or give expressions or columns"
    return f" What would do among the channels: {' or '.join(found)}"

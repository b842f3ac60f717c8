"""Where the generic structure may fail: parameter factors whose zeros change the Smith form.

Over Q(parameters) the Smith form is the generic one. At a parameter value where no denominator of U, V, D and the two
inverses vanishes, the identities can be evaluated, so the form there is the generic one evaluated: these denominators
hold every exception. Each irreducible factor is then tested at points where it vanishes. The points lie in a large
finite field, where they can be found exactly; a generic structure there proves that the factor does no harm on almost
all of its zeros, and it is dropped. Exceptions that need two factors to vanish at once are not listed, nor are values
at which a coefficient of the equations is undefined.

The parametrization can need to be computed anew (substitute first) at more values than that: where its own rows X and
g_i have a pole. These factors are `exceptional_factors`. And a basis that somebody chose can fail where the minimal one
does not: those are `unsuitable_factors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lodekit.algebra.decomposition import decompose, divisibility_chain
from lodekit.algebra.finite_field import Element, FiniteField
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.parametrization import Parametrization
from lodekit.algebra.polynomials import primitive
from lodekit.algebra.sampling import image, zeros
from lodekit.algebra.scalars import ScalarRing
from lodekit.algebra.smith import SmithForm

__all__ = ["degenerate_factors", "exceptional_factors", "unsuitable_factors"]


def degenerate_factors(form: SmithForm) -> list[Element]:
    """Return the parameter factors at whose zeros the Smith form changes, tested by substituting such zeros."""
    matrices = (form.left, form.diagonal, form.left_inverse, form.right_inverse)
    return [factor for factor in _denominator_factors(matrices) if _changes_structure(form, factor)]


def exceptional_factors(parametrization: Parametrization) -> list[Element]:
    """Return the parameter factors at whose zeros a parametrization must not be evaluated, since it may not hold there.

    Where X and g_i are defined, the identities that prove the parametrization can be evaluated too.
    """
    rows = (parametrization.free_observables, *(mode.observable for mode in parametrization.modes))
    columns = (parametrization.free, *(mode.column for mode in parametrization.modes))
    # Where the leading coefficient of d_i vanishes, a mode has fewer functions.
    leading = [mode.annihilator[-1] for mode in parametrization.modes]
    return _denominator_factors((*rows, *columns), leading)


def unsuitable_factors(columns: OperatorMatrix, witnesses: Iterable[OperatorMatrix]) -> list[Element]:
    """Return the parameter factors at whose zeros chosen columns are no basis any more, tested at such zeros.

    Parameters
    ----------
    columns : OperatorMatrix
        Free columns, or a whole V: they fail where they are undefined, and where they have no left inverse.
    witnesses : iterable of OperatorMatrix
        Matrices whose poles hold all such values: the inverse, among others.
    """
    rows = columns.transpose()
    return [factor for factor in _denominator_factors((columns, *witnesses)) if _fails(columns, rows, factor)]


def _fails(columns: OperatorMatrix, rows: OperatorMatrix, factor: Element) -> bool:
    """Return whether columns, and the same as rows, are no basis at random zeros of a factor; yes without a zero."""
    ring = columns.ring
    for field, branches in zeros(ring, factor):
        for points in branches:
            if any(not ring.image(bottom, field, points) for bottom in columns.denominators):
                return True
            here = [[image(ring, entry, field, points) for entry in row] for row in rows.rows]
            # A denominator of a transposed row is a common multiple of those above: a unit here.
            diagonal = decompose(field, here, rows.width).diagonal
            if len(diagonal) < columns.width or any(len(entry) > 1 for entry in diagonal):
                return True
        return False
    return True


def _denominator_factors(matrices: Sequence[OperatorMatrix], others: Iterable[Element] = ()) -> list[Element]:
    """Return the parameter factors of all denominators, and of other elements."""
    ring = matrices[0].ring
    found: dict[tuple[tuple[tuple[int, ...], int], ...], Element] = {}
    for element in (*(bottom for matrix in matrices for bottom in matrix.denominators), *others):
        for factor in ring.parameter_factors(element):
            found[tuple(ring.terms(factor).items())] = factor
    return [found[key] for key in sorted(found, key=lambda terms: (len(terms), [-sum(e) for e, _ in terms], terms))]


def _changes_structure(form: SmithForm, factor: Element) -> bool:
    """Return whether the form differs at random zeros of the factor; yes where no zero could be found."""
    ring = form.operator.ring
    for field, branches in zeros(ring, factor):
        return any(_differs(form, ring, field, points) for points in branches)
    return True


def _differs(form: SmithForm, ring: ScalarRing, field: FiniteField, points: Sequence[Element]) -> bool:
    operator = form.operator
    if any(not ring.image(bottom, field, points) for bottom in operator.denominators):
        return False  # the equations themselves are undefined there: nothing to parametrize
    rows = [[image(ring, entry, field, points) for entry in row] for row in operator.rows]
    here = divisibility_chain(field, decompose(field, rows, operator.width).diagonal)
    there = [image(ring, entry, field, points) for entry in form.invariants]
    if [len(entry) for entry in there] != [len(entry) for entry in form.invariants]:
        return True  # a leading coefficient vanishes, and a mode with it
    return here != [primitive(field, entry) for entry in there]

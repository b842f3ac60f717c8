"""The exponents of the autonomous part: exact multiplicities, and roots enclosed with a proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flint import acb, acb_poly, arb
from flint import ctx as flint_context

from lodekit.algebra.finite_field import Element
from lodekit.algebra.polynomials import Polynomial, at_rational, factor
from lodekit.algebra.scalars import ScalarRing
from lodekit.errors import AlgebraError

__all__ = ["Factor", "enclose_roots", "mode_factors"]

#: Bits to which roots are enclosed before they are rounded to floats; doubled until the enclosure is tight enough.
_BITS = 96
_MOST_BITS = 1 << 14
_TIGHT_BITS = 60


@dataclass(frozen=True)
class Factor:
    """A factor of an invariant factor d_i, with its exact multiplicity there.

    Parameters
    ----------
    polynomial : list of ring elements
        Irreducible (square-free where square roots occur), as a canonical multiple.
    multiplicity : int
    mode : int
        Which mode column it belongs to, counted from zero.
    """

    polynomial: Polynomial
    multiplicity: int
    mode: int


def mode_factors(ring: ScalarRing, annihilators: Sequence[Polynomial]) -> list[Factor]:
    """Return the factors of all d_i with their exact multiplicities."""
    return [
        Factor(part, multiplicity, index)
        for index, annihilator in enumerate(annihilators)
        for part, multiplicity in factor(ring, annihilator)
    ]


def enclose_roots(
    ring: ScalarRing, polynomial: Sequence[Element], values: Mapping[str, Fraction] | None = None
) -> list[tuple[complex, int]]:
    """Return the roots of a polynomial at rational parameter values, to full float accuracy, with multiplicity.

    Every root is isolated by interval arithmetic and refined until its enclosure is far narrower than a float. Without
    named constants the multiplicities are exact; with them the polynomial must be square-free, as `factor` leaves it.

    Returns
    -------
    list of (complex, int)
        Sorted by real, then imaginary part; conjugate pairs are exact mirror images.
    """
    exact = dict(values or {})
    missing = [name for name in ring.parameters if name not in exact and _occurs(ring, polynomial, name)]
    if missing:
        raise AlgebraError(f"roots need a value for every parameter; missing: {', '.join(missing)}")
    exact = {name: exact.get(name, Fraction(0)) for name in ring.parameters}
    bits = _BITS
    while True:
        with flint_context.workprec(bits):
            roots = _roots_at_precision(ring, polynomial, exact)
            if roots is not None:
                return sorted(roots, key=lambda item: (item[0].real, item[0].imag))
        bits *= 2
        if bits > _MOST_BITS:
            raise AlgebraError(
                "the roots of a mode could not be separated; two constants may be related in a hidden way"
            )


def _occurs(ring: ScalarRing, polynomial: Sequence[Element], name: str) -> bool:
    index = ring.names.index(name)
    return any(exponents[index] for element in polynomial for exponents in ring.terms(element))


def _roots_at_precision(
    ring: ScalarRing, polynomial: Sequence[Element], values: dict[str, Fraction]
) -> list[tuple[complex, int]] | None:
    """Return rounded roots, or None where the current precision is not enough."""
    zeros = next(power for power, element in enumerate(polynomial) if element)
    if not ring.constants:
        found = at_rational(ring, polynomial, values).complex_roots()
    else:
        coefficients = [acb(ring.enclose(element, values)) for element in polynomial[zeros:]]
        try:
            found = [(root, 1) for root in acb_poly(coefficients).roots(tol=arb(2) ** -_TIGHT_BITS)]
        except ValueError:
            return None
        found += [(acb(0), 1)] * zeros
    roots = []
    for ball, multiplicity in found:
        root = acb(ball)
        real, imaginary = _round(root.real, abs(root)), _round(root.imag, abs(root))
        if real is None or imaginary is None:
            return None
        roots.append((complex(real, imaginary), int(multiplicity)))
    return roots


def _round(part: Any, modulus: Any) -> float | None:
    """Return a ball's centre as a float, zero where it holds zero; None where it is too wide to tell."""
    radius = part.rad()
    if radius == 0:
        return float(part.mid())
    if part.contains(0):
        # Real and imaginary roots are recognised by a ball around zero, narrow against the root's size.
        return 0.0 if radius * arb(2) ** _TIGHT_BITS < modulus else None
    return float(part.mid()) if radius * arb(2) ** _TIGHT_BITS < abs(part.mid()) else None

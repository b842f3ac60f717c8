"""The exponents of the autonomous part: exact multiplicities, and roots enclosed with a proof."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flint import acb, acb_poly, arb, fmpz_poly
from flint import ctx as flint_context

from lodekit.algebra.finite_field import Element
from lodekit.algebra.polynomials import Polynomial, divide_exactly, factor, gcd, primitive, specialize, trim
from lodekit.algebra.scalars import ScalarRing
from lodekit.errors import AlgebraError

__all__ = ["Factor", "enclose_roots", "mode_factors"]

#: Bits that roots are computed with, doubled up to the most until each enclosure is tight: its width is a share of
#: 2^-60 of the root, where a float tells 2^-53.
_BITS = 96
_MOST_BITS = 1 << 14
_TIGHT_BITS = 60
#: Where a polynomial may have imaginary roots, a real part that still holds zero at this precision is zero.
_VANISHING_BITS = 768


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

    def cofactor(self, ring: ScalarRing, annihilator: Polynomial) -> Polynomial:
        """Return d_i, the `annihilator` of the mode over `ring`, divided by this factor to its multiplicity."""
        rest = annihilator
        for _ in range(self.multiplicity):
            rest = primitive(ring, divide_exactly(ring, rest, self.polynomial)[1])
        return rest


def mode_factors(ring: ScalarRing, annihilators: Sequence[Polynomial]) -> list[Factor]:
    """Return the factors of all d_i, the `annihilators` over `ring`, with their exact multiplicities."""
    return [
        Factor(part, multiplicity, index)
        for index, annihilator in enumerate(annihilators)
        for part, multiplicity in factor(ring, annihilator)
    ]


def enclose_roots(
    ring: ScalarRing, polynomial: Sequence[Element], values: Mapping[str, Fraction] | None = None
) -> list[tuple[complex, int]]:
    """Return the roots of a polynomial at rational parameter values, to full float accuracy, with exact multiplicity.

    The values are put in exactly and the result is factored, so multiplicities are exact. Every root is isolated by
    interval arithmetic and refined until its enclosure is far narrower than a float. Where a leading coefficient
    vanishes at the values, there are fewer roots than generically.

    Parameters
    ----------
    ring : ScalarRing
        Of the coefficients.
    polynomial : sequence of elements
        The coefficients, lowest power first.
    values : dict of str to Fraction, optional
        The parameters that occur in the coefficients.

    Returns
    -------
    list of (complex, int)
        Sorted by real, then imaginary part; conjugate pairs are exact mirror images.
    """
    exact = dict(values or {})
    missing = [name for name in ring.parameters if name not in exact and _occurs(ring, polynomial, name)]
    if missing:
        raise AlgebraError(f"roots need a value for every parameter; missing: {', '.join(missing)}")
    target, special = specialize(ring, polynomial, exact)
    if not special:
        raise AlgebraError("every coefficient vanishes at these parameter values: the mode is not defined there")
    found = [(root, multiplicity) for part, multiplicity in factor(target, special) for root in _isolate(target, part)]
    return sorted(found, key=lambda item: (item[0].real, item[0].imag))


def _occurs(ring: ScalarRing, polynomial: Sequence[Element], name: str) -> bool:
    index = ring.names.index(name)
    return any(exponents[index] for element in polynomial for exponents in ring.terms(element))


def _isolate(ring: ScalarRing, polynomial: Polynomial) -> list[complex]:
    """Return the roots of a square-free polynomial without parameters."""
    zeros = next(power for power, element in enumerate(polynomial) if element)
    rest = polynomial[zeros:]
    # Even and odd part share the roots whose negatives are roots as well: the imaginary ones are among these.
    even = [value if power % 2 == 0 else ring.zero for power, value in enumerate(rest)]
    odd = [value if power % 2 else ring.zero for power, value in enumerate(rest)]
    may_be_imaginary = len(gcd(ring, trim(even), trim(odd))) > 1
    bits = _BITS
    while True:
        with flint_context.workprec(bits):
            roots = _roots_at_precision(ring, rest, may_be_imaginary=may_be_imaginary)
        if roots is not None:
            return [*roots, *([0j] * zeros)]
        bits *= 2
        if bits > _MOST_BITS:
            raise AlgebraError("the roots of a mode could not be separated, even with 16,000 bits")


def _roots_at_precision(ring: ScalarRing, polynomial: Polynomial, *, may_be_imaginary: bool) -> list[complex] | None:
    """Return rounded roots, or None where the current precision is not enough."""
    if len(polynomial) < 2:
        return []
    if not ring.constants:
        balls = [acb(root) for root, _ in fmpz_poly(list(polynomial)).complex_roots()]
    else:
        coefficients = [acb(ring.enclose(element)) for element in polynomial]
        try:
            balls = acb_poly(coefficients).roots(tol=arb(2) ** -(flint_context.prec // 2))
        except ValueError:
            return None
    roots = []
    for ball in balls:
        mirrored = acb(ball.real, -ball.imag)
        is_real = sum(1 for other in balls if other.overlaps(mirrored)) == 1 and ball.imag.contains(0)
        real = _round(ball.real, may_vanish=may_be_imaginary)
        imaginary = 0.0 if is_real else _round(ball.imag, may_vanish=False)
        if real is None or imaginary is None:
            return None
        if not math.isfinite(real) or not math.isfinite(imaginary) or (real == imaginary == 0.0):
            raise AlgebraError("a root of a mode is too large or too small for a float; rescale time or parameters")
        roots.append(complex(real, imaginary))
    return roots


def _round(part: Any, *, may_vanish: bool) -> float | None:
    """Return a ball's centre as a float, zero where it holds zero and may; None where it is too wide to tell."""
    radius = part.rad()
    if radius == 0:
        return float(part.mid())
    if part.contains(0):
        # A real part that is not zero shows itself at a higher precision; one that may be is narrow by then.
        return 0.0 if may_vanish and flint_context.prec >= _VANISHING_BITS else None
    return float(part.mid()) if radius * arb(2) ** _TIGHT_BITS < abs(part.mid()) else None

"""One exact particular solution of A(d) f = b(t), by undetermined coefficients on the decoupled equations.

``U b`` on the right of ``D p = U b`` gives scalar equations d_i p_i = (U b)_i. On ``t^k exp(l t)`` with complex l, a
polynomial operator acts as ``P(d) t^k e^(l t) = sum_q binom(k, q) P^(q)(l) t^(k-q) e^(l t)``, a triangular system:
solve it from the highest power down. A root l of P (resonance) raises the power by its multiplicity.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from lodekit.algebra.decomposition import Decomposition
from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.scalars import Scalar
from lodekit.algebra.smith import to_matrices
from lodekit.system.signals import Signal, Wave

__all__ = ["particular_solution"]

_Complex = tuple[Scalar, Scalar]


def particular_solution(
    operator: OperatorMatrix, stages: Decomposition, forcing: Sequence[Signal]
) -> tuple[Signal, ...]:
    """Return one solution of ``A(d) f = b(t)``, a signal for each channel; the equations must be consistent.

    Parameters
    ----------
    operator : OperatorMatrix
        A.
    stages : Decomposition
        Of A.
    forcing : sequence of Signal
        b(t), one for each equation.
    """
    ring, width = operator.ring, operator.width
    if not any(forcing):
        return tuple(Signal(ring) for _ in range(width))
    left, diagonal, right = to_matrices(operator, stages.parts)
    total = [Signal(ring) for _ in range(width)]
    for i in range(stages.rank):
        side = Signal(ring)
        for j, signal in enumerate(forcing):
            side = side + signal.apply(left.coefficients(i, j))
        decoupled = solve_scalar(diagonal.coefficients(i, i), side)
        for channel in range(width):
            total[channel] = total[channel] + decoupled.apply(right.coefficients(channel, i))
    return tuple(total)


def solve_scalar(operator: Sequence[Scalar], side: Signal) -> Signal:
    """Return one solution of ``P(d) p = side``.

    Examples
    --------
    >>> from lodekit.algebra.scalars import ScalarRing
    >>> ring = ScalarRing(("a",))
    >>> one, a = ring.rational(1), ring.parameter("a")
    >>> print(solve_scalar([a, one], Signal.constant(one)), solve_scalar([ring.rational(0), one], Signal.constant(one)))
    1/a t
    """
    ring = side.ring
    groups: dict[tuple[Scalar, Scalar], dict[int, _Complex]] = {}
    zero = ring.rational(0)
    for wave, value in side.terms.items():
        powers = groups.setdefault((wave.rate, wave.frequency), {})
        real, imaginary = powers.get(wave.power, (zero, zero))
        # c cos = Re(c e^(iwt)) and c sin = Re(-i c e^(iwt)).
        powers[wave.power] = (real, imaginary - value) if wave.sine else (real + value, imaginary)
    total = Signal(ring)
    for (rate, frequency), powers in groups.items():
        total = total + _solve_group(operator, rate, frequency, powers)
    return total


def _solve_group(operator: Sequence[Scalar], rate: Scalar, frequency: Scalar, powers: dict[int, _Complex]) -> Signal:
    ring = rate.ring
    zero = ring.rational(0)
    highest = max(powers)
    derivatives = [_derivative_at(operator, q, (rate, frequency)) for q in range(len(operator))]
    order = next(q for q, value in enumerate(derivatives) if value[0] or value[1])
    found: dict[int, _Complex] = {}
    for k in range(highest, -1, -1):
        rest = powers.get(k, (zero, zero))
        for j, value in found.items():
            if j - k < len(derivatives):
                weight = ring.rational(comb(j, j - k))
                product = _times(value, derivatives[j - k])
                rest = (rest[0] - weight * product[0], rest[1] - weight * product[1])
        pivot = ring.rational(comb(k + order, order))
        found[k + order] = _times(rest, _inverse((pivot * derivatives[order][0], pivot * derivatives[order][1])))
    terms: dict[Wave, Scalar] = {}
    for k, (real, imaginary) in found.items():
        terms[Wave(k, rate, frequency, sine=False)] = real
        if frequency:
            terms[Wave(k, rate, frequency, sine=True)] = -imaginary
    return Signal(ring, terms)


def _derivative_at(operator: Sequence[Scalar], order: int, point: _Complex) -> _Complex:
    """Return the derivative of a polynomial at a complex point, by Horner's rule."""
    ring = point[0].ring
    total: _Complex = (ring.rational(0), ring.rational(0))
    for k in range(len(operator) - 1, order - 1, -1):
        falling = 1
        for step in range(order):
            falling *= k - step
        total = _times(total, point)
        total = (total[0] + ring.rational(falling) * operator[k], total[1])
    return total


def _times(first: _Complex, second: _Complex) -> _Complex:
    return (first[0] * second[0] - first[1] * second[1], first[0] * second[1] + first[1] * second[0])


def _inverse(value: _Complex) -> _Complex:
    size = value[0] * value[0] + value[1] * value[1]
    return (value[0] / size, -value[1] / size)

"""The response to known inputs in 40 digits, piece by piece: slow, and written without a line of the package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
from flint import arb, arb_mat, ctx, fmpz
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Times, values, kind and delay of an input.
Input = tuple[Sequence[float], Sequence[float], str, Any]


def value_and_slope(given: Input, t: Any, side: int) -> tuple[Any, Any]:
    """Return an input and its slope at a time, from the right (1) or from the left (-1)."""
    times, values, kind, delay = given
    breaks = [mpmath.mpf(time) + delay for time in times]
    passed = sum(b <= t if side > 0 else b < t for b in breaks)
    if kind == "hold":
        return mpmath.mpf(values[max(passed - 1, 0)]), mpmath.mpf(0)
    if passed in (0, len(breaks)):
        return mpmath.mpf(values[max(passed - 1, 0)]), mpmath.mpf(0)
    low, high = breaks[passed - 1], breaks[passed]
    slope = (mpmath.mpf(values[passed]) - mpmath.mpf(values[passed - 1])) / (high - low)
    return mpmath.mpf(values[passed - 1]) + slope * (t - low), slope


def respond(matrices: Sequence[Any], inputs: Sequence[Input], start: float, times: Array) -> Array:
    """Return ``H x + D v + D1 v'`` at times, shape (q, n), where x rests at the start; objects of mpmath."""
    F, G, H, D, D1 = matrices
    found = np.zeros((H.rows, len(times)), dtype=object)
    for sign in (1, -1):
        asked = [(i, mpmath.mpf(t)) for i, t in enumerate(times.tolist()) if (t >= start if sign > 0 else t < start)]
        breaks = [mpmath.mpf(time) + delay for moments, _, _, delay in inputs for time in moments]
        stops = [(b, -1) for b in breaks if sign * (b - start) > 0] + [(t, i) for i, t in asked]
        now, x, flows = mpmath.mpf(start), mpmath.zeros(F.rows, 1), {}
        for stop, i in sorted(stops, key=lambda pair: sign * pair[0]):
            if stop - now not in flows:
                flows[stop - now] = flow(F, G, stop - now)
            begin = [value_and_slope(given, now, sign) for given in inputs]
            x = (flows[stop - now] * mpmath.matrix([*x, *(v for v, _ in begin), *(w for _, w in begin)]))[: F.rows, 0]
            now = stop
            if i >= 0:
                pairs = [value_and_slope(given, now, 1) for given in inputs]
                v, slopes = (mpmath.matrix([pair[k] for pair in pairs]) for k in (0, 1))
                y = H * x + D * v + D1 * slopes
                found[:, i] = [y[k] for k in range(H.rows)]
    return found


def flow(F: Any, G: Any, length: Any) -> Any:
    """Return what takes state, inputs and slopes to those after a time, where inputs go on as they begin."""
    s, m = G.rows, G.cols
    whole = mpmath.zeros(s + 2 * m, s + 2 * m)
    whole[:s, :s] = F
    whole[:s, s : s + m] = G
    for k in range(m):
        whole[s + k, s + m + k] = 1
    return exponential(whole * length)


def exponential(matrix: Any) -> Any:
    """Return the exponential of a matrix by ball arithmetic, which is twenty times faster than `mpmath.expm`."""

    def ball(number: Any) -> arb:
        sign, mantissa, exponent, _ = number._mpf_
        return arb(fmpz(-int(mantissa) if sign else int(mantissa))) * arb(2) ** int(exponent)

    def middle(each: arb) -> Any:
        mantissa, exponent = each.mid().man_exp()
        return mpmath.ldexp(mpmath.mpf(int(mantissa)), int(exponent))

    with ctx.workprec(2 * mpmath.mp.prec):
        found = arb_mat([[ball(number) for number in row] for row in matrix.tolist()]).exp().entries()
        largest = max(abs(each.mid()) for each in found)
        assert max(each.rad() for each in found) < largest * arb(2) ** -mpmath.mp.prec
        values = [middle(each) for each in found]
    return mpmath.matrix([values[k : k + matrix.cols] for k in range(0, len(values), matrix.cols)])

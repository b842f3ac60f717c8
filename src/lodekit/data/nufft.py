"""Sums of cosines over scattered angles: one non-uniform fast Fourier transform, by the library that is installed.

finufft is the field's standard; on Linux for ARM it has no wheels, and ducc0 stands in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError

__all__ = ["backend", "cosine_sums"]

Array = NDArray[np.float64]
#: As exact as double precision gets, and as ducc0 can be asked to be.
_ACCURACY, _ACCURACY_OF_DUCC0 = 1e-15, 3e-15
#: Below this many cosines the direct sum is faster, and exact.
_DIRECT = 200_000


@cache
def backend() -> str:
    """Return the name of the library that transforms."""
    for name in ("finufft", "ducc0"):
        if find_spec(name) is not None:
            return name
    raise LodekitError("no non-uniform Fourier transform is installed; try: pip install finufft, or ducc0")


def cosine_sums(angles: Array, strengths: Sequence[Array], degree: int) -> Array:
    """Return ``sum_t c_t cos(k a_t)`` for k up to the degree, shape (strengths, degree + 1).

    Real strengths travel in pairs: one as the real, one as the imaginary part of a complex transform.

    Parameters
    ----------
    angles : array, shape (n,)
        a_t, between zero and pi.
    strengths : sequence of arrays, shape (n,)
        c_t.
    degree : int
        The largest k.
    """
    if len(angles) * (degree + 1) <= _DIRECT:
        waves = np.cos(np.outer(np.arange(degree + 1), angles))
        return np.stack([waves @ strength for strength in strengths])
    found = np.empty((len(strengths), degree + 1))
    for first in range(0, len(strengths), 2):
        pair = strengths[first : first + 2]
        joined = pair[0] + 1j * pair[1] if len(pair) == 2 else pair[0].astype(complex)
        sums = _transform(angles, joined, degree)
        # Angles come as a and -a alike: only what is even in k belongs to the cosines.
        even = 0.5 * (sums[degree:] + sums[degree::-1])
        found[first] = even.real
        if len(pair) == 2:
            found[first + 1] = even.imag
    return found


def _transform(angles: Array, strengths: NDArray[np.complex128], degree: int) -> NDArray[np.complex128]:
    """Return ``sum_t c_t exp(i k a_t)`` for k from minus the degree to the degree."""
    count = 2 * degree + 1
    if backend() == "finufft":
        import finufft

        # The grid is small: sorting the points first would not pay.
        return np.asarray(finufft.nufft1d1(angles, strengths, count, eps=_ACCURACY, isign=1, spread_sort=0))
    import ducc0

    sums: Any = np.empty(count, dtype=complex)
    ducc0.nufft.nu2u(
        points=strengths, coord=angles[:, None], forward=False, epsilon=_ACCURACY_OF_DUCC0, nthreads=0, out=sums
    )
    return np.asarray(sums)

"""The parametrization of the earlier approach, by Groebner bases, as a second opinion on that of the Smith form.

Lange-Hegermann (2018) takes the syzygies of the columns of A for B: all vectors of operators that A sends to zero. The
solutions are then the image of B, if the syzygies of its rows lead back to A; else the system is not controllable, and
the approach does not apply. SymPy computes all of it, and shares no code with lodekit's algebra.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lodekit.system.system import System

__all__ = ["Comparison", "compare_parametrizations"]


@dataclass(frozen=True)
class Comparison:
    """What Groebner bases say about a system, beside what lodekit says.

    Parameters
    ----------
    same_image : bool
        Whether the free columns span what the syzygies span, exactly.
    applies : bool
        Whether the earlier approach describes all solutions, that is, whether the system is controllable.
    generators : int
        How many syzygies there are.
    """

    same_image: bool
    applies: bool
    generators: int


def compare_parametrizations(system: System) -> Comparison:
    """Return whether lodekit's free columns and the syzygies of the operator matrix have the same image.

    Examples
    --------
    >>> import lodekit as lk
    >>> compare_parametrizations(lk.catalog.heating().system)
    Comparison(same_image=True, applies=True, generators=1)
    >>> compare_parametrizations(lk.catalog.three_tank().system).applies
    False
    """
    import sympy

    A, B = system.operator.sympy, system.parametrization.free_columns
    found = sorted(A.free_symbols | B.free_symbols, key=str)
    name = system.operator.variable
    d = next((symbol for symbol in found if str(symbol) == name), sympy.Symbol(name))
    others = [symbol for symbol in found if symbol != d]
    field = sympy.QQ.frac_field(*others) if others else sympy.QQ
    ring = field.old_poly_ring(d)

    def span(vectors: list[list[Any]]) -> Any:
        return ring.free_module(len(vectors[0])).submodule(*vectors)

    syzygies = span(A.T.tolist()).syzygy_module()
    generators = [list(generator) for generator in syzygies.gens]
    if not generators or not B.cols:
        return Comparison(len(generators) == B.cols, False, len(generators))
    back = span([list(row) for row in zip(*generators, strict=True)]).syzygy_module()
    return Comparison(bool(span(B.T.tolist()) == syzygies), bool(back == span(A.tolist())), len(generators))

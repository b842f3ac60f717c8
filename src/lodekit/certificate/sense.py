"""Which equations values can be put into where white noise drives some: combinations in which it does not occur."""

from __future__ import annotations

from collections.abc import Sequence

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.scalars import join_terms
from lodekit.fitted import Fit
from lodekit.prior.disturbed import WHITE, prove_response
from lodekit.system.grammar import parse_equations
from lodekit.system.sides import eliminate
from lodekit.system.system import System
from lodekit.system.tree import Equation
from lodekit.system.writing import operator_terms
from lodekit.wording import join_words

__all__ = ["equations_with_values", "prove", "sense_of"]


def equations_with_values(fit: Fit) -> tuple[Equation, ...]:
    """Return the equations as they are written; in the place of those that hold white noise, what they imply without.

    Parameters
    ----------
    fit : Fit
    """
    names = fit.setup.infinite
    if not names:
        return fit.system.written
    held = [i for i, equation in enumerate(fit.system.written) if equation.mentions(names)]
    kept = [equation for i, equation in enumerate(fit.system.written) if i not in held]
    return (*kept, *_implied(fit.system, held, names))


def _implied(system: System, rows: Sequence[int], names: Sequence[str]) -> list[Equation]:
    """Return what some equations say together of all channels but some."""
    own = system.operator
    part = OperatorMatrix(own.ring, [own.rows[i] for i in rows], [own.denominators[i] for i in rows], own.width)
    hidden = [system.channels.index(name) for name in names]
    operator, sides = eliminate(part, [system.forcing[i] for i in rows], hidden)
    texts = []
    for i, side in enumerate(sides):
        terms = [
            term
            for j, channel in enumerate(system.channels)
            for term in operator_terms(operator.coefficients(i, j), channel)
        ]
        if terms:
            texts.append(f"{join_terms(terms)} = {side}")
    return parse_equations(texts) if texts else []


def prove(fit: Fit) -> tuple[str, ...]:
    """Return what was proved exactly about the solutions of a fit.

    Parameters
    ----------
    fit : Fit
    """
    found = fit.setup.reduced.verify()
    if fit.prior.disturbances:
        system = fit.system.given(tuple(fit.measurements.inputs)) if fit.measurements.inputs else fit.system
        found = (*found, prove_response(system, fit.prior.disturbances))
    return found


def sense_of(fit: Fit) -> str:
    """Return in which sense the equations hold, as a sentence; empty where curves have values for all of them.

    Parameters
    ----------
    fit : Fit
    """
    names = fit.setup.infinite
    if not names:
        return ""
    own, white = equations_with_values(fit), [name for name in names if fit.prior.disturbances.get(name) == WHITE]
    others, driving = [name for name in names if name not in white], list(fit.prior.disturbances)
    held = [equation.text for equation in fit.system.written if equation.mentions(names)]
    what = [f"{join_words(white)} {'is' if len(white) == 1 else 'are'} white noise, without values"] * bool(white)
    what += [f"{join_words(others)} {'has' if len(others) == 1 else 'have'} no values"] * bool(others)
    says = (
        f"given {join_words(driving)}, all equations hold exactly. {'; '.join(what)}: "
        f"{'; '.join(text.strip() for text in held)} {'holds' if len(held) == 1 else 'hold'} "
        "integrated over any stretch of time, and cannot be checked by values of curves"
    )
    return says + (
        f"; what is free of it was measured: {'; '.join(equation.text.strip() for equation in own)}"
        if own
        else "; no combination is free of it, so that nothing was left to measure"
    )

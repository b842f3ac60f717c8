"""Linear forms as text, the way users write equations."""

from __future__ import annotations

from collections.abc import Sequence

from lodekit.algebra.reduction import Vector
from lodekit.algebra.scalars import Scalar, ScalarRing, join_terms
from lodekit.system.forms import LinearForm

__all__ = ["format_combination", "format_form", "format_observable", "format_row", "operator_terms", "primes"]


def primes(name: str, order: int) -> str:
    """Return a `name` with its derivative of some `order`, as users write it: ``x''``, ``x^(4)``."""
    return f"{name}{chr(39) * order}" if order < 4 else f"{name}^({order})"


def operator_terms(coefficients: Sequence[Scalar], name: str) -> list[tuple[Scalar, str]]:
    """Return the terms of an operator with these `coefficients` on the function `name`, highest derivative first."""
    return [
        (coefficients[order], primes(name, order))
        for order in range(len(coefficients) - 1, -1, -1)
        if coefficients[order]
    ]


def format_row(form: LinearForm, channels: Sequence[str]) -> str:
    """Return a `form` ``sum C_c(d) c + known`` in `channels` as an equation, ``x' = ...`` for a state equation."""
    ring = form.known.ring
    left = ""
    differentiated = [name for name, values in form.channels.items() if any(values[1:])]
    if len(differentiated) == 1:
        (name,) = differentiated
        values = form.channels[name]
        if values[1] == ring.rational(1) and not any(values[2:]):
            left = primes(name, 1)
            form = LinearForm({**form.channels, name: values[:1]}, form.known).scale(ring.rational(-1))
    terms = [term for name in channels for term in operator_terms(form.channels.get(name, []), name)]
    terms += form.known.text_terms()
    return f"{left or join_terms(terms)} = {join_terms(terms) if left else 0}"


def format_form(form: LinearForm, channels: Sequence[str]) -> str:
    """Return a `form` in `channels`, without known functions of time, as an expression: ``f1 - 2*f2'``."""
    return join_terms([term for name in channels for term in operator_terms(form.channels.get(name, []), name)])


def format_observable(ring: ScalarRing, row: Vector, channels: Sequence[str]) -> str:
    """Return a `row` of operators over `ring` as an expression in the `channels`: ``f1 - f2 + f3``."""
    return join_terms(
        [
            term
            for polynomial, name in zip(row, channels, strict=True)
            for term in operator_terms([Scalar(ring, value) for value in polynomial], name)
        ]
    )


def format_combination(weights: Sequence[Sequence[Scalar]]) -> str:
    """Return a combination of equations as text: ``equation 1 + (equation 2)' - 2*equation 3``."""
    terms = []
    for number, coefficients in enumerate(weights, 1):
        for order in range(len(coefficients) - 1, -1, -1):
            if coefficients[order]:
                name = f"equation {number}" if order == 0 else primes(f"(equation {number})", order)
                terms.append((coefficients[order], name))
    return join_terms(terms)

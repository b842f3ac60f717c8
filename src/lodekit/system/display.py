"""A system on paper: text, LaTeX and plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lodekit.algebra.operators import OperatorMatrix, scalar_to_sympy
from lodekit.algebra.polynomials import format_polynomial
from lodekit.algebra.reduction import Vector
from lodekit.algebra.scalars import Scalar, ScalarRing, join_terms
from lodekit.system.linear import LinearForm

if TYPE_CHECKING:
    from lodekit.system.parameters import Parameter
    from lodekit.system.system import System

__all__ = ["format_observable", "format_row", "latex", "latex_equations", "sections", "to_dict"]


def primes(name: str, order: int) -> str:
    """Return a name with its derivative written as users write it: ``x''``, ``x^(4)``."""
    return f"{name}{chr(39) * order}" if order < 4 else f"{name}^({order})"


def operator_terms(coefficients: Sequence[Scalar], name: str) -> list[tuple[Scalar, str]]:
    """Return the terms of an operator applied to a function, highest derivative first."""
    return [
        (coefficients[order], primes(name, order))
        for order in range(len(coefficients) - 1, -1, -1)
        if coefficients[order]
    ]


def format_row(form: LinearForm, channels: Sequence[str]) -> str:
    """Return a row ``sum C_c(d) c + known`` as an equation: ``x' = ...`` where it is a state equation."""
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


def format_observable(ring: ScalarRing, row: Vector, channels: Sequence[str]) -> str:
    """Return a row of operators as an expression in the channels: ``f1 - f2 + f3``."""
    return join_terms(
        [
            term
            for polynomial, name in zip(row, channels, strict=True)
            for term in operator_terms([Scalar(ring, value) for value in polynomial], name)
        ]
    )


def latent_names(system: System) -> tuple[list[str], list[str]]:
    """Return names for the free functions and the modes that do not collide with the user's."""
    taken = {*system.channels, *system.parameters}

    def pick(letters: str, count: int) -> list[str]:
        for letter in (*letters, *(f"{letters[0]}_" for _ in range(1))):
            names = [letter] if count == 1 else [f"{letter}{i + 1}" for i in range(count)]
            if not taken.intersection(names):
                return names
        return [f"_{letters[0]}{i + 1}" for i in range(count)]

    parametrization = system.parametrization
    return pick("zwv", parametrization.free.width), pick("pqm", len(parametrization.modes))


def solution_lines(system: System) -> list[str]:
    """Return every channel in terms of free functions and modes, and what binds the modes."""
    free, modes = latent_names(system)
    parametrization = system.parametrization
    lines = []
    width = max(len(name) for name in system.channels)
    for i, channel in enumerate(system.channels):
        terms = [
            t for j, name in enumerate(free) for t in operator_terms(parametrization.free.coefficients(i, j), name)
        ]
        for name, mode in zip(modes, parametrization.modes, strict=True):
            terms += operator_terms(mode.column.coefficients(i, 0), name)
        particular = "" if system.is_homogeneous else f" + {channel}_part"
        lines.append(f"{channel.ljust(width)} = {join_terms(terms)}{particular}")
    ring = system.operator.ring
    for name, mode in zip(modes, parametrization.modes, strict=True):
        monic = [Scalar(ring, value, mode.annihilator[-1]) for value in mode.annihilator]
        lines.append(f"where {join_terms(operator_terms(monic, name))} = 0")
    if free:
        noun = "is any smooth function" if len(free) == 1 else "are any smooth functions"
        lines.append(f"where {', '.join(free)} {noun}")
    if not system.is_homogeneous:
        lines.append("and *_part is one particular solution")
    return lines


def _parameter_line(name: str, parameter: Parameter) -> str:
    facts = []
    if parameter.fixed is not None:
        facts.append(f"= {parameter.fixed:g}")
    elif parameter.bounds is not None:
        facts.append(f"from {parameter.bounds[0]:g} to {parameter.bounds[1]:g}")
    elif parameter.positive:
        facts.append("> 0")
    if parameter.start is not None:
        facts.append(f"(start {parameter.start:g})")
    return " ".join([name, *facts])


def sections(system: System) -> list[tuple[str, list[str]]]:
    """Return the whole analysis as titled blocks of lines."""
    blocks = [
        ("Equations", list(system.equations)),
        ("Channels", [", ".join(system.channels)]),
    ]
    if system.parameters:
        blocks.append(("Parameters", [_parameter_line(name, p) for name, p in system.parameters.items()]))
    blocks.append((f"Operator matrix A, {_variable_meaning(system)}", _matrix_lines(system.operator)))
    if not system.is_homogeneous:
        blocks.append(("Right-hand side b of A f = b", [str(signal) for signal in system.forcing]))
    blocks.append(("Smith form U A V = D, diagonal of D", [", ".join(_diagonal(system))]))
    blocks.append(("Every solution", solution_lines(system)))
    blocks.append(("What this means", system.explain().splitlines()))
    if system.notes:
        blocks.append(("Notes", list(system.notes)))
    return blocks


def _diagonal(system: System) -> list[str]:
    """Return the diagonal of D as text, zeros included."""
    ring, operator = system.operator.ring, system.operator
    monic = [[Scalar(ring, value, entry[-1]) for value in entry] for entry in system.invariants]
    shown = [format_polynomial(entry, operator.variable) for entry in monic]
    return shown + ["0"] * (min(operator.shape) - len(shown))


def _variable_meaning(system: System) -> str:
    return f"{system.operator.variable} = d/dt"


def _matrix_lines(matrix: OperatorMatrix) -> list[str]:
    return str(matrix).splitlines()


def to_dict(system: System) -> dict[str, Any]:
    """Return the analysis as plain values."""
    form, parametrization = system.smith_form, system.parametrization
    ring = system.operator.ring
    modes = []
    for mode in system.modes:
        entry: dict[str, Any] = {
            "factor": str(mode),
            "multiplicity": mode.multiplicity,
            "observable": mode.observable,
            "description": mode.describe(),
        }
        if not mode.depends_on_parameters:
            entry["roots"] = [[complex(root).real, complex(root).imag] for root in mode.roots]
        modes.append(entry)
    return {
        "equations": list(system.equations),
        "channels": list(system.channels),
        "parameters": {
            name: {"positive": p.positive, "bounds": p.bounds, "fixed": p.fixed, "start": p.start}
            for name, p in system.parameters.items()
        },
        "operator_matrix": system.operator.to_lists(),
        "right_hand_side": [str(signal) for signal in system.forcing],
        "smith_form": {
            "U": form.left.to_lists(),
            "D": form.diagonal.to_lists(),
            "V": form.right.to_lists(),
            "verified": list(form.verify()),
        },
        "parametrization": {
            "free_columns": parametrization.free.to_lists(),
            "degrees": list(parametrization.degrees),
            "mode_columns": [[row[0] for row in mode.column.to_lists()] for mode in parametrization.modes],
            "verified": list(parametrization.verify()),
        },
        "free_functions": system.free_functions,
        "possible_inputs": [list(names) for names in system.possible_inputs],
        "is_controllable": system.is_controllable,
        "modes": modes,
        "degeneracies": [ring.format(factor) for factor in system.degenerate_elements],
        "explanation": system.explain().splitlines(),
        "notes": list(system.notes),
    }


def latex_equations(system: System) -> str:
    """Return the equations as aligned LaTeX."""
    ring = system.operator.ring
    lines = []
    for i, signal in enumerate(system.forcing):
        form = {name: system.operator.coefficients(i, j) for j, name in enumerate(system.channels)}
        left = _latex_terms(
            [(value, name, order) for name in system.channels for value, order in _high_first(form[name])]
        )
        right = "0" if not signal else _sympy_latex(signal.to_sympy())
        lines.append(f"{left} &= {right}")
    _ = ring
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def latex(system: System) -> str:
    """Return equations, Smith form and all solutions as LaTeX blocks."""
    import sympy

    free, modes = latent_names(system)
    parametrization = system.parametrization
    lines = []
    for i, channel in enumerate(system.channels):
        terms = [
            (value, name, order)
            for j, name in enumerate(free)
            for value, order in _high_first(parametrization.free.coefficients(i, j))
        ]
        for name, mode in zip(modes, parametrization.modes, strict=True):
            terms += [(value, name, order) for value, order in _high_first(mode.column.coefficients(i, 0))]
        lines.append(f"{_name(channel)} &= {_latex_terms(terms)}")
    ring = system.operator.ring
    for name, mode in zip(modes, parametrization.modes, strict=True):
        monic = [Scalar(ring, value, mode.annihilator[-1]) for value in mode.annihilator]
        lines.append(f"0 &= {_latex_terms([(value, name, order) for value, order in _high_first(monic)])}")
    solutions = "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"
    form = system.smith_form
    matrices = [f"{name} = {sympy.latex(matrix)}" for name, matrix in (("A", form.operator.sympy), ("D", form.D))]
    return "\n\n".join(f"\\[\n{block}\n\\]" for block in (latex_equations(system), *matrices, solutions))


def _high_first(coefficients: Sequence[Scalar]) -> list[tuple[Scalar, int]]:
    return [(coefficients[k], k) for k in range(len(coefficients) - 1, -1, -1) if coefficients[k]]


def _name(name: str) -> str:
    import sympy

    return str(sympy.latex(sympy.Symbol(name)))


def _sympy_latex(expression: Any) -> str:
    import sympy

    return str(sympy.latex(expression))


def _latex_derivative(name: str, order: int) -> str:
    if order == 0:
        return _name(name)
    if order <= 3:
        return f"\\{'d' * order}ot{{{_name(name)}}}"
    return f"{{{_name(name)}}}^{{({order})}}"


def _latex_terms(terms: Sequence[tuple[Scalar, str, int]]) -> str:
    import sympy

    text = ""
    for value, name, order in terms:
        base = _latex_derivative(name, order)
        coefficient = scalar_to_sympy(value)
        negative = coefficient.could_extract_minus_sign() and not coefficient.is_Add
        size = -coefficient if negative else coefficient
        shown = sympy.latex(size)
        if size.is_Add:
            shown = f"\\left({shown}\\right)"
        term = base if size == 1 else f"{shown} {base}"
        text += (("-" if negative else "") if not text else (" - " if negative else " + ")) + term
    return text or "0"

"""A system as text, as LaTeX and as plain values for JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lodekit.algebra.operators import scalar_to_sympy
from lodekit.algebra.polynomials import format_polynomial
from lodekit.algebra.scalars import Scalar, join_terms
from lodekit.errors import AlgebraError
from lodekit.system.delays import Delayed
from lodekit.system.explanation import sentences
from lodekit.system.facts import Facts
from lodekit.system.names import spare_names
from lodekit.system.parameters import Parameter
from lodekit.system.writing import operator_terms, primes

__all__ = ["GREEK", "definition", "latex", "latex_equations", "sections", "split_name", "text", "to_dict"]


def latent_names(facts: Facts) -> tuple[list[str], list[str]]:
    """Return names for the free functions and for the modes, different from those of channels and parameters."""
    taken = {*facts.channels, *facts.parameters}

    def pick(letters: str, count: int) -> list[str]:
        tries = ([each] if count == 1 else [f"{each}{i + 1}" for i in range(count)] for each in spare_names(*letters))
        return next(names for names in tries if not taken.intersection(names))

    parametrization = facts.parametrization
    return pick("zwv", parametrization.free.width), pick("pqm", len(parametrization.modes))


def solution_lines(facts: Facts) -> list[str]:
    """Return every channel in terms of free functions and modes, and the equations of the modes, as lines."""
    free, modes = latent_names(facts)
    width = max(len(name) for name in facts.channels)
    lines = []
    for channel, terms in zip(facts.channels, _solution_terms(facts), strict=True):
        text = join_terms([(value, primes(name, order)) for value, name, order in terms])
        if not facts.is_homogeneous:
            text = f"{channel}~" if not terms else f"{text} + {channel}~"
        lines.append(f"{channel.ljust(width)} = {text}")
    ring = facts.operator.ring
    for name, mode in zip(modes, facts.parametrization.modes, strict=True):
        monic = [Scalar(ring, value, mode.annihilator[-1]) for value in mode.annihilator]
        lines.append(f"where {join_terms(operator_terms(monic, name))} = 0")
    if free:
        noun = "is any smooth function" if len(free) == 1 else "are any smooth functions"
        chosen = facts.choice.texts if facts.choice is not None and facts.is_homogeneous else ()
        shown = [f"{name} = {text}" for name, text in zip(free, chosen, strict=True)] if chosen else free
        lines.append(f"where {', '.join(shown)} {noun}")
    return lines + _particular_lines(facts)


def _particular_lines(facts: Facts) -> list[str]:
    """Return one particular solution, where the equations hold known functions of time."""
    if facts.is_homogeneous:
        return []
    try:
        signals = facts.particular_solution
    except AlgebraError:
        return ["where ~ marks one particular solution"]
    shown = [f"{channel}~ = {signal}" for channel, signal in zip(facts.channels, signals, strict=True)]
    return [f"where {line}" for line in shown]


def _solution_terms(facts: Facts) -> list[list[tuple[Scalar, str, int]]]:
    """Return for each channel its terms: coefficient, latent function, order of the derivative."""
    free, modes = latent_names(facts)
    parametrization = facts.parametrization
    columns = [*free, *modes]
    matrices = [parametrization.free.take_columns([j]) for j in range(len(free))]
    matrices += [mode.column for mode in parametrization.modes]
    return [
        [
            (value, name, order)
            for name, matrix in zip(columns, matrices, strict=True)
            for value, order in _high_first(matrix.coefficients(i, 0))
        ]
        for i in range(len(facts.channels))
    ]


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


def sections(facts: Facts) -> list[tuple[str, list[str]]]:
    """Return the whole analysis as titled blocks of lines."""
    blocks = [
        ("Equations", list(facts.equations)),
        ("Channels", [", ".join(facts.plain_channels)]),
    ]
    if facts.parameters:
        blocks.append(("Parameters", [_parameter_line(name, p) for name, p in facts.parameters.items()]))
    blocks.append((f"Operator matrix A, {facts.operator.variable} = d/dt", str(facts.operator).splitlines()))
    if not facts.is_homogeneous:
        blocks.append(("Right-hand side b of A f = b", [str(signal) for signal in facts.forcing]))
    blocks.append(("Smith form U A V = D, diagonal of D", _or_not_determined(lambda: [", ".join(_diagonal(facts))])))
    blocks.append(("Every solution", _or_not_determined(lambda: solution_lines(facts))))
    blocks.append(("What this means", sentences(facts)))
    if facts.notes:
        blocks.append(("Notes", list(facts.notes)))
    return blocks


def _or_not_determined(lines: Callable[[], list[str]]) -> list[str]:
    try:
        return lines()
    except AlgebraError as problem:
        return [f"not determined: {problem}"]


def text(facts: Facts) -> str:
    """Return the whole analysis as text."""
    return "\n\n".join("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in sections(facts))


def definition(facts: Facts) -> dict[str, Any]:
    """Return what was said about a system, as plain values for JSON."""
    return {
        "equations": list(facts.equations),
        "channels": list(facts.plain_channels),
        "parameters": {name: parameter.definition() for name, parameter in facts.parameters.items()},
        "notes": list(facts.notes),
        **({} if facts.choice is None else {"basis": facts.choice.shown}),
    }


def _diagonal(facts: Facts) -> list[str]:
    """Return the diagonal of D as text, zeros included."""
    ring, operator = facts.operator.ring, facts.operator
    monic = [[Scalar(ring, value, entry[-1]) for value in entry] for entry in facts.invariants]
    shown = [format_polynomial(entry, operator.variable) for entry in monic]
    return shown + ["0"] * (min(operator.shape) - len(shown))


def _finite(bounds: tuple[float, float] | None) -> list[float | None] | None:
    """Return bounds for JSON, which knows no infinity: None stands for no bound."""
    return None if bounds is None else [value if math.isfinite(value) else None for value in bounds]


def to_dict(facts: Facts) -> dict[str, Any]:
    """Return the analysis as plain values."""
    form, parametrization = facts.smith_form, facts.parametrization
    ring = facts.operator.ring
    modes = []
    for mode in facts.modes:
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
        "equations": list(facts.equations),
        "channels": list(facts.plain_channels),
        "parameters": {
            name: {"positive": p.positive, "bounds": _finite(p.bounds), "fixed": p.fixed, "start": p.start}
            for name, p in facts.parameters.items()
        },
        "operator_matrix": facts.operator.to_lists(),
        "right_hand_side": [str(signal) for signal in facts.forcing],
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
        "basis": None if facts.choice is None else facts.choice.shown,
        "free_functions": facts.free_functions,
        "possible_inputs": [list(names) for names in facts.possible_inputs],
        "is_controllable": facts.is_controllable,
        "modes": modes,
        "degeneracies": [ring.format(factor) for factor in facts.degenerate_elements],
        "unsuitable": [ring.format(factor) for factor in facts.unsuitable_elements],
        "explanation": sentences(facts),
        "notes": list(facts.notes),
    }


def latex_equations(facts: Facts) -> str:
    """Return the equations as aligned LaTeX."""
    lines = []
    for i, signal in enumerate(facts.forcing):
        terms = [
            (value, name, order)
            for j, name in enumerate(facts.channels)
            for value, order in _high_first(facts.operator.coefficients(i, j))
        ]
        lines.append(f"{_latex_terms(facts, terms)} &= {_latex(facts, signal.to_sympy())}")
    return _aligned(lines)


def latex(facts: Facts) -> str:
    """Return equations, Smith form and all solutions as LaTeX blocks."""
    _, modes = latent_names(facts)
    lines = []
    for channel, terms in zip(facts.channels, _solution_terms(facts), strict=True):
        text = _latex_terms(facts, terms)
        if not facts.is_homogeneous:
            particular = f"\\tilde{{{_latex_derivative(channel, 0)}}}"
            text = particular if not terms else f"{text} + {particular}"
        lines.append(f"{_latex_derivative(channel, 0)} &= {text}")
    ring = facts.operator.ring
    for name, mode in zip(modes, facts.parametrization.modes, strict=True):
        monic = [Scalar(ring, value, mode.annihilator[-1]) for value in mode.annihilator]
        lines.append(f"0 &= {_latex_terms(facts, [(value, name, order) for value, order in _high_first(monic)])}")
    form = facts.smith_form
    matrices = [f"{name} = {_latex(facts, matrix)}" for name, matrix in (("A", form.operator.sympy), ("D", form.D))]
    return "\n\n".join(f"\\[\n{block}\n\\]" for block in (latex_equations(facts), *matrices, _aligned(lines)))


def _aligned(lines: Sequence[str]) -> str:
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def _high_first(coefficients: Sequence[Scalar]) -> list[tuple[Scalar, int]]:
    return [(coefficients[k], k) for k in range(len(coefficients) - 1, -1, -1) if coefficients[k]]


#: Greek letters by their names in LaTeX.
GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "zeta": "ζ",
    "eta": "η",
    "theta": "θ",
    "iota": "ι",
    "kappa": "κ",
    "lambda": "λ",
    "mu": "μ",
    "nu": "ν",
    "xi": "ξ",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "upsilon": "υ",
    "phi": "φ",
    "chi": "χ",
    "psi": "ψ",
    "omega": "ω",
    "Gamma": "Γ",
    "Delta": "Δ",
    "Theta": "Θ",
    "Lambda": "Λ",
    "Xi": "Ξ",
    "Pi": "Π",
    "Sigma": "Σ",
    "Upsilon": "Υ",
    "Phi": "Φ",
    "Psi": "Ψ",
    "Omega": "Ω",
}
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


def split_name(name: str) -> tuple[str, list[str]]:
    """Return a name without what is written as its subscript, and the parts of that.

    Digits at the end, and what follows an underscore, are subscript.

    Examples
    --------
    >>> split_name("f1"), split_name("theta_max"), split_name("TH1_in"), split_name("x")
    (('f', ['1']), ('theta', ['max']), ('TH', ['1', 'in']), ('x', []))
    """
    head, _, tail = name.translate(_SUBSCRIPTS).strip("_").partition("_")
    digits = head[len(head.rstrip("0123456789")) :]
    head = head[: len(head) - len(digits)] or digits
    return head, [part for part in ("" if digits == head else digits, *tail.split("_")) if part]


def latex_name(name: str) -> str:
    r"""Return a name as LaTeX: Greek letters by name, trailing digits and what follows an underscore as subscript.

    Examples
    --------
    >>> latex_name("f1"), latex_name("theta_max"), latex_name("speed"), latex_name("x")
    ('f_{1}', '\\theta_{\\mathrm{max}}', '\\mathit{speed}', 'x')
    """
    head, subscript = split_name(name)
    base = f"\\{head}" if head in GREEK else head if len(head) == 1 else f"\\mathit{{{head}}}" if head else "\\_"
    if not subscript:
        return base
    shown = [part if part.isdigit() or len(part) == 1 else f"\\mathrm{{{part}}}" for part in subscript]
    return f"{base}_{{{','.join(shown)}}}"


def _latex(facts: Facts, expression: Any) -> str:
    """Return SymPy's LaTeX with our own way to write names."""
    import sympy

    names = {sympy.Symbol(name): latex_name(name) for name in facts.parameters}
    return str(sympy.latex(expression, symbol_names=names))


def _latex_time(time: Scalar) -> str:
    """Return the time before a delay as LaTeX: ``t - T``."""
    import sympy

    names = {sympy.Symbol(name): latex_name(name) for name in time.ring.parameters}
    earlier = sympy.Add(sympy.Symbol("t"), -scalar_to_sympy(time), evaluate=False)
    return str(sympy.latex(earlier, symbol_names=names, order="none"))


def _latex_derivative(name: str, order: int) -> str:
    if isinstance(name, Delayed):
        return f"{_latex_derivative(name.channel, order)}\\left({_latex_time(name.time)}\\right)"
    if order == 0:
        return latex_name(name)
    if order <= 3:
        return f"\\{'d' * order}ot{{{latex_name(name)}}}"
    return f"{{{latex_name(name)}}}^{{({order})}}"


def _latex_terms(facts: Facts, terms: Sequence[tuple[Scalar, str, int]]) -> str:
    text = ""
    for value, name, order in terms:
        base = _latex_derivative(name, order)
        coefficient = scalar_to_sympy(value)
        negative = coefficient.could_extract_minus_sign() and not coefficient.is_Add
        size = -coefficient if negative else coefficient
        shown = _latex(facts, size)
        if size.is_Add:
            shown = f"\\left({shown}\\right)"
        term = base if size == 1 else f"{shown} {base}"
        text += (("-" if negative else "") if not text else (" - " if negative else " + ")) + term
    return text or "0"

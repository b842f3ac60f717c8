"""A system as sentences, text, LaTeX, MathML and plain values for JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any, TypeGuard

from lodekit.algebra.operators import scalar_to_sympy
from lodekit.algebra.polynomials import format_polynomial
from lodekit.algebra.scalars import Scalar, format_sum
from lodekit.errors import AlgebraError
from lodekit.support.text import join_list, to_json_values
from lodekit.system import grammar
from lodekit.system.delays import DelayedChannel, find_required_inputs
from lodekit.system.linear import format_derivative
from lodekit.system.parameters import Parameter, candidate_names

if TYPE_CHECKING:
    from lodekit.system.system import System


_NUMBER_WORDS = dict(enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1))


def explain_structure(system: System) -> list[str]:
    """Return what the algebra proves about the solutions in sentences, most important first."""
    lines = [_explain_freedom(system), *_explain_modes(system), *_explain_basis(system)]
    zero = system.forced
    if zero and len(zero) < len(system.channels):
        what = "forced to be zero" if system.is_homogeneous else "determined completely by the known functions of time"
        lines.append(f"{join_list(zero)} {'is' if len(zero) == 1 else 'are'} {what}.")
    for channel in find_required_inputs(system.channels):
        shown = [name for name in system.delayed_channels if name.channel == channel]
        verb = "is treated as a separate function" if len(shown) == 1 else "are treated as separate functions"
        lines.append(
            f"{channel} is delayed, so a fit needs it as a known input; until it is one, "
            f"{join_list(shown)} {verb} here."
        )
    if relations := [f"{relation} = 0" for relation in system.relations()]:
        noun = "equation is" if len(relations) == 1 else "equations are"
        lines.append(f"{_number_word(len(relations)).capitalize()} {noun} redundant: {'; '.join(relations)}.")
    terms = []
    for number, signal in enumerate(system.forcing, 1):
        what = "a known function of time" if signal.as_scalar() is None else f"a constant term ({signal})"
        terms += [f"{number} contains {what}"] * bool(signal)
    if terms:
        lines.append(f"Equation {'; equation '.join(terms)}; the equations are consistent.")
    return lines + _explain_degeneracies(system)


def _explain_basis(system: System) -> list[str]:
    if system.choice is None:
        return []
    noun = "function was" if system.free_functions == 1 else "functions were"
    what = f"to be {join_list(system.choice.expressions)}" if system.choice.expressions else "by a matrix"
    zeros = [f"{system.operator.ring.format(factor)} = 0" for factor in system.unsuitable_elements]
    unless = f"; this choice is invalid if {join_list(zeros, 'or')}" if zeros else ""
    return [f"The free {noun} chosen {what}{unless}."]


def _explain_degeneracies(system: System) -> list[str]:
    try:
        fixed = {name for name, parameter in system.parameters.items() if parameter.fixed is not None}
        factors = [system.operator.ring.format(factor) for factor in system.degenerate_elements]
        zeros = [f"{text} = 0" for text in factors if not set(re.findall(r"[^\W\d]\w*", text)) <= fixed]
        change = f"the structure changes if {join_list(zeros, 'or')}" if zeros else ""
    except AlgebraError:
        change = "the exceptions were not determined, because the expressions grow too large"
    return [f"This holds for almost all parameter values; {change}."] if change else []


def _explain_freedom(system: System) -> str:
    free = system.free_functions
    if not free:
        if not system.states:
            what = "The only solution is zero" if system.is_homogeneous else "There is exactly one solution"
            return f"{what}: the equations leave no freedom at all."
        numbers = f"{_number_word(system.states)} initial value{'s' * (system.states > 1)}"
        return f"Nothing can be chosen freely: the motion is determined by {numbers}."
    if free == len(system.channels):
        return "Every channel can be chosen freely: the equations restrict nothing."
    start = f"{'One function' if free == 1 else f'{free} functions'} of time can be chosen freely"
    try:
        inputs = system.possible_inputs
    except AlgebraError:
        return f"{start}; which ones was not determined, because the expressions grow too large."
    if free == 1 and len(inputs) > 1:
        word = "either" if len(inputs) == 2 else "any one of"
        return f"{start}: {word} {join_list([names[0] for names in inputs], 'or')}."
    return f"{start}, {'for example' if len(inputs) > 1 else 'namely'} {join_list(list(inputs[0]))}."


def _explain_modes(system: System) -> list[str]:
    try:
        modes = system.exponents
    except AlgebraError:
        what = "What cannot be influenced" if system.free_functions else "The free response"
        return [f"{what} was not determined, because the expressions grow too large."]
    free, phrases = system.free_functions, []
    for mode in modes:
        text = mode.describe()
        times = f" with multiplicity {mode.multiplicity}" if mode.multiplicity > 1 else ""
        article = "" if text.startswith("two ") else "a " if text.startswith("mode of order") else "one "
        phrases.append(f"{article}{text}{times}{f', {mode.observable}' if free else ''}")
    if free and phrases:
        return [f"The system is not controllable: {join_list(phrases)}, cannot be influenced."]
    if free:
        noun = "function" if free == 1 else "functions"
        return [f"The system is controllable: every motion can be reached by choosing the free {noun}."]
    return [f"The free response consists of {join_list(phrases)}."] if phrases else []


def _number_word(number: int) -> str:
    return _NUMBER_WORDS.get(number, str(number))


def choose_latent_names(system: System) -> tuple[list[str], list[str]]:
    """Return names for the free functions and for the modes, different from those of channels and parameters."""
    taken = {*system.channels, *system.parameters}

    def pick(letters: str, count: int) -> list[str]:
        suffixes = [""] if count == 1 else [str(i + 1) for i in range(count)]
        tries = ([letter + suffix for suffix in suffixes] for letter in candidate_names(*letters))
        return next(names for names in tries if not taken.intersection(names))

    parametrization = system.parametrization
    return pick("zwv", parametrization.free.width), pick("pqm", len(parametrization.modes))


def format_solution_lines(system: System) -> list[str]:
    """Return each channel in terms of free functions and modes, and the equations of the modes, as lines."""
    free, _ = choose_latent_names(system)
    width = max(len(name) for name in system.channels)
    solutions, equations = _solution_terms(system)
    lines = []
    for channel, terms in zip(system.channels, solutions, strict=True):
        text = format_sum([(value, format_derivative(name, order)) for value, name, order in terms])
        if not system.is_homogeneous:
            text = f"{channel}~" if not terms else f"{text} + {channel}~"
        lines.append(f"{channel.ljust(width)} = {text}")
    sums = [format_sum((value, format_derivative(name, k)) for value, name, k in terms) for terms in equations]
    lines += [f"where {text} = 0" for text in sums]
    if free:
        noun = "is any smooth function" if len(free) == 1 else "are any smooth functions"
        chosen = system.choice.expressions if system.choice is not None and system.is_homogeneous else ()
        shown = [f"{name} = {text}" for name, text in zip(free, chosen, strict=True)] if chosen else free
        lines.append(f"where {', '.join(shown)} {noun}")
    return lines + _format_particular_solution(system)


def _format_particular_solution(system: System) -> list[str]:
    """Return one particular solution if the equations contain known functions of time."""
    if system.is_homogeneous:
        return []
    try:
        signals = system.particular_solution
    except AlgebraError:
        return ["where ~ marks one particular solution"]
    shown = [f"{channel}~ = {signal}" for channel, signal in zip(system.channels, signals, strict=True)]
    what = "particular solution" if any(signal.as_scalar() is None for signal in signals) else "constant parts"
    return [f"with the {what} {', '.join(shown)}"]


_Term = tuple[Scalar, str, int]


def _solution_terms(system: System) -> tuple[list[list[_Term]], list[list[_Term]]]:
    """Return the terms of each channel and of each mode's equation: coefficient, latent function, derivative order."""
    free, modes = choose_latent_names(system)
    ring, parametrization = system.operator.ring, system.parametrization
    matrices = [parametrization.free.take_columns([j]) for j in range(len(free))]
    columns = list(zip([*free, *modes], [*matrices, *(mode.column for mode in parametrization.modes)], strict=True))
    channels = [
        [term for name, matrix in columns for term in _terms_by_order(matrix.coefficients(i, 0), name)]
        for i in range(len(system.channels))
    ]
    annihilators = zip(modes, (mode.annihilator for mode in parametrization.modes), strict=True)
    return channels, [_terms_by_order([Scalar(ring, v, p[-1]) for v in p], name) for name, p in annihilators]


def _format_parameter(name: str, parameter: Parameter) -> str:
    text = name
    if parameter.fixed is not None:
        text += f" = {parameter.fixed:g}"
    elif parameter.bounds is not None:
        text += f" from {parameter.bounds[0]:g} to {parameter.bounds[1]:g}"
    elif parameter.positive:
        text += " > 0"
    return text if parameter.start is None else f"{text} (start {parameter.start:g})"


def analysis_sections(system: System) -> list[tuple[str, list[str]]]:
    """Return the complete analysis as titled blocks of lines."""
    blocks = [("Equations", list(system.equations)), ("Channels", [", ".join(system.plain_channels)])]
    if system.parameters:
        blocks.append(("Parameters", [_format_parameter(name, p) for name, p in system.parameters.items()]))
    blocks.append((f"Operator matrix A, {system.operator.variable} = d/dt", str(system.operator).splitlines()))
    if not system.is_homogeneous:
        blocks.append(("Right-hand side b of A f = b", [str(signal) for signal in system.forcing]))
    for title, write in (
        ("Smith form U A V = D, diagonal of D", lambda system: [", ".join(_format_diagonal(system))]),
        ("Every solution", format_solution_lines),
    ):
        try:
            blocks.append((title, write(system)))
        except AlgebraError as problem:
            blocks.append((title, [f"not determined: {problem}"]))
    blocks.append(("What this means", explain_structure(system)))
    if system.notes:
        blocks.append(("Notes", list(system.notes)))
    return blocks


def format_analysis(system: System, *, omitted: Sequence[str] = ()) -> str:
    """Return the analysis as text, without the blocks whose titles are `omitted`."""
    blocks = [block for block in analysis_sections(system) if block[0] not in omitted]
    return "\n\n".join("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in blocks)


def _format_diagonal(system: System) -> list[str]:
    """Return the diagonal of D as text, zeros included."""
    ring, operator = system.operator.ring, system.operator
    monic = [[Scalar(ring, value, entry[-1]) for value in entry] for entry in system.invariants]
    shown = [format_polynomial(entry, operator.variable) for entry in monic]
    return shown + ["0"] * (min(operator.shape) - len(shown))


def to_dict(system: System) -> dict[str, Any]:
    """Return the analysis as plain values."""
    form, parametrization = system.smith_form, system.parametrization
    ring = system.operator.ring
    # JSON has no infinity: None stands for no bound.
    bounds = {name: p.bounds and to_json_values(list(p.bounds)) for name, p in system.parameters.items()}
    parameters = {
        name: {"positive": p.positive, "bounds": bounds[name], "fixed": p.fixed, "start": p.start}
        for name, p in system.parameters.items()
    }
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
        "channels": list(system.plain_channels),
        "parameters": parameters,
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
        "basis": None if system.choice is None else system.choice.definition,
        "free_functions": system.free_functions,
        "possible_inputs": [list(names) for names in system.possible_inputs],
        "is_controllable": system.is_controllable,
        "modes": modes,
        "degeneracies": [ring.format(factor) for factor in system.degenerate_elements],
        "unsuitable": [ring.format(factor) for factor in system.unsuitable_elements],
        "explanation": explain_structure(system),
        "notes": list(system.notes),
    }


def format_latex_equations(system: System) -> str:
    """Return the equations as aligned LaTeX."""
    lines = []
    for i, signal in enumerate(system.forcing):
        entries = [(system.operator.coefficients(i, j), name) for j, name in enumerate(system.channels)]
        terms = [term for values, name in entries for term in _terms_by_order(values, name)]
        lines.append(f"{_latex_terms(system, terms)} &= {_latex(system.parameters, signal.to_sympy())}")
    return _align_latex(lines)


def format_latex(system: System) -> str:
    """Return equations, Smith form and all solutions as LaTeX blocks."""
    solutions, equations = _solution_terms(system)
    lines = []
    for channel, terms in zip(system.channels, solutions, strict=True):
        text = _latex_terms(system, terms)
        if not system.is_homogeneous:
            particular = f"\\tilde{{{_latex_derivative(channel, 0)}}}"
            text = particular if not terms else f"{text} + {particular}"
        lines.append(f"{_latex_derivative(channel, 0)} &= {text}")
    lines += [f"0 &= {_latex_terms(system, terms)}" for terms in equations]
    form = system.smith_form
    matrices = [
        f"{name} = {_latex(system.parameters, matrix)}" for name, matrix in (("A", form.operator.sympy), ("D", form.D))
    ]
    blocks = (format_latex_equations(system), *matrices, _align_latex(lines))
    return "\n\n".join(f"\\[\n{block}\n\\]" for block in blocks)


def _align_latex(lines: Sequence[str]) -> str:
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def _terms_by_order(coefficients: Sequence[Scalar], name: str) -> list[_Term]:
    return [(coefficients[k], name, k) for k in range(len(coefficients) - 1, -1, -1) if coefficients[k]]


_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma "
    "tau upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
#: Greek letters by their LaTeX names.
GREEK_LETTERS = dict(zip(_GREEK_NAMES.split(), "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", strict=True))
_SUBSCRIPT_DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


def split_subscript(name: str) -> tuple[str, list[str]]:
    """Return a name without its subscript, and the parts of the subscript.

    The first digit with everything after it, and the parts after underscores, are subscripts.

    Examples
    --------
    >>> split_subscript("f1"), split_subscript("theta_max"), split_subscript("TH1_in"), split_subscript("R2a")
    (('f', ['1']), ('theta', ['max']), ('TH', ['1', 'in']), ('R', ['2a']))
    """
    head, _, tail = name.translate(_SUBSCRIPT_DIGITS).strip("_").partition("_")
    digits = re.findall(r"\d.*|$", head)[0]
    head = head[: len(head) - len(digits)] or digits
    return head, [part for part in ("" if digits == head else digits, *tail.split("_")) if part]


def format_latex_name(name: str) -> str:
    r"""Return a name as LaTeX: Greek letters by name; digits, and parts after an underscore, as subscript.

    Examples
    --------
    >>> format_latex_name("f1"), format_latex_name("theta_max"), format_latex_name("speed"), format_latex_name("x")
    ('f_{1}', '\\theta_{\\mathrm{max}}', '\\mathit{speed}', 'x')
    """
    head, subscript = split_subscript(name)
    word = f"\\mathit{{{head}}}" if head else "\\_"
    base = f"\\{head}" if head in GREEK_LETTERS else head if len(head) == 1 else word
    if not subscript:
        return base
    shown = [part if part.isdigit() or len(part) == 1 else f"\\mathrm{{{part}}}" for part in subscript]
    return f"{base}_{{{','.join(shown)}}}"


def _latex(parameters: Iterable[str], expression: Any, **options: Any) -> str:
    """Return SymPy's LaTeX with names formatted by `format_latex_name`."""
    import sympy

    names = {sympy.Symbol(name): format_latex_name(name) for name in parameters}
    return str(sympy.latex(expression, symbol_names=names, **options))


def _latex_derivative(name: str, order: int) -> str:
    if isinstance(name, DelayedChannel):
        import sympy

        earlier = sympy.Add(sympy.Symbol("t"), -scalar_to_sympy(name.time), evaluate=False)
        time = _latex(name.time.ring.parameters, earlier, order="none")
        return f"{_latex_derivative(name.channel, order)}\\left({time}\\right)"
    if order == 0:
        return format_latex_name(name)
    if order <= 3:
        return f"\\{'d' * order}ot{{{format_latex_name(name)}}}"
    return f"{{{format_latex_name(name)}}}^{{({order})}}"


def _latex_terms(system: System, terms: Sequence[tuple[Scalar, str, int]]) -> str:
    text = ""
    for value, name, order in terms:
        base = _latex_derivative(name, order)
        coefficient = scalar_to_sympy(value)
        negative = coefficient.could_extract_minus_sign() and not coefficient.is_Add
        size = -coefficient if negative else coefficient
        shown = _latex(system.parameters, size)
        if size.is_Add:
            shown = f"\\left({shown}\\right)"
        term = base if size == 1 else f"{shown} {base}"
        text += (("-" if negative else "") if not text else (" - " if negative else " + ")) + term
    return text or "0"


_PRIME_MARKS = {1: "′", 2: "″", 3: "‴"}
_MATHML_MINUS = "<mo>−</mo>"


def equations_to_mathml(system: System) -> list[str]:
    """Return the equations of a system as MathML, one each, in the user's notation.

    Channels and parameters have these words as their class, so that a style can distinguish them.

    Examples
    --------
    >>> import lodekit as lk
    >>> equations_to_mathml(lk.System("tau*x' = u", parameters=["tau"]))[0].count('class="parameter"')
    1
    """
    roles = {**dict.fromkeys(system.channels, "channel"), **dict.fromkeys(system.parameters, "parameter")}
    lines = []
    for equation in grammar.parse_equations(system.equations):
        right = "<mn>0</mn>" if equation.right is None else _to_mathml(equation.right, roles)
        lines.append(f'<math display="block">{_to_mathml(equation.left, roles)}<mo>=</mo>{right}</math>')
    return lines


def name_to_mathml(name: str, role: str = "") -> str:
    """Return a name as MathML: Greek letters by name; digits, and parts after an underscore, as subscript.

    Examples
    --------
    >>> name_to_mathml("TH1")
    '<msub><mi class="word">TH</mi><mn>1</mn></msub>'
    >>> name_to_mathml("tau", "parameter")
    '<mi class="parameter">τ</mi>'
    """
    head, below = split_subscript(name)
    shown = GREEK_LETTERS.get(head, head) or "_"
    classes = " ".join(part for part in (role, "word" if len(shown) > 1 else "") if part)
    base = f'<mi class="{classes}">{escape(shown)}</mi>' if classes else f"<mi>{escape(shown)}</mi>"
    if not below:
        return base
    parts = [f"<mn>{part}</mn>" if part.isdecimal() else f"<mtext>{escape(part)}</mtext>" for part in below]
    subscript = _mathml_row("<mo>,</mo>".join(parts)) if len(parts) > 1 else parts[0]
    return f"<msub>{base}{subscript}</msub>"


def _mathml_row(content: str) -> str:
    return f"<mrow>{content}</mrow>"


def _mathml_parentheses(content: str) -> str:
    return f"<mrow><mo>(</mo>{content}<mo>)</mo></mrow>"


def _mathml_number(value: Fraction) -> str:
    """Return an exact number: a decimal, a decimal times a power of ten, or a fraction."""
    with localcontext() as context:
        # More digits than the grammar accepts, mantissa and exponent together.
        context.prec = 1000
        digits = (Decimal(value.numerator) / Decimal(value.denominator)).normalize()
        power = digits.adjusted()
        mantissa = digits.scaleb(-power)
    if Fraction(digits) != value:
        return f"<mfrac><mn>{value.numerator}</mn><mn>{value.denominator}</mn></mfrac>"
    if value and not -5 <= power <= 6:
        first = "" if mantissa == 1 else f"<mn>{mantissa:f}</mn><mo>·</mo>"
        exponent = f"<mn>{power}</mn>" if power > 0 else f"<mrow><mo>−</mo><mn>{-power}</mn></mrow>"
        return _mathml_row(f"{first}<msup><mn>10</mn>{exponent}</msup>")
    return f"<mn>{digits:f}</mn>"


def _split_sign(node: grammar.Expression) -> tuple[bool, grammar.Expression]:
    """Return whether an expression begins with a minus sign, and the expression without it."""
    if _is_negation(node):
        inner, positive = _split_sign(node.terms[0][1])
        return not inner, positive
    if isinstance(node, grammar.Product):
        (operator, first), *others = node.factors
        negative, positive = _split_sign(first)
        return negative, grammar.Product(node.place, ((operator, positive), *others))
    return False, node


def _is_negation(node: grammar.Expression) -> TypeGuard[grammar.Sum]:
    return isinstance(node, grammar.Sum) and len(node.terms) == 1


def _to_mathml(node: grammar.Expression, roles: Mapping[str, str]) -> str:
    """Return an expression as MathML elements of one row; `roles` are the classes of names."""
    negative, positive = _split_sign(node)
    if negative:
        return _MATHML_MINUS + _factor_to_mathml(positive, roles, whole=isinstance(positive, grammar.Product))
    if _is_negation(node):  # two signs that cancel
        return _to_mathml(positive, roles)
    match node:
        case grammar.Number():
            return _mathml_number(node.value)
        case grammar.Name():
            return name_to_mathml(node.name, roles.get(node.name, ""))
        case grammar.Sum():
            text = ""
            for sign, term in node.terms:
                negative, positive = _split_sign(term)
                minus = (sign == "-") != negative
                text += (_MATHML_MINUS if minus else "<mo>+</mo>" if text else "") + _factor_to_mathml(positive, roles)
            return text
        case grammar.Product():
            return _product_to_mathml(node, roles)
        case grammar.Power():
            return _power_to_mathml(node, roles)
        case grammar.Call():
            return _call_to_mathml(node, roles)


def _factor_to_mathml(node: grammar.Expression, roles: Mapping[str, str], *, whole: bool = False) -> str:
    """Return an expression, in brackets if needed beside others."""
    text = _to_mathml(node, roles)
    loose = isinstance(node, grammar.Sum) or (isinstance(node, grammar.Product) and _split_sign(node)[0])
    return _mathml_parentheses(text) if loose and not whole else text


def _product_to_mathml(node: grammar.Product, roles: Mapping[str, str]) -> str:
    """Return factors side by side; a division makes a fraction of all factors since the last fraction."""
    groups: list[tuple[list[grammar.Expression], list[grammar.Expression]]] = []
    for operator, factor in node.factors:
        if operator == "/" and groups:
            groups[-1][1].append(factor)
        elif groups and not groups[-1][1]:
            groups[-1][0].append(factor)
        else:
            groups.append(([factor], []))
    text = ""
    for above, below in groups:
        shown = _juxtapose(above, roles, alone=bool(below))
        if below:
            shown = f"<mfrac>{_mathml_row(shown)}{_mathml_row(_juxtapose(below, roles, alone=True))}</mfrac>"
        text += _mathml_times(above[0]) * bool(text) + shown
    return text


def _juxtapose(factors: list[grammar.Expression], roles: Mapping[str, str], *, alone: bool) -> str:
    """Return factors without divisions; a single factor above or below a fraction bar needs no brackets."""
    if alone and len(factors) == 1:
        return _to_mathml(factors[0], roles)
    text = ""
    for factor in factors:
        text += _mathml_times(factor) * bool(text) + _factor_to_mathml(factor, roles)
    return text


def _mathml_times(node: grammar.Expression) -> str:
    """Return the sign before a factor: a dot before a number, else a space."""
    while isinstance(node, grammar.Power | grammar.Product):
        node = node.base if isinstance(node, grammar.Power) else node.factors[0][1]
    return "<mo>·</mo>" if isinstance(node, grammar.Number) else '<mspace width="0.16em"></mspace>'


def _power_to_mathml(node: grammar.Power, roles: Mapping[str, str]) -> str:
    is_derivative = node.has_parentheses and any(roles.get(n) == "channel" for n in grammar.find_names(node.base))
    if is_derivative and isinstance(node.exponent, grammar.Number):
        return _derivative_to_mathml(node.base, int(node.exponent.value), roles)
    base = _to_mathml(node.base, roles)
    simple = isinstance(node.base, grammar.Name) or (
        isinstance(node.base, grammar.Number) and node.base.value.denominator == 1
    )
    base = _mathml_row(base) if simple else _mathml_parentheses(base)
    return f"<msup>{base}{_mathml_row(_to_mathml(node.exponent, roles))}</msup>"


def _derivative_to_mathml(operand: grammar.Expression, order: int, roles: Mapping[str, str]) -> str:
    if not order:
        return _factor_to_mathml(operand, roles)
    if isinstance(operand, grammar.Call) and operand.function == "delay":
        return _delayed_to_mathml(_derivative_to_mathml(operand.arguments[0], order, roles), operand, roles)
    base = _to_mathml(operand, roles)
    base = base if isinstance(operand, grammar.Name) else _mathml_parentheses(base)
    if order in _PRIME_MARKS:
        # Fonts already raise primes; a superscript would raise and shrink them twice.
        return _mathml_row(f'{base}<mo lspace="0" rspace="0">{_PRIME_MARKS[order]}</mo>')
    return f"<msup>{base}<mrow><mo>(</mo><mn>{order}</mn><mo>)</mo></mrow></msup>"


def _call_to_mathml(node: grammar.Call, roles: Mapping[str, str]) -> str:
    first, *others = node.arguments
    if node.function == "D":
        order = others[0].value if others and isinstance(others[0], grammar.Number) else 1
        return _derivative_to_mathml(first, int(order), roles)
    if node.function == "diff":
        # A number repeats the t before it: diff(x, t, 2).
        orders = [int(part.value) - 1 if isinstance(part, grammar.Number) else 1 for part in others]
        return _derivative_to_mathml(first, sum(orders), roles)
    if node.function == "delay":
        return _delayed_to_mathml(_factor_to_mathml(first, roles), node, roles)
    argument = _to_mathml(first, roles)
    if node.function == "sqrt":
        return f"<msqrt>{argument}</msqrt>"
    if node.function == "exp":
        return f"<msup><mi>e</mi>{_mathml_row(argument)}</msup>"
    return f"<mi>{escape(node.function)}</mi><mo>&#x2061;</mo>{_mathml_parentheses(argument)}"


def _delayed_to_mathml(content: str, node: grammar.Call, roles: Mapping[str, str]) -> str:
    """Return a delayed quantity as a function of t minus the dead time."""
    time = _to_mathml(node.arguments[1], roles)
    time = _mathml_parentheses(time) if isinstance(node.arguments[1], grammar.Sum) else time
    return f"{content}<mo>&#x2061;</mo>{_mathml_parentheses(f'<mi>t</mi>{_MATHML_MINUS}{time}')}"

"""Parameters replaced by numbers, or by expressions in other parameters.

Facts as people read them: sentences, text, LaTeX and JSON.

System: equations, channels, parameters, the affine part, and the facts that the algebra finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, final

from lodekit.algebra.operators import OperatorMatrix
from lodekit.errors import EquationError, ParameterError
from lodekit.support.html import html_list, notebook_card
from lodekit.system import display, display as display_module, matrices
from lodekit.system.analysis import StructuralAnalysis
from lodekit.system.delays import constrain_delays_positive, find_delayed_channels
from lodekit.system.dimensions import Dimensions, find_dimensions
from lodekit.system.display import equations_to_mathml
from lodekit.system.grammar import Equation, Expression, Name, parse_equations, replace_names, walk, walk_equation
from lodekit.system.linear import build_linear_system, format_equation
from lodekit.system.matrices import (
    BasisExpressions,
    FreeFunctionBasis,
    MatrixEntryParser,
    build_basis,
    drop_inputs,
    parse_basis,
)
from lodekit.system.parameters import Parameter, check_channels, check_parameters_used, order_channels, parse_parameters
from lodekit.system.signals import ExponentialPolynomial
from lodekit.system.state_space import check_prescribable_inputs


def substitute_parameters(
    equations: Sequence[Equation],
    parameters: Mapping[str, Parameter],
    values: Mapping[str, Any],
    basis_rows: Sequence[Equation] = (),
) -> tuple[list[Equation], dict[str, Parameter], tuple[str, ...], list[Equation]]:
    """Return the equations with values in place of parameters, the parameters left, notes, and others treated alike."""
    if not isinstance(values, Mapping):
        raise ParameterError(f"expected values as a dict of names to numbers, got {type(values).__name__}")
    reader = MatrixEntryParser()
    replacements: dict[str, Expression] = {}
    for name, value in values.items():
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise ParameterError(f"unknown parameter {name!r}; expected one of: {known}")
        replacements[name] = reader.parse(value)
        for node in walk(replacements[name]):
            if isinstance(node, Name) and node.name not in parameters and node.name != "pi":
                raise ParameterError(f"the value of {name!r} mentions {node.name!r}, which is not a parameter")
    replaced, basis_rows = (
        [_replace_in_equation(row, replacements) for row in rows] for rows in (equations, basis_rows)
    )
    mentioned = {node.name for equation in replaced for node in walk_equation(equation) if isinstance(node, Name)}
    rest = {name: parameter for name, parameter in parameters.items() if name in mentioned or name not in values}
    return replaced, rest, reader.notes, basis_rows


def _replace_in_equation(equation: Equation, values: Mapping[str, Expression]) -> Equation:
    right = None if equation.right is None else replace_names(equation.right, values)
    return Equation(replace_names(equation.left, values), right, "")


class DisplayedSystem(StructuralAnalysis):
    """Facts that can be looked at."""

    def explain(self) -> str:
        """Return in plain sentences what the solutions of the system look like.

        Examples
        --------
        >>> import lodekit as lk
        >>> print(lk.catalog.three_tank().system.explain())
        2 functions of time can be chosen freely, for example f1 and f2.
        The system is not controllable: one constant mode, f1 - f2 + f3, cannot be influenced.
        """
        return "\n".join(display_module.explain_structure(self))

    def latex(self) -> str:
        r"""Return equations, Smith form and all solutions as LaTeX.

        Examples
        --------
        >>> import lodekit as lk
        >>> print(lk.System("tau*x' = u", parameters=["tau"]).latex().splitlines()[2])
        \tau \dot{x} - u &= 0
        """
        return display.format_latex(self)

    def _repr_latex_(self) -> str:
        return f"$${display.format_latex_equations(self)}$$"

    def _repr_html_(self) -> str:
        names = f"parameters {', '.join(self.parameters)}" if self.parameters else "no parameters"
        lead = f"channels {', '.join(self.channels)}; {names}"
        return notebook_card(
            "System", lead, [*equations_to_mathml(self), html_list(display_module.explain_structure(self), "soft")]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the whole analysis as plain values, ready for JSON.

        Examples
        --------
        >>> import lodekit as lk
        >>> content = lk.System("x' = v").to_dict()
        >>> content["smith_form"]["D"], content["possible_inputs"]
        ([['1', '0']], [['x'], ['v']])
        """
        return display.to_dict(self)

    def __str__(self) -> str:
        return display.format_text(self)

    def __repr__(self) -> str:
        count = len(self.equations)
        noun = "equation" if count == 1 else "equations"
        names = f", parameters {', '.join(self.parameters)}" if self.parameters else ""
        return f"<System of {count} {noun} in {', '.join(self.channels)}{names}>"


@final
class System(DisplayedSystem):
    """A system of linear ODEs with constant coefficients, and everything that can be proved about its solutions.

    Parameters
    ----------
    equations : str or sequence of str
        Equations, separated by newlines or semicolons, or a list of them. ``x'``, ``x''``, ``x^(4)``, ``D(x, 4)`` and
        ``diff(x, t, t)`` are derivatives; an expression without ``=`` is meant to be zero; ``#`` starts a comment.
    parameters : sequence of str, or dict of str to Parameter
        Unknown constants. Every other name, except t, is a channel.
    channels : sequence of str, optional
        The order of the channels; by default that of their first appearance. Once given, no other name may occur.
    basis : sequence of str, or matrix, optional
        What the free functions are, as in `with_basis`; by default those of the minimal basis.

    Examples
    --------
    >>> import lodekit as lk
    >>> system = lk.System("f1' = -a*(f1 - f2) + u; f2' = -b*(f2 - f1)", parameters=["a", "b"])
    >>> system.channels
    ('f1', 'f2', 'u')
    >>> system.is_controllable, system.free_functions
    (True, 1)
    >>> system.parametrization.free_columns
    Matrix([
    [           b + d],
    [               b],
    [d**2 + d*(a + b)]])
    """

    _equations: tuple[Equation, ...]
    _parameters: dict[str, Parameter]
    _channels: tuple[str, ...]
    _notes: tuple[str, ...]
    _operator: OperatorMatrix
    _forcing: tuple[ExponentialPolynomial, ...]
    _basis_expressions: BasisExpressions | None
    _free_function_basis: FreeFunctionBasis | None

    def __init__(
        self,
        equations: str | Sequence[str],
        *,
        parameters: Mapping[str, Parameter] | Iterable[str] = (),
        channels: Sequence[str] | None = None,
        basis: Any = None,
    ) -> None:
        parsed, known = parse_equations(equations), parse_parameters(parameters)
        check_parameters_used(parsed, known, order_channels(parsed, known, channels))
        self._build(parsed, known, channels, (), basis=basis)

    @classmethod
    def from_operator_matrix(
        cls,
        A: Any,
        channels: Sequence[str],
        parameters: Mapping[str, Parameter] | Iterable[str] = (),
        *,
        symbol: Any = None,
        basis: Any = None,
    ) -> System:
        """Return the system A(d) f = 0 of a SymPy matrix in one symbol.

        Parameters
        ----------
        A : sympy.Matrix, shape (m, n)
            Polynomials in the operator symbol, with coefficients rational in the parameters.
        channels : sequence of str
            n names.
        parameters : sequence of str, or dict of str to Parameter
            Names of the other symbols.
        symbol : sympy.Symbol or str, optional
            The operator symbol; by default the one symbol that is not a parameter.
        basis : sequence of str, or matrix, optional
            What the free functions are, as in `with_basis`.

        Examples
        --------
        >>> import lodekit as lk, sympy
        >>> d, k = sympy.symbols("d k")
        >>> lk.System.from_operator_matrix(sympy.Matrix([[d**2 + k, -1]]), ["x", "u"], ["k"]).equations
        ("x'' + k*x - u = 0",)
        """
        known = parse_parameters(parameters)
        names = check_channels(channels, known)
        lines, notes = matrices.equations_from_operator_matrix(A, names, tuple(known), symbol)
        equations = parse_equations(lines)
        check_parameters_used(equations, known, names)
        return cls._from_equations(equations, known, names, notes, basis=basis, symbol=symbol)

    @classmethod
    def from_state_space(
        cls,
        A: Any,
        B: Any = None,
        C: Any = None,
        D: Any = None,
        *,
        states: Sequence[str] | None = None,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        parameters: Mapping[str, Parameter] | Iterable[str] = (),
        basis: Any = None,
    ) -> System:
        """Return ``x' = A x + B u``, and ``y = C x + D u`` where C or D is given.

        Parameters
        ----------
        A, B, C, D : matrix
            NumPy or SymPy matrices, or rows of entries: numbers (floats by their shortest decimal form), texts or
            SymPy expressions. Only A is needed.
        states, inputs, outputs : sequence of str, optional
            Names; x1, x2, ..., u1, ... and y1, ... by default.
        parameters : sequence of str, or dict of str to Parameter
            Names of the unknown constants in the entries.
        basis : sequence of str, or matrix, optional
            What the free functions are, as in `with_basis`.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System.from_state_space([[0, 1], [-2, -0.5]], [[0], [1]]).equations
        ("x1' = x2", "x2' = -2*x1 - 0.5*x2 + u1")
        """
        blocks = matrices.parse_blocks(A, B, C, D)
        names = matrices.name_variables(blocks, states, inputs, outputs)
        known = parse_parameters(parameters)
        channels = check_channels([name for group in names for name in group], known)
        lines, notes = matrices.equations_from_state_space(blocks, *names, tuple(known))
        equations = parse_equations(lines)
        check_parameters_used(equations, known, channels)
        return cls._from_equations(equations, known, channels, notes, basis=basis)

    @classmethod
    def _from_equations(
        cls,
        equations: Sequence[Equation],
        parameters: Mapping[str, Parameter],
        channels: Sequence[str] | None,
        notes: Sequence[str],
        *,
        basis: Any = None,
        symbol: Any = None,
    ) -> System:
        system = cls.__new__(cls)
        system._build(equations, parameters, channels, notes, basis=basis, symbol=symbol)
        return system

    def _build(
        self,
        equations: Sequence[Equation],
        parameters: Mapping[str, Parameter],
        channels: Sequence[str] | None,
        notes: Sequence[str],
        *,
        basis: Any = None,
        symbol: Any = None,
    ) -> None:
        self._parameters = dict(parameters)
        plain = order_channels(equations, self._parameters, channels)
        names, variable = tuple(self._parameters), "d" if "d" not in self._parameters else "D"
        said, more = (basis, ()) if isinstance(basis, BasisExpressions) else parse_basis(basis, plain, names, symbol)
        self._notes = tuple(dict.fromkeys((*notes, *more)))
        rows, columns = ((), ()) if said is None else (said.rows, said.columns)
        read = build_linear_system(equations, plain, names, basis=rows, columns=columns)
        self._channels = functions = (*plain, *(late := find_delayed_channels(read.rows)))
        self._parameters = constrain_delays_positive(self._parameters, late)
        entries = [[row.channels.get(name, []) for name in functions] for row in read.rows]
        self._operator = OperatorMatrix.from_scalars(read.ring, entries, len(functions), variable)
        self._forcing = tuple(row.affine_term.scale(read.ring.rational(-1)) for row in read.rows)
        # Equations with something substituted have no text of their own yet.
        pairs = zip(equations, read.rows, strict=True)
        self._equations = tuple(e if e.text else replace(e, text=format_equation(row, functions)) for e, row in pairs)
        if any(self._forcing):
            self._check_consistency()
        self._basis_expressions = self._free_function_basis = None
        if said is not None:
            self._basis_expressions, self._free_function_basis = build_basis(
                said, read.basis, read.ring, self._channels, variable
            )
            # What will not do is refused now; everything else about a system is found out when it is asked for.
            _ = self.parametrization

    def __getstate__(self) -> dict[str, Any]:
        return {
            "equations": self._equations,
            "parameters": self._parameters,
            "channels": self.plain_channels,
            "notes": self._notes,
            "basis": self._basis_expressions,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        said = (state[name] for name in ("equations", "parameters", "channels", "notes"))
        self._build(*said, basis=state.get("basis"))

    def __eq__(self, other: object) -> bool:
        """Two systems are equal when their equations, channels, parameters and chosen bases are."""
        return isinstance(other, System) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash((self.equations, self._channels))

    @property
    def equations(self) -> tuple[str, ...]:
        """The equations as text, one each."""
        return tuple(equation.text for equation in self._equations)

    @property
    def written(self) -> tuple[Equation, ...]:
        """The equations as they were read from the text, before any algebra."""
        return self._equations

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the functions of time; those of delayed inputs, such as ``delay(u, T)``, come last."""
        return self._channels

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters by name."""
        return MappingProxyType(self._parameters)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the input was read, where that is worth knowing."""
        return self._notes

    @property
    def operator(self) -> OperatorMatrix:
        """A, as an exact operator matrix."""
        return self._operator

    @property
    def forcing(self) -> tuple[ExponentialPolynomial, ...]:
        """b(t) of ``A(d) f = b(t)``: one known function of time for each equation."""
        return self._forcing

    @property
    def choice(self) -> FreeFunctionBasis | None:
        """What the free functions were chosen to be; None for the minimal basis."""
        return self._free_function_basis

    @property
    def basis(self) -> list[str] | list[list[str]] | None:
        """The chosen basis, as expressions or as rows of entries; None for the minimal basis."""
        return None if self._free_function_basis is None else self._free_function_basis.definition

    def with_basis(self, basis: Any) -> System:
        """Return the same system with other free functions.

        The solutions stay the same, exactly; a prior on the free functions becomes another one.

        Parameters
        ----------
        basis : sequence of str, matrix, or None
            Linear differential expressions in the channels, one for each free function, that are to be the free
            functions (where b(t) is not zero: their difference from the particular solution); modes have no share in
            them. Or the free columns B, a SymPy matrix or rows of entries; modes stay as they are. Or a whole square
            V that makes A diagonal, as in the paper: free columns and modes are its columns. None for the minimal
            basis.

        Examples
        --------
        >>> import lodekit as lk
        >>> system = lk.catalog.three_tank().system.with_basis(["f1", "f2"])
        >>> system.parametrization.free_columns.T
        Matrix([
        [1, 0, -1, d, -d],
        [0, 1,  1, 0,  d]])
        >>> system.parametrization.mode_columns.T
        Matrix([[0, 0, 1, 0, 0]])
        """
        return System._from_equations(self._equations, self._parameters, self.plain_channels, self._notes, basis=basis)

    def substitute(self, values: Mapping[str, Any]) -> System:
        """Return the system with some parameters replaced.

        Parameters
        ----------
        values : dict of str to number, text or SymPy expression
            Numbers, or expressions in other parameters, by the names of those that they replace.

        Examples
        --------
        >>> import lodekit as lk
        >>> equal = lk.catalog.bipendulum(parametric=True).system.substitute({"l2": "l1"})
        >>> equal.is_controllable
        False
        """
        rows = () if self._basis_expressions is None else self._basis_expressions.rows
        equations, rest, notes, others = substitute_parameters(self._equations, self._parameters, values, rows)
        notes = tuple(dict.fromkeys((*self._notes, *notes)))
        basis = (
            None
            if self._basis_expressions is None
            else BasisExpressions(tuple(others), self._basis_expressions.columns)
        )
        try:
            return System._from_equations(equations, rest, self.plain_channels, notes, basis=basis)
        except EquationError as problem:
            if basis is None:
                raise
            raise EquationError(
                f"the chosen basis is none at these values: {problem}\nTry system.with_basis(None).substitute(...)"
            ) from None

    def given(self, inputs: Mapping[str, str] | Iterable[str], *, are_all: bool = True) -> System:
        """Return the system of the other channels where some are known, with zero in the place of these.

        Its solutions can be added to a response to inputs. It keeps parameters that stand before inputs only.

        Parameters
        ----------
        inputs : sequence of str, or dict of str to str
            Channels that are known, as in `state_space`.
        are_all : bool
            Whether no others are known: those that are delayed have to be among them then.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("tau*y' + y - y0 = K*u", parameters=["tau", "y0", "K"]).given(["u"])
        <System of 1 equation in y, parameters tau, y0, K>
        """
        names = check_prescribable_inputs(
            self._operator, self._forcing, self._channels, inputs, include_delayed=are_all
        )
        equations, basis = drop_inputs(self._equations, self._basis_expressions, names)
        rest = [name for name in self.plain_channels if name not in names]
        reduced = System._from_equations(equations, self._parameters, rest, self._notes)
        return reduced.with_basis(basis) if basis is not None and reduced.free_functions else reduced

    def definition(self) -> dict[str, Any]:
        """Return what the user said, as plain values for JSON; `from_definition` makes the system again.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v").definition()
        {'equations': ["x' = v"], 'channels': ['x', 'v'], 'parameters': {}, 'notes': []}
        """
        return display.to_definition(self)

    @classmethod
    def from_definition(cls, content: Mapping[str, Any]) -> System:
        """Return the system that `definition` has described.

        Parameters
        ----------
        content : dict
            As `definition` returns it.

        Examples
        --------
        >>> import lodekit as lk
        >>> system = lk.System("x' = -a*x", parameters=["a"])
        >>> lk.System.from_definition(system.definition()) == system
        True
        """
        parameters = {name: Parameter.from_definition(entry) for name, entry in content["parameters"].items()}
        equations, channels, notes = (content[name] for name in ("equations", "channels", "notes"))
        return cls._from_equations(parse_equations(equations), parameters, channels, notes, basis=content.get("basis"))

    def dimensions(self) -> Dimensions:
        """Return the dimension of each parameter in terms of time and channels, as the equations imply it.

        Examples
        --------
        >>> import lodekit as lk
        >>> found = lk.System("x'' + c*x' + k*x = b*u", parameters=["c", "k", "b"]).dimensions()
        >>> found["k"] == {"t": -2}, found.format("b")
        (True, 'x/(u*t^2)')
        """
        return find_dimensions(self)

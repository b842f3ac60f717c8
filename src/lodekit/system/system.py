"""System: equations, channels, parameters, the affine part, and the facts that the algebra finds out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, final

from lodekit.algebra.operators import OperatorMatrix
from lodekit.system import display, explanation, matrices
from lodekit.system.dimensions import Dimensions, find_dimensions
from lodekit.system.facts import Facts
from lodekit.system.grammar import parse_equations
from lodekit.system.linear import read_system
from lodekit.system.names import check_all_used, check_channels, order_channels
from lodekit.system.parameters import Parameter, read_parameters
from lodekit.system.signals import Signal
from lodekit.system.substitution import substitute
from lodekit.system.tree import Equation
from lodekit.system.writing import format_row

__all__ = ["System"]


@final
class System(Facts):
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
    _forcing: tuple[Signal, ...]

    def __init__(
        self,
        equations: str | Sequence[str],
        *,
        parameters: Mapping[str, Parameter] | Iterable[str] = (),
        channels: Sequence[str] | None = None,
    ) -> None:
        self._set(parse_equations(equations), read_parameters(parameters), channels, ())

    @classmethod
    def from_operator_matrix(
        cls,
        A: Any,
        channels: Sequence[str],
        parameters: Mapping[str, Parameter] | Iterable[str] = (),
        *,
        symbol: Any = None,
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

        Examples
        --------
        >>> import lodekit as lk, sympy
        >>> d, k = sympy.symbols("d k")
        >>> lk.System.from_operator_matrix(sympy.Matrix([[d**2 + k, -1]]), ["x", "u"], ["k"]).equations
        ("x'' + k*x - u = 0",)
        """
        known = read_parameters(parameters)
        names = check_channels(channels, known)
        lines, notes = matrices.equations_from_operator_matrix(A, names, tuple(known), symbol)
        return cls._from_equations(parse_equations(lines), known, names, notes)

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

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System.from_state_space([[0, 1], [-2, -0.5]], [[0], [1]]).equations
        ("x1' = x2", "x2' = -2*x1 - 0.5*x2 + u1")
        """
        blocks = matrices.read_blocks(A, B, C, D)
        names = matrices.name_blocks(blocks, states, inputs, outputs)
        known = read_parameters(parameters)
        channels = check_channels([name for group in names for name in group], known)
        lines, notes = matrices.equations_from_state_space(blocks, *names, tuple(known))
        return cls._from_equations(parse_equations(lines), known, channels, notes)

    @classmethod
    def _from_equations(
        cls,
        equations: Sequence[Equation],
        parameters: Mapping[str, Parameter],
        channels: Sequence[str] | None,
        notes: Sequence[str],
    ) -> System:
        system = cls.__new__(cls)
        system._set(equations, parameters, channels, notes)
        return system

    def _set(
        self,
        equations: Sequence[Equation],
        parameters: Mapping[str, Parameter],
        channels: Sequence[str] | None,
        notes: Sequence[str],
    ) -> None:
        self._parameters = dict(parameters)
        self._channels = order_channels(equations, self._parameters, channels)
        check_all_used(equations, self._parameters, self._channels)
        self._notes = tuple(notes)
        read = read_system(equations, self._channels, tuple(self._parameters))
        entries = [[row.channels.get(name, []) for name in self._channels] for row in read.rows]
        variable = "d" if "d" not in self._parameters else "D"
        self._operator = OperatorMatrix.from_scalars(read.ring, entries, len(self._channels), variable)
        minus = read.ring.rational(-1)
        self._forcing = tuple(row.known.scale(minus) for row in read.rows)
        # Equations with something substituted have no text of their own yet.
        self._equations = tuple(
            equation if equation.text else Equation(equation.left, equation.right, format_row(row, self._channels))
            for equation, row in zip(equations, read.rows, strict=True)
        )
        if any(self._forcing):
            self._check_consistency()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "equations": self._equations,
            "parameters": self._parameters,
            "channels": self._channels,
            "notes": self._notes,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(state["equations"], state["parameters"], state["channels"], state["notes"])

    def __eq__(self, other: object) -> bool:
        """Two systems are equal when their equations, channels and parameters are."""
        return isinstance(other, System) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.equations, self.channels, tuple(self._parameters)))

    def _identity(self) -> tuple[object, ...]:
        return (self._equations, self._parameters, self._channels, self._notes)

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
        """The names of the functions of time."""
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
    def forcing(self) -> tuple[Signal, ...]:
        """b(t) of ``A(d) f = b(t)``: one known function of time for each equation."""
        return self._forcing

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
        equations, rest, notes = substitute(self._equations, self._parameters, values)
        return System._from_equations(equations, rest, self._channels, tuple(dict.fromkeys((*self._notes, *notes))))

    def definition(self) -> dict[str, Any]:
        """Return what the user said, as plain values for JSON; `from_definition` makes the system again.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v").definition()
        {'equations': ["x' = v"], 'channels': ['x', 'v'], 'parameters': {}, 'notes': []}
        """
        return {
            "equations": list(self.equations),
            "channels": list(self._channels),
            "parameters": {name: parameter.definition() for name, parameter in self._parameters.items()},
            "notes": list(self._notes),
        }

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
        return cls._from_equations(
            parse_equations(content["equations"]), parameters, content["channels"], content["notes"]
        )

    def explain(self) -> str:
        """Return in plain sentences what the solutions of the system look like.

        Examples
        --------
        >>> import lodekit as lk
        >>> print(lk.catalog.three_tank().system.explain())
        2 functions of time can be chosen freely, for example f1 and f2.
        The system is not controllable: one constant mode, f1 - f2 + f3, cannot be influenced.
        """
        return "\n".join(explanation.sentences(self))

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

    def latex(self) -> str:
        r"""Return equations, Smith form and all solutions as LaTeX.

        Examples
        --------
        >>> import lodekit as lk
        >>> print(lk.System("tau*x' = u", parameters=["tau"]).latex().splitlines()[2])
        \tau \dot{x} - u &= 0
        """
        return display.latex(self)

    def _repr_latex_(self) -> str:
        return f"$${display.latex_equations(self)}$$"

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
        return "\n\n".join(
            "\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in display.sections(self)
        )

    def __repr__(self) -> str:
        count = len(self._equations)
        noun = "equation" if count == 1 else "equations"
        names = f", parameters {', '.join(self._parameters)}" if self._parameters else ""
        return f"<System of {count} {noun} in {', '.join(self._channels)}{names}>"

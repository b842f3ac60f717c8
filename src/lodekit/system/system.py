"""System: equations, channels, parameters, the affine part, and the facts that the algebra finds out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lodekit.algebra.decomposition import Decomposition
from lodekit.algebra.degeneracy import degenerate_factors, exceptional_factors
from lodekit.algebra.finite_field import Element
from lodekit.algebra.modes import mode_factors
from lodekit.algebra.operators import OperatorMatrix, element_to_sympy, symbols_of
from lodekit.algebra.parametrization import Parametrization, parametrize
from lodekit.algebra.polynomials import Polynomial
from lodekit.algebra.scalars import Scalar
from lodekit.algebra.smith import SmithForm, smith_form
from lodekit.errors import EquationError, InconsistentSystemError, ParameterError
from lodekit.system import display, explanation, matrices
from lodekit.system.grammar import parse_equations
from lodekit.system.linear import read_system
from lodekit.system.mode import Mode
from lodekit.system.names import check_all_used, check_channels, list_names, nodes, order_channels
from lodekit.system.parameters import Parameter, read_parameters
from lodekit.system.particular import particular_solution
from lodekit.system.signals import Signal
from lodekit.system.tree import Equation, Expression, Name, replace_names, walk
from lodekit.system.writing import format_observable, format_row

if TYPE_CHECKING:
    import sympy

__all__ = ["System"]

_MAX_INPUT_SETS = 100


class System:
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

        Entries are numbers (floats by their shortest decimal form), SymPy expressions or texts. Names default to
        x1, x2, ..., u1, ... and y1, ....

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System.from_state_space([[0, 1], [-2, -0.5]], [[0], [1]]).equations
        ("x1' = x2", "x2' = -2*x1 - 0.5*x2 + u1")
        """
        rows = matrices.to_rows(A, "A", (None, None))
        size = len(rows)
        blocks = {"A": matrices.to_rows(A, "A", (size, size))}
        blocks["B"] = [[] for _ in range(size)] if B is None else matrices.to_rows(B, "B", (size, None))
        width = len(blocks["B"][0]) if size else 0
        blocks["C"] = [] if C is None else matrices.to_rows(C, "C", (None, size))
        if C is None and D is not None:
            blocks["C"] = [[0] * size for _ in matrices.to_rows(D, "D", (None, width))]
        height = len(blocks["C"])
        blocks["D"] = [[0] * width] * height if D is None else matrices.to_rows(D, "D", (height, width))
        if not size:
            raise EquationError("expected at least one state, got an empty matrix A")
        names = [
            list_names(given, role) if given is not None else [f"{letter}{i + 1}" for i in range(count)]
            for given, role, letter, count in (
                (states, "state", "x", size),
                (inputs, "input", "u", width),
                (outputs, "output", "y", height),
            )
        ]
        for role, given, count in zip(("state", "input", "output"), names, (size, width, height), strict=True):
            if len(given) != count:
                raise EquationError(f"expected {count} {role} name{'s' * (count != 1)}, got {len(given)}")
        known = read_parameters(parameters)
        channels = check_channels([*names[0], *names[1], *names[2]], known)
        lines, notes = matrices.equations_from_state_space(blocks, names[0], names[1], names[2], tuple(known))
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

    @property
    def is_homogeneous(self) -> bool:
        """Whether b(t) is zero."""
        return not any(self._forcing)

    @property
    def d(self) -> sympy.Symbol:
        """The SymPy symbol for d/dt in all matrices: d, or D where a parameter is called d."""
        import sympy

        return sympy.Symbol(self._operator.variable)

    @property
    def operator_matrix(self) -> sympy.ImmutableMatrix:
        """A, m x n, as a SymPy matrix in `d` and the parameters."""
        return self._operator.sympy

    @cached_property
    def right_hand_side(self) -> sympy.ImmutableMatrix:
        """b(t), m x 1, as a SymPy matrix in t and the parameters."""
        import sympy

        return sympy.ImmutableMatrix(len(self._forcing), 1, [signal.to_sympy() for signal in self._forcing])

    @cached_property
    def smith_form(self) -> SmithForm:
        """The Smith form U A V = D, with ``verify()``."""
        return smith_form(self._operator, self._stages)

    @cached_property
    def _stages(self) -> Decomposition:
        return Decomposition(self._operator.ring, self._operator.rows, self._operator.width)

    @property
    def invariants(self) -> list[Polynomial]:
        """The non-zero diagonal entries of D, as exact polynomials; cheaper than the whole Smith form."""
        return self._stages.invariants

    @cached_property
    def parametrization(self) -> Parametrization:
        """Every solution as free functions and modes, with ``verify()``."""
        return parametrize(self._operator, self._stages)

    @cached_property
    def particular_solution(self) -> tuple[Signal, ...]:
        """One exact solution of ``A(d) f = b(t)``, a known function of time for each channel; zero where b is."""
        return particular_solution(self._operator, self._stages, self._forcing)

    @property
    def free_functions(self) -> int:
        """How many functions of time can be chosen freely."""
        return len(self._channels) - self._stages.rank

    @property
    def is_controllable(self) -> bool:
        """Whether every solution comes from the free functions alone: no mode is out of reach."""
        return self._stages.is_controllable

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The exponents of the autonomous part with their exact multiplicities."""
        ring, parametrization = self._operator.ring, self.parametrization
        annihilators = [column.annihilator for column in parametrization.modes]
        modes = []
        for part in mode_factors(ring, annihilators):
            row = parametrization.observable_of(part.mode, part.cofactor(ring, annihilators[part.mode]))
            observable = format_observable(ring, row, self._channels)
            variable = self._operator.variable
            modes.append(Mode(ring, part.polynomial, part.multiplicity, observable, part.mode, variable))
        return tuple(modes)

    @cached_property
    def degeneracies(self) -> tuple[sympy.Expr, ...]:
        """Parameter expressions at whose zeros the structure changes, as SymPy expressions.

        Each was tested by substituting a zero of it. Expressions that cannot vanish for positive parameters are left
        out. Exceptions that need two expressions to vanish at once are not listed.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.catalog.bipendulum(parametric=True).system.degeneracies
        (l1 - l2,)
        """
        ring = self._operator.ring
        symbols = symbols_of(ring)
        return tuple(element_to_sympy(ring, factor, symbols) for factor in self.degenerate_elements)

    @cached_property
    def degenerate_elements(self) -> tuple[Element, ...]:
        """The degeneracies as ring elements."""
        if not self._parameters:
            return ()
        return tuple(f for f in degenerate_factors(self.smith_form) if self._can_vanish(f))

    @cached_property
    def exceptional_elements(self) -> tuple[Element, ...]:
        """Parameter factors at whose zeros the parametrization must be computed anew: substitute the values first."""
        if not self._parameters:
            return ()
        return tuple(f for f in exceptional_factors(self.parametrization) if self._can_vanish(f))

    def _can_vanish(self, factor: Element) -> bool:
        """Return False where all terms have one sign, because parameters are positive or squared."""
        ring = self._operator.ring
        terms = ring.terms(factor)
        names = ring.names[len(ring.constants) :]
        used = {n for e in terms for n, k in zip(names, e[len(ring.constants) :], strict=True) if k}
        one_sign = len({value > 0 for value in terms.values()}) == 1
        plain = not any(any(exponents[: len(ring.constants)]) for exponents in terms)
        squares = all(k % 2 == 0 for exponents in terms for k in exponents) and tuple([0] * len(ring.names)) in terms
        return not (plain and one_sign and (squares or all(self._parameters[name].excludes_zero for name in used)))

    @cached_property
    def possible_inputs(self) -> tuple[tuple[str, ...], ...]:
        """The sets of channels that can be chosen freely, at most 100 of them; empty where nothing is free.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = u + v").possible_inputs
        (('x', 'u'), ('x', 'v'), ('u', 'v'))
        """
        found = self.parametrization.input_sets(_MAX_INPUT_SETS) if self.free_functions else ()
        return tuple(tuple(self._channels[i] for i in chosen) for chosen in found)

    def can_choose(self, *channels: str) -> bool:
        """Return whether these channels can be prescribed freely, all at once."""
        for name in channels:
            if name not in self._channels:
                raise EquationError(f"unknown channel {name!r}; expected some of {', '.join(self._channels)}")
        return self.parametrization.can_choose([self._channels.index(name) for name in channels])

    def substitute(self, values: Mapping[str, Any]) -> System:
        """Return the system with some parameters replaced by numbers or by expressions in other parameters.

        Examples
        --------
        >>> import lodekit as lk
        >>> equal = lk.catalog.bipendulum(parametric=True).system.substitute({"l2": "l1"})
        >>> equal.is_controllable
        False
        """
        if not isinstance(values, Mapping):
            raise ParameterError(f"expected values as a dict of names to numbers, got {type(values).__name__}")
        reader = matrices.EntryReader()
        replacements: dict[str, Expression] = {}
        for name, value in values.items():
            if name not in self._parameters:
                known = ", ".join(self._parameters) or "none"
                raise ParameterError(f"unknown parameter {name!r}; expected one of: {known}")
            replacements[name] = reader.read(value)
            for node in walk(replacements[name]):
                if isinstance(node, Name) and node.name not in self._parameters and node.name != "pi":
                    raise ParameterError(f"the value of {name!r} mentions {node.name!r}, which is not a parameter")
        equations = [
            Equation(
                replace_names(equation.left, replacements),
                None if equation.right is None else replace_names(equation.right, replacements),
                "",
            )
            for equation in self._equations
        ]
        mentioned = {node.name for eq in equations for node in nodes(eq) if isinstance(node, Name)}
        rest = {name: parameter for name, parameter in self._parameters.items() if name in mentioned}
        return System._from_equations(
            equations, rest, self._channels, tuple(dict.fromkeys((*self._notes, *reader.notes)))
        )

    def definition(self) -> dict[str, Any]:
        """Return what the user said, as plain values; `from_definition` makes the system again."""
        return {
            "equations": list(self.equations),
            "channels": list(self._channels),
            "parameters": {name: parameter.definition() for name, parameter in self._parameters.items()},
            "notes": list(self._notes),
        }

    @classmethod
    def from_definition(cls, content: Mapping[str, Any]) -> System:
        """Return the system that `definition` has described."""
        parameters = {name: Parameter.from_definition(entry) for name, entry in content["parameters"].items()}
        return cls._from_equations(
            parse_equations(content["equations"]), parameters, content["channels"], content["notes"]
        )

    def verify(self) -> tuple[str, ...]:
        """Check exactly, by multiplication, everything the analysis rests on; return what was proved."""
        return (*self.smith_form.verify(), *self.parametrization.verify())

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

    def latex(self) -> str:
        """Return equations, Smith form and all solutions as LaTeX."""
        return display.latex(self)

    def _repr_latex_(self) -> str:
        return f"$${display.latex_equations(self)}$$"

    def to_dict(self) -> dict[str, Any]:
        """Return the whole analysis as plain values, ready for JSON."""
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

    def _check_consistency(self) -> None:
        """Raise where a combination of the equations forces zero to equal something else."""
        for weights in self._relation_weights():
            total = Signal(self._operator.ring)
            for weight, signal in zip(weights, self._forcing, strict=True):
                total = total + signal.apply(weight)
            if not total:
                continue
            combination = explanation.format_combination(weights)
            raise InconsistentSystemError(
                f"the equations contradict each other: {combination} forces 0 = {total}. "
                "Check the right-hand sides of these equations, or remove one of them"
            )

    def relations(self) -> tuple[str, ...]:
        """Return the combinations of equations that vanish: redundant equations, as text."""
        return tuple(explanation.format_combination(weights) for weights in self._relation_weights())

    def _relation_weights(self) -> list[list[list[Scalar]]]:
        ring, bottoms = self._operator.ring, self._operator.denominators
        return [
            [[Scalar(ring, c * a) for c in weight] for weight, a in zip(relation, bottoms, strict=True)]
            for relation in self._stages.relations
        ]

"""The class `System`: equations, channels and parameters, and what exact algebra proves about ``A(d) f = b(t)``.

Every property of the solutions is computed when it is first used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from lodekit.algebra.modes import elementary_divisors
from lodekit.algebra.operators import OperatorMatrix, element_to_sympy, sympy_symbols
from lodekit.algebra.parametrization import Parametrization, degenerate_factors, exceptional_factors, parametrize
from lodekit.algebra.polynomials import Polynomial
from lodekit.algebra.scalars import Element, Scalar
from lodekit.algebra.smith import PopovDecomposition, SmithForm, smith_form
from lodekit.errors import AlgebraError, EquationError, InconsistentSystemError, ParameterError
from lodekit.support.html import html_list, notebook_card
from lodekit.support.progress import track_progress
from lodekit.support.text import suggest_arguments
from lodekit.system import display, grammar, matrices
from lodekit.system.analysis import Mode, find_modes, symbolic_covariance
from lodekit.system.delays import DelayedChannel, constrain_delays_positive
from lodekit.system.dimensions import Dimensions, find_dimensions
from lodekit.system.linear import LinearFormBuilder, build_linear_system, format_combination, format_equation
from lodekit.system.matrices import BasisExpressions, FreeFunctionBasis
from lodekit.system.parameters import Parameter, check_channels, check_parameters_used, order_channels, parse_parameters
from lodekit.system.signals import ExponentialPolynomial, combine_signals, find_particular_solution
from lodekit.system.state_space import StateSpace, check_prescribable_inputs, realize_state_space

if TYPE_CHECKING:
    import sympy

_PROGRESS_MESSAGE = "analysing the equations"


@final
@suggest_arguments
class System:
    """A system of linear ODEs with constant coefficients, and the exact algebra of its solutions.

    Parameters
    ----------
    equations : str or sequence of str
        Equations, separated by newlines or semicolons, or a list of them. ``x'``, ``x''``, ``x^(4)``, ``D(x, 4)`` and
        ``diff(x, t, t)`` are derivatives; an expression without ``=`` is set to zero; ``#`` starts a comment.
    parameters : sequence of str, or dict of str to Parameter
        Unknown constants. Every other name, except t, is a channel.
    channels : sequence of str, optional
        The channels in order; by default in order of first appearance. If given, no other name may occur.
    basis : sequence of str, or matrix, optional
        The choice of free functions, as in `with_basis`; by default the minimal basis.

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

    _equations: tuple[grammar.Equation, ...]
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
        parameters: Mapping[str, Parameter] | Iterable[str] = (),
        *,
        channels: Sequence[str] | None = None,
        basis: Any = None,
    ) -> None:
        parsed, known = grammar.parse_equations(equations), parse_parameters(parameters)
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
            Names of the n channels.
        parameters : sequence of str, or dict of str to Parameter
            Names of the other symbols.
        symbol : sympy.Symbol or str, optional
            The operator symbol; by default the only symbol that is not a parameter.
        basis : sequence of str, or matrix, optional
            The choice of free functions, as in `with_basis`.

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
        equations = grammar.parse_equations(lines)
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
        """Return the system ``x' = A x + B u``, with ``y = C x + D u`` if C or D is given.

        Parameters
        ----------
        A, B, C, D : matrix
            NumPy or SymPy matrices, or rows of entries: numbers (floats by their shortest decimal form), texts or
            SymPy expressions. Only A is required.
        states, inputs, outputs : sequence of str, optional
            Names; by default x1, x2, ..., u1, ... and y1, ...
        parameters : sequence of str, or dict of str to Parameter
            Names of the unknown constants in the entries.
        basis : sequence of str, or matrix, optional
            The choice of free functions, as in `with_basis`.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System.from_state_space([[0, 1], [-2, -0.5]], [[0], [1]]).equations
        ("x1' = x2", "x2' = -2*x1 - 0.5*x2 + u1")
        """
        blocks = matrices.parse_blocks(A, B, C, D)
        names = matrices.name_variables(blocks, (states, inputs, outputs))
        known = parse_parameters(parameters)
        channels = check_channels([name for group in names for name in group], known)
        lines, notes = matrices.equations_from_state_space(blocks, names, tuple(known))
        equations = grammar.parse_equations(lines)
        check_parameters_used(equations, known, channels)
        return cls._from_equations(equations, known, channels, notes, basis=basis)

    @classmethod
    def _from_equations(cls, *parts: Any, **options: Any) -> System:
        system = cls.__new__(cls)
        system._build(*parts, **options)
        return system

    def _build(
        self,
        equations: Sequence[grammar.Equation],
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
        more: tuple[str, ...] = ()
        if not isinstance(basis, BasisExpressions):
            basis, more = matrices.parse_basis(basis, plain, names, symbol)
        self._notes = tuple(dict.fromkeys((*notes, *more)))
        rows, columns = ((), ()) if basis is None else (basis.rows, basis.columns)
        ring, forms, basis_forms = build_linear_system(equations, plain, names, basis=rows, columns=columns)
        used = dict.fromkeys(name for form in forms for name in form.channels)
        delayed = [name for name in used if isinstance(name, DelayedChannel)]
        self._channels = functions = (*plain, *delayed)
        self._parameters = constrain_delays_positive(self._parameters, delayed)
        entries = [[form.channels.get(name, []) for name in functions] for form in forms]
        self._operator = OperatorMatrix.from_scalars(ring, entries, len(functions), variable)
        self._forcing = tuple(form.affine_term.scale(ring.rational(-1)) for form in forms)
        # Equations after a substitution have no text yet.
        pairs = zip(equations, forms, strict=True)
        self._equations = tuple(e if e.text else replace(e, text=format_equation(form, functions)) for e, form in pairs)
        if any(self._forcing):
            self._check_consistency()
        self._basis_expressions = self._free_function_basis = None
        if basis is not None:
            chosen = matrices.build_basis(basis, basis_forms, ring, self._channels, variable)
            self._basis_expressions, self._free_function_basis = chosen
            # An invalid basis is rejected now; everything else is computed on first use.
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
        self._build(*(state[name] for name in ("equations", "parameters", "channels", "notes")), basis=state["basis"])

    def __eq__(self, other: object) -> bool:
        """Compare equations, channels, parameters and the chosen basis."""
        return isinstance(other, System) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash((self.equations, self._channels))

    @property
    def equations(self) -> tuple[str, ...]:
        """The equations as texts."""
        return tuple(equation.text for equation in self._equations)

    @property
    def written(self) -> tuple[grammar.Equation, ...]:
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
        """Remarks on how the text was interpreted."""
        return self._notes

    @property
    def operator(self) -> OperatorMatrix:
        """The exact operator matrix A."""
        return self._operator

    @property
    def forcing(self) -> tuple[ExponentialPolynomial, ...]:
        """The right-hand side b(t) of ``A(d) f = b(t)``: a known function of time for each equation."""
        return self._forcing

    @property
    def choice(self) -> FreeFunctionBasis | None:
        """The chosen free functions; None for the minimal basis."""
        return self._free_function_basis

    @property
    def basis(self) -> list[str] | list[list[str]] | None:
        """The chosen basis, as expressions or as rows of entries; None for the minimal basis."""
        return None if self._free_function_basis is None else self._free_function_basis.definition

    def with_basis(self, basis: Any) -> System:
        """Return the same system with other free functions.

        The set of solutions does not change, but the prior on the free functions does.

        Parameters
        ----------
        basis : sequence of str, matrix, or None
            Linear differential expressions in the channels that become the free functions, one for each (if b(t) is
            not zero: their difference from the particular solution); modes do not contribute to them. Or the free
            columns B, as a SymPy matrix or rows of entries; modes do not change. Or a square matrix V that makes A
            diagonal, as in the paper, with free columns and modes as its columns. None for the minimal basis.

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
        """Return the system with values or expressions substituted for some parameters.

        Parameters
        ----------
        values : dict of str to number, text or SymPy expression
            Numbers, or expressions in other parameters, by name of the replaced parameter.

        Examples
        --------
        >>> import lodekit as lk
        >>> equal = lk.catalog.bipendulum(parametric=True).system.substitute({"l2": "l1"})
        >>> equal.is_controllable
        False
        """
        if not isinstance(values, Mapping):
            raise ParameterError(f"expected values as a dict of names to numbers, got {type(values).__name__}")
        reader = matrices.MatrixEntryParser()
        replacements: dict[str, grammar.Expression] = {}
        for name, value in values.items():
            if name not in self._parameters:
                known = ", ".join(self._parameters) or "none"
                raise ParameterError(f"unknown parameter {name!r}; expected one of: {known}")
            replacements[name] = reader.parse(value)
            for other in grammar.find_names(replacements[name]):
                if other not in self._parameters and other != "pi":
                    raise ParameterError(f"the value of {name!r} mentions {other!r}, which is not a parameter")

        def replace_in(row: grammar.Equation) -> grammar.Equation:
            left, *right = (grammar.replace_names(side, replacements) for side in row.sides)
            return grammar.Equation(left, right[0] if right else None, "")

        equations, basis = list(map(replace_in, self._equations)), self._basis_expressions
        mentioned = {name for equation in equations for name in equation.names}
        remaining = {name: own for name, own in self._parameters.items() if name in mentioned or name not in values}
        basis = basis and BasisExpressions(tuple(map(replace_in, basis.rows)), basis.columns)
        notes = (*self._notes, *reader.notes)
        try:
            return System._from_equations(equations, remaining, self.plain_channels, notes, basis=basis)
        except EquationError as problem:
            if basis is None:
                raise
            raise EquationError(
                f"the chosen basis is invalid at these values: {problem}\nTry system.with_basis(None).substitute(...)"
            ) from None

    def given(self, inputs: Mapping[str, str] | Iterable[str], *, are_all: bool = True) -> System:
        """Return the system of the other channels, with zero substituted for known inputs.

        Its solutions can be added to a response to the inputs. It also keeps parameters that only multiply inputs.

        Parameters
        ----------
        inputs : sequence of str, or dict of str to str
            Known inputs, as in `state_space`.
        are_all : bool
            Whether there are no other inputs: then all delayed channels must be among them.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("tau*y' + y - y0 = K*u", parameters=["tau", "y0", "K"]).given(["u"])
        <System of 1 equation in y, parameters tau, y0, K>
        """
        parts = self._operator, self._forcing, self._channels
        names = check_prescribable_inputs(parts, inputs, include_delayed=are_all)
        equations, basis = matrices.drop_inputs(self._equations, self._basis_expressions, names)
        others = [name for name in self.plain_channels if name not in names]
        reduced = System._from_equations(equations, self._parameters, others, self._notes)
        return reduced.with_basis(basis) if basis is not None and reduced.free_functions else reduced

    def definition(self) -> dict[str, Any]:
        """Return the definition of the system as plain values for JSON; `from_definition` restores it.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v").definition()
        {'equations': ["x' = v"], 'channels': ['x', 'v'], 'parameters': {}, 'notes': []}
        """
        return {
            "equations": list(self.equations),
            "channels": list(self.plain_channels),
            "parameters": {name: parameter.definition() for name, parameter in self.parameters.items()},
            "notes": list(self.notes),
            **({} if self.basis is None else {"basis": self.basis}),
        }

    @classmethod
    def from_definition(cls, content: Mapping[str, Any]) -> System:
        """Return the system with a given definition.

        Parameters
        ----------
        content : dict
            As returned by `definition`.

        Examples
        --------
        >>> import lodekit as lk
        >>> system = lk.System("x' = -a*x", parameters=["a"])
        >>> lk.System.from_definition(system.definition()) == system
        True
        """
        parameters = {name: Parameter.from_definition(entry) for name, entry in content["parameters"].items()}
        parts = (grammar.parse_equations(content["equations"]), parameters, content["channels"], content["notes"])
        return cls._from_equations(*parts, basis=content.get("basis"))

    def dimensions(self) -> Dimensions:
        """Return the dimension of each parameter in terms of time and channels, as implied by the equations.

        Examples
        --------
        >>> import lodekit as lk
        >>> found = lk.System("x'' + c*x' + k*x = b*u", parameters=["c", "k", "b"]).dimensions()
        >>> found["k"] == {"t": -2}, found.format("b")
        (True, 'x/(u*t^2)')
        """
        return find_dimensions(self)

    @property
    def plain_channels(self) -> tuple[str, ...]:
        """The channels without delayed ones."""
        return tuple(name for name in self.channels if not isinstance(name, DelayedChannel))

    @property
    def delayed_channels(self) -> tuple[DelayedChannel, ...]:
        """The delayed channels, such as ``delay(u, T)``."""
        return tuple(name for name in self.channels if isinstance(name, DelayedChannel))

    @property
    def is_homogeneous(self) -> bool:
        """Whether b(t) is zero."""
        return not any(self.forcing)

    @property
    def d(self) -> sympy.Symbol:
        """The SymPy symbol for d/dt in all matrices: d, or D if a parameter is called d."""
        import sympy

        return sympy.Symbol(self.operator.variable)

    @property
    def operator_matrix(self) -> sympy.ImmutableMatrix:
        """A, m x n, as a SymPy matrix in `d` and the parameters."""
        return self.operator.sympy

    @cached_property
    def right_hand_side(self) -> sympy.ImmutableMatrix:
        """b(t), m x 1, as a SymPy matrix in t and the parameters."""
        import sympy

        return sympy.ImmutableMatrix(len(self.forcing), 1, [signal.to_sympy() for signal in self.forcing])

    @cached_property
    def smith_form(self) -> SmithForm:
        """The Smith form U A V = D, with ``verify()``."""
        with track_progress(_PROGRESS_MESSAGE):
            return smith_form(self.operator, self._decomposition)

    @cached_property
    def _decomposition(self) -> PopovDecomposition:
        return PopovDecomposition(self.operator.ring, self.operator.rows, self.operator.width)

    @property
    def invariants(self) -> list[Polynomial]:
        """The non-zero diagonal entries of D as exact polynomials; faster than the whole Smith form."""
        with track_progress(_PROGRESS_MESSAGE):
            return self._decomposition.invariants

    @cached_property
    def parametrization(self) -> Parametrization:
        """The parametrization of all solutions by free functions and modes, with ``verify()``."""
        with track_progress(_PROGRESS_MESSAGE):
            minimal = parametrize(self.operator, self._decomposition)
            return minimal if self.choice is None else self.choice.apply(minimal, self.channels)

    @cached_property
    def particular_solution(self) -> tuple[ExponentialPolynomial, ...]:
        """One exact solution of ``A(d) f = b(t)``, a known function of time for each channel; zero if b is zero."""
        return find_particular_solution(self.operator, self._decomposition, self.forcing)

    @property
    def free_functions(self) -> int:
        """Number of functions of time that can be chosen freely."""
        return len(self.channels) - self._decomposition.rank

    @cached_property
    def is_controllable(self) -> bool:
        """Whether the free functions alone give every solution: there are no uncontrollable modes."""
        with track_progress(_PROGRESS_MESSAGE):
            return self._decomposition.is_controllable

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The exponents of the autonomous part with their exact multiplicities."""
        if self.is_controllable:
            return ()
        with track_progress(_PROGRESS_MESSAGE):
            return find_modes(self.operator, self.parametrization, self.channels)

    @cached_property
    def exponents(self) -> tuple[Mode, ...]:
        """The modes for display: as `modes`, or without their observables if these are too expensive.

        Without free functions, and with many states or large expressions, they are computed without columns and
        observables; the column of the parametrization of each mode is then unknown.
        """
        if self.is_controllable:
            return ()
        # Beyond 24 states, the exponents come from the characteristic polynomial if nothing is free.
        if self.free_functions or self.states <= 24 or self.operator.ring.has_relations:
            try:
                return self.modes
            except AlgebraError:
                if self.free_functions:
                    raise
        ring, variable = self.operator.ring, self.operator.variable
        with track_progress(_PROGRESS_MESSAGE):
            divisors = elementary_divisors(ring, self._decomposition.equations)
        return tuple(Mode(ring, part, count, "", 0, variable) for part, count in divisors)

    @property
    def states(self) -> int:
        """Number of initial values that determine the motion if there are no free functions."""
        return self._decomposition.n_states

    @cached_property
    def forced(self) -> tuple[str, ...]:
        """The channels that the equations without b(t) force to be zero."""
        return tuple(self.channels[i] for i in self._decomposition.zero_channels)

    @cached_property
    def degeneracies(self) -> tuple[sympy.Expr, ...]:
        """Parameter expressions at whose zeros the structure changes, as SymPy expressions.

        Each was tested by substituting one of its zeros. Expressions that cannot vanish for positive parameters are
        omitted. Exceptions that require two expressions to vanish at once are not listed.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.catalog.bipendulum(parametric=True).system.degeneracies
        (l1 - l2,)
        """
        ring = self.operator.ring
        symbols = sympy_symbols(ring)
        return tuple(element_to_sympy(ring, factor, symbols) for factor in self.degenerate_elements)

    @cached_property
    def degenerate_elements(self) -> tuple[Element, ...]:
        """The degeneracies as ring elements."""
        if not self.parameters:
            return ()
        return tuple(f for f in degenerate_factors(self.smith_form) if self._can_vanish(f))

    @cached_property
    def exceptional_elements(self) -> tuple[Element, ...]:
        """Parameter factors at whose zeros the parametrization must be computed again, after substitution."""
        if not self.parameters:
            return ()
        return tuple(f for f in exceptional_factors(self.parametrization) if self._can_vanish(f))

    @cached_property
    def unsuitable_elements(self) -> tuple[Element, ...]:
        """Parameter factors at whose zeros the chosen basis is not a basis; empty for the minimal basis.

        The structure of the solutions may be the same there: another basis, or the minimal one, describes them.
        """
        if not self.parameters or self.choice is None:
            return ()
        return tuple(f for f in self.choice.singular_factors(self.parametrization) if self._can_vanish(f))

    def _can_vanish(self, factor: Element) -> bool:
        """Return False if all terms have the same sign, because parameters are positive or squared."""
        ring = self.operator.ring
        terms, start = ring.terms(factor), len(ring.constants)
        used = {n for e in terms for n, k in zip(ring.parameters, e[start:], strict=True) if k}
        one_sign = len({value > 0 for value in terms.values()}) == 1
        plain = not any(any(exponents[:start]) for exponents in terms)
        squares = all(k % 2 == 0 for exponents in terms for k in exponents) and tuple([0] * len(ring.names)) in terms
        return not (plain and one_sign and (squares or all(self.parameters[name].excludes_zero for name in used)))

    @cached_property
    def possible_inputs(self) -> tuple[tuple[str, ...], ...]:
        """The sets of channels that can be chosen freely, at most 100 of them; empty without free functions.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = u + v").possible_inputs
        (('x', 'u'), ('x', 'v'), ('u', 'v'))
        """
        sets = self._decomposition.input_sets(100) if self.free_functions else ()
        return tuple(tuple(self.channels[i] for i in chosen) for chosen in sets)

    def can_choose(self, *channels: str) -> bool:
        """Return whether these channels can be prescribed freely at the same time.

        Parameters
        ----------
        *channels : str
            Names of channels.

        Examples
        --------
        >>> import lodekit as lk
        >>> system = lk.System("x' = v; v' = F - c*v", parameters=["c"])
        >>> system.can_choose("x"), system.can_choose("x", "F")
        (True, False)
        """
        for name in channels:
            if name not in self.channels:
                raise EquationError(f"unknown channel {name!r}; expected one of: {', '.join(self.channels)}")
        return self.parametrization.can_choose([self.channels.index(name) for name in channels])

    def covariance(self, first: str, second: str | None = None, *, latent: str | Sequence[str] = "se") -> sympy.Expr:
        """Return the prior covariance of two observables as a formula.

        Parameters
        ----------
        first, second : str
            Linear differential expressions in the channels, at the times t1 and t2; the same one by default.
        latent : str or sequence of str
            Kernel of the free functions, one for all or one for each: ``"se"``, or ``"matern-7/2"`` and similar.

        Returns
        -------
        sympy.Expr
            In the symbols t1, t2, the parameters, sigma_1, ell_1, ... (amplitude and lengthscale of each free function)
            and sigma_p1, ... (amplitude of each group of modes). Time in modes is measured from the start t_0 of the
            data, or from their end t_0 + T if the mode grows.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v").covariance("x", "v")
        sigma_1**2*(t1 - t2)*exp(-(t1 - t2)**2/(2*ell_1**2))/ell_1**2
        """
        reader = LinearFormBuilder(self.operator.ring, self.channels)
        rows = []
        for text in (first, first if second is None else second):
            form = reader.form(grammar.parse_expression(text))
            rows.append(OperatorMatrix.from_scalars(self.operator.ring, [reader.operators(form)], self.operator.width))
        return symbolic_covariance(self.parametrization, rows[0], rows[1], latent)

    def state_space(
        self, inputs: Mapping[str, str] | Iterable[str], disturbances: Mapping[str, str] | Iterable[str] = ()
    ) -> StateSpace:
        """Return the exact state space from known inputs to all other channels.

        It does not include known functions of time in the equations, which belong to the particular solution.

        Parameters
        ----------
        inputs : sequence of str, or dict of str to str
            Known inputs: ``"hold"`` for zero-order hold, the default, or ``"linear"`` for linear interpolation between
            samples.
        disturbances : sequence of str, or dict of str to str
            Random channels: ``"white"``, the default, ``"matern-1/2"`` and so on, or ``"se"``.

        Examples
        --------
        >>> import lodekit as lk
        >>> plant = lk.catalog.spring_mass_damper().system.state_space(["F"])
        >>> plant.states, plant.A
        (('x', "x' + c/m*x"), Matrix([
        [-c/m, 1],
        [-k/m, 0]]))
        """
        return realize_state_space((self.operator, self.forcing, self.channels), inputs, disturbances)

    def verify(self) -> tuple[str, ...]:
        """Check all identities of the analysis exactly, by multiplication; return the proved statements.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v").verify()[0]
        'U A V = D'
        """
        chosen = () if self.choice is None else (self.choice.verify(self.parametrization),)
        return (*self.smith_form.verify(), *self.parametrization.verify(), *chosen)

    def relations(self) -> tuple[str, ...]:
        """Return the vanishing combinations of equations as texts, one for each redundant equation.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v; 2*x' = 2*v").relations()
        ('2*equation 1 - equation 2',)
        """
        return tuple(format_combination(weights) for weights in self._relation_weights())

    def _relation_weights(self) -> list[list[list[Scalar]]]:
        return [self.operator.weights_of_rows(relation) for relation in self._decomposition.relations]

    def _check_consistency(self) -> None:
        """Raise if a combination of the equations implies that zero equals something else."""
        for weights in self._relation_weights():
            if total := combine_signals(self.operator.ring, weights, self.forcing):
                raise InconsistentSystemError(
                    f"the equations contradict each other: {format_combination(weights)} forces 0 = {total}. "
                    "Check the right-hand sides of these equations, or remove one of them"
                )

    def explain(self) -> str:
        """Return a description of the solutions of the system in plain sentences.

        Examples
        --------
        >>> import lodekit as lk
        >>> print(lk.catalog.three_tank().system.explain())
        2 functions of time can be chosen freely, for example f1 and f2.
        The system is not controllable: one constant mode, f1 - f2 + f3, cannot be influenced.
        """
        return "\n".join(display.explain_structure(self))

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
        findings = html_list(display.explain_structure(self), "soft")
        return notebook_card("System", lead, [*display.equations_to_mathml(self), findings])

    def to_dict(self) -> dict[str, Any]:
        """Return the whole analysis as plain values for JSON.

        Examples
        --------
        >>> import lodekit as lk
        >>> content = lk.System("x' = v").to_dict()
        >>> content["smith_form"]["D"], content["possible_inputs"]
        ([['1', '0']], [['x'], ['v']])
        """
        return display.to_dict(self)

    def __str__(self) -> str:
        return display.format_analysis(self)

    def __repr__(self) -> str:
        count = len(self.equations)
        noun = "equation" if count == 1 else "equations"
        names = f", parameters {', '.join(self.parameters)}" if self.parameters else ""
        return f"<System of {count} {noun} in {', '.join(self.channels)}{names}>"

"""Facts: what the algebra proves about ``A(d) f = b(t)``, each found when it is first asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from lodekit.algebra.autonomous import count_states, elementary_divisors, forced_positions
from lodekit.algebra.decomposition import Decomposition
from lodekit.algebra.degeneracy import degenerate_factors, exceptional_factors
from lodekit.algebra.finite_field import Element
from lodekit.algebra.operators import OperatorMatrix, element_to_sympy, symbols_of
from lodekit.algebra.parametrization import Parametrization, parametrize
from lodekit.algebra.polynomials import Polynomial
from lodekit.algebra.scalars import Scalar
from lodekit.algebra.smith import SmithForm, smith_form
from lodekit.errors import AlgebraError, EquationError, InconsistentSystemError
from lodekit.progress import waiting
from lodekit.system.choice import Choice
from lodekit.system.delays import Delayed
from lodekit.system.formula import covariance
from lodekit.system.grammar import parse_expression
from lodekit.system.linear import Reader
from lodekit.system.mode import Mode, find_modes
from lodekit.system.parameters import Parameter
from lodekit.system.particular import particular_solution
from lodekit.system.signals import Signal
from lodekit.system.state_space import StateSpace, find_state_space
from lodekit.system.writing import format_combination

if TYPE_CHECKING:
    import sympy

__all__ = ["Facts"]

_MAX_INPUT_SETS = 100
#: Beyond so many states, the exponents of a system in which nothing is free come from its characteristic polynomial.
_MANY_STATES = 24
_WAITING = "analysing the equations"


class Facts(ABC):
    """Everything that can be proved about the solutions of ``A(d) f = b(t)``.

    What was said about a system is abstract here and stated by `System`, which overrides nothing else; `Shown` stands
    between the two. Whatever shows a system (text, LaTeX, sentences) asks for facts and knows no more of it.
    """

    @property
    @abstractmethod
    def equations(self) -> tuple[str, ...]:
        """The equations as text, one each."""

    @property
    @abstractmethod
    def channels(self) -> tuple[str, ...]:
        """The names of the functions of time."""

    @property
    def plain_channels(self) -> tuple[str, ...]:
        """The channels without delayed ones, which follow from them."""
        return tuple(name for name in self.channels if not isinstance(name, Delayed))

    @property
    def delayed_channels(self) -> tuple[Delayed, ...]:
        """The delayed channels, such as ``delay(u, T)``."""
        return tuple(name for name in self.channels if isinstance(name, Delayed))

    @property
    @abstractmethod
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters by name."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """How the input was read, where that is worth knowing."""

    @property
    @abstractmethod
    def operator(self) -> OperatorMatrix:
        """A, as an exact operator matrix."""

    @property
    @abstractmethod
    def forcing(self) -> tuple[Signal, ...]:
        """b(t) of ``A(d) f = b(t)``: one known function of time for each equation."""

    @property
    @abstractmethod
    def choice(self) -> Choice | None:
        """What the free functions were chosen to be; None for the minimal basis."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether b(t) is zero."""
        return not any(self.forcing)

    @property
    def d(self) -> sympy.Symbol:
        """The SymPy symbol for d/dt in all matrices: d, or D where a parameter is called d."""
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
        with waiting(_WAITING):
            return smith_form(self.operator, self._stages)

    @cached_property
    def _stages(self) -> Decomposition:
        return Decomposition(self.operator.ring, self.operator.rows, self.operator.width)

    @property
    def invariants(self) -> list[Polynomial]:
        """The non-zero diagonal entries of D, as exact polynomials; cheaper than the whole Smith form."""
        with waiting(_WAITING):
            return self._stages.invariants

    @cached_property
    def parametrization(self) -> Parametrization:
        """Every solution as free functions and modes, with ``verify()``."""
        with waiting(_WAITING):
            minimal = parametrize(self.operator, self._stages)
            return minimal if self.choice is None else self.choice.apply(minimal, self.channels)

    @cached_property
    def particular_solution(self) -> tuple[Signal, ...]:
        """One exact solution of ``A(d) f = b(t)``, a known function of time for each channel; zero where b is."""
        return particular_solution(self.operator, self._stages, self.forcing)

    @property
    def free_functions(self) -> int:
        """How many functions of time can be chosen freely."""
        return len(self.channels) - self._stages.rank

    @cached_property
    def is_controllable(self) -> bool:
        """Whether every solution comes from the free functions alone: no mode is out of reach."""
        with waiting(_WAITING):
            return self._stages.is_controllable

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The exponents of the autonomous part with their exact multiplicities."""
        if self.is_controllable:
            return ()
        with waiting(_WAITING):
            return find_modes(self.operator, self.parametrization, self.channels)

    @cached_property
    def exponents(self) -> tuple[Mode, ...]:
        """The modes, for sentences: as `modes`, or without their observables where those are out of reach.

        Where nothing is free and there are many states, or large expressions, they are found without columns and
        observables; what belongs to one column of the parametrization is not known then.
        """
        if self.is_controllable:
            return ()
        if self.free_functions or self.states <= _MANY_STATES or self.operator.ring.has_relations:
            try:
                return self.modes
            except AlgebraError:
                if self.free_functions:
                    raise
        ring, variable = self.operator.ring, self.operator.variable
        with waiting(_WAITING):
            found = elementary_divisors(ring, self._stages.equations)
        return tuple(Mode(ring, part, count, "", 0, variable) for part, count in found)

    @property
    def states(self) -> int:
        """How many initial numbers the motion is determined by, where nothing is free."""
        return count_states(self._stages.equations)

    @cached_property
    def forced(self) -> tuple[str, ...]:
        """The channels that the equations without b(t) force to be zero."""
        return tuple(self.channels[i] for i in forced_positions(self._stages.equations))

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
        ring = self.operator.ring
        symbols = symbols_of(ring)
        return tuple(element_to_sympy(ring, factor, symbols) for factor in self.degenerate_elements)

    @cached_property
    def degenerate_elements(self) -> tuple[Element, ...]:
        """The degeneracies as ring elements."""
        if not self.parameters:
            return ()
        return tuple(f for f in degenerate_factors(self.smith_form) if self._can_vanish(f))

    @cached_property
    def exceptional_elements(self) -> tuple[Element, ...]:
        """Parameter factors at whose zeros the parametrization must be computed anew: substitute the values first."""
        if not self.parameters:
            return ()
        return tuple(f for f in exceptional_factors(self.parametrization) if self._can_vanish(f))

    @cached_property
    def unsuitable_elements(self) -> tuple[Element, ...]:
        """Parameter factors at whose zeros the chosen basis is none; empty for the minimal basis.

        The solutions may well be the same there: another basis, or none, describes them.
        """
        if not self.parameters or self.choice is None:
            return ()
        return tuple(f for f in self.choice.unsuitable_factors(self.parametrization) if self._can_vanish(f))

    def _can_vanish(self, factor: Element) -> bool:
        """Return False where all terms have one sign, because parameters are positive or squared."""
        ring = self.operator.ring
        terms = ring.terms(factor)
        names = ring.names[len(ring.constants) :]
        used = {n for e in terms for n, k in zip(names, e[len(ring.constants) :], strict=True) if k}
        one_sign = len({value > 0 for value in terms.values()}) == 1
        plain = not any(any(exponents[: len(ring.constants)]) for exponents in terms)
        squares = all(k % 2 == 0 for exponents in terms for k in exponents) and tuple([0] * len(ring.names)) in terms
        return not (plain and one_sign and (squares or all(self.parameters[name].excludes_zero for name in used)))

    @cached_property
    def possible_inputs(self) -> tuple[tuple[str, ...], ...]:
        """The sets of channels that can be chosen freely, at most 100 of them; empty where nothing is free.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = u + v").possible_inputs
        (('x', 'u'), ('x', 'v'), ('u', 'v'))
        """
        found = self._stages.exchanges.sets(_MAX_INPUT_SETS) if self.free_functions else ()
        return tuple(tuple(self.channels[i] for i in chosen) for chosen in found)

    def can_choose(self, *channels: str) -> bool:
        """Return whether these channels can be prescribed freely, all at once.

        Parameters
        ----------
        *channels : str
            Some names.

        Examples
        --------
        >>> import lodekit as lk
        >>> system = lk.System("x' = v; v' = F - c*v", parameters=["c"])
        >>> system.can_choose("x"), system.can_choose("x", "F")
        (True, False)
        """
        for name in channels:
            if name not in self.channels:
                raise EquationError(f"unknown channel {name!r}; expected some of {', '.join(self.channels)}")
        return self.parametrization.can_choose([self.channels.index(name) for name in channels])

    def covariance(self, first: str, second: str | None = None, *, latent: str | Sequence[str] = "se") -> sympy.Expr:
        """Return the prior covariance of two observables as a formula.

        Parameters
        ----------
        first, second : str
            Linear differential expressions in the channels, at the times t1 and t2; one for both by default.
        latent : str or sequence of str
            Covariance of the free functions, one for all or one each: ``"se"``, or ``"matern-7/2"`` and the like.

        Returns
        -------
        sympy.Expr
            In the symbols t1, t2, the parameters, sigma_1, ell_1, ... (deviation and lengthscale of each free function)
            and sigma_p1, ... (deviation of each group of modes). Modes are counted from the start t_0 of the data, or
            from their end t_0 + T where they grow.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v").covariance("x", "v")
        sigma_1**2*(t1 - t2)*exp(-(t1 - t2)**2/(2*ell_1**2))/ell_1**2
        """
        reader = Reader(self.operator.ring, self.channels)
        rows = []
        for text in (first, first if second is None else second):
            form = reader.form(parse_expression(text))
            rows.append(OperatorMatrix.from_scalars(self.operator.ring, [reader.operators(form)], self.operator.width))
        return covariance(self.parametrization, rows[0], rows[1], latent)

    def state_space(
        self, inputs: Mapping[str, str] | Iterable[str], disturbances: Mapping[str, str] | Iterable[str] = ()
    ) -> StateSpace:
        """Return how the other channels respond to known inputs, as an exact state space.

        Known functions of time in the equations have no part in it; they stay with the particular solution.

        Parameters
        ----------
        inputs : sequence of str, or dict of str to str
            Channels that are known. ``"hold"`` for those that keep each sample until the next, as by default, or
            ``"linear"`` for those that run straight from sample to sample.
        disturbances : sequence of str, or dict of str to str
            Channels that are random by themselves: ``"white"``, as by default, ``"matern-1/2"`` and so on, or ``"se"``.

        Examples
        --------
        >>> import lodekit as lk
        >>> plant = lk.catalog.spring_mass_damper().system.state_space(["F"])
        >>> plant.states, plant.F
        (('x', "x' + c/m*x"), Matrix([
        [-c/m, 1],
        [-k/m, 0]]))
        """
        return find_state_space(self.operator, self.forcing, self.channels, inputs, disturbances)

    def verify(self) -> tuple[str, ...]:
        """Return what was proved, after checking exactly, by multiplication, everything the analysis rests on.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v").verify()[0]
        'U A V = D'
        """
        chosen = () if self.choice is None else (self.choice.verify(self.parametrization),)
        return (*self.smith_form.verify(), *self.parametrization.verify(), *chosen)

    def relations(self) -> tuple[str, ...]:
        """Return, as text, the combinations of equations that vanish: one for each redundant equation.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.System("x' = v; 2*x' = 2*v").relations()
        ('2*equation 1 - equation 2',)
        """
        return tuple(format_combination(weights) for weights in self._relation_weights())

    def _relation_weights(self) -> list[list[list[Scalar]]]:
        ring, bottoms = self.operator.ring, self.operator.denominators
        return [
            [[Scalar(ring, c * a) for c in weight] for weight, a in zip(relation, bottoms, strict=True)]
            for relation in self._stages.relations
        ]

    def _check_consistency(self) -> None:
        """Raise where a combination of the equations forces zero to equal something else."""
        for weights in self._relation_weights():
            total = Signal(self.operator.ring)
            for weight, signal in zip(weights, self.forcing, strict=True):
                total = total + signal.apply(weight)
            if not total:
                continue
            combination = format_combination(weights)
            raise InconsistentSystemError(
                f"the equations contradict each other: {combination} forces 0 = {total}. "
                "Check the right-hand sides of these equations, or remove one of them"
            )

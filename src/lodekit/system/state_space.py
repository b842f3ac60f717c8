"""Exact state space of equations with known inputs, ``x' = A x + B v``, ``g = C x + D v + D1 v'``, and elimination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from lodekit.algebra.operators import OperatorMatrix, polynomial_to_sympy, scalar_to_sympy
from lodekit.algebra.polynomials import cancel_common_factors
from lodekit.algebra.realization import LeftMatrixFraction, reduce_to_left_fraction, resolvent_fraction
from lodekit.algebra.reduction import kernel_and_image
from lodekit.algebra.scalars import Scalar, ScalarRing, format_sum
from lodekit.algebra.smith import linear_combination
from lodekit.errors import EquationError
from lodekit.support.text import join_list
from lodekit.system.delays import DelayedChannel, check_delayed_inputs, find_required_inputs, undelayed_name
from lodekit.system.linear import format_derivative, format_observable, list_operator_terms
from lodekit.system.parameters import candidate_names
from lodekit.system.signals import ExponentialPolynomial, combine_signals

if TYPE_CHECKING:
    import sympy


def eliminate_channels(
    operator: OperatorMatrix, forcing: Sequence[ExponentialPolynomial], eliminated: Sequence[int]
) -> tuple[OperatorMatrix, list[ExponentialPolynomial]]:
    """Return both sides of the implied equations without some columns, which become zero."""
    if not eliminated:
        return operator, list(forcing)
    ring = operator.ring
    _, _, weights = kernel_and_image(ring, [[row[j] for j in eliminated] for row in operator.rows])
    rows = [linear_combination(ring, weight, operator.rows) for weight in weights]
    sides = [combine_signals(ring, operator.weights_of_rows(weight), forcing) for weight in weights]
    return OperatorMatrix(ring, rows, [ring.one] * len(rows), operator.width), sides


ExactMatrix = tuple[tuple[Scalar, ...], ...]
#: The operator matrix A and the right-hand side b of A(d) f = b(t), and the names of the channels f.
LinearEquations = tuple[OperatorMatrix, Sequence[ExponentialPolynomial], Sequence[str]]

#: The largest order of a derivative of an input in a response, by its interpolation between samples.
HOLD_SMOOTHNESS = {"hold": 0, "linear": 1}
#: The same for disturbances; white noise has no values, so it may only occur in derivatives of states.
_DISTURBANCE_SMOOTHNESS = {"white": -1, "matern-1/2": 0, "matern-3/2": 1, "matern-5/2": 1, "matern-7/2": 1, "se": 1}


@dataclass(frozen=True)
class StateSpace:
    """``x' = A x + B v``, ``g = C x + D v + D1 v'``: the exact response of the channels g to known functions v.

    Its solutions for all initial states are all solutions of the equations, if these leave no free function in g;
    otherwise one channel for each free function is zero here.

    ring: Ring of all entries.
    states: The states, each as an expression in the channels.
    inputs: The inputs of the columns of B, D and D1: channels, or delayed ones such as ``delay(u, T)``.
    kinds: The interpolation, or the kind of process, of each input.
    outputs: The output channels g.
    exact: The matrices by name, as field elements.

    Examples
    --------
    >>> import lodekit as lk
    >>> plant = lk.System("tau*y' + y - y0 = K*u", parameters=["tau", "y0", "K"]).state_space(inputs=["u"])
    >>> plant.A, plant.B, plant.C, plant.D
    (Matrix([[-1/tau]]), Matrix([[K/tau]]), Matrix([[1]]), Matrix([[0]]))
    >>> print(plant)
    x1 = y
    x1' = -1/tau*x1 + K/tau*u
    y = x1
    """

    ring: ScalarRing
    states: tuple[str, ...]
    inputs: tuple[str, ...]
    kinds: tuple[str, ...]
    outputs: tuple[str, ...]
    exact: Mapping[str, ExactMatrix]

    @property
    def A(self) -> sympy.ImmutableMatrix:
        """State matrix, states x states."""
        return self._matrix("A")

    @property
    def B(self) -> sympy.ImmutableMatrix:
        """Input matrix, states x inputs."""
        return self._matrix("B")

    @property
    def C(self) -> sympy.ImmutableMatrix:
        """Output matrix, outputs x states."""
        return self._matrix("C")

    @property
    def D(self) -> sympy.ImmutableMatrix:
        """Feedthrough matrix, outputs x inputs."""
        return self._matrix("D")

    @property
    def D1(self) -> sympy.ImmutableMatrix:
        """Feedthrough of the derivatives of inputs, outputs x inputs; zero unless an input is linear."""
        return self._matrix("D1")

    @property
    def channels(self) -> tuple[str, ...]:
        """The channel of each input, without its delay."""
        return tuple(map(undelayed_name, self.inputs))

    @property
    def delays(self) -> tuple[Scalar, ...]:
        """The delay of each input; zero without delay."""
        zero = self.ring.rational(0)
        return tuple(name.time if isinstance(name, DelayedChannel) else zero for name in self.inputs)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all matrices by their names, and of the delays, in the order of `scalars`."""
        states, inputs, outputs = len(self.states), len(self.inputs), len(self.outputs)
        shapes = {"A": (states, states), "B": (states, inputs), "C": (outputs, states), "D": (outputs, inputs)}
        return {**shapes, "D1": (outputs, inputs), "delays": (inputs,)}

    @property
    def scalars(self) -> list[Scalar]:
        """All entries of A, B, C, D and D1, one matrix after the other, row by row; then the delays."""
        return [*(value for matrix in self.exact.values() for row in matrix for value in row), *self.delays]

    def _matrix(self, name: str) -> sympy.ImmutableMatrix:
        import sympy

        entries = [scalar_to_sympy(value) for row in self.exact[name] for value in row]
        return sympy.ImmutableMatrix(*self.shapes[name], entries)

    def transfer_function(self, output: str | None = None, input: str | None = None) -> sympy.Expr:
        """Return the transfer function from an input to a channel as an exact expression in s, including dead time.

        Examples
        --------
        >>> import lodekit as lk
        >>> plant = lk.System("tau*y' + y - y0 = K*delay(u, T)", parameters=["tau", "y0", "K", "T"])
        >>> plant.state_space(inputs=["u"]).transfer_function("y", "u")
        K*exp(-T*s)/(s*tau + 1)
        """
        import sympy

        row = self.outputs.index(_select_one(output, self.outputs, "output"))
        channel = _select_one(input, tuple(dict.fromkeys(self.channels)), "input")
        letter = next(name for name in candidate_names("s", "S", "s_") if name not in self.ring.parameters)
        total = sympy.Integer(0)
        for column, (name, delay) in enumerate(zip(self.channels, self.delays, strict=True)):
            if name == channel:
                fraction = self._transfer_fraction(row, column)
                top, bottom = (sympy.expand(polynomial_to_sympy(part, letter)) for part in fraction)
                # Common factors with square roots are not yet cancelled.
                ratio = sympy.cancel(top / bottom) if self.ring.has_relations else top / bottom
                total += ratio * sympy.exp(-sympy.Symbol(letter) * scalar_to_sympy(delay))
        return total

    def _transfer_fraction(self, row: int, column: int) -> tuple[list[Scalar], list[Scalar]]:
        """Return the response of an output to a column of inputs as two polynomials in s, in lowest terms."""
        top, bottom = [self.ring.rational(0)], [self.ring.rational(1)]
        if self.states:
            through = [values[column] for values in self.exact["B"]]
            top, bottom = resolvent_fraction(self.exact["A"], self.exact["C"][row], through)
        total = [*top, *[self.ring.rational(0)] * (len(bottom) + 1 - len(top))]
        for power, value in enumerate(bottom):
            for more, name in enumerate(("D", "D1")):
                total[power + more] = total[power + more] + self.exact[name][row][column] * value
        return cancel_common_factors(self.ring, total, bottom)

    def __str__(self) -> str:
        taken = (*self.outputs, *self.inputs, *self.ring.parameters)
        preferred = candidate_names("x", "s", "q", "state")
        letter = next(part for part in preferred if not any(name.startswith(part) for name in taken))
        names = [f"{letter}{i + 1}" for i in range(len(self.states))]
        lines = [f"{name} = {meaning}" for name, meaning in zip(names, self.states, strict=True)]
        for i, name in enumerate(names):
            pairs = [*zip(self.exact["A"][i], names, strict=True), *zip(self.exact["B"][i], self.inputs, strict=True)]
            lines.append(f"{name}' = {format_sum(pair for pair in pairs if pair[0])}")
        slopes = [format_derivative(name, 1) for name in self.inputs]
        for i, name in enumerate(self.outputs):
            pairs = [*zip(self.exact["C"][i], names, strict=True), *zip(self.exact["D"][i], self.inputs, strict=True)]
            pairs += zip(self.exact["D1"][i], slopes, strict=True)
            lines.append(f"{name} = {format_sum(pair for pair in pairs if pair[0])}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        count = len(self.states)
        return f"<StateSpace of {count} state{'' if count == 1 else 's'} from {', '.join(self.inputs) or 'nothing'}>"


def _select_one(requested: str | None, available: Sequence[str], role: str) -> str:
    """Return the requested item, or the only one."""
    if requested is None and len(available) == 1:
        return available[0]
    if requested is None or requested not in available:
        raise EquationError(f"expected an {role}, one of {', '.join(available)}, got {requested!r}")
    return requested


def parse_input_kinds(
    given: Mapping[str, str] | Iterable[str] | str, channels: Sequence[str], allowed: Mapping[str, int], role: str
) -> dict[str, str]:
    """Return the kind of each input, in the given order."""
    if isinstance(given, str):
        given = given.replace(",", " ").split()
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise EquationError(f"expected {role}s as names or as a dict of names to kinds, got {type(given).__name__}")
    default = next(iter(allowed))
    pairs = list(given.items()) if isinstance(given, Mapping) else [(name, default) for name in given]
    plain = [name for name in channels if not isinstance(name, DelayedChannel)]
    for name, kind in pairs:
        if name not in plain:
            raise EquationError(f"unknown {role} {name!r}; expected one of the channels {', '.join(plain)}")
        if kind not in list(allowed):
            kinds = join_list([repr(word) for word in allowed], "or")
            raise EquationError(f"expected the {role} {name!r} to be {kinds}, got {kind!r}")
    return dict(pairs)


def realize_state_space(equations: LinearEquations, inputs: Any, disturbances: Any = ()) -> StateSpace:
    """Return the state space of ``A(d) f = b(t)`` with some known channels; b is not included."""
    operator, _, channels = equations
    kinds = parse_input_kinds(inputs, channels, HOLD_SMOOTHNESS, "input")
    others = parse_input_kinds(disturbances, channels, _DISTURBANCE_SMOOTHNESS, "disturbance")
    for name in others:
        if name in kinds:
            raise EquationError(f"{name!r} is both an input and a disturbance; remove it from one of them")
        if name in find_required_inputs(channels):
            raise EquationError(f"the disturbance {name!r} is delayed in the equations; only known inputs can be")
    kinds = _add_delayed_inputs({**kinds, **others}, channels)
    driven, columns = _reduce_to_fraction(equations, list(kinds), list(others))
    names = [channels[j] for j in columns[: driven.n_outputs]]
    _check_properness(driven, names, kinds)
    matrices, operators = driven.realize()
    labels = [channels[j] for j in columns]
    states = tuple(format_observable(row, labels) for row in operators)
    exact = {name: tuple(map(tuple, matrix)) for name, matrix in matrices.items()}
    return StateSpace(operator.ring, states, tuple(kinds), tuple(kinds.values()), tuple(names), exact)


def check_prescribable_inputs(equations: LinearEquations, inputs: Any, *, include_delayed: bool = True) -> list[str]:
    """Return the names of inputs; raise if they cannot be prescribed at the same time."""
    channels = equations[2]
    kinds = parse_input_kinds(inputs, channels, HOLD_SMOOTHNESS, "input")
    known = _add_delayed_inputs(kinds, channels) if include_delayed else kinds
    _reduce_to_fraction(equations, list(known))
    return list(kinds)


def _add_delayed_inputs(kinds: Mapping[str, str], channels: Sequence[str]) -> dict[str, str]:
    """Return the kinds, with each input followed by its delayed channels."""
    check_delayed_inputs(channels, kinds)
    delayed = [name for name in channels if isinstance(name, DelayedChannel)]
    return {
        each: kind
        for name, kind in kinds.items()
        for each in (name, *(other for other in delayed if other.channel == name))
    }


def _reduce_to_fraction(
    equations: LinearEquations, inputs: Sequence[str], disturbances: Sequence[str] = ()
) -> tuple[LeftMatrixFraction, list[int]]:
    """Return the equations with the responding channels first, and the original index of each column."""
    operator, forcing, channels = equations
    known = {*inputs, *find_required_inputs(channels)}
    driving = [channels.index(name) for name in inputs]
    responding = [j for j, name in enumerate(channels) if j not in driving and name not in known]
    if not responding:
        raise EquationError("every channel is an input, so none is left to respond; make one of them an output")
    columns = [*responding, *driving]
    rows = [[row[j] for j in columns] for row in operator.rows]
    driven = reduce_to_left_fraction(operator.ring, rows, len(responding))
    if driven.input_constraints:
        _raise_constrained_inputs(*eliminate_channels(operator, forcing, responding), channels, disturbances)
    return driven, columns


def _raise_constrained_inputs(
    operator: OperatorMatrix,
    forcing: Sequence[ExponentialPolynomial],
    channels: Sequence[str],
    disturbances: Sequence[str],
) -> NoReturn:
    """Raise an error with the equations that involve only inputs."""
    texts, involved = [], {}
    for i, side in enumerate(forcing):
        entries = [operator.coefficients(i, j) for j in range(operator.width)]
        used = [j for j, entry in enumerate(entries) if entry]
        if used:
            factor = operator.ring.rational(1) / entries[used[0]][-1]
            terms = [([value * factor for value in entries[j]], channels[j]) for j in used]
            left = format_sum(term for entry, name in terms for term in list_operator_terms(entry, name))
            texts.append(f"{left} = {side.scale(factor)}")
            involved.update(dict.fromkeys(undelayed_name(channels[j]) for j in used))
    names = list(involved)
    unknown = [name for name in names if name in disturbances]
    role = "disturbance" if len(unknown) == len(names) else "input"
    what, cure = f"relate the {role}s to each other", f"remove one of {', '.join(names)} from the {role}s"
    if len(names) == 1:
        what, cure = f"determine the {role} {names[0]!r}", f"remove {names[0]!r} from the {role}s"
    elif unknown and role == "input":
        known = [name for name in names if name not in unknown]
        what = f"relate the disturbances {', '.join(unknown)} to the inputs {', '.join(known)}"
        cure = f"remove one of {', '.join(names)} from these"
    why = "Nothing would be left to disturb" if unknown else "Measured inputs will not satisfy this"
    raise EquationError(
        f"the equations {what}: they imply {' and '.join(texts)}, whatever the other channels do. {why}; {cure}, or "
        "remove an equation"
    )


def _check_properness(fraction: LeftMatrixFraction, outputs: Sequence[str], kinds: Mapping[str, str]) -> None:
    """Raise if a response needs derivatives that an input does not have."""
    limits = {**HOLD_SMOOTHNESS, **_DISTURBANCE_SMOOTHNESS}
    for driver, (name, kind) in enumerate(kinds.items()):
        found = [(fraction.improper_degree(pivot, driver), fraction.degree(pivot), pivot) for pivot in fraction.rows]
        excess, _, pivot = max(found, default=(-1, 0, -1))
        if excess <= limits[kind]:
            continue
        term = fraction.leading_input_coefficient(pivot, driver).format_product(format_derivative(name, excess))
        start = f"{outputs[pivot]!r} responds to {name!r} with the term {term}"
        if kind not in HOLD_SMOOTHNESS:
            raise EquationError(f"{start}, which a {kind!r} disturbance does not have; expected a smoother one")
        where = {"hold": "where a held input jumps", "linear": "where a linear input has a corner"}[kind]
        cure = f"remove {name!r} from the inputs, or add the dynamics that delay its effect to the equations"
        if kind == "hold" and excess == 1:
            cure = f"try inputs={{{name!r}: 'linear'}}, which has a first derivative; or {cure}"
        raise EquationError(f"{start}, which is infinite {where}; {cure}")

"""Input-output equations between the measured observables: all other channels are eliminated exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lodekit.algebra.operators import OperatorMatrix
from lodekit.algebra.scalars import Element, Scalar, ScalarRing
from lodekit.data.inputs import InputSignal
from lodekit.data.observations import TimeSeries
from lodekit.errors import AlgebraError
from lodekit.fitting import search_options as options
from lodekit.fitting.parameter_vector import ParameterLayout
from lodekit.prior.compile import ScalarFunctions, SignalFunctions
from lodekit.prior.observables import ObservableCompiler
from lodekit.support.arguments import Array, IndexArray
from lodekit.system.delays import undelayed_name
from lodekit.system.signals import ExponentialPolynomial
from lodekit.system.state_space import eliminate_channels
from lodekit.system.system import System


@dataclass(frozen=True)
class InputOutputEquations:
    """Equations between measured observables: sums of terms ``coefficient(parameters) * derivative of an observable``.

    n_equations: Number of equations.
    series: The measured series and known inputs that occur.
    coefficients: The coefficient of each term.
    term_equation, term_series, term_order: Equation, series and order of the derivative of each term; (terms,).
    forcing: The known right-hand sides.
    parameter_indices: The free parameters that occur.
    window: The time window in which all measured series have data.
    holds: The interpolation of each series that is a known input, ``"hold"`` or ``"linear"``; empty for measured
        series.
    delay_index: The number of the delayed channel of the system that each series is, or -1; the series are not
        delayed yet.
    """

    n_equations: int
    series: list[TimeSeries]
    coefficients: ScalarFunctions
    term_equation: IndexArray
    term_series: IndexArray
    term_order: IndexArray
    forcing: SignalFunctions
    parameter_indices: list[int]
    window: tuple[float, float]
    holds: list[str]
    delay_index: list[int]

    def with_delays(self, delays: Array) -> InputOutputEquations:
        """Return the equations with their delayed inputs shifted by these delays."""
        series = [
            item if lag < 0 else TimeSeries(item.observable, item.times + delays[lag], item.values, item.std)
            for item, lag in zip(self.series, self.delay_index, strict=True)
        ]
        return replace(self, series=series)

    @property
    def has_inputs(self) -> bool:
        """Whether known inputs occur."""
        return any(self.holds)

    def max_order(self, column: int) -> int:
        """Return the highest order of a derivative of one of the series."""
        return int(self.term_order[self.term_series == column].max(initial=0))


def derive_input_output_equations(
    system: System,
    records: Sequence[Sequence[TimeSeries]],
    layout: ParameterLayout,
    inputs: Sequence[Mapping[str, InputSignal]] | None = None,
) -> list[InputOutputEquations]:
    """Return the equations between the measured observables of each record; records without any are omitted."""
    # Elimination is expensive, and most records measure the same observables.
    made: dict[tuple[str, ...], InputOutputEquations | None] = {}
    found = []
    for series, signals in zip(records, inputs or [{}] * len(records), strict=True):
        observed = [item for item in series if len(item.times) >= options.SEARCH.min_series_rows]
        key = (*(item.observable for item in observed), *signals, *(signal.kind for signal in signals.values()))
        if key not in made:
            made[key] = _derive_for_record(system, observed, layout, signals)
        equations = made[key]
        if equations is None:
            continue
        own = {item.observable: item for item in (*observed, *_input_series(system, signals))}
        chosen = [own[item.observable] for item in equations.series]
        # Inputs are known for all times.
        measured = [item.times for item, kind in zip(chosen, equations.holds, strict=True) if not kind]
        start = max((float(times.min()) for times in measured), default=0.0)
        stop = min((float(times.max()) for times in measured), default=0.0)
        if stop > start:
            found.append(replace(equations, series=chosen, window=(start, stop)))
    return found


def _derive_for_record(
    system: System, observed: Sequence[TimeSeries], layout: ParameterLayout, inputs: Mapping[str, InputSignal]
) -> InputOutputEquations | None:
    """Return the equations between measured observables; None if there are none, or none with a free parameter.

    Only the names of the series matter here; each record has its own series and window.
    """
    measured, delayed = len(observed), system.delayed_channels
    observed = [*observed, *_input_series(system, inputs)]
    try:
        operator, forcing = _eliminate_unmeasured(system, observed)
    except AlgebraError:
        # The elimination is too large; these equations only serve to find starting points.
        return None
    numbers = [i for i, row in enumerate(operator.rows) if any(row)]
    involved = _free_parameters_occurring(operator, forcing, numbers, layout)
    if not involved:
        return None
    terms = [(numbers.index(i), j, k, value) for i, j, k, value in operator.terms()]
    used = sorted({j for _, j, *_ in terms})
    return InputOutputEquations(
        len(numbers),
        [observed[j] for j in used],
        ScalarFunctions(operator.ring, [value for *_, value in terms]),
        np.array([n for n, *_ in terms]),
        np.array([used.index(j) for _, j, *_ in terms]),
        np.array([k for *_, k, _ in terms]),
        SignalFunctions(operator.ring, [forcing[i] for i in numbers]),
        involved,
        (math.nan, math.nan),
        ["" if j < measured else inputs[undelayed_name(observed[j].observable)].kind for j in used],
        [delayed.index(name) if (name := observed[j].observable) in delayed else -1 for j in used],
    )


def _input_series(system: System, inputs: Mapping[str, InputSignal]) -> list[TimeSeries]:
    """Return known inputs and delayed inputs as series without noise; the latter are not shifted yet."""
    known = dict(inputs)
    known |= {name: known[name.channel] for name in system.delayed_channels if name.channel in known}
    return [TimeSeries(name, own.times, own.values, np.zeros(len(own.times))) for name, own in known.items()]


def _eliminate_unmeasured(
    system: System, observed: Sequence[TimeSeries]
) -> tuple[OperatorMatrix, list[ExponentialPolynomial]]:
    """Return equations whose columns are the measured observables, in order, and their right-hand sides."""
    names = [item.observable for item in observed]
    others = [name for name in names if name not in system.channels]
    operator, forcing, ring = system.operator, list(system.forcing), system.operator.ring
    columns = [*system.channels, *others]
    if others:
        # An observable becomes a channel by the equation: expression minus observable = 0.
        more, known = ObservableCompiler(system).parse(others)
        blank = OperatorMatrix.from_vectors(ring, [[[] for _ in others] for _ in operator.rows], len(others))
        minus = -OperatorMatrix.identity(ring, len(others), operator.variable)
        operator = operator.hstack(blank).vstack(more.hstack(minus))
        forcing += [signal.scale(Scalar(ring, -ring.one)) for signal in known]
    hidden = [j for j, name in enumerate(columns) if name not in names]
    operator, forcing = eliminate_channels(operator, forcing, hidden)
    return operator.take_columns([columns.index(name) for name in names]), forcing


def _free_parameters_occurring(
    operator: OperatorMatrix, forcing: Sequence[ExponentialPolynomial], usable: Sequence[int], layout: ParameterLayout
) -> list[int]:
    """Return the free parameters that occur in some of the equations."""
    ring = operator.ring
    elements = [operator.denominators[i] for i in usable]
    elements += [value for i in usable for entry in operator.rows[i] for value in entry]
    for i in usable:
        for wave, value in forcing[i].terms.items():
            elements += [p for s in (value, wave.rate, wave.frequency) for p in (s.numerator, s.denominator)]
    return [number for number in layout.free_parameters if number in parameters_occurring(ring, elements)]


def parameters_occurring(ring: ScalarRing, elements: Sequence[Element]) -> set[int]:
    """Return the numbers of the parameters that occur in some elements of a ring."""
    offset = len(ring.constants)
    return {k for element in elements for powers in ring.terms(element) for k, e in enumerate(powers[offset:]) if e}

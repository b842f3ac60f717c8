"""Responses are exact at any times, and so are their derivatives: held against 40 digits, SciPy and each other."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import mpmath
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import signal as scipy_signal
from scipy.linalg import expm

from lodekit.data.inputs import HoldType, InputSignal
from lodekit.prior.input_response.response import (
    ResponsePlan,
    StateMatrices,
    StateSpaceResponse,
    observable_state_space,
)
from tests.prior.input_response import exact

Array = NDArray[np.float64]
NAMES = [field.name for field in fields(StateMatrices)]
SYSTEMS = {
    "one lag": [[-0.75]],
    "repeated root": [[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [0.0, 0.0, -1.0]],
    "complex roots": [[0.0, 1.0], [-16.0, -0.5]],
    "integrators": [[0.0, 1.0], [0.0, 0.0]],
    "growing": [[0.5, 1.0], [0.0, -2.0]],
    "units far apart": [[0.0, 1e8], [-1e-8, -2.0]],
    "no states": [],
}
#: Roots -1 and -1e5.
STIFF = [[0.0, 1.0], [-1e5, -1e5 - 1.0]]
#: Binary fractions, so that delays of quarters bring samples and times together exactly.
TIMES = np.array([-0.75, -0.25, 0.0, 0.625, 0.875, 1.0, 1.0, 1.3, 1.75, 2.5, 2.625, 4.0, 7.5])
HELD = ([-0.5, 0.25, 1.0, 2.25, 3.0], [1.0, -0.5, 2.0, 0.75, -1.25], "hold", 0.25)
#: Many samples between two times: the schedule adds rows for them.
LINEAR = (
    [0.0, 0.5, 0.875, 1.5, 4.25, 4.5, 4.75, 5.0, 5.25, 6.0],
    [0.5, -1.0, 0.5, 2.0, 1.0, 0.0, 0.5, -0.5, 1.0, 3.0],
    "linear",
    0.5,
)
INPUTS = (HELD, LINEAR)
START = 0.875
#: Where inputs jump or bend: what reaches an observable through D and D1 has no derivative in the delay there.
BREAKS = np.concatenate([np.array(given[0]) + given[3] for given in INPUTS])


@dataclass(frozen=True)
class Case:
    """A state space with derivatives in parameters, two inputs, and where its response is asked for."""

    matrices: StateMatrices
    slopes: StateMatrices
    delays: Array
    d_delays: Array
    plan: ResponsePlan

    @property
    def response(self) -> StateSpaceResponse:
        return StateSpaceResponse(self.plan, self.matrices, self.delays)

    @property
    def values(self) -> Array:
        return self.response.values

    @property
    def jacobian(self) -> Array:
        return self.response.jacobian(self.slopes, self.d_delays)


def state_matrices(*given: ArrayLike) -> StateMatrices:
    """Return a state space from F, G, H and perhaps D; the others are zero."""
    F, G, H, *others = (np.asarray(matrix, dtype=float) for matrix in given)
    zero = np.zeros((len(H), G.shape[1]))
    return StateMatrices(F, G, H, *others, *([zero] * (2 - len(others))))


def make_signals(inputs: tuple[exact.Input, ...] = INPUTS) -> list[InputSignal]:
    return [InputSignal(times, values, kind) for times, values, kind, _ in inputs]  # type: ignore[arg-type]


def make_case(F: list[list[float]], times: Array = TIMES, many: int = 3, sizes: float = 1.0) -> Case:
    size, generator = len(F), np.random.default_rng(len(F) + 7)
    shapes = {"F": (size, size), "G": (size, 2), "H": (2, size), "D": (2, 2), "D1": (2, 2)}
    numbers = {name: generator.standard_normal(shape) for name, shape in shapes.items()}
    numbers["F"] = np.reshape(np.array(F, dtype=float), (size, size))
    numbers["D1"][:, 0] = 0.0
    slopes = {name: sizes * generator.standard_normal((many, *shape)) for name, shape in shapes.items()}
    # Derivatives in the size of the entries: states keep their units.
    slopes["F"] *= np.abs(numbers["F"]) + np.eye(size)
    delays = np.array([given[3] for given in INPUTS])
    plan = ResponsePlan(make_signals(), times, START)
    return Case(StateMatrices(**numbers), StateMatrices(**slopes), delays, generator.standard_normal((many, 2)), plan)


def exactly(case: Case, times: Array, direction: int | None = None, size: float = 0.0) -> Array:
    """Return the witness, at parameters moved by a size."""
    matrices = []
    for name in NAMES:
        matrix = getattr(case.matrices, name)
        moved = np.vectorize(mpmath.mpf, otypes=[object])(matrix)
        if direction is not None:
            moved = moved + getattr(case.slopes, name)[direction] * mpmath.mpf(size)
        matrices.append(mpmath.matrix(moved.tolist()) if moved.size else mpmath.zeros(*matrix.shape))
    inputs = [
        (*given[:3], mpmath.mpf(given[3]) + (0 if direction is None else mpmath.mpf(size) * moved))
        for given, moved in zip(INPUTS, case.d_delays[direction or 0].tolist(), strict=True)
    ]
    return exact.respond(matrices, inputs, START, times)


def assert_close(found: Array, expected: Array, tolerance: float) -> None:
    """Compare with the largest number of each observable."""
    largest = np.abs(expected).max(axis=-1, keepdims=True)
    assert np.all(np.abs(found - expected) <= tolerance * np.maximum(largest, 1e-300))


@pytest.mark.parametrize("name", SYSTEMS)
def test_values_agree_with_forty_digits(name: str) -> None:
    case = make_case(SYSTEMS[name])
    with mpmath.workdps(40):
        expected = exactly(case, TIMES).astype(float)
    assert_close(case.values, expected, 1e-13)


@pytest.mark.parametrize("name", SYSTEMS)
def test_derivatives_agree_with_forty_digits(name: str) -> None:
    case = make_case(SYSTEMS[name], many=1)
    with mpmath.workdps(40):
        above, below = (exactly(case, TIMES, 0, size) for size in (1e-13, -1e-13))
        expected = ((above - below) / mpmath.mpf(2e-13)).astype(float)
    away = ~np.isin(TIMES, BREAKS)
    assert 2 < away.sum() < len(TIMES) - 2  # breaks at rows count for all rows after them
    assert_close(case.jacobian[0][:, away], expected[:, away], 1e-12)


def test_stiff_systems_keep_their_digits() -> None:
    times = TIMES[TIMES >= START]
    case = make_case(STIFF, times, many=1)
    with mpmath.workdps(40):
        expected = exactly(case, times).astype(float)
        above, below = (exactly(case, times, 0, size) for size in (1e-16, -1e-16))
        slopes = ((above - below) / mpmath.mpf(2e-16)).astype(float)
    assert_close(case.values, expected, 1e-12)
    away = ~np.isin(times, BREAKS)
    assert_close(case.jacobian[0][:, away], slopes[:, away], 1e-9)


@pytest.mark.parametrize("kind", ["hold", "linear"])
@pytest.mark.parametrize("rows", [90, 2000])
def test_regular_responses_agree_with_scipy(kind: HoldType, rows: int) -> None:
    case = make_case(SYSTEMS["complex roots"])
    times, values = 0.07 * np.arange(rows), np.random.default_rng(0).standard_normal(rows)
    F, G, H, D = (getattr(case.matrices, name) for name in ("F", "G", "H", "D"))
    single = state_matrices(F, G[:, :1], H, D[:, :1])
    found = StateSpaceResponse(ResponsePlan([InputSignal(times, values, kind)], times, 0.0), single).values
    system = (F, G[:, :1], H, D[:, :1])
    _, expected, _ = scipy_signal.lsim(system, values, times, interp=kind == "linear")
    assert_close(found, expected.T, 1e-12)
    if kind == "hold":
        _, stepped, _ = scipy_signal.dlsim((*scipy_signal.cont2discrete(system, 0.07)[:4], 0.07), values)
        assert_close(found, stepped.T, 1e-12)


@pytest.mark.parametrize("rows", [300, 4000])
def test_steps_that_are_all_different_agree_with_an_exponential_for_each(rows: int) -> None:
    generator = np.random.default_rng(3)
    times = np.cumsum(generator.uniform(1e-3, 0.4, rows))
    values = generator.standard_normal(rows)
    F, G = np.array([[-30.0, 8.0], [-8.0, -0.3]]), np.array([[1.0], [2.0]])
    plan = ResponsePlan([InputSignal(times, values, "hold")], times, times[0])
    found = StateSpaceResponse(plan, state_matrices(F, G, np.eye(2)))
    expected, x = [np.zeros(2)], np.zeros(2)
    steps = expm(np.block([[F, G], [np.zeros((1, 3))]]) * np.diff(times)[:, None, None])
    for step, value in zip(steps, values[:-1], strict=True):
        x = step[:2, :2] @ x + step[:2, 2] * value
        expected.append(x)
    assert_close(found.values, np.transpose(expected), 1e-12)


@pytest.mark.parametrize("name", ["repeated root", "complex roots", "no states"])
@pytest.mark.parametrize("spread", [0.0, 0.02])
def test_products_with_the_jacobian_need_no_jacobian(name: str, spread: float) -> None:
    generator = np.random.default_rng(1)
    times = np.linspace(-1.0, 8.0, 700)
    times = np.sort(np.concatenate([times + spread * generator.standard_normal(700), times[5:8]]))
    case = make_case(SYSTEMS[name], times)
    weights = generator.standard_normal((2, len(times)))
    expected = np.einsum("pqn,qn->p", case.jacobian, weights)
    found, _ = case.response.gradient(weights, case.slopes, case.d_delays)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())
    fixed, _ = case.response.gradient(weights, case.slopes)
    expected = np.einsum("pqn,qn->p", case.response.jacobian(case.slopes), weights)
    np.testing.assert_allclose(fixed, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())


def test_derivatives_of_any_order_are_those_of_the_response() -> None:
    generator = np.random.default_rng(2)
    case = make_case(SYSTEMS["complex roots"], np.array([1.5, 1.5 + 1e-4, 1.5 + 2e-4]))
    weights, direct = generator.standard_normal((4, 2, 2)), generator.standard_normal((2, 2, 2))
    for order in range(3):
        parts = [np.zeros((4, 2, 2)) for _ in range(2)]
        parts[0][order], parts[1][order + 1] = np.eye(2), np.eye(2)
        nothing = np.zeros((3, 4, 2, 2))
        below, above = (observable_state_space(case.matrices, case.slopes, (part, nothing))[0] for part in parts)
        values, derivative = (replace(case, matrices=matrices).values for matrices in (below, above))
        assert np.allclose((values[:, 2] - values[:, 0]) / 2e-4, derivative[:, 1], rtol=1e-6, atol=1e-6)
    d_weights, d_direct = generator.standard_normal((3, 4, 2, 2)), generator.standard_normal((3, 2, 2, 2))
    matrices, slopes = observable_state_space(case.matrices, case.slopes, (weights, d_weights), (direct, d_direct))
    for number in range(3):
        ends = []
        for size in (1e-6, -1e-6):
            moved = StateMatrices(
                *(getattr(case.matrices, name) + size * getattr(case.slopes, name)[number] for name in NAMES)
            )
            own = (weights + size * d_weights[number], d_weights), (direct + size * d_direct[number], d_direct)
            ends.append(observable_state_space(moved, case.slopes, *own)[0])
        for name in NAMES:
            change = (getattr(ends[0], name) - getattr(ends[1], name)) / 2e-6
            np.testing.assert_allclose(getattr(slopes, name)[number], change, rtol=1e-6, atol=1e-6)
    assert matrices.H.shape == (2, 2)


def test_a_delay_is_a_later_signal() -> None:
    case = make_case(SYSTEMS["repeated root"])
    later = [each.delayed(delay) for each, delay in zip(make_signals(), case.delays, strict=True)]
    assert_close(StateSpaceResponse(ResponsePlan(later, TIMES, START), case.matrices).values, case.values, 1e-14)


@pytest.mark.parametrize("delays", [[0.0, 0.0, 0.0], [0.23, 0.5, -0.17], [0.1, 0.33, 0.33], [7.0, -70.0, 0.05]])
def test_one_more_time_does_not_matter(delays: list[float]) -> None:
    """Equal steps are gone through in another way than steps of which one is cut: values and derivatives agree."""
    generator = np.random.default_rng(4)
    times = 0.1 * np.arange(600)
    signals = [
        InputSignal(times, np.repeat(generator.standard_normal(60), 10), "hold"),
        InputSignal(times[:-9], generator.standard_normal(591), "hold"),
        InputSignal(times, generator.standard_normal(600), "linear"),
    ]
    matrices = state_matrices(SYSTEMS["complex roots"], generator.standard_normal((2, 3)), np.eye(1, 2))
    slopes = StateMatrices(*(generator.standard_normal((4, *part.shape)) for part in vars(matrices).values()))
    d_delays, weights = generator.standard_normal((4, 3)), generator.standard_normal((1, 600))
    more = np.insert(times, 300, 29.95)
    found, cut = (
        StateSpaceResponse(ResponsePlan(signals, own, 0.0), matrices, np.array(delays)) for own in (times, more)
    )
    assert_close(found.values, np.delete(cut.values, 300, axis=1), 1e-13)
    heavy = np.insert(weights, 300, 0.0, axis=1)
    expected, _ = cut.gradient(heavy, slopes, d_delays)
    np.testing.assert_allclose(found.gradient(weights, slopes, d_delays)[0], expected, rtol=1e-10)
    jacobian = found.jacobian(slopes, d_delays)
    np.testing.assert_allclose(np.einsum("pqn,qn->p", jacobian, weights), expected, rtol=1e-10)


@pytest.mark.parametrize("length", [1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("between", [(), (1.0,), (1.0, 1.5), (1.5, 2.0)])
def test_jumps_that_are_logged_as_two_samples_keep_their_digits(length: float, between: tuple[float, ...]) -> None:
    """A linear input rises within a moment: its slope is huge, and must not be taken back only after a long step.

    For x' = u - x, y' = x the integral of u is y + x, and x is one in the end. Tolerance: rounding of the integral,
    and that of the clock, which tells where the jump is.
    """
    start, delay, end = 1.25, 0.5, 4096.0
    signal = InputSignal([0.0, start, start + length, 5000.0], [0.0, 0.0, 1.0, 1.0], "linear")
    times = np.array([*(start + delay + (share - 1.0) * length for share in between), end])
    matrices = state_matrices([[-1.0, 0.0], [1.0, 0.0]], [[1.0], [0.0]], [[0.0, 1.0]])
    found = StateSpaceResponse(ResponsePlan([signal], times, 0.0), matrices, np.array([delay]))
    rise = float(signal.times[2]) - start
    assert found.values[0, -1] == pytest.approx(end - start - delay - 0.5 * rise - 1.0, rel=1e-13)


def test_times_of_a_clock_far_from_zero_are_one_step() -> None:
    times = 1.7e9 + 0.1 * np.arange(3000)
    generator = np.random.default_rng(0)
    near = InputSignal(0.1 * np.arange(3000), generator.standard_normal(3000), "hold")
    far = InputSignal(times, near.values, "hold")
    matrices = state_matrices([[-0.5]], [[1.0]], [[1.0]], [[1.0]])
    plan = ResponsePlan([far], times, times[0])
    assert len(plan.schedules(np.zeros(1))[0][1].steps.distinct) == 1
    # A delay of one step, which meets the times up to rounding of the clock: 2e-7 of the time.
    found, expected = (
        StateSpaceResponse(ResponsePlan([each], each.times, each.times[0]), matrices, np.array([0.1])).values
        for each in (far, near)
    )
    assert_close(found, expected, 1e-5)


def test_numbers_that_are_not_finite_give_nan_and_overflow_is_silent() -> None:
    case = make_case(SYSTEMS["complex roots"])
    broken = replace(case, matrices=replace(case.matrices, F=np.full((2, 2), np.inf)))
    assert np.isnan(broken.values).all()
    assert np.isnan(broken.jacobian).all()
    assert np.isnan(np.concatenate(broken.response.gradient(np.ones((2, len(TIMES))), case.slopes))).all()
    assert not np.isfinite(make_case([[1e4]]).values).all()


def test_one_time_or_none_are_answered() -> None:
    case = make_case(SYSTEMS["complex roots"])
    for times in (np.zeros(0), np.array([START]), np.array([-1.0]), np.array([9.0])):
        own = replace(case, plan=ResponsePlan(make_signals(), times, START))
        weights = np.ones((2, len(times)))
        expected = np.einsum("pqn,qn->p", own.jacobian, weights)
        np.testing.assert_allclose(own.response.gradient(weights, case.slopes, case.d_delays)[0], expected, rtol=1e-9)
        assert own.values.shape == (2, len(times))
    both = replace(case, plan=ResponsePlan(make_signals(), np.array([9.0, 9.5]), START)).values
    assert_close(own.values, both[:, :1], 1e-12)


def test_times_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValueError, match="ascend"):
        ResponsePlan(make_signals(), np.array([1.0, 0.0]), 0.0)

"""Initial states of what known inputs drive: left open as by least squares, and in favour of no parameters."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.optimize import least_squares

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.errors import AlgebraError
from lodekit.fitting.objective import Objective
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.prior.prior import Hyperparameters
from tests.test_archive import repack

Array = NDArray[np.float64]
ROWS, STEP, NOISE = 60, 0.5, 0.05
NAMES = ("a", "b", "k")
TRUTH = np.array([0.4, 1.5, 2.0])
#: A heater that is not seen, and far from rest, warms what is seen.
EQUATIONS = ["h' = k*u - a*h", "y' = b*(h - y)"]
START = np.array([-4.0, 1.0])


def heater(starts: Array | None = None) -> lk.System:
    given = [None] * 3 if starts is None else starts.tolist()
    made = {name: lk.Parameter(positive=True, start=start) for name, start in zip(NAMES, given, strict=True)}
    return lk.System(EQUATIONS, parameters=made)


def simulate(theta: Array, u: Array, start: Array) -> Array:
    """Return what is seen, shape (n,), by matrix exponentials."""
    a, b, k = theta
    block = np.zeros((3, 3))
    block[:2] = [[-a, 0.0, k], [b, -b, 0.0]]
    whole, states = expm(STEP * block), [start]
    for held in u[:-1]:
        states.append(whole[:2, :2] @ states[-1] + whole[:2, 2] * held)
    return np.array(states)[:, 1]


def residuals(theta: Array, record: dict[str, Array]) -> Array:
    """Return what the best initial state leaves of a record."""
    quiet = simulate(theta, record["u"], np.zeros(2))
    modes = np.column_stack([simulate(theta, 0.0 * record["u"], start) for start in np.eye(2)])
    rest = record["y"] - quiet
    return np.asarray(rest - modes @ np.linalg.lstsq(modes, rest, rcond=None)[0])


def make_record(seed: int, scale: float = 1.0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.normal(size=ROWS // 6), 6)
    y = simulate(TRUTH, u, START) + NOISE * generator.normal(size=ROWS)
    return {"t": STEP * np.arange(float(ROWS)), "u": u, "y": scale * y}


RECORD = make_record(0)


def fit(record: dict[str, Array] = RECORD, **options: object) -> lk.LODEGP:
    gp = lk.LODEGP(heater(TRUTH), inputs={"u": "hold"}, random_state=0, **options)  # type: ignore[arg-type]
    return gp.fit(record["t"], {name: record[name] for name in ("y", "u")})


@pytest.fixture(scope="module")
def learned() -> lk.LODEGP:
    return fit(mode_deviation="learned")


@pytest.fixture(scope="module")
def heated() -> lk.LODEGP:
    return fit()


def test_estimates_are_those_of_least_squares_with_free_initial_states(heated: lk.LODEGP) -> None:
    """To a thousandth of a standard error; learned deviations pull the hidden heater towards rest."""
    best = least_squares(lambda theta: residuals(theta, RECORD), TRUTH, xtol=1e-12, ftol=1e-12).x
    for name, value in zip(NAMES, best, strict=True):
        found = heated.parameters_[name]
        assert abs(found.value - value) < 1e-3 * found.std_error
    # The level of noise is that of a regression: initial states have cost measurements.
    left = float(np.sum(residuals(best, RECORD) ** 2))
    assert heated.noise_["y"] == pytest.approx(np.sqrt(left / (ROWS - 2)), rel=2e-2)


def test_the_evidence_of_parameters_is_that_of_what_least_squares_leaves(heated: lk.LODEGP) -> None:
    """Whatever the parameters: no determinant of the modes is left in it."""
    layout, engine = heated.fit_.layout, heated.fit_.setup.engine
    level, values, expected = layout.unpack(heated.fit_.optimum.x).noise_std, [], []
    for factors in ([1.0, 1.0, 1.0], [1.3, 0.8, 1.1], [0.7, 2.0, 0.9], [3.7, 1.0, 1.0]):
        theta = TRUTH * factors
        x = heated.fit_.optimum.x.copy()
        x[:3] = [layout.transforms[n].inverse(float(value)) for n, value in enumerate(theta)]
        values.append(engine.value(layout.unpack(x)))
        expected.append(-0.5 * float(np.sum((residuals(theta, RECORD) / level) ** 2)))
    np.testing.assert_allclose(np.diff(values), np.diff(expected), rtol=1e-3, atol=1e-2)


def test_the_evidence_that_is_shown_is_the_criterion_of_schwarz(heated: lk.LODEGP) -> None:
    """Least squares with free initial states as a witness: two of them. Tolerance: some rows stand for all."""
    theta, level = np.array([heated.parameters_[name].value for name in NAMES]), heated.noise_["y"]
    left = residuals(theta, RECORD) / level
    likelihood = -0.5 * float(left @ left) - ROWS * np.log(np.sqrt(2 * np.pi) * level)
    assert heated.log_evidence_ == pytest.approx(likelihood - 2 * 0.5 * np.log(ROWS), abs=0.1)
    # Seventeen nats more than what is searched, at all values.
    assert heated.log_evidence_ > heated.fit_.posterior.value + 10.0
    assert heated.log_evidence() == pytest.approx(heated.log_evidence_)


def test_deviations_follow_the_parameters_with_their_derivatives(heated: lk.LODEGP) -> None:
    modes, theta = heated.fit_.layout.diffuse_modes, 1.2 * TRUTH
    assert modes is not None
    slopes = np.stack([modes.vjp(theta, weights) for weights in np.eye(len(modes.groups))], axis=1)
    for n, step in enumerate(1e-5 * np.eye(3)):
        change = (modes.log_amplitudes(theta + step) - modes.log_amplitudes(theta - step)) / 2e-5
        np.testing.assert_allclose(slopes[n], change, rtol=1e-6, atol=1e-8)


def test_the_barrier_at_collinear_modes_has_a_gradient() -> None:
    system = lk.System("y' = -a*y + b*z + u; z' = d*(y - z)", parameters=["a", "b", "d"])
    t = 0.4 * np.arange(50.0)
    u = np.sin(t)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, restarts=1).fit(t, {"y": 0.7 * u + 0.1 * np.cos(3.0 * t), "u": u})
    modes = gp.fit_.layout.diffuse_modes
    assert modes is not None
    # Singular values above and at the level of rounding errors.
    for size in (1e-8, 3e-9):
        theta = np.array([1.5, size, size])
        slopes = modes.vjp(theta, np.zeros(1), 1.0) * theta
        for n, step in enumerate(0.02 * np.diag(theta)):
            up, down = (modes.restricted_likelihood_correction(theta + sign * step) for sign in (1.0, -1.0))
            assert slopes[n] == pytest.approx((up - down) / 0.04, rel=1e-2)
    assert modes.restricted_likelihood_correction(theta) < -2.0


@pytest.mark.parametrize("engine", ["dense", "spectral"])
def test_engines_agree_on_open_modes(heated: lk.LODEGP, engine: str) -> None:
    """Dense matrices have wide modes beside a little noise, which costs digits."""
    arguments = replace(heated.fit_.settings, engine=engine)
    setup = build_setup(heated.system, arguments, heated.fit_.measurements)
    x = heated.fit_.optimum.x
    first, second = heated.fit_.setup.objective.evaluate(x + 0.1), setup.objective.evaluate(x + 0.1)
    assert second[0] == pytest.approx(first[0], abs=1e-5)
    np.testing.assert_allclose(second[1], first[1], rtol=1e-5, atol=1e-5)


def test_units_change_nothing(heated: lk.LODEGP) -> None:
    large = make_record(0, 1e4)
    other = fit({**large, "u": 1e4 * large["u"]})
    for name in NAMES:
        assert other.parameters_[name].value == pytest.approx(heated.parameters_[name].value, rel=1e-6)
    assert other.log_evidence_ == pytest.approx(heated.log_evidence_ - ROWS * np.log(1e4), abs=1e-5)


def test_records_have_open_initial_states_of_their_own() -> None:
    records = [RECORD, make_record(1)]
    gp = lk.LODEGP(heater(TRUTH), inputs={"u": "hold"}, random_state=0)
    gp.fit([(record["t"] + 100.0 * n, {"y": record["y"], "u": record["u"]}) for n, record in enumerate(records)])
    best = least_squares(lambda theta: np.concatenate([residuals(theta, each) for each in records]), TRUTH).x
    for name, value in zip(NAMES, best, strict=True):
        assert abs(gp.parameters_[name].value - value) < 1e-3 * gp.parameters_[name].std_error


def test_the_summary_says_so_and_the_argument_says_otherwise(heated: lk.LODEGP, learned: lk.LODEGP) -> None:
    assert any(line.split() == ["initial", "state", "estimated"] for line in heated.summary().splitlines())
    assert "initial state" not in learned.summary()
    assert abs(learned.predict([0.0], "h")[0] - START[0]) < 1.0
    with pytest.raises(lk.LodekitError, match="'open' or 'learned', got 'wide'"):
        fit(mode_deviation="wide")


def test_open_modes_survive_a_file_and_older_files_stay_as_they_were(
    heated: lk.LODEGP, learned: lk.LODEGP, tmp_path: Path
) -> None:
    heated.save(tmp_path / "open.lodekit")
    again = lk.LODEGP.load(tmp_path / "open.lodekit")
    assert again.get_params()["mode_deviation"] is None
    assert again.log_evidence_ == pytest.approx(heated.log_evidence_, abs=1e-8)
    learned.save(tmp_path / "learned.lodekit")
    with ZipFile(tmp_path / "learned.lodekit") as archive:
        state = json.loads(archive.read("model.json"))
    assert state["format"] == 5
    del state["arguments"]["mode_deviation"]
    state["format"] = 3
    members = {"model.json": json.dumps(state).encode(), "sha256": b""}
    repack(tmp_path / "learned.lodekit", tmp_path / "old.lodekit", **members)
    assert lk.LODEGP.load(tmp_path / "old.lodekit").get_params()["mode_deviation"] == "learned"


def test_inputs_that_begin_far_from_zero_cost_nothing() -> None:
    """An offset of the input is one of the output: with that taken back, the evidence is the same."""
    record, found = make_record(3), []
    for offset in (0.0, 1000.0):
        values = {"tau": 2.0, "K": 1.5, "y0": -1.5 * offset}
        system = lk.System("tau*y' + y - y0 = K*u", parameters={n: lk.Parameter(fixed=v) for n, v in values.items()})
        shifted = {"y": record["y"], "u": record["u"] + offset}
        found.append(lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(record["t"], shifted).log_evidence_)
    assert found[1] == pytest.approx(found[0], abs=0.1)


#: A motor of which the torque constant acts back on the current by less than the noise.
MOTOR = ["J*w' = K*i - b*w", "L*i' = V - K*w - R*i"]
MOTOR_STEP, MOTOR_ROWS, MOTOR_NOISE = 0.1, 50, np.array([0.05, 0.1])


def turn(K: float, R: float, V: Array, start: Array) -> Array:
    """Return speed and current, shape (n, 2), with J / K = 0.2, b / K = 2 and L = 0.5, by a matrix exponential."""
    block = np.array([[-10.0, 5.0, 0.0], [-K / 0.5, -R / 0.5, 2.0], [0.0, 0.0, 0.0]])
    whole, states = expm(MOTOR_STEP * block), [start]
    for held in V[:-1]:
        states.append(whole[:2, :2] @ states[-1] + whole[:2, 2] * held)
    return np.array(states)


@pytest.fixture(scope="module")
def motor() -> dict[str, Array]:
    generator = np.random.default_rng(0)
    V = np.repeat(generator.uniform(0, 10, 5), 10)
    made = turn(0.05, 1.0, V, np.zeros(2)) + MOTOR_NOISE * generator.normal(size=(MOTOR_ROWS, 2))
    return {"V": V, "w": made[:, 0], "i": made[:, 1]}


def left_by_motor(record: dict[str, Array], K: float, R: float) -> Array:
    """Return what the best initial state leaves of speed and current in units of the noise, shape (2n,)."""
    quiet = turn(K, R, record["V"], np.zeros(2))
    parts = [turn(K, R, 0.0 * record["V"], start) / MOTOR_NOISE for start in np.eye(2)]
    modes = np.column_stack([part.ravel() for part in parts])
    rest = ((np.column_stack([record["w"], record["i"]]) - quiet) / MOTOR_NOISE).ravel()
    return np.asarray(rest - modes @ np.linalg.lstsq(modes, rest, rcond=None)[0])


def fit_motor(record: dict[str, Array], parameters: dict[str, lk.Parameter]) -> lk.LODEGP:
    gp = lk.LODEGP(lk.System(MOTOR, parameters=parameters), inputs={"V": "hold"}, random_state=0, restarts=1)
    noise = {"w": float(MOTOR_NOISE[0]), "i": float(MOTOR_NOISE[1])}
    return gp.fit(MOTOR_STEP * np.arange(float(MOTOR_ROWS)), record, noise_std=noise)


def test_modes_that_look_alike_gain_nothing(motor: dict[str, Array]) -> None:
    """Along a valley in which they become alike to rounding, the evidence is that of least squares throughout."""
    found, expected = [], []
    for K in (1.0, 0.05, 1e-6, 1e-9, 1e-12):
        R = 1.025 - 0.5 * K
        values = {"J": 0.2 * K, "b": 2.0 * K, "K": K, "R": R, "L": 0.5}
        gp = fit_motor(motor, {name: lk.Parameter(fixed=value) for name, value in values.items()})
        found.append(gp.log_evidence_)
        expected.append(-0.5 * float(np.sum(left_by_motor(motor, K, R) ** 2)))
    np.testing.assert_allclose(np.subtract(found, found[1]), np.subtract(expected, expected[1]), atol=3e-3)


def test_vanishing_couplings_do_not_raise_the_evidence() -> None:
    """One of two modes was lost to rounding, and the evidence was higher by two nats, and by four farther away."""
    t = 0.4 * np.arange(50.0)
    u, values = np.repeat([0.5, -1.0, 2.0, 0.3, -0.7], 10), [1.0]
    for held in u[:-1]:
        values.append(held + (values[-1] - held) * math.exp(-0.6))
    y = np.array(values) + 0.01 * np.random.default_rng(3).standard_normal(50)

    def evidence_of(size: float) -> float:
        values = {"a": 1.5, "c": 1.5, "b": size, "d": size}
        fixed = {name: lk.Parameter(fixed=value) for name, value in values.items()}
        system = lk.System("y' = -a*y + b*z + c*u; z' = d*(y - z)", parameters=fixed)
        return lk.LODEGP(system, inputs={"u": "hold"}).fit(t, {"y": y, "u": u}, noise_std=0.01).log_evidence_

    small = [evidence_of(size) for size in (1e-5, 1e-6, 1e-9, 1e-12)]
    assert small[1] == pytest.approx(small[0], abs=1e-3)
    assert max(small[2:]) < small[0]


def test_what_may_be_nothing_is_bounded_and_leaves_open_what_follows_it(motor: dict[str, Array]) -> None:
    """The torque constant may be zero, and the resistance makes up for it: least squares tells how far it goes."""
    free = {name: lk.Parameter(positive=True) for name in ("J", "b", "R", "K")}
    gp = fit_motor(motor, free | {"L": lk.Parameter(fixed=0.5)})
    for name in ("J", "b", "K"):
        assert not gp.parameters_[name].identified
    # The resistance that goes with the true constant is inside; that with one of 0.2, which loses ten, is not.
    inside, outside = (least_squares(lambda R, K=K: left_by_motor(motor, K, R[0]), [1.0]).x[0] for K in (0.05, 0.2))
    low, high = gp.parameters_["R"].interval
    assert outside < low < inside < high


def test_modes_that_nothing_shows_leave_no_message_of_a_library_on_the_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    t = np.linspace(0.0, 10.0, 30)
    u = np.sin(t)
    y = 2.0 * u + 0.1 * np.random.default_rng(0).standard_normal(30)
    system = lk.System("y = K*u; z' = -a*z", parameters=["K", "a"])
    gp = lk.LODEGP(system, inputs={"u": "linear"}, random_state=0).fit(t, {"y": y, "u": u})
    assert gp.parameters_["K"].value == pytest.approx(2.0, rel=0.1)
    assert "DTRTRI" not in "".join(capfd.readouterr())


DOSE = {"ka": 1.5, "V": 30.0, "Cl": 2.8}
HOURS = np.array([0.25, 0.57, 1.12, 2.02, 3.82, 5.1, 7.03, 9.05, 12.12])


def concentration(times: Array, ka: float, V: float, Cl: float) -> Array:
    """Return the concentration after 320 mg by mouth, in closed form."""
    rate = Cl / V
    return np.asarray(320.0 * ka / (V * (ka - rate)) * (np.exp(-rate * times) - np.exp(-ka * times)))


def compartments(**values: lk.Parameter) -> lk.System:
    return lk.System(["A' = -ka*A", "V*C' = ka*A - Cl*C"], parameters=values)


def after_dose(values: Array, std: float | None = None, unit: float = 1.0) -> lk.Observations:
    """Return concentrations with an exact initial state; the unit is that of the amounts."""
    exact = lk.Observations([(0.0, "A", 320.0 * unit, 0.0), (0.0, "C", 0.0, 0.0)])
    return exact.add(HOURS, "C", values, std)


def test_exact_initial_states_are_conditions_and_not_scored() -> None:
    """With nothing to learn, the log evidence is the log density of the noise around the exact curve."""
    left = 0.3 * np.random.default_rng(1).standard_normal(len(HOURS))
    fixed = {name: lk.Parameter(fixed=value) for name, value in DOSE.items()}
    data = after_dose(concentration(HOURS, **DOSE) + left, std=0.3)
    gp = lk.LODEGP(compartments(**fixed)).fit(data)
    expected = -0.5 * float(left @ left) / 0.09 - len(left) * math.log(0.3 * math.sqrt(2.0 * math.pi))
    assert gp.log_evidence_ == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(gp.predict(HOURS, ["C"])[:, 0], concentration(HOURS, **DOSE), rtol=1e-6)


def test_exact_initial_states_do_not_make_the_curve_vanish() -> None:
    """A zero curve would make the density of an exact C(0) = 0 as large as one likes; units must not matter either."""
    noise = 0.8 * np.random.default_rng(2).standard_normal(len(HOURS))
    free = {name: lk.Parameter(positive=True) for name in DOSE}
    found = []
    for unit in (1e-3, 1e3):
        data = after_dose(concentration(HOURS, **DOSE) + noise, unit=unit)
        gp = lk.LODEGP(compartments(**free), random_state=0).fit(data)
        assert gp.converged_
        assert gp.fit_.diagnosis.explained_variance["C"] > 0.8
        for name, value in DOSE.items():
            low, high = gp.parameters_[name].interval
            assert low < value * (1.0 if name == "ka" else unit) < high
        found.append([gp.parameters_["ka"].value, gp.parameters_["V"].value / unit, gp.parameters_["Cl"].value / unit])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)


TWO_COMPARTMENTS = lk.System(
    ["A' = -ka*A", "V*C' = ka*A - Cl*C - Q*C + Q*P", "V2*P' = Q*C - Q*P"],
    parameters=dict.fromkeys(("ka", "V", "Cl", "Q", "V2"), lk.Parameter(positive=True)),
)
EXACT_DOSE = lk.Observations([(0.0, "A", 320.0, 0.0), (0.0, "C", 0.0, 0.0), (0.0, "P", 0.0, 0.0)])


def test_two_compartments_fit_as_least_squares_from_the_truth() -> None:
    """Three exponentials from a dozen values have several optima, of which one has a single compartment."""
    truth = np.array([1.2, 30.0, 3.0, 5.0, 30.0])
    times = np.array([0.2, 0.5, 0.8, 1.2, 1.7, 2.6, 4.0, 7.0, 11.0, 16.0, 24.0, 34.0])

    def curve(values: Array) -> Array:
        ka, V, Cl, Q, V2 = values.tolist()
        M = np.array([[-ka, 0.0, 0.0], [ka / V, -(Cl + Q) / V, Q / V], [0.0, Q / V2, -Q / V2]])
        return np.array([(expm(M * t) @ [320.0, 0.0, 0.0])[1] for t in times])

    data = curve(truth) + 0.03 * np.random.default_rng(5).standard_normal(len(times))
    expected = 2.0 * float(least_squares(lambda z: curve(np.exp(z)) - data, np.log(truth), x_scale="jac").cost)
    gp = lk.LODEGP(TWO_COMPARTMENTS, random_state=0).fit(EXACT_DOSE.add(times, "C", data))
    assert np.sum((gp.predict(times, ["C"])[:, 0] - data) ** 2) < 1.01 * expected


def test_points_where_the_density_of_exact_values_loses_its_digits_are_rejected() -> None:
    """The log evidence was 3e13 there, where rates differ by a factor of 1e14, and a search ended at this point."""
    system = lk.System(
        "A' = -(k + k12)*A + k21*P; P' = k12*A - k21*P; V*C = A",
        parameters=dict.fromkeys(("k", "k12", "k21", "V"), lk.Parameter(positive=True)),
    )
    times = np.geomspace(0.05, 110.0, 12)
    data = lk.Observations([(0.0, "A", 1.0, 0.0), (0.0, "P", 0.0, 0.0)]).add(times, "C", 0.1 * np.exp(-times) + 0.01)
    objective = build_setup(system, FitSettings(), Measurements.from_observations(data)).objective
    values = {"k": 1.8657, "k12": 6.5543e5, "k21": 8.3005e-9, "V": 408.5}
    x = np.full(objective.layout.size, math.log(0.01))
    x[:4] = [math.log(values[name]) for name in objective.layout.names]
    assert objective.value(x) == objective.evaluate(x)[0] == -math.inf
    usual = {"k": 0.2, "k12": 2.0, "k21": 0.3, "V": 10.0}
    x[:4] = [math.log(usual[name]) for name in objective.layout.names]
    assert math.isfinite(objective.value(x))


def test_a_channel_may_have_an_exact_value_and_others_at_the_same_time() -> None:
    """The residuals of the others are not in units of the noise of the exact one, which is zero."""
    times = np.repeat(np.arange(5.0), 6)
    data = lk.Observations([(0.0, "x", 1.0, 0.0)]).add(times, "x", 5.0 + 0.3 * times)
    gp = lk.LODEGP(lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)}), random_state=0).fit(data)
    assert gp.fit_.diagnosis.checks[0].is_autocorrelated


def test_modal_engine_takes_exact_values() -> None:
    """It has the evidence and the means of the dense engine, and refuses values that contradict the equations."""
    fixed = {name: lk.Parameter(fixed=value) for name, value in DOSE.items()}
    data = after_dose(concentration(HOURS, **DOSE) + 0.1 * np.cos(HOURS), std=0.3)
    modal, dense = (lk.LODEGP(compartments(**fixed), engine=engine).fit(data) for engine in ("auto", "dense"))
    assert modal.engine_.startswith("modal")
    assert modal.log_evidence_ == pytest.approx(dense.log_evidence_, abs=1e-5)
    np.testing.assert_allclose(modal.predict(HOURS), dense.predict(HOURS), rtol=1e-6)
    with pytest.raises(lk.LodekitError, match="contradict"):
        lk.LODEGP(compartments(**fixed)).fit(data.add([1.0], "A", [300.0], 0.0))


@pytest.mark.parametrize("n_exact", [1, 2])
def test_gradient_beside_exact_values(n_exact: int) -> None:
    """One exact value leaves a state open, two do not; the tolerance is that of a wide prior beside no noise."""
    times = np.linspace(0.2, 8.0, 15)
    swing = lk.System("x'' + c*x' + k*x = 0", parameters={name: lk.Parameter(positive=True) for name in "ck"})
    exact = lk.Observations([(0.0, "x", 1.0, 0.0), (0.0, "x'", -0.2, 0.0)][:n_exact])
    data = exact.add(times, "x", np.exp(-0.2 * times) * np.cos(2.0 * times))
    setup = build_setup(swing, FitSettings(), Measurements.from_observations(data))
    assert setup.layout.diffuse_modes is not None
    assert setup.engine.size == len(times)
    x = np.array([math.log(0.3), math.log(4.5), *[math.log(0.1)] * (setup.layout.size - 2)])
    _, gradient = setup.objective.evaluate(x)
    moves = 1e-3 * np.eye(len(x))
    slopes = [(setup.objective.value(x + move) - setup.objective.value(x - move)) / 2e-3 for move in moves]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-3, atol=1e-9)


def chain_objective(states: int, engine: str = "auto") -> tuple[Objective, Array]:
    """Return the objective for a chain of states, half of them driven, with all rates unknown, and the true vector."""
    rng, inputs = np.random.default_rng(3), states // 2
    equations, values = [], dict[str, float]()
    F, G = np.zeros((states, states)), np.zeros((states, inputs))
    for i in range(states):
        terms = [f"x{i}' = -c*x0"] if i == 0 else [f"x{i}' = 0"]
        for letter, other in (("a", i - 1), ("b", i + 1)):
            if 0 <= other < states:
                values[f"{letter}{i}"] = rate = float(rng.uniform(0.5, 2.0))
                F[i, other], F[i, i] = rate, F[i, i] - rate
                terms.append(f"{letter}{i}*(x{other} - x{i})")
        if i < inputs:
            values[f"g{i}"] = G[i, i] = float(rng.uniform(0.5, 2.0))
            terms.append(f"g{i}*u{i}")
        equations.append(" + ".join(terms))
    values["c"], F[0, 0] = 1.0, F[0, 0] - 1.0
    flow = expm(0.2 * np.block([[F, G], [np.zeros((inputs, states + inputs))]]))
    u = np.repeat(rng.standard_normal((8, inputs)), 5, axis=0)
    x = np.zeros((len(u), states))
    for k in range(len(u) - 1):
        x[k + 1] = flow[:states, :states] @ x[k] + flow[:states, states:] @ u[k]
    data, times = lk.Observations(), 0.2 * np.arange(len(u))
    for letter, columns in (("x", x + 0.01 * rng.standard_normal(x.shape)), ("u", u)):
        for i, column in enumerate(columns.T):
            data = data.add(times, f"{letter}{i}", column)
    system = lk.System(equations, parameters={name: lk.Parameter(positive=True) for name in values})
    settings = FitSettings(inputs={f"u{i}": "hold" for i in range(inputs)}, engine=engine)
    objective = build_setup(system, settings, Measurements.from_observations(data)).objective
    theta, none = np.array([values[name] for name in objective.layout.names]), np.zeros(0)
    return objective, objective.layout.pack(Hyperparameters(theta, none, none, none, np.full(states, 0.01)))


@pytest.mark.parametrize("engine", ["modal", "markov", "dense"])
def test_a_state_matrix_gives_the_evidence_of_the_characteristic_polynomial(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The initial state is diffuse, so its coordinates change nothing."""
    objective, x = chain_objective(3, engine)
    expected = objective.evaluate(x + 0.1)

    def give_up(*_: object) -> None:
        raise AlgebraError("expressions grow too large")

    monkeypatch.setattr("lodekit.prior.compile.factor_annihilators", give_up)
    other, _ = chain_objective(3, engine)
    assert other.engine.prior.groups[0].has_state_matrix
    value, gradient = other.evaluate(x + 0.1)
    assert value == pytest.approx(expected[0], abs=1e-5)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-5, atol=1e-4)


def test_a_state_matrix_may_have_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    system = lk.System("x' = -a*x + u", parameters={"a": lk.Parameter(positive=True)})
    t = np.arange(12.0)
    data = {"x": np.exp(-0.3 * t) + 0.01 * np.sin(9.0 * t), "u": np.zeros(12)}
    expected = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, data).log_evidence_

    def give_up(*_: object) -> None:
        raise AlgebraError("expressions grow too large")

    monkeypatch.setattr("lodekit.prior.compile.factor_annihilators", give_up)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, data)
    assert gp.log_evidence_ == pytest.approx(expected, abs=1e-4)


def test_a_chain_of_twelve_states_with_29_parameters_needs_no_characteristic_polynomial() -> None:
    """It would have more than a hundred thousand terms. The true values are near the optimum, and slopes are right."""
    objective, x = chain_objective(12)
    assert len(objective.layout.free_parameters) == 29
    value, gradient = objective.evaluate(x)
    step = 1e-5 * np.random.default_rng(0).standard_normal(len(x))
    change = objective.value(x + step) - objective.value(x - step)
    assert change == pytest.approx(2.0 * float(gradient @ step), rel=1e-3, abs=1e-6)
    assert objective.value(x + 0.1) < value - 100.0


def test_initial_states_with_exact_values_are_given() -> None:
    times, system = np.arange(1.0, 9.0), lk.System("G' = -k*G", parameters={"k": lk.Parameter(positive=True)})
    values = 5.0 * np.exp(-0.4 * times) + 0.05 * np.sin(40.0 * times)
    data = lk.Observations().add(times, "G", values)
    for exact, expected in ((False, "estimated"), (True, "given exactly")):
        own = data.add(0.0, "G", 5.0, 0.0) if exact else data
        gp = lk.LODEGP(system, random_state=0, restarts=1, mode_deviation="open").fit(own)
        row = next(text for text in str(gp.summary()).splitlines() if text.startswith("initial state"))
        assert row.endswith(f" {expected}")

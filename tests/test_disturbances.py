"""Disturbances as users see them: learned, refused where they have no values, tested for whether they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.observations import Observations
from lodekit.data.records import Measurements
from lodekit.data.sources import load_data
from lodekit.diagnostics.identifiability import assess_structure
from lodekit.errors import EquationError
from lodekit.fitting import multistart
from lodekit.fitting.lbfgs import Optimum
from lodekit.fitting.multistart import drop_disturbances
from lodekit.fitting.objective import Objective
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.fitting.starts.candidates import initialize_disturbances
from lodekit.prior.prior import Hyperparameters
from lodekit.results.certificate import compute_certificate
from lodekit.results.figures import parse_time_grid
from lodekit.results.fit import Fit, assemble_fit, fit_at_point
from lodekit.results.prediction import predict
from lodekit.results.summary import summary_dict
from lodekit.results.validation import validate
from lodekit.uncertainty.variance_tests import chi_bar_p_value
from lodekit.workflow.pipeline import prepare_fit
from tests.cli.command import run

Array = NDArray[np.float64]
SYSTEM = lk.System("x' = -a*x + K*u + w; y' = -b*y + x", parameters=["a", "K", "b"])
ARGUMENTS: dict[str, Any] = {"inputs": {"u": "hold"}, "disturbances": {"w": "white"}, "restarts": 1, "random_state": 0}


def plant(count: int, deviation: float, seed: int = 1) -> tuple[Array, dict[str, Array]]:
    """Two lags at a = 0.3, K = 2, b = 0.5: exact steps of the covariance, from many small ones of the noise."""
    generator, h, small = np.random.default_rng(seed), 0.5, 20
    u = np.repeat(generator.standard_normal(count // 10 + 1), 10)[:count]
    state, rows = np.zeros(2), [np.zeros(2)]
    for k in range(count - 1):
        for _ in range(small):
            push = deviation * np.sqrt(h / small) * generator.standard_normal()
            x = state[0] * np.exp(-0.3 * h / small) + 2.0 * u[k] * -np.expm1(-0.3 * h / small) / 0.3 + push
            decay = np.exp(-0.5 * h / small)
            state = np.array([x, state[1] * decay + 0.5 * (x + state[0]) * (1.0 - decay) / 0.5])
        rows.append(state)
    table = np.array(rows) + 0.1 * generator.standard_normal((count, 2))
    return np.linspace(0.0, h * (count - 1), count), {"x": table[:, 0], "y": table[:, 1], "u": u}


@pytest.fixture(scope="module")
def shaken() -> lk.LODEGP:
    """One fit for all questions; w has an intensity of 0.4."""
    return lk.LODEGP(SYSTEM, **ARGUMENTS).fit(*plant(50, 0.4))


def test_intensity_and_parameters_are_learned(shaken: lk.LODEGP) -> None:
    """Tolerance: four standard errors, which are themselves below a third of each number."""
    truth = {"a": 0.3, "K": 2.0, "b": 0.5}
    for name, value in truth.items():
        found = shaken.parameters_[name]
        assert abs(found.value - value) < 4.0 * found.std_error < 1.3 * value
    learned = shaken.disturbances_["w"]
    assert abs(learned.deviation - 0.4) < 4.0 * learned.std_error < 0.8
    assert learned.needed
    assert learned.p_value < 1e-10
    assert learned.lengthscale is None
    assert shaken.engine_.startswith("markov")
    assert "w: white noise of intensity " in shaken.summary()
    assert summary_dict(shaken.fit_)["disturbances"]["w"]["needed"] is True


def test_white_noise_has_no_values(shaken: lk.LODEGP) -> None:
    assert shaken.predict([1.0]).shape == (1, 3)
    assert shaken.sample([1.0, 2.0], 2, 0).shape == (2, 2, 3)
    for text in ("w", "x'", "y''", "x + w"):
        with pytest.raises(lk.LodekitError, match="white noise, which has no values"):
            shaken.predict([1.0], text)
    # What the equations say of the difference is smooth.
    np.testing.assert_allclose(
        shaken.predict([1.0, 2.0], "x' - w"),
        shaken.predict([1.0, 2.0], f"{-shaken.parameters_['a'].value}*x + {shaken.parameters_['K'].value}*u"),
        rtol=1e-12,
    )
    with pytest.raises(lk.LodekitError, match="disturbances begin at the start of a record"):
        shaken.predict([-1.0], "x")


def test_curves_far_beyond_the_record_are_drawn(shaken: lk.LODEGP) -> None:
    """Blocks of times there hold no measurement, and none of their columns reads anything."""
    times = np.linspace(0.0, 2450.0, 5000)
    assert shaken.predict(times)[::500] == pytest.approx(shaken.predict(times[::500]), abs=1e-9)


def test_the_certificate_says_in_which_sense(shaken: lk.LODEGP) -> None:
    found = shaken.certificate(np.linspace(0.1, 24.0, 5), samples=1)
    assert found.is_strict
    assert found.mean.residuals.shape == (5, 1)
    assert "holds in integrated form" in found.sense
    assert "y' = -b*y + x" in str(found)
    assert "for all functions w" in found.identities[-1]
    left = shaken.residual([0.3, 7.0], relative=True)
    assert left.shape == (2, 2)
    assert np.abs(left).max() < 1e-12


def test_combinations_without_white_noise_are_found() -> None:
    """Of two equations that hold w, the difference is free of it; curves are measured on that."""
    fit = unfitted("x' = -x + w; y' = -2*y + w", {"w": "white"}, measured=("x", "y"))
    found = compute_certificate(fit, np.linspace(0.1, 5.0, 9), samples=0)
    assert found.mean.residuals.shape == (9, 1)
    assert found.is_strict
    assert "x' + x - y' - 2*y = 0" in found.sense


def unfitted(
    text: str,
    kinds: dict[str, str],
    names: tuple[str, ...] = (),
    curvature: float = 1.0,
    measured: tuple[str, ...] = ("x",),
) -> Fit:
    """A fit at starting values, with some curvature on the scale of the search: nothing is searched for."""
    t, table = plant(12, 0.4)
    data = Observations()
    for name, own in zip(measured, ("x", "y"), strict=False):
        data = data.add(t, name, table[own])
    system = lk.System(text, parameters=dict.fromkeys(names, lk.Parameter(positive=True)))
    setup = build_setup(system, FitSettings(disturbances=kinds), Measurements.from_observations(data))
    size = setup.layout.size
    optimum = Optimum(np.zeros(size), 0.0, True, "kept", 1, np.zeros(size, dtype=bool))
    return assemble_fit(setup, optimum, curvature * np.eye(size))


def test_channels_that_hold_white_noise_are_left_out_of_curves_and_certificates() -> None:
    """q has no values, though it is no disturbance: everything that takes all channels goes without it."""
    fit = unfitted("x' = -x + q; q = y + w; y' = -2*y", {"w": "white"})
    assert fit.setup.channels == ["x", "y"]
    assert np.asarray(predict(fit, [1.0, 2.0])).shape == (2, 2)
    found = compute_certificate(fit, np.linspace(0.1, 5.0, 9), samples=0)
    assert found.is_strict
    assert found.mean.residuals.shape == (9, 1)
    assert "q has no point values; x' = -x + q; q = y + w hold in integrated form" in found.sense
    rough = unfitted("x' = -x + q; q = w'", {"w": "matern-1/2"})
    assert rough.setup.channels == ["x", "w"]


@pytest.mark.parametrize(("measured", "first"), [("x", 0.0), ("mean(x, 1)", 1.0)])
def test_curves_begin_with_the_record(measured: str, first: float) -> None:
    """Nothing is said of disturbances before: neither at a time nor over an interval that begins there."""
    fit = unfitted("x' = -x + w", {"w": "white"}, measured=(measured,))
    begin, drawn = fit.measurements.window[0], parse_time_grid(fit, None)[0]
    assert drawn[0] == pytest.approx(begin + first)
    assert np.isfinite(predict(fit, drawn, measured)).all()
    for observable, wanted in (("x", begin), ("mean(x, 2)", begin + 2.0)):
        with pytest.raises(lk.LodekitError, match="disturbances begin at the start of a record"):
            predict(fit, [wanted - 0.1], observable)


@pytest.mark.parametrize("given", [None, "u"])
def test_what_is_known_beside_disturbances_is_an_input(given: str | None) -> None:
    t, table = plant(12, 0.4)
    data = Observations().add(t, "x", table["x"]).add(t, "u", table["u"])
    arguments = FitSettings(disturbances={"w": "white"}, latent="matern-3/2")
    setup = build_setup(lk.System("x' = -x + u + w"), arguments, Measurements.from_observations(data))
    fit = fit_at_point(setup, np.zeros(setup.layout.size))
    with pytest.raises(lk.LodekitError, match=r"inputs=\{'u': 'hold'\}, and no given="):
        validate(fit, t, {"x": table["x"], "u": table["u"]}, given=given)


def test_what_sizes_of_disturbances_make_up_for_is_said() -> None:
    """Under w -> w/s some parameters scale, and nothing that is measured changes."""
    fit = unfitted("m*x'' + c*x' + k*x = w + b*v", {"w": "white", "v": "white"}, ("m", "c", "k", "b"))
    assert fit.setup.structural_identifiability.scale_confounded == ["m", "c", "k", "b"]
    single = unfitted("x' = -a*x + b*w", {"w": "white"}, ("a", "b"))
    verdicts = assess_structure(single.setup.structural_identifiability)
    assert {name: each.reason for name, each in verdicts.items()} == {"b": "size"}
    flat = unfitted("x' = -a*x + b*w", {"w": "white"}, ("a", "b"), curvature=1e-4)
    assert flat.disturbances["w"].note == "its size cannot be distinguished from b"
    assert np.isinf(flat.disturbances["w"].std_error)
    assert not unfitted("x' = -a*x + a*w", {"w": "white"}, ("a",)).setup.structural_identifiability.scale_confounded


def test_disturbances_that_act_alike_or_not_at_all_are_named() -> None:
    text = "x' = -x + 2*y + w + 3*r; y' = -y + v; r = u; z' = -z + n"
    found = unfitted(text, dict.fromkeys(("w", "v", "u", "n"), "white")).disturbances
    assert found["w"].note.startswith("it acts in the same way as u: ")
    assert found["u"].note.startswith("it acts in the same way as w: ")
    assert found["v"].note == ""
    assert np.isfinite(found["v"].std_error)
    assert found["n"].sentence({}) == (
        "n: white noise; no measured channel responds to it, so the data contain no information about it"
    )
    assert "not needed beside w and u and n (p = 1)" in found["v"].sentence({})


def test_models_are_saved(shaken: lk.LODEGP, tmp_path: Path) -> None:
    shaken.save(tmp_path / "model.lodekit")
    again = lk.LODEGP.load(tmp_path / "model.lodekit")
    found, expected = again.disturbances_["w"], shaken.disturbances_["w"]
    assert (found.deviation, found.std_error) == pytest.approx((expected.deviation, expected.std_error), rel=1e-9)
    assert found.needed
    assert found.p_value == pytest.approx(expected.p_value, rel=1e-6)
    assert again.disturbances == {"w": "white"}
    np.testing.assert_allclose(again.predict([3.3]), shaken.predict([3.3]), rtol=1e-9)


def test_a_stream_says_what_the_whole_record_says(shaken: lk.LODEGP) -> None:
    """With a disturbance and an input: row by row, and from the end of the fit."""
    t, table = plant(50, 0.4)
    fresh = shaken.stream(fresh=True)
    for k, time in enumerate(t.tolist()):
        fresh.push(time, {"x": table["x"][k], "y": table["y"][k]}, {"u": table["u"][k]})
    later = t[-1] + np.array([0.0, 0.2, 3.0])
    expected = shaken.predict(later, "y", return_std=True, parameters="fixed")
    for stream in (fresh, shaken.stream()):
        np.testing.assert_allclose(stream.predict(later, "y", return_std=True), expected, rtol=1e-8)
    with pytest.raises(lk.LodekitError, match="white noise, which has no values"):
        fresh.predict(later, "w")


def test_simulations_from_rest_count_disturbances(shaken: lk.LODEGP) -> None:
    """At known parameters, x has the variance of its response to white noise alone."""
    times = np.array([0.0, 0.7, 9.0])
    _, std = shaken.simulate(times, {"u": 1.0}, observable="x", return_std=True, parameters="fixed")
    a, deviation = shaken.parameters_["a"].value, shaken.disturbances_["w"].deviation
    np.testing.assert_allclose(std, deviation * np.sqrt(-np.expm1(-2.0 * a * times) / (2.0 * a)), rtol=1e-9)


def test_a_disturbance_that_is_not_there_is_not_needed() -> None:
    """Its deviation is zero, and all else what a fit without it says."""
    t, table = plant(24, 0.0, seed=2)
    data = {"x": table["x"], "u": table["u"]}
    system = lk.System("x' = -a*x + K*u + w", parameters=["a", "K"])
    gp = lk.LODEGP(system, **ARGUMENTS).fit(t, data)
    found = gp.disturbances_["w"]
    assert (found.deviation, found.p_value, found.needed) == (0.0, 1.0, False)
    assert "w: white noise, not needed: its best value is zero" in gp.summary()
    assert [line.split() for line in gp.summary().splitlines() if line.startswith("amplitude of w (std)")] == [
        ["amplitude", "of", "w", "(std)", "0", "(not", "needed)"]
    ]
    assert gp.hyperparameters_["amplitude of w (std)"] == 0.0
    without = lk.LODEGP(system.given(["w"]), inputs={"u": "hold"}, restarts=1, random_state=0).fit(t, data)
    assert gp.fit_.posterior.value == pytest.approx(without.fit_.posterior.value, abs=1e-5)
    # A prediction has a little more than the noise.
    assert gp.log_evidence_ == pytest.approx(without.log_evidence_, abs=0.1)
    for name, each in without.parameters_.items():
        assert gp.parameters_[name].value == pytest.approx(each.value, rel=1e-5)
        assert gp.parameters_[name].std_error == pytest.approx(each.std_error, rel=1e-2)


@pytest.mark.parametrize("names", [("w",), ("w", "v")])
def test_a_search_that_ends_below_the_optimum_without_a_disturbance_takes_that(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    t, table = plant(40, 0.0, seed=2)
    system = lk.System(f"x' = -a*x + K*u + {' + '.join(names)}", parameters=["a", "K"])
    source = load_data(t, {"x": table["x"], "u": table["u"]}, system.plain_channels)
    kinds = dict(zip(names, ("white", "matern-1/2"), strict=False))
    setup = build_setup(system, FitSettings(inputs={"u": "hold"}, disturbances=kinds), source.measurements)

    def end_early(objective: Objective, origins: Sequence[Hyperparameters], *_: Any) -> Optimum:
        start = initialize_disturbances(objective.engine, objective.layout, origins[0], 0.5)
        x = objective.layout.pack(start) + 0.3 * np.eye(objective.layout.size)[0]
        return Optimum(x, objective.value(x), True, "", 1, np.zeros(len(x), dtype=bool))

    monkeypatch.setattr(multistart, "multistart_disturbances", end_early)
    found, without = multistart.maximize_with_disturbances(setup, None)
    assert found.value > max(without.values()) - 1e-4
    assert found.at_bound[setup.layout.slices.disturbance_deviations].any()


def test_the_test_at_the_boundary_is_a_mixture() -> None:
    """Half of all samples gain nothing: the 5 % point is the 10 % point of one degree of freedom, 2.7055."""
    assert chi_bar_p_value(0.5 * 2.705543, coloured=False) == pytest.approx(0.05, rel=1e-5)
    assert chi_bar_p_value(0.0, coloured=False) == 1.0
    assert chi_bar_p_value(0.5 * 5.138, coloured=True) == pytest.approx(0.05, rel=2e-3)


def at_truth(unit: float, clock: float, kind: str, modes: float) -> tuple[FitSetup, Hyperparameters]:
    """Two lags in other units of x and of time, and everything that is learned near the truth."""
    t, table = plant(30, 0.4)
    data = Observations().add(clock * t, "x", unit * table["x"]).add(clock * t, "y", table["y"])
    system = lk.System("x' = -a*x + w; y' = -b*y + c*x", parameters=["a", "b", "c"])
    setup = build_setup(
        system, FitSettings(disturbances={"w": kind}, mode_deviation=modes), Measurements.from_observations(data)
    )
    deviation = 0.4 * unit / (np.sqrt(clock) if kind == "white" else clock)
    hyper = replace(
        setup.layout.unpack(np.zeros(setup.layout.size)),
        theta=np.array([0.3 / clock, 0.5 / clock, 1.0 / (clock * unit)]),
        noise_std=0.1 * np.array([unit, 1.0]),
        disturbance_lengthscales=np.full(setup.layout.n_coloured_disturbances, 0.1),
        disturbance_amplitudes=np.array([deviation]),
    )
    return setup, hyper


@pytest.mark.parametrize("kind", ["white", "matern-3/2"])
def test_a_vanishing_disturbance_is_none(kind: str) -> None:
    """The log evidence at a deviation of 1e-12 is that without."""
    setup, hyper = at_truth(1.0, 1.0, kind, modes=3.0)
    bare = drop_disturbances(setup, ["w"])
    none = replace(hyper, disturbance_lengthscales=np.zeros(0), disturbance_amplitudes=np.zeros(0))
    tiny = replace(hyper, disturbance_amplitudes=np.array([1e-12]))
    found = setup.engine.evaluate(tiny)
    assert found.value == pytest.approx(bare.engine.value(none), rel=1e-9)
    assert setup.engine.value(hyper) > found.value + 10.0
    np.testing.assert_allclose(found.gradient.theta, bare.engine.evaluate(none).gradient.theta, rtol=1e-6)


@pytest.mark.parametrize("kind", ["white", "matern-3/2"])
def test_units_do_not_matter(kind: str) -> None:
    """The log evidence differs by the logarithm of the unit for each measurement; modes, at nothing, have no part."""
    (first, hyper), (second, other) = (at_truth(*units, kind, modes=1e-30) for units in ((1.0, 1.0), (1e9, 1e-6)))
    one, two = first.engine.evaluate(hyper), second.engine.evaluate(other)
    assert two.value + 30 * np.log(1e9) == pytest.approx(one.value, rel=1e-9)
    np.testing.assert_allclose(two.gradient.theta * other.theta, one.gradient.theta * hyper.theta, rtol=1e-7)
    found, expected = two.gradient.disturbance_amplitudes, one.gradient.disturbance_amplitudes
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_what_cannot_be_is_refused() -> None:
    t, table = plant(12, 0.4)
    data = {"x": table["x"], "u": table["u"]}

    def attempt(text: str, words: str, extra: dict[str, Array] | None = None, **arguments: object) -> None:
        system = lk.System(text, parameters=["a"])
        options: dict[str, Any] = {"disturbances": {"w": "white"}, **arguments}
        with pytest.raises(lk.LodekitError, match=words):
            lk.LODEGP(system, **options).fit(t, {**data, **(extra or {})})

    plain = "x' = -a*x + u + w"
    attempt(plain, "no finite state; leave w out", disturbances={"w": "se"})
    attempt(plain, "such as 'matern-3/2'; got 'pink'", disturbances={"w": "pink"})
    attempt(plain, "not a channel; expected one of: x, u, w, or add v to an equation", disturbances={"v": "white"})
    attempt(plain, "as a dict of channels", disturbances=["w"])
    attempt(plain, "both an input and a disturbance", inputs={"w": "hold"})
    attempt(plain, "disturbances are unmeasured", {"w": table["y"]})
    attempt(plain, "; use engine='markov'$", engine="dense", inputs={"u": "hold"})
    attempt(plain, "prior='latent'", prior="channels")
    # What free functions need is said, and not what engines cannot do that nobody asked for.
    attempt(
        "x' = -a*x + 0*u + v + w", r"^disturbances are processes with states, and se has no .*use latent='matern-7/2'"
    )
    attempt("x = a*u + w", "x contains w, and would be infinite", inputs={"u": "hold"})
    attempt("x = a*u + w'", "does not have; take 'matern-3/2'", inputs={"u": "hold"}, disturbances={"w": "matern-1/2"})


def test_a_dead_time_is_an_input_that_comes_later() -> None:
    """The evidence with a delay is that of the input moved by hand; no search."""
    t, table = plant(40, 0.4)
    later = np.concatenate([np.full(3, table["u"][0]), table["u"][:-3]])
    values = []
    for term, u in (("delay(u, T)", table["u"]), ("u", later)):
        system = lk.System(f"x' = -a*x + K*{term} + w", parameters=["a", "K", *(["T"] if "delay" in term else [])])
        source = load_data(t, {"x": table["x"], "u": u}, system.plain_channels)
        arguments = FitSettings(inputs={"u": "hold"}, disturbances={"w": "white"}, mode_deviation=2.0)
        setup = build_setup(system, arguments, source.measurements)
        hyper = setup.layout.unpack(np.zeros(setup.layout.size))
        known = {"a": 0.3, "K": 2.0, "T": 3.0 * (t[1] - t[0])}
        theta = np.array([known[name] for name in setup.layout.names])
        values.append(setup.engine.value(replace(hyper, theta=theta, disturbance_amplitudes=np.array([0.4]))))
    assert values[0] == pytest.approx(values[1], rel=1e-10)
    assert np.isfinite(values[0])


def test_several_records_share_the_intensity() -> None:
    """Evidences add, each from rest at its own start; no search."""
    pieces = [plant(14, 0.4, seed) for seed in (1, 2)]
    tables = [(t + 100.0 * k, table) for k, (t, table) in enumerate(pieces)]
    values = []
    for records in (tables, tables[:1], tables[1:]):
        source = load_data(records, None, SYSTEM.plain_channels)
        setup = build_setup(SYSTEM, FitSettings(**ARGUMENTS, mode_deviation=2.0), source.measurements)
        hyper = setup.layout.unpack(np.zeros(setup.layout.size))
        hyper = replace(hyper, theta=np.array([0.3, 2.0, 0.5]), disturbance_amplitudes=np.array([0.4]))
        values.append(setup.engine.value(hyper))
    assert values[0] == pytest.approx(values[1] + values[2], rel=1e-9)


def test_the_command_line_and_files_name_disturbances(tmp_path: Path) -> None:
    text = 'equations = "x\' = -a*x + w"\nparameters = ["a"]\n[disturbances]\nw = '
    (tmp_path / "plant.toml").write_text(f'{text}"white"\n')
    (tmp_path / "log.csv").write_text("t,x\n0,0.1\n1,0.4\n2,0.3\n")
    shown = run("inspect", str(tmp_path / "plant.toml"))
    assert "Given w" in shown.stdout
    refused = run("fit", str(tmp_path / "plant.toml"), str(tmp_path / "log.csv"), "--disturbance", "w=se")
    assert refused.returncode == 2
    assert "no finite state" in refused.stderr
    # Nobody misses a column for what is never measured.
    gp, source = prepare_fit(lk.read_system_file(tmp_path / "plant.toml"), tmp_path / "log.csv")
    assert gp.disturbances == {"w": "white"}
    assert source.notes == ()
    (tmp_path / "wrong.toml").write_text(f"{text}3\n")
    assert "'white' or 'matern-3/2'" in run("inspect", str(tmp_path / "wrong.toml")).stderr


@pytest.mark.parametrize(
    ("equations", "disturbances", "words"),
    [
        (["x' = -x + w", "w' = -w"], ["w"], "determine the disturbance 'w'"),
        (["x' = -x + w", "w = 2*v"], ["w", "v"], "relate the disturbances to each other"),
        (["x' = -x + u + w", "w = u"], ["w"], "relate the disturbances w to the inputs u"),
    ],
)
def test_what_ties_disturbances_is_said_of_them(equations: list[str], disturbances: list[str], words: str) -> None:
    inputs = {"u": "hold"} if "u" in "".join(equations) else None
    gp = lk.LODEGP(lk.System(equations), inputs=inputs, disturbances=dict.fromkeys(disturbances, "white"))
    t = np.arange(5.0)
    with pytest.raises(EquationError, match=words):
        gp.fit(t, {"x": t, "u": t} if inputs else {"x": t})

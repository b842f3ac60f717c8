"""Known inputs from the outside: arguments, samples, answers, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.errors import DataError, LodekitError
from lodekit.results.summary import summary_dict

Array = NDArray[np.float64]
LAG = "tau*y' + y - y0 = K*u"
TRUTH = {"tau": 5.0, "y0": 1.0, "K": 2.0}


def lag_system() -> lk.System:
    return lk.System(LAG, parameters={"tau": lk.Parameter(positive=True), "y0": lk.Parameter(), "K": lk.Parameter()})


def step_record(kind: str = "hold", count: int = 120, noise: float = 0.02, seed: int = 0) -> dict[str, Array]:
    """A first-order lag under random steps, simulated sample by sample."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.normal(size=count // 12 + 1), 12)[:count]
    if kind == "linear":
        u = np.convolve(u, np.ones(4) / 4, mode="same")
    tau, y0, K = TRUTH.values()
    y, decay = np.zeros(count), np.exp(-1.0 / tau)
    y[0] = 0.5
    for k in range(count - 1):
        slope = u[k + 1] - u[k] if kind == "linear" else 0.0
        # Exact for an input that is held, or straight, over one second.
        y[k + 1] = decay * y[k] + (1 - decay) * (y0 + K * u[k]) + K * slope * (1 - tau * (1 - decay))
    return {"t": np.arange(float(count)), "u": u, "y": y + noise * generator.normal(size=count)}


def fit(record: dict[str, Array], **options: object) -> lk.LODEGP:
    arguments = {"inputs": {"u": "hold"}, "random_state": 0, **options}
    gp = lk.LODEGP(lag_system(), **arguments)  # type: ignore[arg-type]
    return gp.fit(record["t"], {name: record[name] for name in ("y", "u")})


@pytest.fixture(scope="module")
def lag() -> lk.LODEGP:
    return fit(step_record())


def test_parameters_are_found_without_start_values(lag: lk.LODEGP) -> None:
    """Within three standard errors, which are a few per cent."""
    for name, value in TRUTH.items():
        found = lag.parameters_[name]
        assert abs(found.value - value) < 3 * found.std_error < 0.2 * value
    assert lag.engine_ == "modal: 120 measurements; inputs are known, and no free function remains"


def test_the_input_is_answered_by_its_samples_without_doubt(lag: lk.LODEGP) -> None:
    record = step_record()
    mean, std = lag.predict(record["t"] + 0.5, "u", return_std=True)
    np.testing.assert_array_equal(mean, record["u"])
    np.testing.assert_array_equal(std, 0.0)
    assert lag.predict([-7.0, 400.0], "u").tolist() == [record["u"][0], record["u"][-1]]


def test_summary_and_dict_tell_what_is_known(lag: lk.LODEGP) -> None:
    assert "Note: u: known input, held constant between its 120 samples" in lag.summary()
    assert summary_dict(lag.fit_)["inputs"] == {"u": {"kind": "hold", "samples": 120, "missing": 0}}
    assert lag.fit_.measurements.names == ("y",)


def test_missing_samples_are_counted_and_change_nothing(lag: lk.LODEGP) -> None:
    record = step_record()
    u = record["u"].copy()
    u[[5, 30, 31]] = np.nan
    gp = fit({**record, "u": u})
    assert (
        "u: known input, held constant between its 117 samples, 3 missing samples filled with the last value"
        in gp.summary()
    )
    # All of these are repeated by a neighbour before them.
    assert gp.log_evidence_ == pytest.approx(lag.log_evidence_, rel=1e-9)


def test_samples_may_have_times_of_their_own(lag: lk.LODEGP) -> None:
    record = step_record()
    changes = np.flatnonzero(np.diff(record["u"], prepend=np.inf))
    data = lk.Observations().add(record["t"], "y", record["y"]).add(record["t"][changes], "u", record["u"][changes])
    gp = lk.LODEGP(lag_system(), inputs={"u": "hold"}, random_state=0).fit(data)
    assert len(gp.fit_.measurements.inputs["u"].times) == len(changes) < 15
    assert gp.log_evidence_ == pytest.approx(lag.log_evidence_, rel=1e-9)


@pytest.mark.parametrize("kind", ["hold", "linear"])
def test_auto_takes_the_kind_that_made_the_data(kind: str) -> None:
    record = step_record(kind)
    both = {each: fit(record, inputs={"u": each}).log_evidence_ for each in ("hold", "linear")}
    gp = fit(record, inputs={"u": "auto"})
    told = summary_dict(gp.fit_)["inputs"]["u"]
    assert told["kind"] == kind
    assert told["advantage"] > 1.0
    assert told["advantage"] == pytest.approx(both[kind] - min(both.values()), abs=0.02)
    assert f"by {told['advantage']:.1f} nats" in gp.summary()


def test_certificate_holds_between_jumps(lag: lk.LODEGP) -> None:
    found = lag.certificate(np.linspace(0.0, 119.0, 77))
    assert found.is_strict
    assert found.residual < 1e-9
    assert float(np.abs(lag.residual(np.linspace(-3.0, 130.0, 50), relative=True)).max()) < 1e-12


def test_bands_count_what_the_response_depends_on(lag: lk.LODEGP) -> None:
    """Nearly all of the band comes from parameters, inside the data and beyond them; samples spread as it does."""
    times = np.array([60.5, 150.0])
    _, std = lag.predict(times, "y", return_std=True)
    _, fixed = lag.predict(times, "y", return_std=True, parameters="fixed")
    assert (std > 3 * fixed).all()
    drawn = lag.sample(times, size=150, random_state=1, observable="y")
    # 150 draws tell a deviation to 5.8 %; four times that is never seen.
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.23)


def test_saved_models_know_their_inputs(lag: lk.LODEGP, tmp_path: Path) -> None:
    lag.save(tmp_path / "lag.lodekit")
    again = lk.LODEGP.load(tmp_path / "lag.lodekit")
    assert again.get_params()["inputs"] == {"u": "hold"}
    assert again.log_evidence_ == pytest.approx(lag.log_evidence_, rel=1e-12)
    times = np.linspace(-5.0, 140.0, 31)
    np.testing.assert_allclose(again.predict(times), lag.predict(times), rtol=1e-10)


@pytest.fixture(scope="module")
def early() -> lk.LODEGP:
    """Two thirds of the record."""
    return fit({name: values[:80] for name, values in step_record().items()})


LATER = {name: values[80:] for name, values in step_record().items()}


def test_updates_add_samples_of_the_input(lag: lk.LODEGP, early: lk.LODEGP) -> None:
    gp = lk.LODEGP.from_fit(early.fit_).update(LATER["t"], {"y": LATER["y"], "u": LATER["u"]})
    assert gp.fit_.measurements.size == len(gp.fit_.measurements.inputs["u"].times) == 120
    for name, found in lag.parameters_.items():
        assert gp.parameters_[name].value == pytest.approx(found.value, rel=1e-3)


def test_scores_of_new_measurements_take_new_samples_of_the_input(early: lk.LODEGP) -> None:
    driven = early.score(LATER["t"], {"y": LATER["y"], "u": LATER["u"]})
    # With noise of 0.02, a density of about log(1 / (0.02 sqrt(2 pi e))); without the input curves are off by ones.
    assert driven == pytest.approx(2.5, abs=0.3)
    assert early.score(LATER["t"], {"y": LATER["y"]}) < driven - 100


def test_long_records_are_learned_from_short_ones() -> None:
    gp = fit(step_record(count=45_000))
    for name, value in TRUTH.items():
        found = gp.parameters_[name]
        assert abs(found.value - value) < 4 * found.std_error < 0.01 * value


def test_what_cannot_be_is_refused() -> None:
    record = step_record(count=24)
    table = {"y": record["y"], "u": record["u"]}
    for inputs, text in (
        ({"v": "hold"}, "not a channel; expected one of: y, u"),
        ({"u": "held"}, "expected 'hold'"),
        ({"u": "hold", "y": "hold"}, "at least one that responds"),
        ("u", "as a dict of channels"),
    ):
        with pytest.raises(LodekitError, match=text):
            lk.LODEGP(lag_system(), inputs=inputs).fit(record["t"], table)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="expected values of the input u, got none"):
        lk.LODEGP(lag_system(), inputs={"u": "hold"}).fit(record["t"], {"y": record["y"]})
    columns = r"no column for y: not measured \(columns not used: speed\); .*columns=\{'y': 'COLUMN'\}"
    with pytest.raises(DataError, match=rf"responds to the inputs \(y\), got only u; {columns}"):
        lk.LODEGP(lag_system(), inputs={"u": "hold"}).fit({"t": record["t"], "u": record["u"], "speed": record["y"]})
    data = lk.Observations().add(record["t"], "y", record["y"]).add([3.0, 3.0], "u", [1.0, 2.0])
    with pytest.raises(DataError, match="two different values at t = 3"):
        lk.LODEGP(lag_system(), inputs={"u": "hold"}).fit(data)
    with pytest.raises(LodekitError, match="the equations leave free functions"):
        lk.LODEGP(lk.System("x' = u + f"), inputs={"u": "hold"}, engine="modal").fit(
            record["t"], {"x": record["y"], "u": record["u"]}
        )


def test_sums_over_data_hold_no_inputs() -> None:
    record = step_record(count=24)
    data = lk.Observations().add(record["t"], "y", record["y"]).add(record["t"], "u", record["u"])
    sums = Measurements.from_observations(data).statistics
    with pytest.raises(DataError, match="known inputs need rows that can be read again"):
        lk.LODEGP(lag_system(), inputs={"u": "hold"}).fit(sums)


def test_means_of_an_input_that_overlap_are_refused() -> None:
    times = np.arange(2.0, 20.0, 2.0)
    log = lk.Observations().add(times, "y", times).add(times, "mean(u, 4)", times)
    system = lk.System("tau*y' + y = u", parameters=["tau"])
    with pytest.raises(DataError, match="logged every 2, so its intervals overlap"):
        lk.LODEGP(system, inputs={"u": "hold"}).fit(log)


def test_an_input_without_samples_during_the_record_is_told() -> None:
    times = np.arange(8.0)
    log = lk.Observations().add(times, "y", np.sin(times)).add(times + 100.0, "u", times)
    system = lk.System("tau*y' + y = u", parameters={"tau": lk.Parameter(fixed=2.0)})
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(log)
    assert (
        "u: known input, held constant between its 8 samples; it does not change during the measurements"
        in gp.summary()
    )


@pytest.mark.parametrize("count", [49, 50, 55, 64, 80, 200])
@pytest.mark.parametrize("tau", [0.5, 5.0, 50.0])
def test_responses_to_many_irregular_samples_are_exact(count: int, tau: float) -> None:
    """Of 50 to 65 irregular rows, steps were exchanged if a pole was fast."""
    generator = np.random.default_rng(count)
    t, u, y = np.sort(generator.uniform(0.0, 3600.0, count)), generator.uniform(0.0, 8.0, count), np.zeros(count)
    for k in range(count - 1):
        decay = np.exp(-(t[k + 1] - t[k]) / tau)
        y[k + 1] = decay * y[k] + (1.0 - decay) * u[k]
    system = lk.System("tau*y' + y = u", parameters={"tau": lk.Parameter(fixed=tau)})
    data = {"y": y + 0.1 * generator.standard_normal(count), "u": u}
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, data)
    found = gp.simulate(t, {"u": (t, u)}, start={"y": 0.0}, observable="y")
    np.testing.assert_allclose(found, y, rtol=0, atol=1e-9)
    # The posterior mean differs by the estimated initial value alone.
    np.testing.assert_allclose(gp.predict(t, "y")[5:], y[5:], rtol=0, atol=0.2)

"""One diagnosis of a fit, said alike everywhere: what failed, what the data do not tell, what is left over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import lfilter

import lodekit as lk
from lodekit.diagnostics.diagnosis import Diagnosis
from lodekit.diagnostics.identifiability import IdentifiabilityResult
from lodekit.report import make_report
from lodekit.results.simulation import simulate
from lodekit.results.summary import summary_dict
from lodekit.support.files import read_archive, write_archive

GENERATOR_SEED = 5


def noisy(name: str, last: float, noise: float = 0.01, count: int = 40) -> tuple[lk.System, np.ndarray, dict]:  # type: ignore[type-arg]
    """The exact solution of a catalog system with noise."""
    example = lk.catalog.find_example(name)
    assert example is not None
    times = np.linspace(0.0, last, count)
    exact = example.solution_at(times)
    data = exact + noise * exact.std(axis=0) * np.random.default_rng(GENERATOR_SEED).standard_normal(exact.shape)
    return example.system, times, dict(zip(example.system.channels, data.T, strict=True))


def drawn(name: str, last: float, noise: float = 0.01, count: int = 40) -> tuple[lk.System, np.ndarray, dict]:  # type: ignore[type-arg]
    """A solution that is drawn from the prior, with noise."""
    example = lk.catalog.find_example(name)
    assert example is not None
    times = np.linspace(0.0, last, count)
    values = {key: float(value) for key, value in example.values.items()}
    exact = simulate(example.system, times, values, lengthscale=last / 8, random_state=3)[0]
    data = exact + noise * exact.std(axis=0) * np.random.default_rng(GENERATOR_SEED).standard_normal(exact.shape)
    return example.system, times, dict(zip(example.system.channels, data.T, strict=True))


def opened(gp: lk.LODEGP) -> dict[str, str]:
    """Parameters that are not identified, each with the reason."""
    return {n: each.reason for n, each in gp.fit_.identifiability.items() if not gp.parameters_[n].identified}


@pytest.mark.parametrize(("name", "last"), [("spring_mass_damper", 10.0), ("rlc_circuit", 5.0)])
def test_a_motion_of_one_rhythm_does_not_tell_what_a_richer_one_tells(name: str, last: float) -> None:
    system, times, data = noisy(name, last)
    simple = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data)
    assert opened(simple) == dict.fromkeys(system.parameters, "motion")
    assert sum("they satisfy the equations with other values, too" in text for text in simple.warnings_) == 1
    system, times, data = drawn(name, last)
    rich = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data)
    assert opened(rich) == {}
    example = lk.catalog.find_example(name)
    assert example is not None
    for key, estimate in rich.parameters_.items():
        # Five standard errors: a wrong curvature would be off by more.
        assert abs(estimate.value - float(example.values[key])) < 5 * estimate.std_error


def test_a_scale_that_nothing_shows_is_named_with_what_is_determined() -> None:
    system, times, data = drawn("quarter_car", 1.5)
    gp = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data)
    assert opened(gp) == dict.fromkeys(system.parameters, "structure")
    [text] = [text for text in gp.warnings_ if "not identified" in text]
    assert "only ks/cs, kt/cs, ms/cs and mu/cs are determined" in text
    assert "fix a value that is known" in text
    parameters = {**system.parameters, "ms": lk.Parameter(fixed=300.0)}
    known = lk.LODEGP(lk.System(list(system.equations), parameters=parameters), noise="channel", random_state=0)
    assert "structure" not in opened(known.fit(times, data)).values()


def test_a_channel_that_was_not_measured_is_named_and_more_data_at_kept_values_change_nothing_of_it() -> None:
    system, times, data = drawn("heating", 6.0)
    early, late = ({n: data[n][some] for n in ("f1", "f2")} for some in (slice(-4), slice(-4, None)))
    gp = lk.LODEGP(system, noise="channel", random_state=0).fit(times[:-4], early)
    assert opened(gp) == {"a": "structure"}
    assert gp.parameters_["b"].identified
    assert any("measure u, or fix" in text for text in gp.warnings_)
    gp.update(times[-4:], late, relearn=False)
    assert opened(gp) == {"a": "structure"}
    assert set(gp.fit_.diagnosis.explained_variance) == {"f1", "f2"}


def test_data_with_next_to_no_known_noise_determine_what_they_determine() -> None:
    example = lk.catalog.coupled_tanks()
    times = np.linspace(0.0, 12.0, 30)
    gp = lk.LODEGP(example.system, noise="channel", random_state=0).fit(times, example.solution_at(times), 1e-6)
    for name, estimate in gp.parameters_.items():
        assert estimate.identified, name
        assert estimate.value == pytest.approx(float(example.values[name]), rel=1e-3)
        # The interval comes from a profile, or from the curvature; in any case it is next to nothing, and not nothing.
        assert 0 < estimate.std_error < 1e-3 * estimate.value


def test_the_gain_of_an_input_that_does_nothing_is_open_though_algebra_alone_cannot_know() -> None:
    # The input is measured, and zero: b may be anything. Few rows, as more tell no more.
    times = np.linspace(0.0, 5.0, 15)
    generator = np.random.default_rng(2)
    system = lk.System("y' = -a*y + b*u", parameters={n: lk.Parameter(positive=True) for n in "ab"})
    data = {"y": np.exp(-0.7 * times) + 0.003 * generator.standard_normal(15), "u": np.zeros(15)}
    gp = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data, {"u": 1e-9})
    assert "b" in opened(gp)
    assert gp.fit_.setup.structural_identifiability.unidentifiable == []
    # Once the input does something, it is told.
    data["y"] = data["y"] + 0.5 * np.sin(times)
    moved = {"y": data["y"], "u": 0.35 * np.sin(times) + 0.5 * np.cos(times)}
    told = lk.LODEGP(system, noise="channel", random_state=0).fit(times, moved)
    assert told.parameters_["b"].identified
    assert told.parameters_["b"].value == pytest.approx(1.0, rel=0.1)


#: Forty periods of a ring-down.
RINGING_TIMES = np.linspace(0.0, 40.0, 400)
RINGING = np.exp(-0.01 * RINGING_TIMES) * np.cos(2 * np.pi * RINGING_TIMES)
RINGING += 0.02 * np.random.default_rng(0).standard_normal(400)


def fit_ringing(c: lk.Parameter, k: lk.Parameter) -> lk.LODEGP:
    system = lk.System("x'' + c*x' + k*x = 0", parameters={"c": c, "k": k})
    return lk.LODEGP(system, random_state=0).fit(RINGING_TIMES, RINGING)


@pytest.fixture(scope="module")
def lost() -> lk.LODEGP:
    """A search that is kept where the best values are not, and far from them."""
    return fit_ringing(lk.Parameter(bounds=(5.0, 10.0)), lk.Parameter(bounds=(1e-3, 1.0)))


def test_a_search_that_failed_says_so_everywhere(lost: lk.LODEGP) -> None:
    said = "the equations do not describe these data, or the search ended at a local optimum"
    assert not lost.converged_
    assert any(text.startswith(said) for text in lost.warnings_)
    assert "try start values" in lost.warnings_[0]
    assert said in lost.summary()
    assert "Converged:                    poor fit" in lost.summary()
    result = summary_dict(lost.fit_)
    assert result["converged"] is False
    assert any(text.startswith(said) for text in result["warnings"])
    page = make_report(lost)
    assert said[4:] in page
    assert "the curves fit the data poorly" in page
    # Algebra proves what it proves; the page does not leave it at that.
    assert "Here they do not, or the search did not find" in page
    assert not any("not identified" in each.note for each in lost.parameters_.values())


def test_a_good_fit_of_the_same_data_beats_curves_that_obey_no_equation() -> None:
    gp = fit_ringing(lk.Parameter(start=0.02), lk.Parameter(start=39.5))
    assert gp.converged_
    assert gp.fit_.diagnosis.failures == ()
    assert gp.warnings_ == []


@pytest.mark.parametrize("drift", [0.3, 30.0])
def test_whether_a_fit_failed_does_not_depend_on_how_a_record_is_split(drift: float) -> None:
    """A part at rest varies little, so what the equations miss is much of its variance, but little of the whole."""
    generator, times = np.random.default_rng(0), 0.4 * np.arange(120)
    u, decay = np.repeat(generator.integers(0, 4, 12), 10).astype(float) * (times < 24.0), np.exp(-0.4 / 3.0)
    y = drift * np.sin(times / 2.5) + 0.02 * generator.standard_normal(120)
    y += lfilter([1.0], [1.0, -decay], np.append(0.0, 2.0 * (1.0 - decay) * u[:-1]))
    system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    found = []
    for cuts in ([], [80], [40, 80]):
        parts = [lk.Observations().add(t, "y", v).add(t, "u", w) for t, v, w in _split(cuts, times, y, u)]
        gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(parts)
        found.append((gp.converged_, any("smooth curves" in text for text in gp.fit_.diagnosis.failures)))
    assert found == [(drift < 1.0, drift > 1.0)] * 3


def _split(cuts: list[int], *columns: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    return zip(*(np.split(column, cuts) for column in columns), strict=True)


def test_noise_alone_is_no_failure_of_the_search_but_little_is_explained() -> None:
    times = np.linspace(0.0, 10.0, 60)
    noise = np.random.default_rng(4).standard_normal(60)
    gp = lk.LODEGP(lk.System("x' = -a*x", parameters=["a"]), random_state=0).fit(times, noise)
    assert gp.fit_.diagnosis.explained_variance["x"] < 0.3
    assert any("explain little of the variance" in text for text in gp.warnings_)
    assert not any("do not describe" in text for text in gp.warnings_)


def test_the_share_explained_is_one_less_the_variance_left_over() -> None:
    system, times, data = noisy("heating", 6.0, noise=0.2)
    gp = lk.LODEGP(system, noise="channel", random_state=0).fit(times, data)
    mean = gp.predict(times)
    for number, name in enumerate(system.channels):
        expected = 1 - np.mean((data[name] - mean[:, number]) ** 2) / np.var(data[name])
        assert gp.fit_.diagnosis.explained_variance[name] == pytest.approx(expected, rel=1e-9)
        assert f"variance explained ({name})" in gp.summary()
        assert summary_dict(gp.fit_)["explained"][name] == pytest.approx(expected, rel=1e-9)
    assert "Variance explained by the curves" in make_report(gp)


def test_residuals_with_a_memory_are_told_by_all_not_by_the_report_alone() -> None:
    # A second rhythm that the equation does not know.
    times = np.linspace(0.0, 20.0, 120)
    x = np.cos(times) + 0.3 * np.cos(0.23 * times) + 0.01 * np.random.default_rng(1).standard_normal(120)
    gp = lk.LODEGP(lk.System("x'' + k*x = 0", parameters=["k"]), random_state=0).fit(times, x)
    [text] = [text for text in gp.warnings_ if "residuals of x are correlated (lag 1: " in text]
    assert "does not correct a bias from missing dynamics" in text
    assert text.endswith("; try a higher order or a disturbance")
    assert text in gp.summary()
    assert text in summary_dict(gp.fit_)["warnings"]
    assert text[1:] in make_report(gp)


def test_rows_that_stand_twice_are_called_copies() -> None:
    """Not something slower than nothing that the equations miss; different values at one time are no copies."""
    t, noise = np.arange(0.0, 5.0, 0.2), 0.1 * np.random.default_rng(0).standard_normal((2, 25))
    system = lk.System("x' + k*x = 0", parameters={"k": lk.Parameter(fixed=1.0)})
    same, other = (np.tile(np.exp(-t), 2) + np.ravel(errors) for errors in (noise[[0, 0]], noise))
    (text,) = lk.LODEGP(system, random_state=0, restarts=1).fit(np.tile(t, 2), {"x": same}).warnings_
    assert "rows are duplicated, with the same time and value; remove the duplicates" in text
    assert "miss dynamics" not in text
    found = lk.LODEGP(system, random_state=0, restarts=1).fit(np.tile(t, 2), {"x": other}).warnings_
    assert not any("copies" in each or "than 0" in each for each in found)


def test_an_unstable_model_of_data_that_do_not_grow_is_told() -> None:
    t, generator = 0.1 * np.arange(200), np.random.default_rng(0)
    system = lk.System("x' = a*x + b*u", parameters=["a", "b"])
    for x, is_told in ((0.015 * t + 0.2 * generator.standard_normal(200), True), (0.1 * np.exp(0.2 * t), False)):
        data = {"x": x + 0.01 * generator.standard_normal(200), "u": np.sin(t)}
        gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, data)
        assert gp.parameters_["a"].value > 0.05
        told = [text for text in gp.warnings_ if text.startswith("the fitted model is unstable: a mode grows")]
        assert len(told) == is_told


def fit_either_sign(z: lk.Parameter, w: lk.Parameter) -> lk.LODEGP:
    """A ring-down in equations in which z and w can change their signs together."""
    times = np.linspace(0.0, 10.0, 60)
    x = np.exp(-0.2 * times) * np.cos(2 * times) + 0.01 * np.random.default_rng(0).standard_normal(60)
    system = lk.System("x'' + 2*z*w*x' + w^2*x = 0", parameters={"z": z, "w": w})
    return lk.LODEGP(system, random_state=0).fit(times, x)


@pytest.fixture(scope="module")
def unsigned() -> lk.LODEGP:
    return fit_either_sign(lk.Parameter(), lk.Parameter())


def test_of_two_signs_the_positive_one_is_reported(unsigned: lk.LODEGP) -> None:
    gp = unsigned
    assert gp.parameters_["z"].value > 0
    assert gp.parameters_["w"].value > 0
    assert gp.parameters_["w"].value == pytest.approx(2.01, rel=0.02)
    assert gp.warnings_ == []
    [note] = gp.fit_.diagnosis.notes
    assert note.startswith("the data do not identify the signs of z and w: both can change together")
    assert f"Note: {note}" in gp.summary()
    assert note in summary_dict(gp.fit_)["remarks"]
    for each in gp.parameters_.values():
        assert not each.identified
        assert each.note == f"{-each.value:.4g} fits equally well"
        assert each.interval[0] < -each.value < each.value < each.interval[1]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_of_two_signs_a_start_value_decides(unsigned: lk.LODEGP, sign: float) -> None:
    given = fit_either_sign(lk.Parameter(start=sign * 0.1), lk.Parameter(start=sign * 2.0))
    for name, each in given.parameters_.items():
        assert each.value == pytest.approx(sign * unsigned.parameters_[name].value, rel=1e-4)
        assert each.identified
        assert each.interval[0] < each.value < each.interval[1] < abs(each.value) + 4.0 * each.std_error
        assert each.interval[0] * each.interval[1] > 0.0
    assert given.log_evidence_ == pytest.approx(unsigned.log_evidence_, abs=1e-4)


def test_a_diagnosis_is_saved_and_a_file_without_one_gets_it_back(lost: lk.LODEGP, tmp_path: Path) -> None:
    lost.save(tmp_path / "lost.lodekit")
    loaded = lk.LODEGP.load(tmp_path / "lost.lodekit")
    assert loaded.warnings_ == lost.warnings_
    assert not loaded.converged_
    assert loaded.fit_.diagnosis == lost.fit_.diagnosis
    state, arrays, _ = read_archive(tmp_path / "lost.lodekit")
    del state["diagnosis"]
    write_archive(tmp_path / "old.lodekit", state, arrays)
    old = lk.LODEGP.load(tmp_path / "old.lodekit")
    assert not old.converged_
    assert len(old.warnings_) == len(lost.warnings_)


def test_a_diagnosis_survives_json() -> None:
    verdicts = {
        "a": IdentifiabilityResult(False, "at most 3 (95 %)", "side", (-np.inf, 3.0)),
        "b": IdentifiabilityResult(True, "", "profile", (1.0, 2.0)),
        "c": IdentifiabilityResult(False, "not identified by these data", "structure"),
    }
    found = Diagnosis(("a sentence",), verdicts, ("k/m",), (("z", "w"),), (), {"a": 3.0})
    assert Diagnosis.from_dict(json.loads(json.dumps(found.to_dict()))) == found

"""The figures of a fitted model: they show what its methods say, in the user's units, and explain what is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.signal import lsim

import lodekit as lk
from lodekit.data.sources import load_data
from lodekit.diagnostics import profile_likelihood
from lodekit.fitting.global_search import GlobalSearch
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.prior.channel_prior.channel_spectrum import ChannelSpectrum
from lodekit.prior.covariance import free_function_variance
from lodekit.prior.spectra import SpectralPoint
from lodekit.report.panels import ReportContext
from lodekit.report.time_series import channels_figure
from lodekit.results import figures, profile_curves
from lodekit.results.certificate import compute_mean_residuals
from lodekit.results.fit import fit_at_point
from lodekit.results.prediction import predict
from tests.test_plotting import line

HEATING = lk.catalog.heating()
TIMES = np.linspace(-5, 5, 40)
FIGURES = ["plot", "plot_parameters", "plot_residual", "plot_evidence", "plot_modes", "plot_spectrum"]


def noisy(example: lk.catalog.Example, times: np.ndarray, noise: float) -> np.ndarray:
    exact = example.solution_at(times)
    return exact + noise * np.random.default_rng(0).standard_normal(exact.shape)


@pytest.fixture(scope="module")
def heated() -> lk.LODEGP:
    return lk.LODEGP(HEATING.system, random_state=0, restarts=1).fit(TIMES, noisy(HEATING, TIMES, 0.005))


@pytest.fixture(scope="module")
def decaying() -> lk.LODEGP:
    example, times = lk.catalog.free_decay(), np.linspace(0, 6, 30)
    return lk.LODEGP(example.system, random_state=0, restarts=1).fit(times, noisy(example, times, 0.05))


@pytest.fixture(scope="module")
def hidden() -> lk.LODEGP:
    """A force that is not measured, a speed that is, a fixed mass, and a stiffness that cannot be known."""
    system = lk.System("m*x'' + k*x = F", parameters={"m": lk.Parameter(fixed=1), "k": lk.Parameter(positive=True)})
    times = np.linspace(0, 6, 30)
    data = lk.Observations().add(times, "x", np.sin(times), std=0.01).add([0.0, 1.0], "x'", [1.0, 0.54], std=0.01)
    return lk.LODEGP(system, random_state=0, restarts=1).fit(data)


@pytest.fixture(scope="module")
def started() -> lk.LODEGP:
    """A hidden state h that decays quickly and hardly affects y: the data contain no information about its start."""
    t = np.linspace(0.0, 20.0, 80)
    u = np.where(t % 7 < 3, 1.0, 0.0)
    _, y, _ = lsim(([[-3.0, 0.0], [0.02, -0.6]], [[1.0], [1.0]], [[0.0, 1.0]], [[0.0]]), u, t, interp=False)
    table = {"y": y + 0.02 * np.random.default_rng(0).standard_normal(80), "u": u}
    system = lk.System("h' = -3*h + u; y' = -0.6*y + 0.02*h + u")
    return lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, table)


def texts(ax: Any) -> str:
    return "\n".join([ax.get_title(loc="left"), *(text.get_text() for text in ax.texts)])


def test_the_panels_show_what_predict_and_sample_say(heated: lk.LODEGP) -> None:
    t = np.linspace(-6, 7, 30)
    figure = heated.plot(t, truth=HEATING.solution_at, samples=2, random_state=3, units={"f1": "K", "t": "s"})
    mean, std = heated.predict(t, return_std=True)
    drawn = heated.sample(t, 2, 3)
    assert len(figure.axes) == 3
    for j, ax in enumerate(figure.axes):
        np.testing.assert_allclose(line(ax, "mean").get_ydata(), mean[:, j], rtol=0, atol=1e-12)
        np.testing.assert_allclose(line(ax, "truth").get_ydata(), HEATING.solution_at(t)[:, j], rtol=0, atol=1e-12)
        np.testing.assert_allclose(line(ax, "samples").get_ydata(), drawn[0, :, j], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(line(ax, "data").get_xdata(), TIMES)
        vertices = ax.collections[0].get_paths()[0].vertices
        upper = np.array([vertices[vertices[:, 0] == time, 1].max() for time in t])
        np.testing.assert_allclose(upper, mean[:, j] + 1.959963984540054 * std[:, j], rtol=0, atol=1e-12)
        assert [(patch.get_x(), patch.get_width()) for patch in ax.patches] == [(-6.0, 1.0), (5.0, 2.0)]
    assert [ax.get_ylabel() for ax in figure.axes] == ["f1 (K)", "f2", "u"]
    assert [ax.get_xlabel() for ax in figure.axes] == ["", "", "t (s)"]
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert labels == {"mean", "95 % band", "data", "truth", "samples", "extrapolation"}


def test_times_in_any_order_and_truth_as_array_or_dict(heated: lk.LODEGP) -> None:
    t = np.array([3.0, -1.0, 2.0])
    exact = HEATING.solution_at(t)
    for truth in (exact, {"f2": exact[:, 1]}, {"f2": lambda s: HEATING.solution_at(s)[:, 1]}):
        ax = heated.plot(t, truth=truth).axes[1]
        np.testing.assert_allclose(line(ax, "mean").get_ydata(), heated.predict(np.sort(t))[:, 1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(line(ax, "truth").get_ydata(), exact[[1, 2, 0], 1], rtol=1e-12)
    (ax,) = heated.plot(t, observable="f2", truth=exact[:, 1]).axes
    np.testing.assert_array_equal(line(ax, "truth").get_ydata(), exact[[1, 2, 0], 1])


def test_default_times_reach_a_tenth_beyond_the_data(heated: lk.LODEGP) -> None:
    times = line(heated.plot().axes[0], "mean").get_xdata()
    assert times[[0, -1]].tolist() == [-6.0, 6.0]


def test_default_times_do_not_extend_before_known_inputs(started: lk.LODEGP) -> None:
    times = line(started.plot().axes[0], "mean").get_xdata()
    assert times[[0, -1]].tolist() == [0.0, 22.0]


def test_default_times_do_not_extend_before_exact_initial_values() -> None:
    """A growing mode of the solution that they exclude would grow backwards."""
    times, system = np.linspace(0.0, 6.0, 13), lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    data = lk.Observations().add(times[1:], "x", np.exp(-0.5 * times[1:]) + 0.01 * np.cos(9.0 * times[1:]))
    fitted = lk.LODEGP(system, random_state=0).fit(data.add([0.0], "x", [1.0], std=0.0))
    assert line(fitted.plot().axes[0], "mean").get_xdata()[0] == 0.0


def test_an_uncertain_initial_state_does_not_flatten_its_curve(started: lk.LODEGP) -> None:
    for t in (None, np.linspace(0.0, 40.0, 100)):
        ax = started.plot(t).axes[0]
        mean, (low, high) = line(ax, "mean").get_ydata(), ax.get_ylim()
        assert np.ptp(mean) > 0.3 * (high - low)
        band = ax.collections[0].get_paths()[0].get_extents()
        assert band.height > 3.0 * (high - low)
    # The same rule holds for panels of reports.
    context = ReportContext(started, {}, "", {}, (0.0, 22.0))
    traces, layout = channels_figure(context)
    drawn = next(trace for trace in traces if trace["name"] == "mean" and trace["yaxis"] == "y")
    low, high = layout["yaxis"]["range"]
    assert np.ptp(drawn["y"]) > 0.3 * (high - low)


def test_far_extrapolation_does_not_flatten_the_curve() -> None:
    t = np.arange(12.0) / 4
    ax = lk.LODEGP(lk.System("x' = v"), random_state=0).fit(t, {"x": np.sin(t)}).plot(np.linspace(0, 60, 200)).axes[0]
    low, high = ax.get_ylim()
    assert np.ptp(line(ax, "mean").get_ydata()) > 0.4 * (high - low)
    assert np.ptp(line(ax, "data").get_ydata()) > 0.15 * (high - low)


def test_what_was_not_measured_says_so_and_derivatives_have_their_data(hidden: lk.LODEGP) -> None:
    figure = hidden.plot()
    assert [ax.get_ylabel() for ax in figure.axes] == ["x", "F\n(not measured)", "x'"]
    assert len(line(figure.axes[2], "data").get_xdata()) == 2
    assert all(item.get_label() != "data" for item in figure.axes[1].get_lines())
    (ax,) = hidden.plot(observable="D(x, 1)").axes
    assert len(line(ax, "data").get_xdata()) == 2


def test_sums_are_shown_as_averages() -> None:
    """At any point of the parameters: nothing is searched for."""
    times, system = np.linspace(0, 6, 5000), lk.catalog.free_decay().system
    sums = lk.Statistics.of(0, 6, lk.Observations().add(times, "x", np.cos(2 * times)))
    setup = build_setup(system, FitSettings(), load_data(sums, None, system.plain_channels).measurements)
    (ax,) = lk.LODEGP.from_fit(fit_at_point(setup, np.zeros(setup.layout.size))).plot().axes
    points = line(ax, "averages of the data")
    np.testing.assert_allclose(points.get_ydata(), np.cos(2 * points.get_xdata()), atol=1e-3)


def test_parameters_show_estimate_interval_and_profile(heated: lk.LODEGP) -> None:
    figure = heated.plot_parameters(truth={"a": 3}, units={"a": "1/s"}, points=11, others="relearned")
    assert len(figure.axes) == 2
    for ax, name in zip(figure.axes, "ab", strict=True):
        found = heated.parameters_[name]
        assert line(ax, "95 % interval").get_xdata().tolist() == list(found.interval)
        assert line(ax, "estimate").get_xdata() == [found.value]
        relearned = line(ax, "other parameters re-estimated")
        assert relearned.get_ydata()[5] == pytest.approx(0.0, abs=1e-6)
        # The profile is close to its normal approximation here, and never below evidence with all else kept.
        normal = line(ax, "normal approximation").get_ydata()
        # At the upper end, -5.75 of the approximation, they differ by 1.26, because the profile is skewed.
        np.testing.assert_allclose(relearned.get_ydata(), normal, rtol=0, atol=1.3)
    fixed = heated.plot_parameters("a", others="fixed", points=11).axes[0]
    values = line(fixed, "other parameters fixed at their estimates")
    expected = [heated.log_evidence({"a": value}) - heated.log_evidence_ for value in values.get_xdata()]
    np.testing.assert_allclose(values.get_ydata(), expected, atol=1e-8)
    label = "other parameters adjusted to first order"
    following = line(heated.plot_parameters("a", others="following", points=11).axes[0], label)
    profile = line(figure.axes[0], "other parameters re-estimated")
    for lower, upper in ((values, following), (following, profile)):
        heights = dict(zip(np.round(upper.get_xdata(), 9).tolist(), upper.get_ydata().tolist(), strict=True))
        pairs = zip(np.round(lower.get_xdata(), 9).tolist(), lower.get_ydata().tolist(), strict=True)
        common = [(height, heights[value]) for value, height in pairs if value in heights]
        assert len(common) >= 5
        # The search for the profile ends within 1e-3 of its optimum.
        assert all(below <= above + 1e-3 for below, above in common)
    assert line(figure.axes[0], "truth").get_xdata()[0] == 3.0
    assert figure.axes[0].get_xlabel() == "a (1/s)"


def test_normal_approximations_are_drawn_without_searches(heated: lk.LODEGP, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: Any, **__: Any) -> None:
        raise AssertionError("a profile was computed")

    monkeypatch.setattr(profile_likelihood, "minimize", search)
    for ax in heated.plot_parameters(points=11).axes:
        assert "interval from the normal approximation" in texts(ax)
        assert line(ax, "other parameters adjusted to first order").get_ydata().max() == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(AssertionError, match="a profile was computed"):
        heated.plot_parameters("a", others="relearned", points=11)


def test_parameters_have_one_small_legend_below_the_panels(heated: lk.LODEGP) -> None:
    figure = heated.plot_parameters(truth={"a": 3}, points=5)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert all(ax.get_tightbbox().y0 > box.y1 for ax in figure.axes)
    # There are two rows of small letters.
    assert box.height < 0.5 * figure.dpi


def assert_crosses_level_at_interval_ends(ax: Any, label: str, interval: tuple[float, float], more: str = "") -> None:
    curve, level = line(ax, label), line(ax, f"95 % level{more}").get_ydata()[0]
    heights = np.interp(interval, curve.get_xdata(), curve.get_ydata())
    # The curve is drawn as a polygon.
    np.testing.assert_allclose(heights, level, rtol=0.01)


def test_profile_intervals_end_where_the_drawn_profile_reaches_the_level() -> None:
    positive = {name: lk.Parameter(positive=True) for name in ("a", "b", "c", "Ta")}
    rooms = lk.System("T1' = a*(T2 - T1) - b*(T1 - Ta) + c*u; T2' = a*(T1 - T2) - b*(T2 - Ta)", parameters=positive)
    gp = lk.LODEGP(rooms, inputs={"u": "hold"}, random_state=0).fit("docs/two-rooms.csv")
    panels = [*gp.plot_parameters().axes, *gp.plot_parameters(others="following").axes]
    for ax, (name, found) in zip(panels, [*gp.parameters_.items()] * 2, strict=True):
        assert gp.fit_.identifiability[name].reason == "profile"
        assert "interval from the profile likelihood" in texts(ax)
        label = "other parameters re-estimated"
        assert_crosses_level_at_interval_ends(ax, label, found.interval)
        assert not any(item.get_label() == "normal approximation" for item in ax.get_lines())


def test_widened_intervals_end_where_the_drawn_approximation_reaches_the_level(heated: lk.LODEGP) -> None:
    assert_crosses_level_at_interval_ends(
        heated.plot_parameters("a", others="following").axes[0],
        "normal approximation",
        heated.parameters_["a"].interval,
    )
    # A second time constant is missing in the equations, and an offset may have either sign.
    t = np.arange(0.0, 60.0, 0.5)
    u = np.where(t % 11 < 4, 1.0, 0.0)
    _, slow, _ = lsim(([2.0], np.polymul([6.0, 1.0], [1.2, 1.0])), u, t, interp=False)
    parameters = {"tau": lk.Parameter(positive=True), "K": lk.Parameter(positive=True), "y0": lk.Parameter()}
    system = lk.System("tau*y' + y - y0 = K*u", parameters=parameters)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0)
    gp.fit(t, {"y": 5.0 + slow + 0.01 * np.random.default_rng(1).standard_normal(len(t)), "u": u})
    for name, ax in zip(gp.parameters_, gp.plot_parameters(others="following").axes, strict=True):
        assert gp.fit_.diagnosis.widening[name] > 1.5
        assert "times: correlated residuals" in texts(ax)
        # One line of numbers and at most two of text.
        assert ax.get_title(loc="left").count("\n") <= 2
        assert_crosses_level_at_interval_ends(ax, "normal approximation", gp.parameters_[name].interval, " (widened)")


def test_titles_name_intervals_that_contain_other_optima() -> None:
    """The alias of an oscillation with few measurements per period has a slightly different damping."""
    positive = {name: lk.Parameter(positive=True) for name in ("c", "k")}
    t = np.arange(0.0, 30.0)
    y = np.exp(-0.02 * t) * np.cos(2.2 * t) + 0.01 * np.random.default_rng(1).standard_normal(30)
    gp = lk.LODEGP(lk.System("x'' + c*x' + k*x = 0", parameters=positive), random_state=0).fit(t, y)
    assert gp.fit_.identifiability["c"].reason == "rival"
    (panel,) = gp.plot_parameters("c", others="following").axes
    assert "interval contains other optima" in texts(panel)


def test_fixed_and_unknown_parameters_are_explained(hidden: lk.LODEGP) -> None:
    (unknown,) = hidden.plot_parameters(points=7).axes
    (fixed,) = hidden.plot_parameters("m", points=7).axes
    assert "m = 1, fixed" in texts(fixed)
    assert "not identified by these data" in texts(unknown)
    assert not any(item.get_label().startswith("95 % interval") for item in unknown.get_lines())
    assert "no parameters" in texts(_tanks().plot_parameters().axes[0])


def test_parameters_without_standard_error_have_a_note(heated: lk.LODEGP) -> None:
    fit = replace(heated.fit_)
    fit.__dict__["covariance"] = np.zeros_like(heated.fit_.covariance)
    exact = lk.LODEGP.from_fit(fit)
    assert "no curve, because it has no standard error" in texts(exact.plot_parameters("a", points=5).axes[0])
    assert "no evidence to draw" in texts(exact.plot_evidence("a", "b", points=5).axes[0])


def _tanks() -> lk.LODEGP:
    example, times = lk.catalog.three_tank(), np.linspace(1, 6, 8)
    return lk.LODEGP(example.system, random_state=0, restarts=1).fit(times, noisy(example, times, 0.01))


def test_priors_of_parameters_count() -> None:
    prior = lk.Parameter(positive=True, prior=lk.LogNormal(3.0, 0.1))
    system = lk.System("x' = -a*x", parameters={"a": prior})
    times = np.linspace(0, 1, 12)
    model = lk.LODEGP(system, random_state=0, restarts=1).fit(times, np.exp(-2 * times) + 0.1 * np.sin(40 * times))
    (ax,) = model.plot_parameters(points=21).axes
    curve = line(ax, "other parameters re-estimated")
    assert curve.get_ydata().max() == pytest.approx(0.0, abs=1e-3)


def test_residuals_have_a_panel_for_each_equation(heated: lk.LODEGP) -> None:
    t = np.linspace(-6, 6, 40)
    figure = heated.plot_residual(t, units={"t": "s"})
    assert len(figure.axes) == 2
    expected = compute_mean_residuals(heated.fit_, t)
    for j, ax in enumerate(figure.axes):
        drawn = line(ax, "relative residual").get_ydata()
        # What is left is rounding, and rounds otherwise in another place of the memory: its size is what counts.
        assert len(drawn) > 10
        assert 0.1 < np.median(drawn) / np.median(expected.residuals[:, j]) < 10
        bound = line(ax, "error of evaluating the residual").get_ydata()[0]
        assert 0.1 < bound / expected.max_errors[j] < 10
        assert ax.get_yscale() == "log"
        assert HEATING.system.equations[j] in texts(ax)
    assert figure.axes[1].get_xlabel() == "t (s)"


def test_the_surface_is_highest_at_the_estimate(heated: lk.LODEGP) -> None:
    figure = heated.plot_evidence("b", "a", truth={"a": 3, "b": 1}, points=9)
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("b", "a")
    assert line(ax, "estimate").get_xdata() == [heated.parameters_["b"].value]
    assert line(ax, "truth").get_ydata() == [3.0]
    edge = np.concatenate([path.vertices for path in ax.collections[1].get_paths()])
    low, high = heated.parameters_["b"].interval
    # The joint region is wider than the interval of one parameter, by sqrt(chi2_2 / chi2_1) = 1.25.
    assert 1.1 < np.ptp(edge[:, 0]) / (high - low) < 1.4


def test_the_evidence_around_unidentified_parameters_is_refused(heated: lk.LODEGP) -> None:
    found = heated.parameters_
    fit = replace(heated.fit_)
    fit.__dict__["estimates"] = found | {"b": replace(found["b"], identified=False, note="not identified")}
    with pytest.raises(lk.LodekitError, match=r'do not identify b, .* try others="relearned"'):
        lk.LODEGP.from_fit(fit).plot_evidence("a", "b", points=5)


def test_bands_far_larger_than_the_curve_are_cut_off_with_a_remark(
    started: lk.LODEGP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter that is hardly determined may take values at which a hidden channel is far larger."""

    def predict_widely(fit: Any, times: Any, names: Any = None, **options: Any) -> Any:
        mean, std = predict(fit, times, names, **options)
        return mean, std + 1e6 * (np.array(names) == "h")

    monkeypatch.setattr(figures, "predict", predict_widely)
    panel, other = started.plot(np.linspace(0.0, 20.0, 81), observable=["h", "y"]).axes
    assert max(np.abs(panel.get_ylim())) < 10.0
    assert panel.get_title(loc="right") == "95 % band of ± 2e+06 cut off"
    assert other.get_title(loc="right") == ""
    context = ReportContext(started, {}, "", {}, (0.0, 20.0))
    monkeypatch.setattr(
        lk.LODEGP, "predict", lambda gp, t, names, as_frame, **o: predict_widely(gp.fit_, t, names, **o)
    )
    context.__dict__["curve_times"] = np.linspace(0.0, 20.0, 81)
    _, layout = channels_figure(context)
    assert max(np.abs(layout["yaxis"]["range"])) < 10.0
    assert [note["text"].count("95 % band of ± 2e+06 cut off") for note in layout["annotations"]] == [1, 0, 0]


class CurvedRidge:
    """A profile -0.02 m^2, of which local searches beyond m = 1 find only -3 m unless they start at y = 1."""

    optimum_point, objective = np.zeros(2), None
    directions, other_index = np.eye(2)[:, :1], np.array([1])

    def relative_value(self, x: np.ndarray) -> float:
        return float(-0.02 * x[0] ** 2 - 3.0 * max(x[0] - 1.0, 0.0) * (x[1] < 0.5))

    def reoptimize(self, x: np.ndarray) -> np.ndarray:
        return np.array([x[0], max(x[1], float(x[0] >= 2.9))])


def test_profiles_do_not_stay_beside_a_curved_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    def move_on(_: Any, x: Any, __: int, target: float, *___: Any, **____: Any) -> Any:
        return ridge.reoptimize(np.array([target, x[1]]))

    ridge: Any = CurvedRidge()
    monkeypatch.setattr(profile_curves, "profile_point", move_on)
    monkeypatch.setattr(GlobalSearch, "around", lambda *_: None)
    for optima in ([], [(0.0, 1.0)]):
        moves, heights = profile_curves.trace_highest_profile(ridge, 0, 3.0, 31, optima)
        np.testing.assert_allclose(heights, -0.02 * moves**2, atol=1e-9)


class TwoPeaks(CurvedRidge):
    """Two parabolas with their tops at m = 0 and m = 2, between which local searches do not change."""

    def relative_value(self, x: np.ndarray) -> float:
        return float(-20.0 * x[0] ** 2 if x[1] < 0.5 else -1.0 - 20.0 * (x[0] - 2.0) ** 2)

    def reoptimize(self, x: np.ndarray) -> np.ndarray:
        return x


def test_profiles_show_the_peaks_of_other_optima(monkeypatch: pytest.MonkeyPatch) -> None:
    def move_on(_: Any, x: Any, __: int, target: float, *___: Any, **____: Any) -> Any:
        return np.array([target, x[1]])

    monkeypatch.setattr(profile_curves, "profile_point", move_on)
    monkeypatch.setattr(GlobalSearch, "around", lambda *_: None)
    surface: Any = TwoPeaks()
    moves, heights = profile_curves.trace_highest_profile(surface, 0, 3.0, 31, [(2.0, 1.0), (9.0, 1.0)])
    np.testing.assert_allclose(heights, np.maximum(-20.0 * moves**2, -1.0 - 20.0 * (moves - 2.0) ** 2), atol=1e-9)
    assert heights[moves == 2.0] == -1.0
    assert moves[-1] > 2.3


def test_modes_stand_at_the_learned_exponents(decaying: lk.LODEGP, heated: lk.LODEGP) -> None:
    (ax,) = decaying.plot_modes(units={"t": "s"}).axes
    c, k = (decaying.parameters_[name].value for name in "ck")
    x, y = ax.get_lines()[2].get_data()
    np.testing.assert_allclose(sorted(x + 1j * y, key=np.imag), np.sort_complex(np.roots([1, c, k])), rtol=1e-10)
    assert "no modes: the system is controllable" in texts(heated.plot_modes().axes[0])
    double = lk.LODEGP(lk.System("x'' + 2*x' + x = 0"), restarts=1).fit(TIMES[13:], np.exp(-TIMES[13:]))
    assert "×2" in texts(double.plot_modes().axes[0])


@pytest.mark.parametrize(("latent", "prior"), [("se", "latent"), ("matern-9/2", "latent"), ("se", "channels")])
def test_the_area_below_a_spectrum_is_the_prior_variance(latent: str, prior: str) -> None:
    times = np.linspace(0, 20, 15)
    system = lk.System("x' = -x/5 + u")
    data = {"x": np.sin(times / 4), "u": np.cos(times / 4) / 4 + np.sin(times / 4) / 5}
    model = lk.LODEGP(system, latent=latent, prior=prior, random_state=0, restarts=1).fit(times, data, noise_std=0.1)
    figure = model.plot_spectrum(units={"t": "s", "x": "m"})
    assert figure.axes[0].get_ylabel() == "density of x\n(m² s)"
    assert figure.axes[1].get_xlabel() == "frequency (cycles per s)"
    fit = model.fit_
    hyper = fit.hyperparameters
    rows = fit.observables(["x", "u"]).evaluate(hyper.theta)
    if prior == "latent":
        own = fit.prior.kernels[0]
        expected = free_function_variance(
            own, rows.free[:, 0], float(hyper.lengthscales[0]), float(hyper.amplitudes[0])
        )
    else:
        channels = fit.prior.channels
        assert channels is not None
        point = SpectralPoint.from_hyperparameters(rows, channels.evaluate(hyper.theta), hyper)
        waves = ChannelSpectrum().frequencies(point, np.ones(len(point.free)), 1.0)
        expected = np.sum(np.abs(ChannelSpectrum().coefficients(waves, point)) ** 2, axis=1)
    for ax, variance in zip(figure.axes, expected, strict=True):
        frequencies, density = ax.get_lines()[0].get_data()
        # What lies below the lowest frequency is flat; a trapezoidal rule on 800 points is good to 1e-3.
        area = trapezoid(density, frequencies) + density[0] * frequencies[0]
        assert area == pytest.approx(variance, rel=5e-3)


def test_without_free_functions_there_is_no_spectrum(decaying: lk.LODEGP) -> None:
    with pytest.raises(lk.LodekitError, match=r"driven by a free function, got x; try plot_modes"):
        decaying.plot_spectrum()


@pytest.mark.parametrize("name", FIGURES)
def test_given_axes_are_drawn_on_and_nothing_leaks(heated: lk.LODEGP, name: str) -> None:
    draw: Callable[..., Any] = getattr(heated, name)
    arguments: dict[str, Any] = {}
    if name in ("plot_parameters", "plot_evidence"):
        arguments = {"points": 5, "others": "following", "truth": {"a": 3, "b": 1}}
    before = dict(mpl.rcParams)
    own = draw(**arguments)
    own.draw_without_rendering()
    for legend in own.legends:
        box = legend.get_window_extent()
        assert own.bbox.x0 < box.x0 < box.x1 < own.bbox.x1
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == before
    count = {"plot": 3, "plot_parameters": 2, "plot_residual": 2, "plot_spectrum": 3}.get(name, 1)
    figure, axes = plt.subplots(count)
    try:
        assert draw(axes=axes, **arguments) is figure
        figure.draw_without_rendering()
        with pytest.raises(lk.LodekitError, match=rf"expected {count} axes"):
            draw(axes=[figure.add_subplot() for _ in range(count + 1)], **arguments)
    finally:
        plt.close(figure)


@pytest.mark.parametrize("name", FIGURES)
def test_a_model_without_data_shows_nothing(name: str) -> None:
    with pytest.raises(lk.LodekitError, match="has not been fitted"):
        getattr(lk.LODEGP(HEATING.system), name)()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("plot", {"t": [1.0]}, "at least two different times"),
        ("plot", {"observable": "nothing"}, "nothing"),
        ("plot", {"observable": []}, "list of texts"),
        ("plot", {"samples": -1}, "samples as a whole number"),
        ("plot", {"units": "s"}, "units as a dict"),
        ("plot", {"units": {"t": 1}}, "units as a dict"),
        ("plot", {"truth": np.zeros((400, 3))}, "times t with an array"),
        ("plot", {"t": [0.0, 1.0], "truth": np.zeros((5, 3))}, r"shape \(2, 3\), got \(5, 3\)"),
        ("plot", {"truth": {"f9": np.cos}}, "'f9', which is not shown; expected one of: f1, f2, u"),
        ("plot", {"truth": lambda _: "no"}, "truth as numbers"),
        ("plot_parameters", {"names": 5}, "expected parameters as a text or a list of texts, got 5"),
        ("plot_parameters", {"names": ["a", "z"]}, "unknown parameter 'z'; expected one of: a, b"),
        ("plot_parameters", {"others": "free"}, "others as one of"),
        ("plot_parameters", {"others": ["fixed"]}, "others as one of"),
        ("plot_parameters", {"others": ""}, "others as one of"),
        ("plot_parameters", {"points": 2}, "at least 5 points"),
        ("plot_parameters", {"truth": {"a": "three"}}, "a finite number for 'a', got 'three'"),
        ("plot_parameters", {"truth": [3]}, "names to numbers"),
        ("plot_evidence", {"first": "a", "second": "a"}, "two different learned parameters"),
        ("plot_evidence", {"first": "z"}, "unknown parameter 'z'"),
        ("plot_spectrum", {"observable": 3}, "list of texts"),
        ("plot_modes", {"axes": "here"}, "expected axes"),
    ],
)
def test_nonsense_is_answered_in_words(heated: lk.LODEGP, name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(lk.LodekitError, match=message):
        getattr(heated, name)(**arguments)


def test_a_surface_needs_two_learned_parameters(hidden: lk.LODEGP) -> None:
    with pytest.raises(lk.LodekitError, match="two different learned parameters, got 'm' and 'k'; learned: k"):
        hidden.plot_evidence("m", "k")

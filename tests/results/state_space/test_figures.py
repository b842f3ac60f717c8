"""Figures of residuals and responses show what was computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lodekit as lk
from tests.test_plotting import line


@pytest.fixture(scope="module")
def gp() -> lk.LODEGP:
    generator, times = np.random.default_rng(0), np.linspace(0.0, 30.0, 120)
    u = (np.arange(120) // 15 % 2).astype(float)
    decay, y = np.exp(-(times[1] - times[0]) / 2.5), np.zeros(120)
    for k in range(119):
        y[k + 1] = decay * y[k] + 3.0 * (1 - decay) * u[k]
    y += 0.05 * generator.standard_normal(120)
    system = lk.System("tau*y' + y = K*u", parameters={n: lk.Parameter(positive=True) for n in ("tau", "K")})
    found = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(times, {"y": y, "u": u})
    return found.label(units={"t": "s", "y": "K", "u": "$"})


def test_residuals_are_measurements_minus_curve_in_units_of_the_noise(gp: lk.LODEGP) -> None:
    scatter, correlations, periodogram = gp.plot_residuals().axes
    series = gp.fit_.measurements.series[0]
    drawn = line(scatter, "data").get_ydata()
    assert drawn == pytest.approx((series.values - gp.predict(series.times, "y")) / gp.noise_["y"])
    check = gp.fit_.diagnosis.checks[0]
    assert check.whiteness is not None
    assert correlations.lines[-1].get_ydata() == pytest.approx(check.whiteness.lags)
    assert periodogram.lines[-1].get_ydata()[-1] == pytest.approx(1.0)
    assert periodogram.get_xlim()[1] == pytest.approx(0.5 / check.whiteness.step, rel=0.03)


def test_bode_and_step_show_gain_and_time_constant_with_bands(gp: lk.LODEGP) -> None:
    magnitude, phase = gp.plot_bode("y", "u").axes
    gain, tau = (gp.parameters_[name].value for name in ("K", "tau"))
    omega, size = magnitude.lines[0].get_data()
    assert size == pytest.approx(gain / np.sqrt(1 + (omega * tau) ** 2))
    assert phase.lines[0].get_ydata() == pytest.approx(-np.degrees(np.arctan(omega * tau)))
    assert magnitude.get_ylabel() == r"|y / u| (K/\$)"
    [step] = gp.plot_step().axes
    times, values = step.lines[0].get_data()
    assert values == pytest.approx(gain * (1 - np.exp(-times / tau)), abs=1e-9)
    band = step.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(values[-1] + 1.96 * gp.parameters_["K"].std_error, rel=2e-3)
    with pytest.raises(lk.LodekitError, match="above zero"):
        gp.plot_bode(frequencies=[0.0, 1.0])
    with pytest.raises(lk.LodekitError, match="above zero and finite"):
        gp.plot_bode(frequencies=[1.0, np.nan])
    with pytest.raises(lk.LodekitError, match="frequencies"):
        gp.plot_bode(frequencies="fast")


def test_step_responses_to_all_inputs_are_drawn() -> None:
    t, names = np.arange(30.0), ("tau", "K1", "K2")
    inputs = {"u1": np.repeat([0.0, 1.0, 0.0], 10), "u2": np.repeat([0.0, 2.0, 1.0, 3.0, 0.0], 6)}
    system = lk.System("tau*y' + y = K1*u1 + K2*u2", parameters={n: lk.Parameter(positive=True) for n in names})
    plant = lk.LODEGP(
        system.substitute({"tau": 3.0, "K1": 1.0, "K2": 2.0}), inputs=dict.fromkeys(inputs, "hold"), restarts=1
    )
    y = inputs["u1"] + 2 * inputs["u2"]
    gp = plant.fit(t, {"y": y, **inputs}, units={"u1": "kW"})
    panels = gp.plot_step().axes
    assert [panel.get_title() for panel in panels] == ["u1 from 0 to 1 kW", "u2 from 0 to 1"]
    assert [panel.lines[0].get_ydata()[-1] for panel in panels] == pytest.approx([1.0, 2.0], rel=0.01)
    assert len(gp.plot_step(input="u2").axes) == 1
    magnitudes = gp.plot_bode().axes[::2]
    assert [panel.get_ylabel() for panel in magnitudes] == ["|y / u1|", "|y / u2|"]
    assert len(gp.plot_bode(input="u2").axes) == 2


def test_dollars_begin_no_formula(gp: lk.LODEGP) -> None:
    assert [panel.get_ylabel() for panel in gp.plot().axes] == ["y (K)", "u (\\$)\n(known)"]
    [panel] = gp.plot_parameters("K", others="fixed", points=5, units={"K": "$/$"}).axes
    assert panel.get_title(loc="left").partition("  [")[0].endswith(r" \$/\$")
    # Whoever began one here would fail as soon as it is drawn.
    odd = dict.fromkeys(("t", "y", "u", "K", "tau"), r"$\foo$")
    parameters: dict[str, Any] = {"others": "fixed", "points": 5}
    for figure in (
        *(gp.plot(units=odd), gp.plot_residual(units=odd), gp.plot_residuals(units=odd)),
        *(gp.plot_parameters(units=odd, **parameters), gp.plot_bode(units=odd), gp.plot_step(units=odd)),
    ):
        figure.draw_without_rendering()


def test_what_does_not_respond_is_said(gp: lk.LODEGP) -> None:
    with pytest.raises(lk.LodekitError, match="unknown output 'u'"):
        gp.plot_step("u")
    with pytest.raises(lk.LodekitError, match="unknown input 'y'"):
        gp.plot_bode("y", "y")
    with pytest.raises(lk.LodekitError, match="expected channels that respond as a text or a list of texts, got 5"):
        gp.plot_step(5)  # type: ignore[arg-type]
    with pytest.raises(lk.LodekitError, match="expected an input to which channels respond, got none"):
        gp.plot_step(inputs=[])


def test_few_residuals_are_drawn_without_tests() -> None:
    few = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
    texts = [text.get_text() for panel in few.plot_residuals().axes for text in panel.texts]
    assert texts == ["too few to tell", "too few to tell"]
    assert few.diagnose().sentences == ("residuals of x are too few to tell whether they are independent",)


def test_a_delayed_input_has_one_panel() -> None:
    t = np.arange(60.0)
    u = np.where(t < 10, 0.0, 1.0)
    y = np.where(t < 13, 0.0, 1 - np.exp(-(t - 13) / 5))
    parameters = {name: lk.Parameter(positive=True) for name in ("tau", "K", "T")}
    system = lk.System("tau*y' + y = K*delay(u, T)", parameters=parameters)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y + 0.01 * np.sin(7 * t), "u": u})
    assert len(gp.plot_step("y").axes) == 1

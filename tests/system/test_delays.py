"""delay(u, T): read, shown, measured in time, and a column of its own in the state space of known inputs."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
import sympy

import lodekit as lk
from lodekit.data.inputs import InputSignal
from lodekit.data.records import Scaling
from lodekit.errors import EquationError, LodekitError
from lodekit.prior.observables import ObservableCompiler
from lodekit.results.equation_residuals import EquationEvaluator
from lodekit.system.dimensions import check_units
from lodekit.system.display import equations_to_mathml
from lodekit.system.structural_identifiability import (
    IdentifiabilityProblem,
    find_scale_symmetries,
    find_unidentifiable_directions,
)
from tests.system.transfer_witness import all_modes, responds

DEAD_TIME = lk.System("tau*y' + y = K*delay(u, T)", parameters="tau K T")


def test_a_delayed_input_is_a_function_of_its_own() -> None:
    assert DEAD_TIME.plain_channels == ("y", "u")
    assert DEAD_TIME.channels == ("y", "u", "delay(u, T)")
    assert list(DEAD_TIME.parameters) == ["tau", "K", "T"]
    assert DEAD_TIME.definition()["channels"] == ["y", "u"]
    assert "u is delayed, so a fit needs it as a known input" in DEAD_TIME.explain()


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("y = delay(u + 2*w', 2)", ["delay(u, 2)", "delay(w, 2)"]),
        ("y = delay(u, 1)' + delay(u', 1)", ["delay(u, 1)"]),
        ("y = delay(delay(u, 1/2), T)", ["delay(u, T + 0.5)"]),
        ("y = delay(u, T) - delay(u, 2*T/2) + delay(u, 0)", ["delay(u, T)"]),
    ],
)
def test_delays_are_linear_and_add_up(text: str, columns: list[str]) -> None:
    system = lk.System(text, parameters=["T"] if "T" in text else [])
    shown = [name for name in system.channels if name not in system.plain_channels]
    assert shown == columns
    assert responds(
        system, system.state_space(dict.fromkeys(("u", "w") if "w" in text else "u", "linear")), {}, range(3)
    )


def test_names_that_are_not_functions_may_still_be_called_delay() -> None:
    assert lk.System("delay(t)' = u - delay").channels == ("delay", "u")
    assert lk.System("y = delay(u, delay)", parameters=["delay"]).channels == ("y", "u", "delay(u, delay)")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("y = delay(u)", "expected delay"),
        ("y = delay(u, 1, 2)", "expected delay"),
        ("y = delay(u, -1)", "at least zero, got -1"),
        ("y = delay(u, -2*T)", "at least zero, got -2"),
        ("y = delay(u, w)", "declare it as a parameter"),
        ("y = delay(u, t)", "numbers and parameters only"),
        ("y = delay(sin(t), T)", "only channels"),
        ("y = delay(T, 1)", "only channels"),
        ("y = u(t - T)", "write delay"),
        ("y = x*delay(u, T)", "not linear"),
    ],
)
def test_other_uses_are_refused_in_words(text: str, match: str) -> None:
    with pytest.raises(EquationError, match=match):
        lk.System(text, parameters=["T"] if "T" in text else [])


def test_round_trips_keep_delays() -> None:
    restored = pickle.loads(pickle.dumps(DEAD_TIME))  # noqa: S301
    for other in (restored, lk.System.from_definition(DEAD_TIME.definition())):
        assert other == DEAD_TIME
        assert other.channels == DEAD_TIME.channels
    numbers = DEAD_TIME.substitute({"T": "23/10", "K": "2*tau"})
    assert numbers.channels == ("y", "u", "delay(u, 2.3)")
    assert numbers.equations == ("tau*y' + y - 2*tau*delay(u, 2.3) = 0",)
    assert DEAD_TIME.substitute({"T": 0}).channels == ("y", "u")


def test_equations_show_the_earlier_time() -> None:
    system = lk.System("y'' = K*delay(u, T)' + delay(u, 2*T_1)", parameters="K T T_1")
    lines = system.latex()
    assert r"K \dot{u}\left(t - T\right)" in lines
    assert r"u\left(t - 2 T_{1}\right)" in lines
    (shown,) = equations_to_mathml(system)
    assert shown.count("<mi>t</mi><mo>−</mo>") == 2
    assert "delay" not in shown
    (sum_shown,) = equations_to_mathml(lk.System("y = delay(u + v, 3)"))
    assert "<mo>)</mo></mrow><mo>&#x2061;</mo><mrow><mo>(</mo><mi>t</mi><mo>−</mo><mn>3</mn>" in sum_shown


def test_a_delay_has_the_dimension_of_time_and_its_channel_its_own() -> None:
    found = DEAD_TIME.dimensions()
    assert found["T"] == {"t": 1}
    assert found["K"] == {"y": 1, "u": -1}
    check_units(DEAD_TIME, {"t": "s", "T": "s"})
    with pytest.raises(EquationError, match="T is in m, but t is in s"):
        check_units(DEAD_TIME, {"t": "s", "T": "m"})


def test_every_delay_is_a_column_of_the_state_space() -> None:
    system = lk.System("tau*y'' + y = K*delay(u, T)' + u' + w + delay(w, 2*T)", parameters="tau K T")
    plant = system.state_space({"w": "linear", "u": "hold"})
    assert plant.inputs == ("w", "delay(w, 2*T)", "u", "delay(u, T)")
    assert plant.channels == ("w", "w", "u", "u")
    assert plant.kinds == ("linear", "linear", "hold", "hold")
    assert [str(value) for value in plant.delays] == ["0", "2*T", "0", "T"]
    assert len(plant.scalars) == sum(math.prod(shape) for shape in plant.shapes.values())
    values = {"tau": Fraction(3), "K": Fraction(2, 7), "T": Fraction(1)}
    assert responds(system, plant, values, range(4))
    assert all_modes(system, plant, values, range(5))
    # The input itself has a column wherever it is delayed: it may be asked for.
    assert DEAD_TIME.state_space(["u"]).inputs == ("u", "delay(u, T)")
    rest = DEAD_TIME.given(["u"])
    assert (rest.channels, list(rest.parameters)) == (("y",), ["tau", "K", "T"])


def test_delayed_channels_must_be_known_inputs() -> None:
    system = lk.System("y' = delay(u, 1) + w")
    for call in (system.state_space, system.given):
        with pytest.raises(EquationError, match="'u' is delayed in the equations, so it must be a known input"):
            call(["w"])
    with pytest.raises(EquationError, match="only known inputs can be"):
        system.state_space(["w"], disturbances=["u"])
    with pytest.raises(EquationError, match="unknown input 'delay"):
        system.state_space(["u", "delay(u, 1)"])
    with pytest.raises(EquationError, match=r"must be a known input.*delay differential equations\) are not supported"):
        lk.LODEGP(system).fit(np.arange(4.0), {"y": np.zeros(4)})
    with pytest.raises(EquationError, match="does not occur"):
        ObservableCompiler(system).parse(["delay(u, 3)"])


def test_a_delay_can_be_told_where_the_input_is_known() -> None:
    reader = ObservableCompiler(DEAD_TIME)
    for observables in (["y", "u"], ["y", "u", "delay(u, T)"]):
        known = IdentifiabilityProblem(DEAD_TIME, *reader.parse(observables), ("tau", "K", "T"))
        assert find_unidentifiable_directions(known) == []
        assert find_scale_symmetries(known) == []
    hidden = IdentifiabilityProblem(DEAD_TIME, *reader.parse(["y"]), ("tau", "K", "T"))
    assert {name for way in find_unidentifiable_directions(hidden) or [] for name in way} == {"tau", "K"}
    sums = lk.System("tau*y' + y = delay(u, T + S)", parameters="tau T S")
    known = IdentifiabilityProblem(sums, *ObservableCompiler(sums).parse(["y", "u"]), ("tau", "T", "S"))
    assert find_unidentifiable_directions(known) == [{"T": Fraction(1), "S": Fraction(-1)}]


def test_written_equations_take_the_column_of_the_delay() -> None:
    """y = sin(t), u with delay such that the equation holds, evaluated from the text."""
    system = lk.System("y' + y = 2*delay(u, T) + delay(u', 1)", parameters=["T"])
    assert system.channels == ("y", "u", "delay(u, T)", "delay(u, 1)")
    times = np.linspace(0.0, 3.0, 7)
    orders = [0, 1]

    def wave(shift: float) -> np.ndarray:
        return np.stack([np.sin(times - shift + k * np.pi / 2) for k in orders])

    curves = np.stack([wave(0.3), wave(0.0), wave(0.25), wave(1.0)], axis=-1)[:, None]
    written = EquationEvaluator(system.written, system.channels, {"T": 0.25})
    assert written.order == 1
    values, _ = written.evaluate(times, curves)
    expected = np.cos(times - 0.3) + np.sin(times - 0.3) - 2 * np.sin(times - 0.25) - np.cos(times - 1.0)
    np.testing.assert_allclose(values[0, 0], expected, rtol=0, atol=1e-14)
    with pytest.raises(LodekitError, match="expected 'u'"):
        EquationEvaluator(system.written, system.plain_channels, {"T": 0.25}).evaluate(times, curves[..., :2])


def test_delays_leave_the_matrices_without_them() -> None:
    """The same plant without its delay has the same matrices: delays are in the inputs alone."""
    plant, plain = DEAD_TIME.state_space(["u"]), DEAD_TIME.substitute({"T": 0}).state_space(["u"])
    for name in ("A", "C"):
        assert getattr(plant, name) == getattr(plain, name)
    for name in ("B", "D", "D1"):
        own, other = sympy.Matrix(getattr(plant, name)), sympy.Matrix(getattr(plain, name))
        assert own[:, 0].is_zero_matrix
        assert own[:, 1] == other[:, 0]


def test_a_delay_is_never_negative() -> None:
    assert DEAD_TIME.parameters["T"].positive
    assert not DEAD_TIME.parameters["K"].positive
    assert lk.System.from_definition(DEAD_TIME.definition()) == DEAD_TIME
    half = lk.System("y = delay(u, T/2) + delay(u, S + R)", parameters={n: lk.Parameter() for n in "TSR"})
    assert [half.parameters[name].positive for name in "TSR"] == [True, False, False]
    at_once = lk.System("y = delay(u, T)", parameters={"T": lk.Parameter(fixed=0.0)})
    assert at_once.parameters["T"].fixed == 0.0


@pytest.mark.parametrize(
    ("delay", "values", "message"),
    [
        ("T", {"T": lk.Parameter(fixed=-2.0)}, r"at least zero in delay\(u, T\), got -2 with T = -2"),
        ("T - S", {"T": lk.Parameter(fixed=1.0), "S": lk.Parameter(fixed=3.0)}, "got -2 with T = 1, S = 3"),
        ("T", {"T": lk.Parameter(start=-1.0)}, "T is a delay, in delay.*start=-1.0 must lie above zero"),
        ("T", {"T": lk.Parameter(bounds=(-3.0, -1.0))}, "T is a delay, in delay.*contradicts bounds"),
    ],
)
def test_negative_delays_are_refused(delay: str, values: dict[str, lk.Parameter], message: str) -> None:
    with pytest.raises(LodekitError, match=message):
        lk.System(f"y' + y = delay(u, {delay})", parameters=values)


def test_a_sum_that_gets_negative_has_no_response() -> None:
    system = lk.System("y' + y = delay(u, T - S)", parameters="T S")
    t = np.arange(4.0)
    signal = InputSignal(t, t, "hold")
    observables = ObservableCompiler(system, {"u": signal}).compile(["y"], Scaling(0.0, 3.0, np.ones(1)))
    for values, finite in (([2.0, 1.0], True), ([1.0, 2.0], False)):
        means, _ = observables.means(observables.evaluate(np.array(values)), t, with_jacobian=False)
        assert np.isfinite(means[0]).all() == finite

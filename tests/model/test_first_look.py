"""What people see who ask an object what it is: at a prompt, in a notebook, with the words of other libraries."""

from __future__ import annotations

import copy
import math
import re

import numpy as np
import pytest

import lodekit as lk
from lodekit.errors import LodekitError, NotFittedError
from lodekit.model import LODEGP
from lodekit.uncertainty.estimates import Estimate


@pytest.fixture(scope="module")
def gp() -> LODEGP:
    t = np.arange(30.0)
    noise = 0.02 * np.random.default_rng(3).standard_normal(30)
    known = {"tau": lk.Parameter(positive=True), "K": lk.Parameter(), "c": lk.Parameter(fixed=0.0)}
    system = lk.System("tau*y' + y = K*u + c*u", parameters=known)
    y = 2.0 * (1.0 - np.exp(-t / 4.0)) + noise
    return lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(t, {"y": y, "u": np.ones(30)})


def test_everything_public_is_listed_and_nothing_else() -> None:
    assert {name for name in dir(lk) if not name.startswith("__")} == set(lk.__all__) - {"__version__"}
    assert "LODEGP" in dir(lk)


def test_the_repr_says_whether_there_is_a_fit_and_what_came_of_it(gp: LODEGP) -> None:
    before = repr(lk.LODEGP(gp.system, inputs={"u": "hold"}))
    assert "not fitted" in before
    assert "inputs={'u': 'hold'}" in before
    assert "latent" not in before
    after = repr(gp)
    assert "fitted to 30 measurements" in after
    value, error = re.search(r"tau = ([\d.]+) ± ([\d.]+)", after).groups()  # type: ignore[union-attr]
    assert float(value) == pytest.approx(gp.parameters_["tau"].value, abs=float(error))
    assert "c = 0 (fixed)" in after


def test_many_parameters_are_counted_and_not_listed() -> None:
    names = [f"k{number}" for number in range(9)]
    system = lk.System(f"x' = {' + '.join(names)}", parameters={name: lk.Parameter(fixed=1.0) for name in names})
    shown = repr(lk.LODEGP(system, random_state=0).fit([0.0, 1.0, 2.0], [0.0, 9.0, 18.1]))
    assert "k5 = 1 (fixed), and 3 more" in shown


def test_an_estimate_shows_the_digits_that_its_error_tells() -> None:
    found = Estimate(2.97161234567, 0.0421234567, (2.88911234567, 3.05411234567))
    assert repr(found) == "Estimate(value=2.972, std_error=0.042, interval=(2.889, 3.054))"
    assert str(Estimate(1.0, 0.0, (1.0, 1.0), note="fixed")) == "1 (fixed)"
    lost = Estimate(4.2, math.inf, (0.0, math.inf), identified=False, note="not identified by these data")
    assert "inf" in repr(lost)
    assert str(lost) == "4.2 (not identified by these data)"


def test_observations_say_what_they_hold() -> None:
    assert "none yet" in repr(lk.Observations())
    data = lk.Observations([(0.0, "x", 1.0, 0.0)]).add([1.0, 2.0, 4.0], "x", [1.0, math.nan, 2.0])
    data = data.add([0.5], "x'", [3.0], std=0.1)
    assert repr(data) == "<Observations: 3 of x, 1 of x'; t from 0 to 4>"
    shown = data._repr_html_()
    assert "none, exact, in part to be learned" in shown
    assert "0.1, known" in shown
    assert "<th>missing</th>" in shown
    assert "none yet" in lk.Observations()._repr_html_()


def test_notebooks_get_small_pages_that_hold_no_script_and_nothing_unescaped(gp: LODEGP) -> None:
    named = lk.LODEGP.from_fit(gp.fit_).label(units={"tau": "<b>s</b>"})
    pages = [gp.system._repr_html_(), gp._repr_html_(), named.summary()._repr_html_(), named._repr_html_()]
    assert lk.LODEGP(gp.system)._repr_html_() is None
    for page in pages:
        assert page is not None
        assert "<script" not in page
        assert "<b>" not in page
        assert page.count("<div") == page.count("</div>")
        assert len(page) < 10_000
    assert "&lt;b&gt;s&lt;/b&gt;" in str(pages[2])
    assert "<math" in str(pages[0])
    assert "95 % interval" in str(pages[1])


def test_a_summary_is_its_text_and_shows_itself(gp: LODEGP) -> None:
    found = gp.summary()
    assert isinstance(found, str)
    assert repr(found) == str(found) == found
    assert found.splitlines()[0].strip() == "LODE-GP Results"
    again = copy.deepcopy(found)
    assert (again, again._repr_html_()) == (found, found._repr_html_())


def test_a_certificate_shows_what_it_says_and_no_arrays(gp: LODEGP) -> None:
    found = gp.certificate(samples=0)
    assert repr(found) == str(found)
    assert "array(" not in repr(found)


def test_the_names_of_statsmodels_hold_the_same_numbers(gp: LODEGP) -> None:
    assert gp.bse == {name: found.std_error for name, found in gp.parameters_.items()}
    assert gp.conf_int(0.5) == gp.intervals(0.5)
    assert gp.conf_int()["tau"] == gp.parameters_["tau"].interval
    found = gp.cov_params()
    assert found.shape == (3, 3)
    assert np.sqrt(np.diag(found)) == pytest.approx(list(gp.bse.values()))
    assert not found[2].any()
    assert 0.01 < abs(found[0, 1]) / np.sqrt(found[0, 0] * found[1, 1]) < 1.0
    with pytest.raises(LodekitError, match="between zero and one"):
        gp.conf_int(95)
    with pytest.raises(NotFittedError):
        _ = lk.LODEGP(gp.system).bse


def test_residuals_in_the_plural_are_of_measurements(gp: LODEGP) -> None:
    times, values = gp.residuals()["y"]
    (own,) = gp.fit_.measurements.series
    assert values == pytest.approx(own.values - gp.predict(times, "y"))
    _, scaled = gp.residuals(standardized=True)["y"]
    assert scaled == pytest.approx(values / gp.noise_["y"])
    with pytest.raises(LodekitError, match=r"residuals\(\), in the plural"):
        gp.residual()
    assert gp.equation_residual([1.0]) == pytest.approx(gp.residual([1.0]), abs=1e-12)


def test_a_prior_in_the_wrong_place_is_told_the_right_one(gp: LODEGP) -> None:
    with pytest.raises(LodekitError, match=r"goes with the parameter: lk.Parameter\(prior="):
        lk.LODEGP(gp.system, prior=lk.Normal(1.0, 1.0)).fit([0.0], {"y": [1.0]})  # type: ignore[arg-type]
    with pytest.raises(LodekitError, match=r"goes with the model: LODEGP\(system, prior="):
        lk.Parameter(prior="channels")  # type: ignore[arg-type]


def test_names_of_other_libraries_are_told_ours(gp: LODEGP) -> None:
    free = lk.LODEGP(lk.System("x' = v"), latent="rbf")
    with pytest.raises(LodekitError, match="got 'rbf', which is called 'se' here"):
        free.fit([0.0, 1.0], {"x": [0.0, 1.0]})
    with pytest.raises(LodekitError, match="got 'Matern_52', which is called 'matern-5/2' here"):
        lk.LODEGP(lk.System("x' = v"), latent="Matern_52").fit([0.0, 1.0], {"x": [0.0, 1.0]})
    with pytest.raises(LodekitError, match=r"if only some channels are measured, pass a dict: \{'x': values\}"):
        lk.LODEGP(lk.System("x' = v")).fit([0.0, 1.0], [0.0, 1.0])

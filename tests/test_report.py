"""The report says what was found and how far to trust it, in one file that fetches nothing and repeats itself."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.report import make_report
from lodekit.report.document import generate_python
from lodekit.report.panels import curve_panel, points_trace
from lodekit.support.html import read_glossary
from lodekit.support.text import join_list
from lodekit.system.display import equations_to_mathml, name_to_mathml
from tests.limits import PATIENCE
from tests.test_page import HOSTILE, Reader, assert_offline

UNITS = {"t": "s", "f1": "°C", "f2": "°C", "u": "K/s", "a": "1/s", "b": "1/s"}


def measure(count: int, noise: float, seed: int = 0) -> tuple[Any, Any]:
    t = np.linspace(-5, 5, count)
    return t, lk.catalog.heating().solution_at(t) + noise * np.random.default_rng(seed).standard_normal((count, 3))


@pytest.fixture(scope="module")
def heating() -> lk.LODEGP:
    return lk.LODEGP(lk.catalog.heating().system, random_state=0).fit(*measure(25, 0.02))


@pytest.fixture(scope="module")
def many() -> lk.LODEGP:
    return lk.LODEGP(lk.catalog.heating().system, random_state=0).fit(*measure(30_000, 0.1))


@pytest.fixture(scope="module")
def long_page(many: lk.LODEGP) -> str:
    return make_report(many)


def figures(page: str) -> list[dict[str, Any]]:
    pattern = r'<script type="application/json" id="plot-\d+-data">(.*?)</script>'
    return [json.loads(text) for text in re.findall(pattern, page, re.DOTALL)]


def traces(page: str, name: str, figure: int = 0) -> list[dict[str, Any]]:
    return [trace for trace in figures(page)[figure]["data"] if trace["name"] == name]


def test_figures_of_data_with_dates_have_date_axes() -> None:
    dates = np.datetime64("2024-03-30T00:00") + np.arange(60) * np.timedelta64(1, "h")
    x = 0.1 * np.arange(60) + 0.01 * np.sin(9.0 * np.arange(60))
    page = make_report(lk.LODEGP(lk.System("x' = v; v' = 0"), random_state=0).fit(dates, {"x": x}))
    assert "from 2024-03-30 00:00 to 2024-04-01 11:00" in page
    for figure in figures(page)[:2]:
        assert figure["layout"]["xaxis"]["type"] == "date"
        points = next(trace for trace in figure["data"] if trace["mode"] == "markers")
        # Plotly counts milliseconds since 1970.
        assert [np.datetime64(int(t), "ms") for t in (points["x"][0], points["x"][-1])] == [dates[0], dates[-1]]
    grey = figures(page)[0]["layout"]["shapes"][-1]
    assert np.datetime64(int(grey["x0"]), "ms") == dates[-1]


def words(page: str) -> str:
    """Return the text that people read."""
    return " ".join(text for tag, text in Reader(page).texts if tag not in ("script", "style"))


def test_everything_is_there_in_order(heating: lk.LODEGP) -> None:
    page = make_report(
        heating, title="Warm", units=UNITS, source="warm.csv", command="lodekit fit x", notes=["A note."]
    )
    order = ["Warm", "Verdict", "Results in words", "Channels", "Estimates", "Residuals", "Equations"]
    order += ["What the equations imply", "Do the curves satisfy the equations?", "How to reproduce this report"]
    links = re.findall(r'<a href="#([\w-]+)">([^<]+)</a>', page)
    assert [title for _, title in links] == order[1:]
    assert all(f'<h2 id="{place}">{title}</h2>' in page for place, title in links)
    assert [text for tag, text in Reader(page).texts if tag in ("h1", "h2") and text.strip()] == order
    text = words(page)
    for part in ("a is 2.9", "± 0.05", "1/s", "75 measurements from warm.csv", "A note.", "95 % interval", "U A V = D"):
        assert part in text
    for part in ("any one of f1, f2 or u", "lodekit fit x", f"lodekit {lk.__version__}", "random seed 0", "noise (f1)"):
        assert part in text
    assert 'class="warning"' not in page
    titles = [annotation["text"] for annotation in figures(page)[0]["layout"]["annotations"]]
    assert titles == ["<b>f1</b> in °C", "<b>f2</b> in °C", "<b>u</b> in K/s"]


def test_curves_are_those_of_predict(heating: lk.LODEGP) -> None:
    page = make_report(heating, span=(-6, 7))
    means, bands, points = (traces(page, name) for name in ("mean", "95 % band", "measurements"))
    times = np.array(means[0]["x"])
    assert (times[0], times[-1]) == (-6, 7)
    mean, std = heating.predict(times, return_std=True)
    _, values = measure(25, 0.02)
    for i in range(3):
        # Ten digits are kept, so the error is half of this at most; near zero it is that of the computation.
        np.testing.assert_allclose(means[i]["y"], mean[:, i], rtol=1e-9, atol=1e-10)
        high, low = np.split(np.array(bands[i]["y"]), 2)
        np.testing.assert_allclose(high, mean[:, i] + 1.959963984540054 * std[:, i], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(low[::-1], mean[:, i] - 1.959963984540054 * std[:, i], rtol=1e-9, atol=1e-10)
        assert points[i]["y"] == values[:, i].tolist()
    shaded = [(shape["x0"], shape["x1"]) for shape in figures(page)[0]["layout"]["shapes"]]
    assert set(shaded) == {(-6.0, -5.0), (5.0, 7.0)}
    shown = [trace["name"] for trace in figures(page)[0]["data"] if trace["showlegend"]]
    assert shown == ["95 % band", "measurements", "mean"]


def test_the_same_model_gives_the_same_report_also_after_loading(heating: lk.LODEGP, tmp_path: Path) -> None:
    """Words and pictures to the letter; numbers but for the rounding of another computation."""
    heating.save(tmp_path / "heating.lodekit")
    models = heating, heating, lk.LODEGP.load(tmp_path / "heating.lodekit")
    # Without the script of the plots, which is always the same, and long.
    first, *others = (
        re.sub("<script>.*?</script>", "", make_report(gp, units=UNITS), flags=re.DOTALL) for gp in models
    )
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
    for page in others:
        assert number.sub("#", page) == number.sub("#", first)
        found, expected = ([float(text) for text in number.findall(each)] for each in (page, first))
        # Ten digits are kept, the last of which may be rounded either way.
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


def test_text_of_users_stays_text_and_nothing_is_fetched(heating: lk.LODEGP) -> None:
    units = dict.fromkeys(UNITS, HOSTILE)
    page = make_report(
        heating, title=HOSTILE, units=units, source=HOSTILE, command=HOSTILE, notes=[HOSTILE], truth={"a": 3}
    )
    assert_offline(page)
    reader = Reader(page)
    assert reader.count("a") == len(re.findall(r'<a href="#section-\d+">', page))
    assert reader.count("script") == 5
    for figure in figures(page):
        labels = [figure["layout"]["xaxis"]["title"]["text"], *(a["text"] for a in figure["layout"]["annotations"])]
        labels += [trace.get("hovertemplate", "") for trace in figure["data"]]
        for label in labels:
            plain = re.sub(r"</?b>|<br>|<extra></extra>|%\{(x|y|customdata):[^}]*\}", "", label)
            assert "<" not in plain
            assert "%{" not in plain


def test_unmeasured_channels_and_parameters_that_nothing_tells() -> None:
    t = np.linspace(0, 4, 30)
    system = lk.System("x' = -k*x + g*q + c", parameters={n: lk.Parameter(positive=True) for n in "kgc"})
    noise = 0.01 * np.random.default_rng(0).standard_normal(30)
    gp = lk.LODEGP(system, random_state=0).fit(t, {"x": np.exp(-t) + noise})
    page = make_report(gp)
    assert gp.warnings_
    text = words(page)
    for name, estimate in gp.parameters_.items():
        if not estimate.identified:
            assert f"{name} is {estimate.note}: the search ended at" in text
    assert page.index('class="warning"') < page.index(">Results in words</h2>")
    assert " parameters identified; " in page
    unknown = [name for name, estimate in gp.parameters_.items() if not estimate.identified]
    assert f"Do not use the values of {join_list(unknown)}: begin with the first warning" in text
    titles = [annotation["text"] for annotation in figures(page)[0]["layout"]["annotations"]]
    assert "not measured" in titles[1]
    assert len(traces(page, "measurements")) == 1


def test_many_points_are_thinned_and_the_caption_says_so(long_page: str) -> None:
    assert [len(trace["x"]) for trace in traces(long_page, "measurements")] == [5000] * 3
    assert "shows 5000 evenly spaced points" in long_page
    assert len(long_page) < 7_000_000


def test_sums_show_averages_and_say_that_points_are_gone() -> None:
    t, values = measure(3000, 0.05)
    sums = lk.Statistics.of(-5, 5, lk.Observations().add(t, "f1", values[:, 0]).add(t, "u", values[:, 2]))
    gp = lk.LODEGP(lk.catalog.heating().system, random_state=0).fit(sums)
    page = make_report(gp, source="logs/*.parquet")
    assert len(traces(page, "averages")) == 2
    assert "Only sums over the measurements were kept, so there are no residuals" in page
    # Nobody looked at what the curves leave over.
    assert "no problems were found" not in page
    assert '.fit("logs/*.parquet")' in generate_python(gp, "logs/*.parquet")


def test_a_report_is_written_by_a_method(heating: lk.LODEGP, tmp_path: Path) -> None:
    heating.report(tmp_path / "report.html", title="Room", notes=["A remark"])
    written = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert written == lk.report.make_report(heating, title="Room", notes=["A remark"])
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ("a.html", {"titel": "Room"}, "did you mean 'title'"),
        (tmp_path / "absent" / "a.html", {}, "cannot write"),
        (3, {}, "cannot write 3: expected str"),
    ]
    for path, options, message in wrong:
        with pytest.raises(lk.LodekitError, match=message):
            heating.report(path, **options)
    with pytest.raises(lk.errors.NotFittedError):
        lk.LODEGP(heating.system).report(tmp_path / "b.html")


def test_the_verdict_is_never_empty() -> None:
    """A record may be too short for tests of its residuals."""
    t = np.arange(30.0)
    x = np.exp(-0.2 * t) + 0.01 * np.random.default_rng(0).standard_normal(30)
    system = lk.System("x' = -a*x", parameters={"a": lk.Parameter(positive=True)})
    gp = lk.LODEGP(system, random_state=0).fit([(t, x), (t[:6], x[:6])])
    assert gp.warnings_ == []
    assert "The search converged; there are too few measurements to test all residuals." in make_report(gp)


def test_free_functions_are_explained_by_the_channels_that_they_drive(heating: lk.LODEGP) -> None:
    note = "ree function 1: an unknown function of time that drives f1, f2 and u"
    assert f"Note: f{note}" in heating.summary()
    assert f"F{note}" in str(make_report(heating))


def test_white_residuals_are_called_white(heating: lk.LODEGP, long_page: str) -> None:
    for page in (make_report(heating), long_page):
        assert "The residuals are consistent with independent noise." in page
        assert "model error" not in page
    # Thirty thousand residuals: their root mean square is known to a percent, and neighbours have nothing in common.
    row = re.search(r"<td>f1</td><td>30000</td><td>([\d.]+)</td><td>([-\d.]+)</td>", long_page)
    assert row is not None
    assert abs(float(row[1]) - 1) < 0.03
    assert abs(float(row[2])) < 0.03


def test_noise_with_memory_is_noticed() -> None:
    t, values = measure(300, 0.0)
    rng, error = np.random.default_rng(0), np.zeros((300, 3))
    for i in range(1, 300):
        error[i] = 0.9 * error[i - 1] + 0.02 * rng.standard_normal(3)
    page = make_report(lk.LODEGP(lk.catalog.heating().system, random_state=0, restarts=1).fit(t, values + error))
    # The section of the residuals refers to the verdict, which has the whole text.
    assert page.count("Innovations of f1 are correlated") == 1
    assert "differ from independent noise: see the verdict" in page
    assert "Innovations of f1 are correlated (lag 1: 0." in page
    assert "parameter intervals are widened to allow for this" in page


def test_channels_that_differ_in_noise_are_noticed() -> None:
    t, values = measure(100, 0.02)
    values[:, 2] += 0.3 * np.random.default_rng(1).standard_normal(100)
    page = make_report(lk.LODEGP(lk.catalog.heating().system, noise="shared", random_state=0).fit(t, values))
    assert "Residuals are larger than the shared noise in u" in words(page)


def test_truth_is_shown_where_it_is_known(heating: lk.LODEGP) -> None:
    example = lk.catalog.heating()

    def f2(times: Any) -> Any:
        return example.solution_at(times)[:, 1]

    page = make_report(heating, truth={**{k: float(v) for k, v in example.values.items()}, "f2": f2})
    (true,) = traces(page, "truth")
    np.testing.assert_allclose(true["y"], f2(np.array(true["x"])), rtol=1e-9)
    assert "truth" in words(page)


def test_modes_are_described_at_the_estimate() -> None:
    t = np.linspace(0, 10, 60)
    system = lk.System("x'' + c*x' + k*x = 0", parameters={n: lk.Parameter(positive=True) for n in "ck"})
    noise = 0.01 * np.random.default_rng(0).standard_normal(60)
    gp = lk.LODEGP(system, random_state=0).fit(t, np.exp(-0.2 * t) * np.cos(2 * t) + noise)
    assert "At the estimates: damped oscillation (angular frequency 2" in make_report(gp)


def test_long_characteristic_equations_are_folded() -> None:
    t, names = np.linspace(0, 10, 60), ("m1", "m2", "k1", "k2", "c1", "c2")
    text = "m1*x1'' = -k1*x1 - c1*x1' - k2*(x1 - x2) - c2*(x1' - x2'); m2*x2'' = k2*(x1 - x2) + c2*(x1' - x2')"
    system = lk.System(text, parameters={name: lk.Parameter(positive=True, fixed=1.0) for name in names})
    page = make_report(lk.LODEGP(system, random_state=0, restarts=1).fit(t, {"x2": np.cos(t) + 0.01 * np.sin(50 * t)}))
    (folded,) = re.findall(r"<summary>Characteristic equation of the modes</summary>(.*?)</details>", page)
    assert "m1" in folded
    assert page.count(folded) == 1


def test_curves_without_uncertainty_have_no_band() -> None:
    times = np.arange(5.0)
    for std, count in ((0.0 * times, 0), (0.1 + times, 1)):
        names = [trace["name"] for trace in curve_panel("x", (times, times, std), (times, times)).traces]
        assert names.count("95 % band") == count
    assert curve_panel("x", (times, times)).traces[-1]["line"]["width"] < 2


@pytest.mark.parametrize("count", [100, 566, 1500])
def test_measurements_are_larger_than_the_line(count: int) -> None:
    marker = points_trace("measurements", np.arange(1.0 * count), np.zeros(count))["marker"]
    assert marker["size"] >= 5
    assert marker["opacity"] >= 0.7


def test_fast_curves_get_more_points() -> None:
    t = np.linspace(0, 200, 400)
    gp = lk.LODEGP(lk.System("x'' + 9*x = 0"), random_state=0).fit(t, np.cos(3 * t) + 0.01 * np.sin(50 * t))
    assert len(traces(make_report(gp), "mean")[0]["x"]) > 2000


def test_code_in_the_report_makes_the_same_system(heating: lk.LODEGP) -> None:
    code = generate_python(heating, "a table")
    scope: dict[str, Any] = {}
    exec(code.split("# t:")[0], scope)  # noqa: S102
    assert scope["system"] == heating.system
    assert "lk.LODEGP(system, random_state=0).fit(t, Y)" in code


def test_terms_are_explained_where_they_are_used(heating: lk.LODEGP) -> None:
    page = (Path(__file__).parents[1] / "docs" / "glossary.md").read_text(encoding="utf-8")
    for term, meaning in read_glossary():
        assert f"| {term} | {meaning} |" in page
    for term in ("log evidence", "lengthscale", "free function", "mode", "innovation", "95 % band"):
        assert term in dict(read_glossary())
    for shown in (make_report(heating), heating.summary()._repr_html_()):
        assert "<summary>What the terms mean</summary>" in str(shown)


@pytest.mark.parametrize("span", [(1, 0), (0, float("inf")), "ab", (1, 2, 3)])
def test_bad_spans_are_refused(heating: lk.LODEGP, span: Any) -> None:
    with pytest.raises(lk.LodekitError, match="expected span="):
        make_report(heating, span=span)


def test_title_and_units_are_those_of_the_labels_unless_others_are_given(heating: lk.LODEGP) -> None:
    labelled = lk.LODEGP.from_fit(heating.fit_).label(title="Warm", units=UNITS)
    assert make_report(labelled) == make_report(heating, title="Warm", units=UNITS)
    assert make_report(labelled, title="Hot", units={}) == make_report(heating, title="Hot")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": ["s"]}, "expected units as a dict"),
        ({"truth": [3.0]}, "expected truth as a dict"),
        ({"truth": {"a": "three"}}, "expected truth as a dict"),
        ({"truth": {"f1": lambda times: times[:3]}}, "expected the truth of f1 as a function"),
    ],
)
def test_nonsense_is_answered_in_words(heating: lk.LODEGP, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(lk.LodekitError, match=message):
        make_report(heating, **arguments)


def test_models_without_data_are_refused() -> None:
    with pytest.raises(lk.LodekitError, match="not been fitted"):
        make_report(lk.LODEGP(lk.catalog.heating().system))


def plain(node: ET.Element) -> str:
    """Return MathML as a line of text."""
    parts = [plain(child) for child in node]
    if node.tag == "mfrac":
        return f"({parts[0]})/({parts[1]})"
    if node.tag == "msup":
        return f"{parts[0]}^[{parts[1]}]"
    if node.tag == "msub":
        return f"{parts[0]}_{parts[1]}"
    if node.tag == "msqrt":
        return f"√({''.join(parts)})"
    return " " if node.tag == "mspace" else (node.text or "") + "".join(parts)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x' = -a*(x - y)", "x′=−a (x−y)"),
        ("x'' + 9.81/l1*x - u/l1 = 0", "x″+(9.81)/(l_1) x−(u)/(l_1)=0"),
        ("k*x/m - -y + 2*3*x'", "(k x)/(m)+y+2·3 x′=0"),
        ("D(x, 4) + diff(x, t, 2) + diff(x, t, t) + x^(3) = 0", "x^[(4)]+x″+x″+x‴=0"),
        ("(x - y)' = -(x + y)/(2*k)", "(x−y)′=−(x+y)/(2 k)"),
        ("tau*TH_max' = k^2*x/a/m", "τ TH_max′=(k^[2] x)/(a m)"),
        ("x' = 1e-9*exp(-2*t)*sin(3*t) + sqrt(2)*pi*t", "x′=10^[−9] e^[−2 t] sin\u2061(3 t)+√(2) π t"),
        ("x' = y - (u - x) - 2*(-y)", "x′=y−(u−x)−2 (−y)"),
        ("x' = -(-y)", "x′=y"),
        (f"x' = 0.{'1' * 40}*y + 1{'2' * 40}*u", f"x′=0.{'1' * 40} y+1.{'2' * 40}·10^[40] u"),
    ],
)
def test_equations_are_typeset_as_they_were_written(text: str, shown: str) -> None:
    used = [name for name in ("a", "k", "m", "l1", "tau") if re.search(rf"\b{name}\b", text)]
    (line,) = equations_to_mathml(lk.System(text, parameters=used))
    assert plain(ET.fromstring(line)) == shown  # noqa: S314


def test_every_system_of_the_catalog_can_be_typeset() -> None:
    for example in lk.catalog.examples():
        lines = equations_to_mathml(example.system)
        assert len(lines) == len(example.system.equations)
        trees = [ET.fromstring(line) for line in lines]  # noqa: S314
        classes = [node.get("class", "") for tree in trees for node in tree.iter("mi")]
        roles = {text.split()[0] for text in classes if text}
        assert roles == ({"channel", "parameter"} if example.system.parameters else {"channel"})


def test_names_have_subscripts_and_greek_letters() -> None:
    assert name_to_mathml("TH1") == '<msub><mi class="word">TH</mi><mn>1</mn></msub>'
    assert name_to_mathml("omega_max") == "<msub><mi>ω</mi><mtext>max</mtext></msub>"
    assert name_to_mathml("R2a") == "<msub><mi>R</mi><mtext>2a</mtext></msub>"
    assert name_to_mathml("x₂") == "<msub><mi>x</mi><mn>2</mn></msub>"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_draws_it_without_complaint(heating: lk.LODEGP, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(make_report(heating, units=dict.fromkeys(UNITS, HOSTILE)), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=3000"]
    command = ["chromium", *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0
    assert "CONSOLE" not in done.stderr
    drawn = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    # Three panels of curves, three of residuals and three of their correlations.
    assert len(re.findall(r'<g class="subplot ', drawn)) == 9
    assert not re.search(r"<a [^>]*evil", drawn)


def test_known_inputs_open_states_and_times_are_told_in_words() -> None:
    """What stands for infinity is no number, times have units, and an input has another colour than a mean."""
    t, u = np.arange(0.0, 20.0), np.repeat([0.0, 1.0, 0.0, 2.0], 5)
    system = lk.System("tau*y' + y = u", parameters={"tau": lk.Parameter(fixed=2.0)})
    y = 0.5 + u + 0.1 * np.cos(7 * t)
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0, restarts=1).fit(t, {"y": y, "u": u})
    page = make_report(gp, units={"t": "s"})
    text = words(page)
    assert re.search(r"initial state\s+estimated", text)
    assert "amplitude of mode" not in text
    assert "time constant 2 s" in text
    every = [trace for figure in figures(page) for trace in figure["data"]]
    colours = {trace["name"]: trace["line"]["color"] for trace in every if "color" in trace.get("line", ())}
    assert colours["known input"] != colours["mean"]
    drawn = {line.get_label(): line.get_color() for ax in gp.plot().axes for line in ax.get_lines()}
    assert drawn["known input"] != drawn["mean"]

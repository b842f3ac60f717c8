"""The pictures of the pages, and the records that README and the first pages fit: ``python docs/pictures.py``.

Each function makes one of them, from a fit or from draws, in the colours of lodekit's own figures. What is committed in
`docs/pictures` is what this script wrote; a test runs it again.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lodekit as lk
from lodekit.plotting import OKABE_ITO

BLUE, ORANGE, GREEN, GREY = OKABE_ITO["blue"], OKABE_ITO["vermillion"], OKABE_ITO["green"], "0.45"
ROOMS = """
    T1' = a*(T2 - T1) - b*(T1 - Ta) + c*u   # a room with a heater u, not measured
    T2' = a*(T1 - T2) - b*(T2 - Ta)         # the room next door
"""
TRUE = {"a": 0.05, "b": 0.02, "c": 0.5, "Ta": 8.0}


def positive(*names: str) -> dict[str, lk.Parameter]:
    """Return parameters above zero, by name."""
    return {name: lk.Parameter(positive=True) for name in names}


def simulate_rooms(u: Any, start: tuple[float, float], step: float) -> Any:
    """Return both temperatures under a held heater, exactly: the exponential of a matrix for each step."""
    from scipy.linalg import expm

    a, b, c, outside = TRUE.values()
    rates = np.zeros((4, 4))
    rates[0, :2], rates[0, 2:] = (-a - b, a), (c, b * outside)
    rates[1, :2], rates[1, 3] = (a, -a - b), b * outside
    advance, state, found = expm(step * rates), np.array([*start, 0.0, 1.0]), []
    for value in u:
        state[2] = value
        found.append(state[:2].copy())
        state = advance @ state
    return np.array(found)


def write_rooms(folder: Path) -> Any:
    """Write two records of the rooms, 41 rows each; return times, heater, temperatures and data of the first."""
    t = 3.0 * np.arange(41)
    found = []
    days = (("two-rooms", (1, 3, 0, 2), (20.0, 17.0)), ("two-rooms-tuesday", (0, 2, 3, 1), (16.0, 15.0)))
    for seed, (name, levels, start) in enumerate(days, 1):
        u = np.append(np.repeat(levels, 10), levels[-1]).astype(float)
        truth = simulate_rooms(u, start, 3.0)
        data = truth[:, 1] + 0.2 * np.random.default_rng(seed).standard_normal(41)
        lines = [f"{time:g},{heat:g},{value:.2f}" for time, heat, value in zip(t, u, data, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["t [min],u [kW],T2 [degC]", *lines]) + "\n")
        found.append((t, u, truth, data))
    return found[0]


def make_axes(rows: int, columns: int, width: float, height: float, **options: Any) -> Any:
    """Return a figure and its axes, without upper and right spines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    return figure, axes


def band(ax: Any, t: Any, mean: Any, std: Any, colour: str, label: str = "") -> None:
    """Draw a mean with its 95 % band."""
    ax.fill_between(t, mean - 1.96 * std, mean + 1.96 * std, color=colour, alpha=0.2, linewidth=0)
    ax.plot(t, mean, color=colour, linewidth=1.5, label=label)


def save_small(figure: Any, path: Path) -> None:
    """Write a figure with 64 colours, which is enough for lines and takes a third of the bytes."""
    from PIL import Image

    figure.savefig(path, dpi=150)
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(64)
    small.save(path, optimize=True)


def draw_rooms(folder: Path) -> Any:
    """The first picture: a measured room, a hidden one, and what drives both."""
    t, u, truth, data = write_rooms(folder)
    system = lk.System(ROOMS, parameters=positive("a", "b", "c", "Ta"))
    gp = lk.LODEGP(system, inputs={"u": "hold"}, random_state=0).fit(str(folder / "two-rooms.csv"))
    fine = np.linspace(0, 150, 301)
    figure, axes = make_axes(3, 1, 6.5, 4.6, sharex=True, gridspec_kw={"height_ratios": [3, 3, 1.2]})
    for ax, name, column in ((axes[0, 0], "T2", 1), (axes[1, 0], "T1", 0)):
        mean, std = gp.predict(fine, name, return_std=True)
        band(ax, fine, mean, std, BLUE, "mean and 95 % band")
        exact = np.append(truth[:, column], simulate_rooms(np.full(11, 2.0), tuple(truth[-1]), 3.0)[1:, column])
        ax.plot(3.0 * np.arange(51), exact, color="k", linewidth=0.9, linestyle=(0, (4, 3)), label="truth")
        ax.axvspan(120, 150, color="0.94", zorder=-1)
        ax.set_ylabel(f"{name} (°C)", fontsize=9)
    axes[0, 0].plot(t, data, ".", color=ORANGE, markersize=5, label="measured")
    axes[0, 0].set_title("the measured room", fontsize=9, loc="left")
    axes[1, 0].set_title("the heated room (not measured)", fontsize=9, loc="left")
    axes[0, 0].legend(fontsize=8, frameon=False, loc="lower right")
    axes[2, 0].step([*t, 150], [*u, 2.0], where="post", color=GREEN)
    axes[2, 0].axvspan(120, 150, color="0.94", zorder=-1)
    axes[2, 0].set_ylabel("u (kW)", fontsize=9)
    axes[2, 0].set_xlabel("t (min); grey: beyond the data", fontsize=9)
    return figure


def draw_strict(folder: Path) -> Any:
    """Smooth curves beside solutions: the same data, without and with the equation."""
    t = np.linspace(0, 10, 14)
    x, u = np.sin(t), 0.5 * np.cos(t) + 2.0 * np.sin(t)
    noise = np.random.default_rng(3).standard_normal((2, 14))
    data = {"x": x + 0.1 * noise[0], "u": u + 0.6 * noise[1]}
    system = lk.System("x'' + 0.5*x' + 3*x = u")
    strict = lk.LODEGP(system, random_state=0).fit(t, data)
    # Of x alone, the system x' = v is any smooth function: an ordinary Gaussian process.
    plain = {
        name: lk.LODEGP(lk.System("x' = v"), random_state=0).fit(t, {"x": values}) for name, values in data.items()
    }
    fine = np.linspace(0, 10, 201)
    figure, axes = make_axes(3, 2, 7.2, 4.8, sharex=True, sharey="row")
    for row, (name, exact) in enumerate({"x": np.sin(fine), "u": 0.5 * np.cos(fine) + 2 * np.sin(fine)}.items()):
        for column, (mean, std) in enumerate(
            (plain[name].predict(fine, "x", return_std=True), strict.predict(fine, name, return_std=True))
        ):
            ax = axes[row, column]
            band(ax, fine, mean, std, (GREY, BLUE)[column])
            ax.plot(fine, exact, "k", linewidth=0.9, linestyle=(0, (4, 3)))
            ax.plot(t, data[name], ".", color=ORANGE)
        axes[row, 0].set_ylabel(name, fontsize=9)
    smooth = [*(plain["x"].predict(fine, text) for text in ("x''", "x'", "x")), plain["u"].predict(fine, "x")]
    solution = [strict.predict(fine, text) for text in ("x''", "x'", "x", "u")]
    for column, (second, first, value, force) in enumerate((smooth, solution)):
        left = second + 0.5 * first + 3 * value - force
        axes[2, column].plot(fine, left, color=(GREY, BLUE)[column])
        axes[2, column].set_xlabel("t", fontsize=9)
    axes[2, 0].set_ylabel("x'' + 0.5 x' + 3 x − u", fontsize=9)
    axes[0, 0].set_title("two smooth curves", fontsize=10)
    axes[0, 1].set_title("one solution", fontsize=10)
    return figure


def draw_free(folder: Path) -> Any:
    """Any curve z makes a solution: draws of z, and the channels that follow."""
    from lodekit.results.simulation import simulate

    system = lk.catalog.heating().system
    fine = np.linspace(0, 10, 201)
    values = {"a": 3.0, "b": 1.0}
    # With b = 1 the curve z is f2 itself.
    names = ["f2", "f1", "f2", "u"]
    drawn = simulate(system, fine, values, observable=names, lengthscale=2.0, size=3, random_state=4)
    figure, axes = make_axes(1, 4, 9.0, 2.2, sharex=True)
    titles = ("choose any curve z", "f1 = z' + b z", "f2 = b z", "u = z'' + (a + b) z'")
    for column, (ax, title) in enumerate(zip(axes[0], titles, strict=True)):
        for one, colour in zip(drawn, (BLUE, ORANGE, GREEN), strict=True):
            ax.plot(fine, one[:, column], color=colour, linewidth=1.4)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("t", fontsize=9)
    axes[0, 0].set_facecolor("#f4f7fb")
    return figure


def draw_steering(folder: Path) -> Any:
    """Two pendulums on one cart: from a push to rest, or never."""
    figure, axes = make_axes(2, 2, 7.2, 3.8, sharex=True, sharey="row")
    fine = np.linspace(0, 10, 301)
    for column, (first, second) in enumerate(((1, 2), (2, 2))):
        pendulums = lk.catalog.bipendulum(parametric=True).system.substitute({"l1": first, "l2": second})
        rest = ["f1", "f1'", "f2", "f2'"] if first != second else ["f1 + f2", "f1' + f2'"]
        data = lk.Observations().add(0.0, "f1", 0.3, std=1e-4).add(0.0, "f2", -0.1, std=1e-4)
        data = data.add(0.0, "f1'", 0.0, std=1e-4).add(0.0, "f2'", 0.0, std=1e-4)
        for time in np.linspace(5, 10, 8):
            for name in rest:
                data = data.add(time, name, 0.0, std=1e-4)
        gp = lk.LODEGP(pendulums, random_state=0).fit(data)
        axes[0, column].plot(fine, gp.predict(fine, "f1"), color=BLUE, label="f1")
        axes[0, column].plot(fine, gp.predict(fine, "f2"), color=ORANGE, label="f2", linestyle="--")
        axes[1, column].plot(fine, gp.predict(fine, "u"), color=GREEN)
        axes[1, column].set_xlabel("t", fontsize=9)
    axes[0, 0].set_title("lengths 1 and 2: controllable", fontsize=10)
    axes[0, 1].set_title("both of length 2: f1 − f2 swings on", fontsize=10)
    axes[0, 0].set_ylabel("angles", fontsize=9)
    axes[1, 0].set_ylabel("push u", fontsize=9)
    axes[0, 0].legend(fontsize=8, frameon=False)
    return figure


def draw_priors(folder: Path) -> Any:
    """Solutions before any measurement, after three, and after twelve."""
    system = lk.System("x'' + 0.4*x' + 2*x = u")
    t = np.linspace(0.5, 9.5, 12)
    noise = 0.1 * np.random.default_rng(2).standard_normal(12)
    truth = np.sin(0.9 * t) * np.exp(-0.1 * t)
    fine = np.linspace(0, 12, 241)
    gp = lk.LODEGP(system, random_state=0).fit(t, {"x": truth + noise}, noise_std=0.1)
    # Records of their own with the same hyperparameters: a value without information, and three of the twelve.
    gp.update(lk.Observations().add([0.0], "x", [0.0], std=1e3), record="none", relearn=False)
    gp.update(lk.Observations().add(t[1:10:4], "x", (truth + noise)[1:10:4], std=0.1), record="three", relearn=False)
    figure, axes = make_axes(2, 3, 8.4, 3.6, sharex=True, sharey="row")
    columns = (
        ("none", slice(0), "before any measurement"),
        ("three", slice(1, 10, 4), "after three"),
        ("0", slice(None), "after twelve"),
    )
    names = ["x", "u"]
    for column, (record, chosen, title) in enumerate(columns):
        # Both channels at once: curves of one colour are one solution.
        curves = gp.sample(fine, size=3, observable=names, random_state=5, parameters="fixed", record=record)
        for row, name in enumerate(names):
            mean, std = gp.predict(fine, name, return_std=True, parameters="fixed", record=record)
            ax = axes[row, column]
            band(ax, fine, mean, std, BLUE)
            for curve, colour in zip(curves, (ORANGE, GREEN, GREY), strict=True):
                ax.plot(fine, curve[:, row], color=colour, linewidth=0.9)
        axes[0, column].plot(t[chosen], (truth + noise)[chosen], "k.")
        axes[0, column].set_title(title, fontsize=10)
        axes[1, column].set_xlabel("t", fontsize=9)
    axes[0, 0].set_ylabel("x, measured", fontsize=9)
    axes[1, 0].set_ylabel("u, never measured", fontsize=9)
    return figure


def draw_roles(folder: Path) -> Any:
    """One plant, three things that one may know of what drives it."""
    t = 0.25 * np.arange(49)
    u = np.repeat([1.0, 0.0, 2.0, 0.5], 12)
    u = np.append(u, 0.5)
    x, decay = np.zeros(49), np.exp(-0.5 * 0.25)
    for k in range(48):
        x[k + 1] = decay * x[k] + (1 - decay) * 2 * u[k]
    x += 0.05 * np.random.default_rng(0).standard_normal(49)
    fine = np.linspace(0, 15, 301)
    seen = t <= 10
    known = lk.LODEGP(lk.System("2*x' + x = 2*u"), inputs={"u": "hold"}, random_state=0)
    free = lk.LODEGP(lk.System("2*x' + x = 2*u"), random_state=0)
    moved = lk.LODEGP(lk.System("2*x' + x = 2*w"), disturbances={"w": "matern-1/2"}, random_state=0)
    fits = (
        (known.fit(lk.Observations().add(t[seen], "x", x[seen]).add(t, "u", u)), "u", "known input"),
        (free.fit(t[seen], {"x": x[seen]}), "u", "free function: smooth, unknown"),
        (moved.fit(t[seen], {"x": x[seen]}), "w", "disturbance: rough, unknown"),
    )
    figure, axes = make_axes(2, 3, 8.4, 3.6, sharex=True, sharey="row")
    for column, (gp, name, title) in enumerate(fits):
        if column == 0:
            axes[0, column].step(t, u, where="post", color=GREEN)
        else:
            band(axes[0, column], fine, *gp.predict(fine, name, return_std=True), GREEN)
            axes[0, column].step(t, u, where="post", color="k", linewidth=0.9, linestyle=(0, (4, 3)))
        band(axes[1, column], fine, *gp.predict(fine, "x", return_std=True), BLUE)
        axes[1, column].plot(t[seen], x[seen], ".", color=ORANGE, markersize=3)
        axes[0, column].set_title(title, fontsize=10)
        axes[1, column].set_xlabel("t", fontsize=9)
        for ax in axes[:, column]:
            ax.axvspan(10, 15, color="0.94", zorder=-1)
    axes[0, 0].set_ylim(-3, 4)
    axes[1, 0].set_ylim(-3, 6)
    axes[0, 0].set_ylabel("what drives it", fontsize=9)
    axes[1, 0].set_ylabel("x, measured until 10", fontsize=9)
    return figure


def draw_wrong(folder: Path) -> Any:
    """A pendulum that swings far is not linear, as the residuals show."""
    from scipy.integrate import solve_ivp

    t = np.linspace(0, 12, 61)
    noise = 0.02 * np.random.default_rng(0).standard_normal(61)
    figure, axes = make_axes(2, 2, 7.2, 3.6, sharex=True, sharey="row")
    for column, size in enumerate((0.3, 2.0)):
        swing = solve_ivp(lambda _, y: [y[1], -0.2 * y[1] - 4 * np.sin(y[0])], (0, 12), [size, 0], t_eval=t, rtol=1e-8)
        data = swing.y[0] + noise
        gp = lk.LODEGP(lk.System("x'' + c*x' + k*x = 0", parameters=positive("c", "k")), random_state=0).fit(t, data)
        fine = np.linspace(0, 12, 301)
        band(axes[0, column], fine, *gp.predict(fine, "x", return_std=True), BLUE)
        axes[0, column].plot(t, data, ".", color=ORANGE, markersize=4)
        axes[1, column].plot(t, data - gp.predict(t, "x"), ".-", color=GREY, markersize=4, linewidth=0.7)
        axes[0, column].set_title(f"let go at {size:g} rad", fontsize=10)
        axes[1, column].set_xlabel("t", fontsize=9)
    axes[0, 0].set_ylabel("angle", fontsize=9)
    axes[1, 0].set_ylabel("measured − fitted", fontsize=9)
    return figure


def draw_page(name: str, folder: Path) -> Any:
    """The figure of a page of `docs/how-to`: the value of ``figure`` after its examples were executed."""
    # Of pytest, which runs the same examples.
    doctest.register_optionflag("NUMBER")
    names: dict[str, Any] = {}
    text = (Path(__file__).parent / "how-to" / f"{name}.md").read_text(encoding="utf-8")
    block = next(part for part in text.split("```") if ">>> figure" in part)
    examples = doctest.DocTestParser().get_examples(text[: text.index(block) + len(block)])
    with contextlib.chdir(Path(__file__).parents[1]), contextlib.redirect_stdout(io.StringIO()):
        for example in examples:
            exec(example.source, names)  # noqa: S102
    return names["figure"]


#: The pages of `docs/how-to` that show a figure.
PAGES = sorted(
    path.stem
    for path in (Path(__file__).parent / "how-to").glob("*.md")
    if f"../pictures/{path.stem}.png" in path.read_text(encoding="utf-8")
)
PICTURES: dict[str, Callable[[Path], Any]] = {
    "rooms": draw_rooms,
    "strict": draw_strict,
    "free": draw_free,
    "steering": draw_steering,
    "priors": draw_priors,
    "roles": draw_roles,
    "wrong": draw_wrong,
    **{name: partial(draw_page, name) for name in PAGES},
}


def main(folder: Path) -> None:
    """Write all pictures, and the records, below a folder."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        save_small(draw(folder), folder / "pictures" / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

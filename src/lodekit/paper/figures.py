"""The figures of the paper, drawn from models trained here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lodekit.paper.experiments import (
    PaperExperiment,
    experiments,
    find_experiment,
    load_published_results,
    load_report_texts,
)
from lodekit.paper.methods import train
from lodekit.paper.results import SYSTEM_TITLES, RunResults, ode_error_floor
from lodekit.plotting import OKABE_ITO, add_legend, draw_channel, frame, label_bottom, make_panels, to_png

#: The name of the file without its extension, the caption, and the PNG image.
PaperFigure = tuple[str, str, bytes]


def draw_figures(results: RunResults) -> Iterator[PaperFigure]:
    """Yield the figures of the systems that were run."""
    if not results.systems:
        return
    yield _draw_solutions()
    for system in results.systems:
        yield _draw_posterior(find_experiment(system))
    if "bipendulum" in results.systems:
        yield _draw_ode_errors(results)
        yield _draw_extrapolation(find_experiment("bipendulum"), results.methods("bipendulum"))


def _draw_solutions() -> PaperFigure:
    figure, axes = make_panels(3, height_each=2.3, columns=3, share=False)
    colours = [OKABE_ITO[name] for name in ("blue", "vermillion", "green", "orange", "purple")]
    dashes = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1))]
    for axis, (name, experiment) in zip(axes, experiments().items(), strict=True):
        times = np.linspace(*experiment.evaluation_interval, 400)
        for number, values in enumerate(experiment.exact_solution(times).T):
            label = experiment.system.channels[number]
            axis.plot(times, values, color=colours[number], linestyle=dashes[number], linewidth=1.2, label=label)
        axis.set_title(SYSTEM_TITLES[name], fontsize=9)
        axis.set_xlabel("t")
        axis.legend(fontsize=7, frameon=False, ncols=2, handlelength=2.2, loc="best")
    return "solutions", "The three solutions that the data are made from.", to_png(figure)


def _draw_posterior(experiment: PaperExperiment) -> PaperFigure:
    """Draw noisy data, noise-free data, and samples: one row each, one column for each channel."""
    channels = experiment.system.channels
    width = 6.5 if len(channels) <= 3 else 9.5
    figure, axes = make_panels(3 * len(channels), width=width, height_each=1.55, columns=len(channels))
    times = np.linspace(*experiment.evaluation_interval, 400)
    truth = experiment.exact_solution(times)
    models = [train(experiment, "lodekit", 0, noisy=noisy).gp for noisy in (True, False)]
    for row, noisy in enumerate((True, False, True)):
        gp = models[0 if noisy else 1]
        if gp is None:
            raise AssertionError("lodekit's way gives a model of its own")
        mean, std = gp.predict(times, return_std=True)
        samples = gp.sample(times, size=1, random_state=0) if row == 2 else None
        data = experiment.data(0, noisy=noisy)
        for column, name in enumerate(channels):
            axis = axes[row * len(channels) + column]
            draw_channel(
                axis,
                times,
                mean[:, column],
                std[:, column],
                data=(experiment.times, data[:, column]),
                truth=truth[:, column],
                samples=None if samples is None else samples[:, :, column],
                window=experiment.train_interval,
            )
            drawn = samples[0, :, column] if samples is not None else mean[:, column]
            frame(axis, [truth[:, column], mean[:, column], data[:, column], drawn], 0.35)
            if row == 0:
                axis.set_title(name, fontsize=9)
        axes[row * len(channels)].set_ylabel(("noisy data", "noise-free data", "a sample, noisy data")[row], fontsize=8)
    label_bottom(axes[-len(channels) :], "t")
    add_legend(figure, axes, outside=True)
    caption = load_report_texts()["captions"]["posterior"].format(title=SYSTEM_TITLES[experiment.name])
    return f"posterior-{experiment.name.replace('_', '-')}", caption, to_png(figure)


#: The names of minimum, quartiles and maximum in matplotlib.
_BOX_KEYS = ("whislo", "q1", "med", "q3", "whishi")


def _draw_ode_errors(results: RunResults) -> PaperFigure:
    """Draw ODE errors of the bipendulum by equation and method, beside the published boxes."""
    figure, (axis,) = make_panels(1, height_each=3.6)
    labels, rows = [], []
    boxes = load_published_results()["bipendulum_ode_boxplot"]
    titles = {"lodekit": "lodekit", "channels": "lodekit, channels", "paper": "paper's way", "baseline": "GP"}
    for method, title in titles.items():
        found = np.array([row["ode_error"] for row in results.select("main", "bipendulum", method)])
        if not len(found):
            continue
        for equation in (1, 2):
            labels.append(f"{title}, ODE {equation}")
            quantiles = np.quantile(found[:, equation - 1], [0, 0.25, 0.5, 0.75, 1]).tolist()
            rows.append({**dict(zip(_BOX_KEYS, quantiles, strict=True)), "ours": True})
            if method in ("paper", "baseline"):
                theirs = boxes[f"{'lodegp' if method == 'paper' else 'gp'}_ode{equation}"]
                labels.append("published")
                published = [theirs[name] for name in ("low", "q1", "median", "q3", "high")]
                rows.append({**dict(zip(_BOX_KEYS, published, strict=True)), "ours": False})
    shown = axis.bxp(rows, orientation="horizontal", showfliers=False, patch_artist=True, widths=0.6)
    for patch, line, row in zip(shown["boxes"], shown["medians"], rows, strict=True):
        patch.set(facecolor=OKABE_ITO["sky"] if row["ours"] else "0.88", edgecolor="0.3", linewidth=0.8)
        line.set(color=OKABE_ITO["vermillion"], linewidth=1.4)
    axis.set_yticks(range(1, len(labels) + 1), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.axvline(ode_error_floor("bipendulum"), color=OKABE_ITO["green"], linestyle="--", linewidth=1.2)
    axis.annotate(
        "exact solution",
        (ode_error_floor("bipendulum"), 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, 2),
        textcoords="offset points",
        fontsize=7.5,
        color=OKABE_ITO["green"],
    )
    axis.set_xlabel("ODE error by forward differences")
    return "ode-errors", load_report_texts()["captions"]["ode_errors"], to_png(figure)


def _draw_extrapolation(experiment: PaperExperiment, methods: Sequence[str]) -> PaperFigure:
    """Draw the means beyond the data, one column for each method, with equal scales for comparison."""
    titles = {"lodekit": "LODE-GP", "channels": "LODE-GP, prior on channels", "baseline": "GP"}
    shown = [method for method in titles if method in methods]
    channels, count = experiment.system.channels, len(shown)
    figure, axes = make_panels(count * len(channels), width=7.5, height_each=1.55, columns=count)
    times = np.linspace(*experiment.evaluation_interval, 400)
    truth, data = experiment.exact_solution(times), experiment.data(0)
    models = [train(experiment, method, 0) for method in shown]
    means, stds = [trained.mean(times) for trained in models], [trained.std(times) for trained in models]
    for row, name in enumerate(channels):
        for column, method in enumerate(shown):
            axis = axes[count * row + column]
            draw_channel(
                axis,
                times,
                means[column][:, row],
                stds[column][:, row],
                data=(experiment.times, data[:, row]),
                truth=truth[:, row],
                window=experiment.train_interval,
            )
            frame(axis, [truth[:, row], data[:, row], *(curve[:, row] for curve in means)], 0.35)
            if row == 0:
                axis.set_title(titles[method], fontsize=9)
        axes[count * row].set_ylabel(name)
        for axis in axes[count * row : count * (row + 1)]:
            axis.set_ylim(axes[count * row].get_ylim())
    label_bottom(axes[-count:], "t")
    add_legend(figure, axes, outside=True)
    captions = load_report_texts()["captions"]
    caption = captions["extrapolation"].format(middle=captions["middle"] if "channels" in shown else "")
    return "extrapolation", caption, to_png(figure)

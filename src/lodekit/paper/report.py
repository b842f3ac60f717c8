"""The reproduction of the paper: its tables beside the published values, its figures, and a report of both.

The report is written as JSON, Markdown and one HTML page; differences from the published values are explained.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.paper.claims import (
    COLUMNS,
    MAX_CONVERGED_RMSE,
    METHOD_TITLES,
    MIN_DATA_SETS,
    PUBLISHED_MODELS,
    SYSTEM_TITLES,
    MedianStd,
    RunResults,
    check_claims,
    find_differences,
    format_number,
    ode_error_floor,
    power_of_ten_bound,
    published_median_std,
)
from lodekit.paper.experiments import (
    PaperExperiment,
    experiments,
    find_experiment,
    load_published_results,
    load_report_texts,
)
from lodekit.paper.methods import train
from lodekit.paper.model_comparison import TRUE_SYSTEM, noise_sensitivity
from lodekit.paper.runner import RunPlan, provenance
from lodekit.plotting import OKABE_ITO, add_legend, draw_channel, frame, label_bottom, make_panels, to_png
from lodekit.support.files import make_folder, write_atomically
from lodekit.support.html import HtmlPage

_DATA_TITLES = {"noisy": "noisy", "exact": "noise-free"}
_HYPERPARAMETER_NAMES = ("noise", "signal variance", "lengthscale")
#: System, method, kind of data ("noisy" or "exact") and hyperparameter.
_CellKey = tuple[str, str, str, str]


def hyperparameter_cells(results: RunResults) -> Iterator[tuple[_CellKey, int, MedianStd, MedianStd]]:
    """Yield the key, the number of runs, our and the published values of each cell of the paper's table.

    Cells of lodekit are for noisy data only.
    """
    for system in results.systems:
        for method in ("paper", "lodekit", "baseline"):
            # On noise-free data, rounding errors determine where lodekit's search ends, so its values are not compared.
            for noisy in (True, False) if method != "lodekit" else (True,):
                runs = results.select("main", system, method, noisy=noisy)
                figures = load_published_results()["hyperparameters"][system][PUBLISHED_MODELS[method]]
                for name in _HYPERPARAMETER_NAMES if runs else ():
                    values = np.array([row["hyperparameters"][name] for row in runs])
                    kind = "noisy" if noisy else "exact"
                    yield (system, method, kind, name), len(runs), MedianStd.of(values), MedianStd(*figures[kind][name])


def explain_hyperparameter_differences(results: RunResults) -> list[str]:
    """Return a line for each cell of a model of the paper outside the published spread, with the reason."""
    lines = []
    for key, count, ours, published in hyperparameter_cells(results):
        system, method, kind, name = key
        if method != "lodekit" and not ours.is_within(published):
            title = f"{SYSTEM_TITLES[system]}, {METHOD_TITLES[method]}, {_DATA_TITLES[kind]}, {name}"
            reason = _explain_cell(key, count, ours, published)
            lines.append(f"{title}: {format_number(ours.median)} here, {published} published. {reason}")
    return lines


def _explain_cell(key: _CellKey, count: int, ours: MedianStd, published: MedianStd) -> str:
    if count < MIN_DATA_SETS:
        return f"{count} runs give no median that could be compared."
    reasons: dict[str, str] = load_report_texts()["reasons"]
    if reason := reasons.get(" ".join(key)) or reasons.get(" ".join(key[:2])):
        return reason
    if key[2:] == ("exact", "noise"):
        return reasons["noise_bound"]
    if ours.low <= published.median <= ours.high:
        is_near = abs(ours.median - published.median) <= 2 * published.std
        end = ", and the two are less than two published deviations apart." if is_near else ". The rest is open."
        limits = f"{format_number(ours.low)} to {format_number(ours.high)}"
        return f"The published median is within the range here, {limits}{end}"
    return "Open: a difference that nothing here explains."


_LATENT_FORCE_TITLES = {
    "lfm": "latent force model",
    "marginalized_lodegp": "LODE-GP, inputs marginalised",
    "full_lodegp": "LODE-GP, all channels",
}


class ReportTable:
    """A table with its texts in report.toml.

    name: The name of the texts.
    rows: The cells.
    notes: Additional notes on a run.
    items: A list below the notes.
    numbers: Values for placeholders in the texts.
    """

    def __init__(
        self,
        name: str,
        rows: Sequence[Sequence[str]],
        notes: Sequence[str] = (),
        items: Sequence[str] = (),
        **numbers: object,
    ) -> None:
        texts = load_report_texts()["tables"][name]
        self.title, self.columns, self.rows, self.items = texts["title"], texts["columns"], rows, items
        self.description = texts["description"].format(**numbers)
        self.notes = [*(note.format(**numbers) for note in texts.get("notes", ())), *notes]
        #: The number of columns, from the left, that contain text.
        self.n_text_columns: int = texts.get("n_text_columns", 2)


def make_tables(results: RunResults) -> list[ReportTable]:
    """Return all tables for which there are results."""
    has_main = bool(results.systems)
    makers = {
        _main_table: has_main,
        _hyperparameter_table: has_main,
        _heating_table: bool(results.select("main", "heating")),
        _eigenvalue_table: has_main,
        _latent_force_table: bool(results.select("lfm")),
        _runtime_table: has_main,
        _construction_table: bool(results.select("construction")),
        _evidence_table: bool(results.select("evidence")),
    }
    return [make(results) for make, is_possible in makers.items() if is_possible]


def _main_table(results: RunResults) -> ReportTable:
    rows = []
    for system in results.systems:
        for method in results.methods(system):
            title = METHOD_TITLES[method]
            if method in ("paper", "baseline"):
                theirs = [str(published_median_std(system, method, column)) for column in COLUMNS]
                rows.append([SYSTEM_TITLES[system], f"{title.split(',')[0]}, published", *theirs, ""])
            row = [str(results.median_std(column, system, method)) for column in COLUMNS]
            measured = float(np.median(results.values("measured_error", system, method)))
            shown = f"{measured:.0e}" if measured < 1e-3 else format_number(measured, 2)
            rows.append([SYSTEM_TITLES[system], title, *row, shown])
        floor = format_number(ode_error_floor(system))
        rows.append([SYSTEM_TITLES[system], "the solution itself", "0", "0", "", floor, ""])
    count = max(len(results.select("main", system, "lodekit")) for system in results.systems)
    notes = [_extrapolation_note(results)] if "bipendulum" in results.systems else []
    return ReportTable("main", rows, notes, count=count)


def _extrapolation_note(results: RunResults) -> str:
    """Return the note on the bipendulum beyond the data."""
    texts = load_report_texts()["tables"]["main"]["extrapolation"]
    if not results.select("main", "bipendulum", "channels"):
        return f"{texts['always']} {texts['latent']}"
    ways = ("lodekit", "channels", "baseline")
    medians = {way: format_number(results.median_std("eval_rmse", "bipendulum", way).median) for way in ways}
    return f"{texts['always']} {texts['channels'].format(**medians)}"


def _hyperparameter_table(results: RunResults) -> ReportTable:
    rows = []
    for (system, method, kind, name), _, ours, published in hyperparameter_cells(results):
        ranges = [f"{format_number(each.low)} to {format_number(each.high)}" for each in (ours, published)]
        inside = "" if method == "lodekit" else "yes" if ours.is_within(published) else "no"
        row = [SYSTEM_TITLES[system], METHOD_TITLES[method], _DATA_TITLES[kind], name, str(ours), ranges[0]]
        rows.append([*row, str(published), ranges[1], inside])
    outside = explain_hyperparameter_differences(results)
    n_published = sum(row[-1] != "" for row in rows)
    end = ". The others:" if outside else "."
    note = f"{n_published - len(outside)} of {n_published} published cells are within their spread{end}"
    return ReportTable("hyperparameter", rows, [note], outside)


def _heating_table(results: RunResults) -> ReportTable:
    rows, notes = [], []
    truth = find_experiment("heating").parameters
    for noisy in (True, False):
        kind = "noisy" if noisy else "noise-free"
        figures = load_published_results()["heating_parameters"]["noisy" if noisy else "noise_free"]
        # The paper shows ten runs.
        own, paper = (results.select("main", "heating", way, noisy=noisy)[:10] for way in ("lodekit", "paper"))
        for place in range(max(len(own), len(paper))):
            line = [""] * len(truth)
            if place < len(own):
                values, intervals = own[place]["parameters"], own[place]["intervals"]
                # Show only digits that agree on other machines.
                line = [f"{values[name]:.4f}" for name in truth]
                if noisy:
                    line = ["{:.5f} [{:.3f}, {:.3f}]".format(values[name], *intervals[name]) for name in truth]
            line += [f"{paper[place]['parameters'][name]:.5f}" if place < len(paper) else "" for name in truth]
            rows.append([kind, str(place + 1), *line, *(f"{value:.5f}" for value in figures[place])])
        notes.append(f"Largest relative error, {kind}: {', '.join(_largest_errors(results, noisy))}.")
    return ReportTable("heating", rows, notes)


def _largest_errors(results: RunResults, noisy: bool) -> Iterator[str]:
    for method, title in (("lodekit", "lodekit"), ("paper", "the paper's method")):
        errors = results.heating_errors(method, noisy=noisy, max_runs=10)
        if len(errors) and (noisy or method == "paper"):
            yield f"{title} {100 * errors.max():.2g} %"
        elif len(errors):
            yield f"{title} below {100 * power_of_ten_bound(float(errors.max())):g} %"
    figures = load_published_results()["heating_parameters"]
    theirs = figures["max_relative_error_noisy" if noisy else "max_relative_error_noise_free"]
    claimed = figures["claimed_in_text"]["noisy" if noisy else "noise_free"]
    yield f"published {100 * theirs:.2f} % in the table ({100 * claimed:.1f} % in the text)"


def _eigenvalue_table(results: RunResults) -> ReportTable:
    rows = []
    for system in results.systems:
        figures = load_published_results()["eigenvalues_above_1e-6"][system]
        for method, title in METHOD_TITLES.items():
            runs = [row for row in results.select("main", system, method) if row["eigenvalues"] is not None]
            if runs:
                count = np.median([row["eigenvalues"] for row in runs])
                theirs = f"{figures[PUBLISHED_MODELS[method]]:g}"
                rows.append([SYSTEM_TITLES[system], title, f"{count:g}", theirs, str(figures["of"])])
    runs, notes = results.select("main", "bipendulum", "paper"), []
    poor = [row["eigenvalues"] for row in runs if row["train_rmse"] > MAX_CONVERGED_RMSE]
    fine = [row["eigenvalues"] for row in runs if row["train_rmse"] <= MAX_CONVERGED_RMSE]
    if poor and fine:
        notes.append(
            f"Bipendulum, the paper's method: runs in the poor optimum have {np.median(poor):g} such eigenvalues, the "
            f"others {np.median(fine):g}; the count measures the signal variance as much as the constraint."
        )
    return ReportTable("eigenvalue", rows, notes)


def _latent_force_table(results: RunResults) -> ReportTable:
    rows = []
    figures = load_published_results()["latent_force_comparison_three_tank"]
    for noisy in (False, True):
        runs = results.select("lfm", noisy=noisy)
        for model, title in _LATENT_FORCE_TITLES.items() if runs else ():
            medians = np.median([row["ode_errors"][model] for row in runs], axis=0)
            theirs = [format_number(value) for value in figures[model]] if not noisy else ["", "", ""]
            kind = "noisy" if noisy else "noise-free"
            rows.append([title, kind, *(format_number(float(m)) for m in medians), *theirs])
    low, high = noise_sensitivity()
    experiment, printed = find_experiment("three_tank"), float(figures["lfm"][1])
    inputs = experiment.exact_solution(np.linspace(*experiment.evaluation_interval, 1000))[:, 3:]
    # The residual of equation 2, f2' = u1 + u2, if f2 is constant.
    idle = float(np.mean(np.abs(inputs.sum(axis=1))))
    spans = ", ".join(f"{format_number(float(a))} to {format_number(float(b))}" for a, b in zip(low, high, strict=True))
    numbers = {"printed": format_number(printed), "ratio": f"{printed / idle:.0f}", "idle": format_number(idle)}
    return ReportTable("latent_force", rows, spans=spans, **numbers)


def _runtime_table(results: RunResults) -> ReportTable:
    rows = []
    for system in SYSTEM_TITLES:
        for method, title in METHOD_TITLES.items():
            runs = results.select("main", system, method)
            if runs:
                seconds, loss = (float(np.median([row[key] for row in runs])) for key in ("seconds", "loss"))
                figures = load_published_results()["training_seconds"][system]
                theirs = format_number(figures[PUBLISHED_MODELS[method]]) if method in ("paper", "baseline") else ""
                factor = f"{results.speedup(system):.0f}" if method == "lodekit" else ""
                numbers = [format_number(seconds), theirs, format_number(loss), factor]
                rows.append([SYSTEM_TITLES[system], title, *numbers])
    several = f" {results.jobs} runs were made at once, so these are no fair times." if results.jobs > 1 else ""
    return ReportTable("runtime", rows, several=several)


def _construction_table(results: RunResults) -> ReportTable:
    rows = []
    for row in results.select("construction"):
        cost = row["covariance_seconds"]
        rows.append(
            [
                SYSTEM_TITLES[row["system"]],
                "equal" if row["same_image"] else "DIFFERENT",
                "yes" if row["applies"] else "no: not controllable",
                f"{1000 * row['algebra_seconds']:.1f}",
                f"{1000 * row['construction_seconds']:.1f}",
                f"{cost['lodegp'] / cost['gp']:.2f}",
                f"{cost['lodegp'] / cost['product']:.1f}",
            ]
        )
    theirs = load_published_results()["construction_seconds"]
    milliseconds = [f"{1000 * theirs[key]:.0f}" for key in ("smith_form", "total")]
    return ReportTable("construction", rows, algebra_ms=milliseconds[0], total_ms=milliseconds[1])


def _evidence_table(results: RunResults) -> ReportTable:
    rows = []
    for system in SYSTEM_TITLES:
        runs = results.select("evidence", system)
        for name in runs[0]["log_evidence"] if runs else ():
            values = np.array([row["log_evidence"][name] for row in runs])
            right = np.array([row["log_evidence"][TRUE_SYSTEM] for row in runs])
            beaten = "" if name == TRUE_SYSTEM else f"{int(np.sum(right > values))} of {len(runs)}"
            behind = "" if name == TRUE_SYSTEM else format_number(float(np.median(right - values)), 2)
            rows.append([SYSTEM_TITLES[system], name, format_number(float(np.median(values))), behind, beaten])
    return ReportTable("evidence", rows)


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
    truth, window = experiment.exact_solution(times), experiment.train_interval
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
            drawn = None if samples is None else samples[:, :, column]
            known: dict[str, Any] = {"data": (experiment.times, data[:, column]), "truth": truth[:, column]}
            draw_channel(axis, times, mean[:, column], std[:, column], samples=drawn, window=window, **known)
            curve = mean[:, column] if samples is None else samples[0, :, column]
            frame(axis, [truth[:, column], mean[:, column], data[:, column], curve], 0.35)
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
    titles = {"lodekit": "lodekit", "channels": "lodekit, channels", "paper": "paper's method", "baseline": "GP"}
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
    truth, data, window = experiment.exact_solution(times), experiment.data(0), experiment.train_interval
    models = [train(experiment, method, 0) for method in shown]
    means, stds = [trained.mean(times) for trained in models], [trained.std(times) for trained in models]
    for row, name in enumerate(channels):
        for column, method in enumerate(shown):
            axis = axes[count * row + column]
            known: dict[str, Any] = {"data": (experiment.times, data[:, row]), "truth": truth[:, row]}
            draw_channel(axis, times, means[column][:, row], stds[column][:, row], window=window, **known)
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


#: The plan, the tables, the claims as rows, differences to the published values, and the figures.
_ReportContent = tuple[RunPlan, Sequence[ReportTable], Sequence[Sequence[str]], Sequence[str], Sequence[PaperFigure]]


def write_report(
    results: RunResults, plan: RunPlan, folder: Path, *, notify: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Write ``results.json``, ``README.md``, ``report.html`` and the figures to a folder; return the paths."""
    make_folder(folder)
    drawn = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for picture in draw_figures(results):
            notify(f"figure: {picture[0]}")
            drawn.append(picture)
    claims = [[claim.text, claim.status.replace("no", "NO"), claim.evidence] for claim in check_claims(results)]
    content = plan, make_tables(results), claims, find_differences(results), drawn
    paths = [folder / "results.json", folder / "README.md", folder / "report.html"]
    write_atomically(paths[0], json.dumps(list(results.rows), indent=1) + "\n")
    for name, _, png in drawn:
        paths.append(folder / f"{name}.png")
        write_atomically(paths[-1], png)
    write_atomically(paths[1], _render_markdown(content))
    write_atomically(paths[2], _render_html(content))
    return paths


def _describe_run(plan: RunPlan) -> str:
    size = "quick" if plan.quick else "full"
    return (
        f"A {size} run, reported on {date.today().isoformat()}: {plan.n_noisy} noisy data sets for each system, and "
        f"one noise-free data set, with {plan.n_exact} random starts where starts are random; {provenance()}."
    )


def _command_line(plan: RunPlan) -> str:
    topic = plan.topics[0] if len(plan.topics) == 1 else "all"
    return f"lodekit reproduce {topic}" + (" --quick" if plan.quick else "")


def _report_blocks(content: _ReportContent) -> Iterator[tuple[Any, ...]]:
    """Yield the parts of the report after its introduction: the kind of each, and its content."""
    texts, (_, tables, claims, differences, figures) = load_report_texts(), content
    if claims:
        yield "section", "What it shows"
        yield "text", texts["status_note"]
        yield "table", ["statement", "holds", "evidence"], claims, 3
    for table in tables:
        yield "section", table.title
        yield "text", table.description
        yield "table", table.columns, table.rows, table.n_text_columns
        yield from (("note", note) for note in table.notes)
        yield "list", table.items
        if table.title == "Main results" and differences:
            yield "subsection", "Cells beyond the published spread"
            yield "list", differences
    if figures:
        yield "section", "Figures"
    yield from (("figure", *figure) for figure in figures)
    yield "section", "Errata of the paper that matter here"
    yield "list", texts["errata"]


#: The levels of headings.
_LEVELS = {"section": 2, "subsection": 3}


def _render_markdown(content: _ReportContent) -> str:
    texts, plan = load_report_texts(), content[0]
    run = f"{_describe_run(plan)} To run it again: `{_command_line(plan)}`."
    parts = [f"# {texts['title']}", texts["introduction"], run]
    for kind, *own in _report_blocks(content):
        if kind == "table":
            columns, rows, n_text = own
            align = ["---"] * n_text + ["---:"] * (len(columns) - n_text)
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in (columns, align, *rows)))
        elif kind == "list":
            parts.append("\n".join(f"- {item}" for item in own[0]))
        elif kind == "figure":
            parts.append(f"![{own[1]}]({own[0]}.png)\n\n{own[1]}")
        else:
            parts.append(f"{'#' * _LEVELS[kind]} {own[0]}" if kind in _LEVELS else own[0])
    return "\n\n".join(part for part in parts if part) + "\n"


def _render_html(content: _ReportContent) -> str:
    texts, plan = load_report_texts(), content[0]
    style = "main { max-width: 80rem; } td.text { min-width: 7rem; }"
    page = HtmlPage(texts["title"], texts["introduction"], style)
    page.add_paragraph(_describe_run(plan), "note")
    page.add_code(_command_line(plan))
    for kind, *own in _report_blocks(content):
        if kind == "table":
            page.add_table(own[0], own[1], text_columns=range(own[2]))
        elif kind == "list" and own[0]:
            page.add_list(own[0])
        elif kind == "figure":
            page.add_image(own[2], own[1])
        elif kind in _LEVELS:
            page.add_section(own[0], _LEVELS[kind])
        elif kind != "list":
            page.add_paragraph(own[0], "note" if kind == "note" else "")
    return page.to_html()

"""The tables of the paper beside the published values, and explanations of differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lodekit.paper.claims import MIN_DATA_SETS, power_of_ten_bound
from lodekit.paper.experiments import find_experiment, load_published_results, load_report_texts
from lodekit.paper.model_comparison import TRUE_SYSTEM, noise_sensitivity
from lodekit.paper.results import (
    COLUMNS,
    MAX_CONVERGED_RMSE,
    METHOD_TITLES,
    PUBLISHED_MODELS,
    SYSTEM_TITLES,
    MedianStd,
    RunResults,
    format_number,
    ode_error_floor,
    published_median_std,
)

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
    for method, title in (("lodekit", "lodekit"), ("paper", "the paper's way")):
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
            f"Bipendulum, the paper's way: runs in the poor optimum have {np.median(poor):g} such eigenvalues, the "
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

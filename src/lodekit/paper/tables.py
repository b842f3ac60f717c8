"""The tables of the paper with the published values beside them, and explanations of differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lodekit.paper.claims import MIN_DATA_SETS, power_of_ten_bound
from lodekit.paper.experiments import find_experiment, load_published_results
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
_AT_NOISE_BOUND = (
    "At the lower bound, 1e-11 (errata). What lies above it is left of a start near one after 300 steps of 0.1, and "
    "says how many of these led down: the GP's is off by seven steps. Starts of the noise are not published; another "
    "mean, another rank and a scale of its own do not change it."
)
_TWO_OPTIMA = (
    "The median of two groups: runs that fit, and runs that end in a nearly constant zero function; it depends on "
    "whether more or less than half of them do."
)
_REASONS = {
    ("bipendulum", "paper"): _TWO_OPTIMA,
    ("three_tank", "paper", "exact", "signal variance"): (
        "Open. All three choices of two tanks as free functions, with modes of deviation 0, 1, 100 or learned, end "
        "between 63 and 136; with jitter of 1e-8 on the covariance it is 21. The published value lies between."
    ),
    ("three_tank", "paper", "exact", "lengthscale"): (
        "Open, like the signal variance that goes with it: 5.1 to 7.7 for what was tried, 6.5 to 7.2 with jitter."
    ),
}


#: System, method, kind of data ("noisy" or "exact") and hyperparameter.
_CellKey = tuple[str, str, str, str]


def hyperparameter_cells(results: RunResults) -> Iterator[tuple[_CellKey, int, MedianStd, MedianStd]]:
    """Yield the key, the number of runs, our and the published values of each cell of the paper's table.

    Cells of lodekit are those on noisy data.
    """
    for system in results.systems:
        for method in ("paper", "lodekit", "baseline"):
            # On noise-free data lodekit's search ends where rounding decides: no number there is the model's.
            for noisy in (True, False) if method != "lodekit" else (True,):
                runs = results.select("main", system, method, noisy=noisy)
                figures = load_published_results()["hyperparameters"][system][PUBLISHED_MODELS[method]]
                for name in _HYPERPARAMETER_NAMES if runs else ():
                    values = np.array([row["hyperparameters"][name] for row in runs])
                    kind = "noisy" if noisy else "exact"
                    yield (system, method, kind, name), len(runs), MedianStd.of(values), MedianStd(*figures[kind][name])


def explain_hyperparameter_differences(results: RunResults) -> list[str]:
    """Return a line for every cell of a model of the paper that is not within the published spread, with the reason."""
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
    if reason := _REASONS.get(key) or _REASONS.get(key[:2]):
        return reason
    if key[2:] == ("exact", "noise"):
        return _AT_NOISE_BOUND
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


@dataclass(frozen=True)
class ReportTable:
    """A table with a title and remarks.

    items: A list below the notes.
    n_text_columns: How many columns, from the left, hold words.
    """

    title: str
    description: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    items: Sequence[str] = ()
    n_text_columns: int = 2

    def markdown(self) -> str:
        """Return the table in Markdown."""
        align = ["---"] * self.n_text_columns + ["---:"] * (len(self.columns) - self.n_text_columns)
        lines = [self.columns, align, *self.rows]
        table, items = (f"| {' | '.join(line)} |" for line in lines), (f"- {item}" for item in self.items)
        parts = [f"## {self.title}", self.description, "\n".join(table), *self.notes, "\n".join(items)]
        return "\n\n".join(part for part in parts if part)


def make_tables(results: RunResults) -> list[ReportTable]:
    """Return every table that the runs so far can fill."""
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
    return ReportTable(
        "Main results",
        f"Noisy data, 25 points; median ± standard deviation over {count} data sets, the same for all ways. RMSE "
        "against the noise-free solution in the training and the evaluation interval; loss is the negative log "
        "evidence for each number of the data; ODE error by forward differences at the true parameters, as in the "
        "paper: of systems of second order the functions are taken at the point in the middle, which the paper does "
        "not say, but its numbers do (errata). The last column is measured on the returned curves: interpolated by "
        "polynomials, differentiated, put into the equations at the learned parameters; the largest residual over the "
        "evaluation interval, relative to the terms of its equation.",
        ["system", "model", "training RMSE", "evaluation RMSE", "loss", "ODE error", "ODE error, measured"],
        rows,
        [_extrapolation_note(results)] if "bipendulum" in results.systems else [],
    )


def _extrapolation_note(results: RunResults) -> str:
    """What is to be said of the bipendulum beyond the data."""
    text = (
        "Beyond the data a LODE-GP of the bipendulum with the paper's prior is worse than a GP, in the paper and here, "
        "however well it is trained: the truth decays, which a GP does by itself, and a LODE-GP only by a motion that "
        "satisfies the equations."
    )
    if not results.select("main", "bipendulum", "channels"):
        return text + " A prior on the channels instead of the free functions (docs/spectral.md) extrapolates better."
    medians = [results.median_std("eval_rmse", "bipendulum", way).median for way in ("lodekit", "channels", "baseline")]
    return text + (
        f" With a prior on the channels, conditioned on the equations, the same data give {format_number(medians[1])} "
        f"instead of {format_number(medians[0])}, and the GP {format_number(medians[2])}."
    )


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
    return ReportTable(
        "Hyperparameters",
        "Variances, as in the paper. Of several free functions or tasks the paper shows a mean; its numbers are those "
        "of a mean over what is trained, logarithms or inverse softplus, transformed afterwards, and this is shown "
        "here: for the GP it gives the published variances, while the mean of the variances is up to ten times as "
        "large. Where the likelihood has a noise for each task and one for all, the one for all is shown; lodekit has "
        "the sum. Noise-free data are the same for all seeds: only starts differ.",
        ["system", "model", "data", "hyperparameter", "here", "range", "published", "published range", "within"],
        rows,
        [f"{n_published - len(outside)} of {n_published} published cells are within their spread{end}"],
        outside,
        n_text_columns=4,
    )


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
                # Digits that other machines share.
                line = [f"{values[name]:.4f}" for name in truth]
                if noisy:
                    line = ["{:.5f} [{:.3f}, {:.3f}]".format(values[name], *intervals[name]) for name in truth]
            line += [f"{paper[place]['parameters'][name]:.5f}" if place < len(paper) else "" for name in truth]
            rows.append([kind, str(place + 1), *line, *(f"{value:.5f}" for value in figures[place])])
        notes.append(f"Largest relative error, {kind}: {', '.join(_largest_errors(results, noisy))}.")
    return ReportTable(
        "Heating: the learned parameters",
        "The truth is a = 3 and b = 1. lodekit's estimates with 95 % intervals on noisy data; on noise-free data it "
        "makes one search, because there is one data set, and starts come from the data. The published rows are runs "
        "on other noise, so they are not paired with ours.",
        ["data", "run", "a, lodekit", "b, lodekit", "a, paper's way", "b, paper's way", "a, published", "b, published"],
        rows,
        notes,
    )


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
    return ReportTable(
        "Eigenvalues",
        "How many eigenvalues of the prior covariance of all channels at 1000 points of the evaluation interval "
        "exceed 1e-6, in the median over noisy data sets.",
        ["system", "model", "here", "published", "of"],
        rows,
        notes,
    )


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
    # What equation 2, f2' = u1 + u2, has left where f2 is constant.
    idle = float(np.mean(np.abs(inputs.sum(axis=1))))
    spans = ", ".join(f"{format_number(float(a))} to {format_number(float(b))}" for a, b in zip(low, high, strict=True))
    return ReportTable(
        "Latent force model, three tank",
        "ODE error of each equation with all hyperparameters at one. The latent force model and the marginalised "
        "LODE-GP see the three tanks only, and the original inputs stand in for theirs.",
        ["model", "data", "ODE 1", "ODE 2", "ODE 3", "published 1", "published 2", "published 3"],
        rows,
        [
            "The paper does not say on which data, and with which noise, its table stands. The error of the full "
            "LODE-GP is that of noise-free data, and these are put beside it. There the order of the models is the "
            "published one; on noisy data the latent force model and the marginalised LODE-GP are alike.",
            "The two marginalised models are not reproduced. On noise-free data their errors depend on the noise "
            "that is assumed: with standard deviations from 1e-3 to 1e-7 those of the latent force model run over "
            f"{spans}. No such choice gives the published {format_number(printed)} in equation 2, which is "
            f"{printed / idle:.0f} times what a constant f2 would give ({format_number(idle)}). The double integral "
            "behind the model is in closed form here, and checked by quadrature.",
        ],
    )


def _runtime_table(results: RunResults) -> ReportTable:
    rows = list(_runtime_rows(results))
    several = f" {results.jobs} runs were made at once, so these are no fair times." if results.jobs > 1 else ""
    return ReportTable(
        "Runtime",
        "Construction and training, median seconds, in one run on one machine, one thread each, the ways in turn on "
        "the same data sets. The paper's way and the GP take 300 steps of Adam from one start; lodekit follows starts "
        "until two agree, and computes standard errors where there are parameters. Other machines give other factors: "
        f"22 to 49 on the three that were tried.{several}",
        ["system", "model", "seconds", "published", "loss", "times faster than the paper's way"],
        rows,
    )


def _runtime_rows(results: RunResults) -> Iterator[list[str]]:
    for system in SYSTEM_TITLES:
        for method, title in METHOD_TITLES.items():
            runs = results.select("main", system, method)
            if runs:
                seconds, loss = (float(np.median([row[key] for row in runs])) for key in ("seconds", "loss"))
                figures = load_published_results()["training_seconds"][system]
                theirs = format_number(figures[PUBLISHED_MODELS[method]]) if method in ("paper", "baseline") else ""
                factor = f"{results.speedup(system):.0f}" if method == "lodekit" else ""
                yield [SYSTEM_TITLES[system], title, format_number(seconds), theirs, format_number(loss), factor]


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
    return ReportTable(
        "Construction and cost",
        "The earlier approach (Lange-Hegermann 2018) parametrizes by Groebner bases: the syzygies of the operator "
        "matrix, here by SymPy, must span the same module as the free columns of the Smith form. Milliseconds from "
        "text to the parametrization and to a covariance (published: "
        f"{1000 * theirs['smith_form']:.0f} and {1000 * theirs['total']:.0f}). The covariance matrix at 250 points, "
        "relative to that of GPyTorch's multitask kernel (published: a factor below two), and to a bare Kronecker "
        "product of the same size, the least that a GP can cost.",
        ["system", "span", "Groebner applies", "algebra", "covariance", "cost / GP", "cost / product"],
        rows,
        [
            "For partial differential equations there is no such construction: the part that is not controllable does "
            "not split off in general, as the paper says, and Groebner bases remain for those that are controllable."
        ],
        n_text_columns=3,
    )


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
    return ReportTable(
        "Which system do the data follow?",
        "The paper names a search over systems as work to come. Its first step: systems of the same channels, fitted "
        "to the same noisy data, compared by their log evidence; medians. Those that leave an equation out are not "
        "wrong, they know less.",
        ["system", "fitted", "log evidence", "behind the system itself", "data sets where it is behind"],
        rows,
    )

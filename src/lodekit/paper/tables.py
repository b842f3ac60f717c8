"""The tables of the paper, each cell beside the published one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lodekit.paper.evidence import RIGHT
from lodekit.paper.experiments import find_experiment, published
from lodekit.paper.hyperparameters import cells, explanations
from lodekit.paper.latent_force import sensitivity
from lodekit.paper.results import COLUMNS, MODELS, POOR, TITLES, WAYS, Results, floor, number, published_spread
from lodekit.paper.verdicts import bound

__all__ = ["Table", "tables"]

#: The paper shows so many runs of the heating system.
_SHOWN = 10
_FORCE_TITLES = {
    "lfm": "latent force model",
    "marginalized_lodegp": "LODE-GP, inputs marginalised",
    "full_lodegp": "LODE-GP, all channels",
}


@dataclass(frozen=True)
class Table:
    """A table with a title and remarks.

    Parameters
    ----------
    title, about : str
    head : sequence of str
    rows : sequence of sequences of str
    notes : sequence of str
    items : sequence of str
        A list below the notes.
    words : int
        How many columns, from the left, hold words.
    """

    title: str
    about: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    items: Sequence[str] = ()
    words: int = 2

    def markdown(self) -> str:
        """Return the table in Markdown."""
        align = ["---"] * self.words + ["---:"] * (len(self.head) - self.words)
        lines = [self.head, align, *self.rows]
        parts = [f"## {self.title}", self.about, "\n".join(f"| {' | '.join(line)} |" for line in lines), *self.notes]
        parts.append("\n".join(f"- {item}" for item in self.items))
        return "\n\n".join(part for part in parts if part)


def tables(results: Results) -> list[Table]:
    """Return every table that the runs so far can fill."""
    found = []
    if results.systems:
        found += [_main(results), _hyperparameters(results)]
    if results.select("main", "heating"):
        found.append(_heating(results))
    if results.systems:
        found.append(_eigenvalues(results))
    if results.select("lfm"):
        found.append(_latent_force(results))
    if results.systems:
        found.append(_runtime(results))
    if results.select("construction"):
        found.append(_construction(results))
    if results.select("evidence"):
        found.append(_evidence(results))
    return found


def _main(results: Results) -> Table:
    rows = []
    for system in results.systems:
        for method in results.ways(system):
            title = WAYS[method]
            if method in ("paper", "baseline"):
                theirs = [str(published_spread(system, method, column)) for column in COLUMNS]
                rows.append([TITLES[system], f"{title.split(',')[0]}, published", *theirs, ""])
            row = [str(results.spread(column, system, method)) for column in COLUMNS]
            measured = float(np.median(results.values("measured_error", system, method)))
            rows.append([TITLES[system], title, *row, f"{measured:.0e}" if measured < 1e-3 else number(measured, 2)])
        rows.append([TITLES[system], "the solution itself", "0", "0", "", number(floor(system)), ""])
    count = max(len(results.select("main", system, "lodekit")) for system in results.systems)
    return Table(
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
        [_beyond(results)] if "bipendulum" in results.systems else [],
    )


def _beyond(results: Results) -> str:
    """What is to be said of the bipendulum beyond the data."""
    text = (
        "Beyond the data a LODE-GP of the bipendulum with the paper's prior is worse than a GP, in the paper and here, "
        "however well it is trained: the truth decays, which a GP does by itself, and a LODE-GP only by a motion that "
        "satisfies the equations."
    )
    if not results.select("main", "bipendulum", "channels"):
        return text + " A prior on the channels instead of the free functions (docs/spectral.md) extrapolates better."
    medians = [results.spread("eval_rmse", "bipendulum", way).median for way in ("lodekit", "channels", "baseline")]
    return text + (
        f" With a prior on the channels, conditioned on the equations, the same data give {number(medians[1])} instead "
        f"of {number(medians[0])}, and the GP {number(medians[2])}."
    )


def _hyperparameters(results: Results) -> Table:
    rows = []
    for cell in cells(results):
        kind = "noisy" if cell.noisy else "noise-free"
        ranges = [f"{number(low)} to {number(high)}" for low, high in (cell.limits, cell.their_limits)]
        inside = "" if cell.method == "lodekit" else "yes" if cell.is_reproduced else "no"
        row = [TITLES[cell.system], WAYS[cell.method], kind, cell.name, str(cell.values), ranges[0]]
        rows.append([*row, str(cell.theirs), ranges[1], inside])
    outside, theirs = explanations(results), [cell for cell in cells(results) if cell.method != "lodekit"]
    return Table(
        "Hyperparameters",
        "Variances, as in the paper. Of several free functions or tasks the paper shows a mean; its numbers are those "
        "of a mean over what is trained, logarithms or inverse softplus, transformed afterwards, and this is shown "
        "here: for the GP it gives the published variances, while the mean of the variances is up to ten times as "
        "large. Where the likelihood has a noise for each task and one for all, the one for all is shown; lodekit has "
        "the sum. Noise-free data are the same for all seeds: only starts differ.",
        ["system", "model", "data", "hyperparameter", "here", "range", "published", "published range", "within"],
        rows,
        [
            f"{len(theirs) - len(outside)} of {len(theirs)} published cells are within their spread"
            + (". The others:" if outside else ".")
        ],
        outside,
        words=4,
    )


def _heating(results: Results) -> Table:
    rows, notes = [], []
    truth = find_experiment("heating").parameters
    for noisy in (True, False):
        kind = "noisy" if noisy else "noise-free"
        figures = published()["heating_parameters"]["noisy" if noisy else "noise_free"]
        own = results.select("main", "heating", "lodekit", noisy=noisy)[:_SHOWN]
        paper = results.select("main", "heating", "paper", noisy=noisy)[:_SHOWN]
        for place in range(max(len(own), len(paper))):
            line = [_estimate(own[place], name, noisy) if place < len(own) else "" for name in truth]
            line += [f"{paper[place]['parameters'][name]:.5f}" if place < len(paper) else "" for name in truth]
            rows.append([kind, str(place + 1), *line, *(f"{value:.5f}" for value in figures[place])])
        notes.append(f"Largest relative error, {kind}: {', '.join(_largest(results, noisy))}.")
    return Table(
        "Heating: the learned parameters",
        "The truth is a = 3 and b = 1. lodekit's estimates with 95 % intervals on noisy data; on noise-free data it "
        "makes one search, because there is one data set, and starts come from the data. The published rows are runs "
        "on other noise, so they are not paired with ours.",
        ["data", "run", "a, lodekit", "b, lodekit", "a, paper's way", "b, paper's way", "a, published", "b, published"],
        rows,
        notes,
    )


def _largest(results: Results, noisy: bool) -> Iterator[str]:
    for method, title in (("lodekit", "lodekit"), ("paper", "the paper's way")):
        errors = results.heating_errors(method, noisy=noisy, most=_SHOWN)
        if len(errors) and (noisy or method == "paper"):
            yield f"{title} {100 * errors.max():.2g} %"
        elif len(errors):
            yield f"{title} below {100 * bound(float(errors.max())):g} %"
    figures = published()["heating_parameters"]
    theirs = figures["max_relative_error_noisy" if noisy else "max_relative_error_noise_free"]
    claimed = figures["claimed_in_text"]["noisy" if noisy else "noise_free"]
    yield f"published {100 * theirs:.2f} % in the table ({100 * claimed:.1f} % in the text)"


def _estimate(row: dict[str, Any], name: str, noisy: bool) -> str:
    low, high = row["intervals"][name]
    # Digits that other machines share.
    return f"{row['parameters'][name]:.5f} [{low:.3f}, {high:.3f}]" if noisy else f"{row['parameters'][name]:.4f}"


def _eigenvalues(results: Results) -> Table:
    rows = []
    for system in results.systems:
        figures = published()["eigenvalues_above_1e-6"][system]
        for method, title in WAYS.items():
            runs = [row for row in results.select("main", system, method) if row["eigenvalues"] is not None]
            if runs:
                count = np.median([row["eigenvalues"] for row in runs])
                rows.append([TITLES[system], title, f"{count:g}", f"{figures[MODELS[method]]:g}", str(figures["of"])])
    notes = []
    if results.select("main", "bipendulum", "paper"):
        runs = results.select("main", "bipendulum", "paper")
        poor = [row["eigenvalues"] for row in runs if row["train_rmse"] > POOR]
        fine = [row["eigenvalues"] for row in runs if row["train_rmse"] <= POOR]
        if poor and fine:
            notes.append(
                f"Bipendulum, the paper's way: runs in the poor optimum have {np.median(poor):g} such eigenvalues, the "
                f"others {np.median(fine):g}; the count measures the signal variance as much as the constraint."
            )
    return Table(
        "Eigenvalues",
        "How many eigenvalues of the prior covariance of all channels at 1000 points of the evaluation interval "
        "exceed 1e-6, in the median over noisy data sets.",
        ["system", "model", "here", "published", "of"],
        rows,
        notes,
    )


def _latent_force(results: Results) -> Table:
    rows = []
    figures = published()["latent_force_comparison_three_tank"]
    for noisy in (False, True):
        runs = results.select("lfm", noisy=noisy)
        for model, title in _FORCE_TITLES.items() if runs else ():
            medians = np.median([row["ode_errors"][model] for row in runs], axis=0)
            theirs = [number(value) for value in figures[model]] if not noisy else ["", "", ""]
            kind = "noisy" if noisy else "noise-free"
            rows.append([title, kind, *(number(float(m)) for m in medians), *theirs])
    low, high = sensitivity()
    experiment, printed = find_experiment("three_tank"), float(figures["lfm"][1])
    inputs = experiment.truth(np.linspace(*experiment.evaluate, 1000))[:, 3:]
    # What equation 2, f2' = u1 + u2, has left where f2 is constant.
    idle = float(np.mean(np.abs(inputs.sum(axis=1))))
    spans = ", ".join(f"{number(float(a))} to {number(float(b))}" for a, b in zip(low, high, strict=True))
    return Table(
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
            f"{spans}. No such choice gives the published {number(printed)} in equation 2, which is "
            f"{printed / idle:.0f} times what a constant f2 would give ({number(idle)}). The double integral behind "
            "the model is in closed form here, and checked by quadrature.",
        ],
    )


def _runtime(results: Results) -> Table:
    rows = list(_runtime_rows(results))
    several = f" {results.jobs} runs were made at once, so these are no fair times." if results.jobs > 1 else ""
    return Table(
        "Runtime",
        "Construction and training, median seconds, in one run on one machine, one thread each, the ways in turn on "
        "the same data sets. The paper's way and the GP take 300 steps of Adam from one start; lodekit follows starts "
        "until two agree, and computes standard errors where there are parameters. Other machines give other factors: "
        f"22 to 49 on the three that were tried.{several}",
        ["system", "model", "seconds", "published", "loss", "times faster than the paper's way"],
        rows,
    )


def _runtime_rows(results: Results) -> Iterator[list[str]]:
    for system in TITLES:
        for method, title in WAYS.items():
            runs = results.select("main", system, method)
            if runs:
                seconds, loss = (float(np.median([row[key] for row in runs])) for key in ("seconds", "loss"))
                has_theirs = method in ("paper", "baseline")
                theirs = number(published()["training_seconds"][system][MODELS[method]]) if has_theirs else ""
                factor = f"{results.speedup(system):.0f}" if method == "lodekit" else ""
                yield [TITLES[system], title, number(seconds), theirs, number(loss), factor]


def _construction(results: Results) -> Table:
    rows = []
    for row in results.select("construction"):
        cost = row["covariance_seconds"]
        rows.append(
            [
                TITLES[row["system"]],
                "equal" if row["same_image"] else "DIFFERENT",
                "yes" if row["applies"] else "no: not controllable",
                f"{1000 * row['algebra_seconds']:.1f}",
                f"{1000 * row['construction_seconds']:.1f}",
                f"{cost['lodegp'] / cost['gp']:.2f}",
                f"{cost['lodegp'] / cost['product']:.1f}",
            ]
        )
    theirs = published()["construction_seconds"]
    return Table(
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
        words=3,
    )


def _evidence(results: Results) -> Table:
    rows = []
    for system in TITLES:
        runs = results.select("evidence", system)
        for name in runs[0]["log_evidence"] if runs else ():
            values = np.array([row["log_evidence"][name] for row in runs])
            right = np.array([row["log_evidence"][RIGHT] for row in runs])
            beaten = "" if name == RIGHT else f"{int(np.sum(right > values))} of {len(runs)}"
            behind = "" if name == RIGHT else number(float(np.median(right - values)), 2)
            rows.append([TITLES[system], name, number(float(np.median(values))), behind, beaten])
    return Table(
        "Which system do the data follow?",
        "The paper names a search over systems as work to come. Its first step: systems of the same channels, fitted "
        "to the same noisy data, compared by their log evidence; medians. Those that leave an equation out are not "
        "wrong, they know less.",
        ["system", "fitted", "log evidence", "behind the system itself", "data sets where it is behind"],
        rows,
    )

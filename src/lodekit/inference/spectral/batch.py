"""Many evaluations of the log evidence on waves at once: restarts, grids of parameters, fleets of data sets.

All regressions share their waves, wide and long enough for the most demanding of them, and are solved together by
PyTorch in batches of matrices, on the processor or on a GPU. What is small (coefficients, modes, the way back to the
parameters) is done one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.errors import LodekitError
from lodekit.inference.devices import find_device
from lodekit.inference.engine import Evidence
from lodekit.inference.spectral.engine import SpectralEngine
from lodekit.inference.spectral.evaluation import Evaluation
from lodekit.inference.spectral.functions import Functions
from lodekit.inference.spectral.grams import Grams
from lodekit.inference.spectral.regression import NormalEquations, Slopes, Solved, Term
from lodekit.inference.spectral.workspace import OutOfReachError
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.spectra import Frequencies

__all__ = ["evaluate_batch"]

Array = NDArray[np.float64]


def evaluate_batch(
    engines: SpectralEngine | Sequence[SpectralEngine],
    hypers: Sequence[Hyperparameters],
    device: str = "cpu",
) -> list[Evidence]:
    """Return the log evidence with its gradient for many hyperparameters, or many data sets, at once.

    Parameters
    ----------
    engines : SpectralEngine, or one for each of the hyperparameters
        Data sets of one system, with the same observables measured.
    hypers : sequence of Hyperparameters
        Where to evaluate.
    device : str
        Where PyTorch computes.

    Returns
    -------
    list of Evidence
        In the user's units; minus infinity where nothing finite can be said. Where normal equations would lose digits,
        the single evaluation takes over.
    """
    import torch

    place = find_device(device)
    several = [engines] * len(hypers) if isinstance(engines, SpectralEngine) else list(engines)
    if len(several) != len(hypers):
        raise LodekitError(f"expected one engine, or one for each of {len(hypers)} hyperparameters, got {len(several)}")
    if any(engine.prior.channels is not None for engine in several):
        # Their waves belong to one point each.
        return [engine.evaluate(hyper) for engine, hyper in zip(several, hypers, strict=True)]
    with np.errstate(all="ignore"):
        evaluations = [Evaluation(engine.workspace, hyper) for engine, hyper in zip(several, hypers, strict=True)]
        prepared = [_reach(evaluation) for evaluation in evaluations]
        found = [Evidence.impossible(hyper) for hyper in hypers]
        usable = [k for k, item in enumerate(prepared) if item is not None]
        if not usable:
            return found
        waves = _widest([item[0] for item in prepared if item is not None])
        nodes = max(item[1] for item in prepared if item is not None)
        grams: dict[int, Grams] = {}
        for k in usable:
            if id(several[k]) not in grams:
                grams[id(several[k])] = several[k].workspace.grams(waves, nodes, roots=False)
        items = [_Item(evaluations[k], grams[id(several[k])]) for k in usable]
        _check_alike(items)
        with torch.no_grad():
            solved, slopes, largest, squares = _solve(items, place)
        for number, (k, item) in enumerate(zip(usable, items, strict=True)):
            deviance = float(solved.deviance[number])
            rounding, size = several[k].workspace.data.rounding, max(solved.mean.shape[-1], 1)
            lost = float(largest[number]) * (size + float((solved.mean[number] ** 2).sum())) + float(squares[number])
            if not several[k].workspace.is_precise(rounding * lost, deviance):
                found[k] = several[k].evaluate(hypers[k])
                continue
            value = -0.5 * (deviance + item.evaluation.constants(item.grams)) + several[k].workspace.log_jacobian
            gradient = item.evaluation.gradient(item.grams, item.functions, _take(slopes, number))
            found[k] = Evidence(value, gradient, 0.5 * rounding * lost)
    return found


class _Item:
    """One regression of the batch, before it is solved."""

    def __init__(self, evaluation: Evaluation, grams: Grams) -> None:
        self.evaluation, self.grams = evaluation, grams
        self.functions: list[Functions] = evaluation.functions(grams, slopes=True)
        self.terms: list[Term] = evaluation.terms(grams, self.functions)
        self.turned = evaluation.turned(grams.frequencies)


def _widest(several: Sequence[Frequencies]) -> Frequencies:
    """Return frequencies with the longest period and the widest band of all, for each process."""
    steps = [min(parts) for parts in zip(*(waves.steps for waves in several), strict=True)]
    counts = []
    for process, step in enumerate(steps):
        band = max(waves.steps[process] * (waves.counts[process] - 1) for waves in several)
        # A quotient of rounded numbers that should be whole is not one more.
        counts.append(int(np.ceil(band / step - 1e-9)) + 1)
    reach = [max(parts) for parts in zip(*(waves.reach for waves in several), strict=True)]
    return Frequencies(tuple(steps), tuple(counts), tuple(reach))


def _check_alike(items: Sequence[_Item]) -> None:
    """Raise where regressions have different observables, levels or shapes, and cannot share a batch."""
    first = [(term.observable, term.group, term.weights.shape, term.modes.shape) for term in items[0].terms]
    for item in items[1:]:
        if [(term.observable, term.group, term.weights.shape, term.modes.shape) for term in item.terms] != first:
            raise LodekitError(
                "a batch needs data sets of one shape: the same observables and noise, and either all of them summed "
                "(more than a few thousand measurements) or all with the same number of measurements"
            )


def _reach(evaluation: Evaluation) -> tuple[Frequencies, int] | None:
    """Return the frequencies and the number of nodes of an evaluation; None where it is out of reach."""
    try:
        return evaluation.prepare()
    except OutOfReachError:
        return None


def _solve(items: Sequence[_Item], device: Any) -> tuple[Solved, Slopes, Array, Array]:
    """Return solutions with derivatives, and the largest element of each Gram matrix with the sum of squares.

    The last two tell how many digits were lost.
    """
    import torch

    terms, turned = [item.terms for item in items], [item.turned for item in items]

    def together(arrays: Sequence[Any]) -> Any:
        # What all share is sent once.
        if all(array is arrays[0] for array in arrays):
            return torch.as_tensor(np.asarray(arrays[0]), device=device)
        return torch.as_tensor(np.stack([np.asarray(array) for array in arrays]), device=device)

    joined = []
    for number, term in enumerate(terms[0]):
        own = [several[number] for several in terms]
        fields = ("waves", "gram", "on_waves", "weights", "rest", "modes")
        arrays = {name: together([getattr(one, name) for one in own]) for name in fields}
        precision = torch.as_tensor(np.array([float(one.precision) for one in own]), device=device)
        square = torch.as_tensor(np.array([float(one.square) for one in own]), device=device)
        # Counts belong to the data sets; they enter where the noise is put together.
        joined.append(Term(term.observable, term.group, 0, precision, square=square, **arrays))
    a, b = (torch.as_tensor(np.stack([pair[k] for pair in turned]), device=device) for k in (0, 1))
    noises = len(items[0].evaluation.hyper.noise)
    regression = NormalEquations(torch, a, b, joined, noises)
    solved = regression.solve()
    assert solved is not None  # noqa: S101
    slopes = regression.slopes(solved)
    counts = np.array([[sum(t.count for t in own if t.group == g) for g in range(noises)] for own in terms])
    noise = np.stack([part.cpu().numpy() for part in slopes.noise], axis=-1) + counts if noises else counts
    modes, means = ([part.cpu().numpy() for part in several] for several in (slopes.modes, slopes.means))
    largest, squares = np.broadcast_to(0.0, len(items)), sum(regression.squares)
    if regression.size:
        largest = regression.largest.cpu().numpy()
    return solved, Slopes(slopes.waves.cpu().numpy(), modes, means, noise), largest, squares.cpu().numpy()


def _take(slopes: Slopes, number: int) -> Slopes:
    """Return the derivatives of one regression of a batch."""
    return Slopes(
        slopes.waves[number],
        [part[number] for part in slopes.modes],
        [part[number] for part in slopes.means],
        slopes.noise[number],
    )

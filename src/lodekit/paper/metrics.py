"""Metrics of the paper: errors of a trained model, and cost and correctness of the construction of a LODE-GP.

The parametrization by the Smith form is compared with that by Groebner bases. For B, Lange-Hegermann (2018) uses the
syzygies of the columns of A: all vectors of operators that A maps to zero. The solutions are the image of B if the
syzygies of its rows are the row space of A; otherwise the system is not controllable, and the approach does not apply.
SymPy computes this comparison, and shares no code with lodekit's algebra.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from lodekit.errors import LodekitError
from lodekit.paper.experiments import PaperExperiment
from lodekit.paper.methods import TrainedModel, train, use_one_torch_thread
from lodekit.prior.observables import EquationResiduals
from lodekit.results.equation_residuals import EquationEvaluator, compute_curve_residuals
from lodekit.support.arguments import Array
from lodekit.system.system import System


def compare_parametrizations(system: System) -> tuple[bool, bool, int]:
    """Compare lodekit's parametrization of a system with that by Groebner bases.

    Returns whether the free columns span the same module as the syzygies of the operator matrix; whether the earlier
    approach describes all solutions, that is, whether the system is controllable; and the number of syzygies.
    """
    import sympy

    A, B = system.operator.sympy, system.parametrization.free_columns
    found = sorted(A.free_symbols | B.free_symbols, key=str)
    name = system.operator.variable
    d = next((symbol for symbol in found if str(symbol) == name), sympy.Symbol(name))
    others = [symbol for symbol in found if symbol != d]
    field = sympy.QQ.frac_field(*others) if others else sympy.QQ
    ring = field.old_poly_ring(d)

    def span(vectors: list[list[Any]]) -> Any:
        return ring.free_module(len(vectors[0])).submodule(*vectors)

    syzygies = span(A.T.tolist()).syzygy_module()
    generators = [list(generator) for generator in syzygies.gens]
    if not generators or not B.cols:
        return len(generators) == B.cols, False, len(generators)
    back = span([list(row) for row in zip(*generators, strict=True)]).syzygy_module()
    return bool(span(B.T.tolist()) == syzygies), bool(back == span(A.tolist())), len(generators)


def measure_construction(experiment: PaperExperiment) -> dict[str, Any]:
    """Return computing times of the construction and of covariances, and the comparison with Groebner bases.

    From the equations as text: ``algebra_seconds`` to the parametrization, ``construction_seconds`` to a kernel for
    GPyTorch. ``covariance_seconds`` are the times of the LODE-GP, of GPyTorch's multitask kernel and of a Kronecker
    product only, all as full matrices, in turn at the same points.
    """
    import gpytorch
    import torch

    from lodekit.integrations.gpytorch import LODEKernel

    definition, count = experiment.system.definition(), len(experiment.system.channels)

    def build() -> System:
        system = System.from_definition(definition)
        # The algebra is computed on first use.
        _ = system.parametrization
        return system

    x = torch.linspace(*experiment.train_interval, 250, dtype=torch.float64)[:, None]
    own = LODEKernel(experiment.system).double()
    rival = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), count, rank=1).double()
    with use_one_torch_thread(), torch.no_grad():
        tasks = rival.task_covar_module.covar_matrix.to_dense()
        seconds = _median_seconds(
            {
                "algebra": build,
                "construction": lambda: LODEKernel(build()),
                "lodegp": lambda: own(x).to_dense(),
                "gp": lambda: rival(x).to_dense(),
                "product": lambda: torch.kron(rival.data_covar_module(x).to_dense(), tasks),
            }
        )
    same_image, applies, _ = compare_parametrizations(experiment.system)
    return {
        "algebra_seconds": seconds.pop("algebra"),
        "construction_seconds": seconds.pop("construction"),
        "covariance_seconds": seconds,
        "same_image": same_image,
        "applies": applies,
    }


def _median_seconds(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median seconds of each call; the calls alternate, so that other load affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(10):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    # The first call takes longer, so it is omitted.
    return {name: float(np.median(values[1:])) for name, values in seconds.items()}


#: As in the paper: the step of finite differences, and the number of times at which curves are evaluated.
_DIFFERENCE_STEP, _N_EVALUATION_TIMES = 1e-3, 1000


def evaluate_run(experiment: PaperExperiment, method: str, seed: int, *, noisy: bool = True) -> dict[str, Any]:
    """Return the metrics of one training run as plain values.

    train_rmse, eval_rmse: Differences from the noise-free solution at 1000 points of each interval.
    loss: Negative log evidence per value of the data.
    ode_error: For each equation, the mean absolute error by finite differences at the true parameters.
    measured_error: The largest relative residual of the mean at the estimated parameters, see `curve_residual`.
    eigenvalues: The number of eigenvalues above 1e-6 of the prior covariance at 1000 points; None if there is no such
        matrix, or if rounding errors are larger.
    """
    trained = train(experiment, method, seed, noisy=noisy)
    found: dict[str, Any] = {}
    for name, interval in (("train_rmse", experiment.train_interval), ("eval_rmse", experiment.evaluation_interval)):
        times = np.linspace(*interval, _N_EVALUATION_TIMES)
        found[name] = float(np.sqrt(np.mean((trained.mean(times) - experiment.exact_solution(times)) ** 2)))
    eigenvalues = None
    if trained.covariance is not None:
        with suppress(LodekitError):
            eigenvalues = count_eigenvalues(trained.covariance(times))
    errors = {"ode_error": ode_error(experiment, trained.mean), "measured_error": curve_residual(experiment, trained)}
    found |= {"loss": trained.loss, **errors, "eigenvalues": eigenvalues}
    return found | {name: getattr(trained, name) for name in ("hyperparameters", "parameters", "intervals", "seconds")}


def ode_error(experiment: PaperExperiment, mean: Callable[[Array], Array]) -> list[float]:
    """Return the mean absolute error of each equation by forward differences of a `mean`, at 1000 points.

    As in the paper, at the true parameters. The paper does not state at which of the points t, t + h, t + 2h of a
    second difference the functions themselves are evaluated; at the middle one, which makes the difference central, the
    exact solution of the bipendulum has the published error, and only there. The paper applies a low-pass filter to
    first differences before the second. None of the filters that we tried reproduces the published error of the exact
    solution, so none is applied here.
    """
    return [float(value) for value in np.mean(np.abs(difference_residual(experiment, mean)), axis=0)]


def difference_residual(experiment: PaperExperiment, mean: Callable[[Array], Array]) -> Array:
    """Return the residuals of an `experiment`'s equations for forward differences of a `mean`, (n, equations)."""
    equations = EquationResiduals(experiment.system)
    order = max(k for _, k in equations.derivatives)
    # This is the total number of times, including the shifted ones.
    grid = np.linspace(*experiment.evaluation_interval, _N_EVALUATION_TIMES // (order + 1))
    shifted = np.concatenate([grid + k * _DIFFERENCE_STEP for k in range(order + 1)])
    values = mean(shifted).reshape(order + 1, len(grid), -1)
    place = max(0, order - 1)
    derivatives = [values[place]]
    if order >= 1:
        derivatives.append((values[place + 1] - values[place]) / _DIFFERENCE_STEP)
    if order >= 2:
        derivatives.append((values[2] - 2 * values[1] + values[0]) / _DIFFERENCE_STEP**2)
    features = np.stack([derivatives[k][:, j] for j, k in equations.derivatives], axis=-1)[None]
    truth = np.array([experiment.parameters[name] for name in experiment.system.operator.ring.parameters])
    return np.asarray(equations.residual(truth, grid + place * _DIFFERENCE_STEP, features, relative=False)[0])


def curve_residual(experiment: PaperExperiment, trained: TrainedModel) -> float:
    """Return the largest residual of a returned mean, for each equation relative to its largest terms.

    As in the certificate, the mean is evaluated as users see it, differentiated by polynomials and substituted into the
    equations as written, at the estimated parameters if there are any. This does not depend on how the mean was
    computed, so it applies to any model.
    """
    system = experiment.system
    values = {name: trained.parameters.get(name, experiment.parameters[name]) for name in system.parameters}
    written = EquationEvaluator(system.written, system.channels, values)
    times = np.linspace(*experiment.evaluation_interval, 41)
    span = experiment.train_interval[1] - experiment.train_interval[0]
    return compute_curve_residuals(written, trained.mean, times, span, np.zeros(0)).residual


def count_eigenvalues(covariance: Array, threshold: float = 1e-6) -> int:
    """Return the number of eigenvalues of a `covariance` matrix above a `threshold`.

    A pivoted Cholesky factorization stops when the trace of the remainder is far below the threshold: this trace bounds
    the change of each eigenvalue, and only a small matrix is left to decompose.

    Examples
    --------
    >>> count_eigenvalues(np.diag([1.0, 1e-3, 1e-9, 0.0]))
    2
    """
    size = len(covariance)
    # The rounding errors of the factorization bound the remainder from below.
    largest = size * float(np.max(np.diag(covariance)))
    floor = float(np.finfo(float).eps) * largest
    if floor > 0.1 * threshold:
        raise LodekitError(f"expected eigenvalues of a size that lets {threshold:g} be seen, got up to {largest:.0e}")
    tolerance = max(1e-3 * threshold, floor)
    remainder, columns = np.diag(covariance).copy(), np.zeros((0, size))
    # Only the columns of the pivots are computed: LAPACK's routine updates all of a large matrix of small rank.
    while len(columns) < size and np.sum(remainder) > tolerance:
        pivot = int(np.argmax(remainder))
        column = (covariance[pivot] - columns[:, pivot] @ columns) / np.sqrt(remainder[pivot])
        columns = np.vstack([columns, column])
        remainder = np.maximum(remainder - column**2, 0.0)
        remainder[pivot] = 0.0
    return int(np.sum(np.linalg.eigvalsh(columns @ columns.T) > threshold))

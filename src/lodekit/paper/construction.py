"""What a LODE-GP costs before any data are seen: its construction, and its covariance beside that of a GP."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lodekit.paper.experiments import Experiment
from lodekit.paper.groebner import compare_parametrizations
from lodekit.paper.methods import one_thread
from lodekit.system.system import System

__all__ = ["construct"]

#: How often each thing is timed, and at how many times covariances are written out.
_REPEATS, _POINTS = 9, 250


def construct(experiment: Experiment) -> dict[str, Any]:
    """Return seconds of the construction and of covariances, and what Groebner bases say, as plain values.

    From the equations as text: ``algebra_seconds`` to the parametrization, ``construction_seconds`` to a kernel that
    is ready for GPyTorch. ``covariance_seconds`` are those of the LODE-GP, of GPyTorch's multitask kernel and of a bare
    Kronecker product, all as full matrices, in turn on the same points.
    """
    import gpytorch
    import torch

    from lodekit.integrations.gpytorch import LODEKernel

    definition, count = experiment.system.definition(), len(experiment.system.channels)

    def build() -> System:
        system = System.from_definition(definition)
        # The algebra is done when it is asked for.
        _ = system.parametrization
        return system

    x = torch.linspace(*experiment.train, _POINTS, dtype=torch.float64)[:, None]
    own = LODEKernel(experiment.system).double()
    rival = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), count, rank=1).double()
    with one_thread(), torch.no_grad():
        tasks = rival.task_covar_module.covar_matrix.to_dense()
        seconds = _medians(
            {
                "algebra": build,
                "construction": lambda: LODEKernel(build()),
                "lodegp": lambda: own(x).to_dense(),
                "gp": lambda: rival(x).to_dense(),
                "product": lambda: torch.kron(rival.data_covar_module(x).to_dense(), tasks),
            }
        )
    found = compare_parametrizations(experiment.system)
    return {
        "algebra_seconds": seconds.pop("algebra"),
        "construction_seconds": seconds.pop("construction"),
        "covariance_seconds": seconds,
        "same_image": found.same_image,
        "applies": found.applies,
    }


def _medians(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median seconds of each call; they take turns, so that a busy moment meets all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_REPEATS + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    # What is done for the first time takes longer.
    return {name: float(np.median(values[1:])) for name, values in seconds.items()}

"""Kernels for GPyTorch at the hyperparameters of cases that native engines have."""

from __future__ import annotations

from lodekit.inference.dense.evidence import DenseData
from lodekit.integrations.gpytorch import LODEKernel
from lodekit.prior.prior import Hyperparameters
from tests.inference.fitted import make_case


def make_kernel(name: str, latent: str = "se") -> tuple[DenseData, Hyperparameters, LODEKernel]:
    """Return data of a system, hyperparameters, and a kernel that has them in the user's units."""
    reader, data, _, hyper = make_case(name, count=7, latent=latent)
    units = data.prior.units
    kernel = LODEKernel(reader.system, latent=latent, window=(units.start, units.start + units.time_scale)).double()
    for parameter, value in zip(kernel.parameter_names, hyper.theta, strict=True):
        kernel.set_value(parameter, value)
    kernel.set_value("lengthscales", hyper.lengthscales * units.time_scale)
    kernel.set_value("deviations", hyper.amplitudes)
    kernel.set_value("mode_deviations", hyper.mode_amplitudes)
    return data, hyper, kernel

"""LODE-GPs for GPyTorch and BoTorch: a kernel with autograd that uses the shared covariance code, and a complete model.

Outputs are interleaved as GPyTorch's multitask models expect: all observables at the first time, then at the second.
Parameters of the system and of the prior are registered, constrained and named as users of GPyTorch expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.priors import LogNormalPrior, NormalPrior
from torch import Tensor

from lodekit.data.observations import parse_observations
from lodekit.data.records import Measurements, Scaling
from lodekit.errors import LodekitError
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import build_setup
from lodekit.model import LODEGP
from lodekit.prior.covariance import ObservationPoints, prior_covariance
from lodekit.prior.modes import ModeGroup, mode_group_index
from lodekit.prior.observables import ObservableCompiler, Observables
from lodekit.prior.prior import Hyperparameters
from lodekit.results.fit import fit_at_point
from lodekit.support.interval_means import averaging_time
from lodekit.system.parameters import LogNormal, Parameter
from lodekit.system.system import System

__all__ = ["LODEExactGP", "LODEKernel", "LODEMean", "from_gpytorch", "to_gpytorch"]

_DTYPE = torch.float64


class LODEKernel(gpytorch.kernels.Kernel):  # type: ignore[misc]
    """The covariance of the solutions of a system of linear ODEs.

    Parameters
    ----------
    system : System
    latent : str or sequence of str
        As in `LODEGP`.
    observables : sequence of str, optional
        The outputs; all channels by default.
    window : (float, float)
        Time interval: decaying modes start at its beginning, growing modes end at its end. Without effect for
        controllable systems.
    batch_shape : torch.Size
        Batch shape of the parameters.
    **options
        As in `gpytorch.kernels.Kernel`.

    Notes
    -----
    A parameter ``a`` of the system is ``kernel.a``, computed from ``raw_a``; `Parameter` defines its constraint, prior
    and start value. ``lengthscales``, ``deviations`` and ``mode_deviations`` are those of the free functions and modes,
    all in the user's units.
    """

    def __init__(
        self,
        system: System,
        *,
        latent: str | Sequence[str] = "se",
        observables: Sequence[str] | None = None,
        window: tuple[float, float] = (0.0, 1.0),
        batch_shape: torch.Size | None = None,
        **options: Any,
    ) -> None:
        super().__init__(batch_shape=torch.Size(batch_shape or ()), **options)
        start, stop = (float(edge) for edge in window)
        if not isinstance(system, System) or not start < stop:
            what = f"a System, got {type(system).__name__}" if start < stop else f"start < stop in window, got {window}"
            raise LodekitError(f"expected {what}")
        self.system, self.observables = system, tuple(observables or system.plain_channels)
        if any(map(averaging_time, self.observables)):
            raise LodekitError(f"expected values at single times, got {self.observables}; averages are for LODEGP")
        self.latent_names = [latent] * system.free_functions if isinstance(latent, str) else list(latent)
        self._latents = FitSettings(latent=latent).parse_kernels(system)
        units = Scaling(start, stop - start, np.ones(len(self.observables)))
        self.compiled: Observables = ObservableCompiler(system).compile(self.observables, units)
        self._groups: tuple[ModeGroup, ...] = self.compiled.compiled.groups
        self.parameter_names = self.compiled.compiled.parameters
        taken = set(dir(self))
        for name in self.parameter_names:
            if name in taken:
                raise LodekitError(f"the parameter {name!r} has the name of something in GPyTorch; rename it")
            self._add_system_parameter(name, system.parameters[name])
        for name, count, initial in (
            ("lengthscales", len(self._latents), 0.3 * (stop - start)),
            ("deviations", len(self._latents), 1.0),
            ("mode_deviations", len(self._groups), 1.0),
        ):
            self._add(name, torch.full((*self.batch_shape, count), initial, dtype=_DTYPE), Positive())

    def _add(self, name: str, value: Tensor, constraint: Any) -> None:
        raw = value if constraint is None else constraint.inverse_transform(value)
        self.register_parameter(f"raw_{name}", torch.nn.Parameter(raw))
        if constraint is not None:
            self.register_constraint(f"raw_{name}", constraint)

    def _add_system_parameter(self, name: str, parameter: Parameter) -> None:
        if parameter.fixed is not None:
            self.register_buffer(f"fixed_{name}", torch.full((*self.batch_shape, 1), parameter.fixed, dtype=_DTYPE))
            return
        low, high = parameter.interval
        constraint: Any = None
        usual = 1.0
        if np.isfinite(low) and np.isfinite(high):
            constraint, usual = Interval(low, high), 0.5 * (low + high)
        elif np.isfinite(low):
            constraint, usual = Positive() if low == 0 else GreaterThan(low), low + 1.0
        elif np.isfinite(high):
            constraint, usual = LessThan(high), high - 1.0
        initial = usual if parameter.start is None else parameter.start
        self._add(name, torch.full((*self.batch_shape, 1), float(initial), dtype=_DTYPE), constraint)
        prior = parameter.prior
        if prior is not None:
            if isinstance(prior, LogNormal):
                own: Any = LogNormalPrior(float(np.log(prior.median)), prior.spread)
            else:
                own = NormalPrior(prior.mean, prior.std)
            self.register_prior(f"{name}_prior", own, lambda module, name=name: module.value_of(name))

    def value_of(self, name: str) -> Tensor:
        """Return a parameter in its natural units, shape (batch, 1) for those of the system.

        Parameters
        ----------
        name : str
            A parameter of the system, or ``lengthscales``, ``deviations``, ``mode_deviations``.
        """
        if f"fixed_{name}" in self._buffers:
            return self._buffers[f"fixed_{name}"]
        raw = self._parameters[f"raw_{name}"]
        constraint = getattr(self, f"raw_{name}_constraint", None)
        return raw if constraint is None else constraint.transform(raw)

    def set_value(self, name: str, value: Any) -> None:
        """Set a parameter to a value in its natural units.

        Parameters
        ----------
        name : str
            As in `value_of`.
        value : number or array
        """
        if f"fixed_{name}" in self._buffers:
            raise LodekitError(f"{name} is fixed; change the system to learn it")
        raw = self._parameters[f"raw_{name}"]
        constraint = getattr(self, f"raw_{name}_constraint", None)
        wanted = torch.as_tensor(value, dtype=_DTYPE, device=raw.device).expand(raw.shape)
        with torch.no_grad():
            raw.copy_(wanted if constraint is None else constraint.inverse_transform(wanted))

    def __getattr__(self, name: str) -> Any:
        names = self.__dict__.get("parameter_names", ())
        if name in names or name in ("lengthscales", "deviations", "mode_deviations"):
            return self.value_of(name)
        return super().__getattr__(name)

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """Return the number of observables.

        Parameters
        ----------
        x1, x2 : tensors
            Ignored.
        """
        return len(self.observables)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance, shape (..., n1 o, n2 o), or its diagonal.

        Parameters
        ----------
        x1, x2 : tensors, shape (..., n1, 1) and (..., n2, 1)
            Times, in the user's unit.
        diag : bool
            Whether to return only the diagonal.
        **params
            Further arguments that GPyTorch may pass.
        """
        if x1.shape[-1] != 1 or x2.shape[-1] != 1:
            raise LodekitError(f"expected times as inputs of one dimension, got {x1.shape[-1]}")
        if params.get("last_dim_is_batch"):
            raise LodekitError("last_dim_is_batch makes no sense for functions of time")
        kind = self.raw_deviations.dtype
        observables, groups = self.compiled, self._groups
        table = observables.compiled.table.evaluate_values(torch, self.theta())
        lengthscales = self.value_of("lengthscales") / observables.units.time_scale
        mode_roots = self.value_of("mode_deviations")[..., mode_group_index(groups)]
        hyper = [lengthscales, self.value_of("deviations"), mode_roots]
        s1, s2 = (observables.units.scale_times(x[..., 0].to(kind)) for x in (x1, x2))
        if diag:
            # For the diagonal, times are an additional last batch dimension, with one small matrix for each.
            s1, s2, table = s1[..., :, None], s2[..., :, None], table[..., None, :]
            hyper = [part[..., None, :] for part in hyper]
        arrays = observables.split(torch, table)
        first = ObservationPoints(s1, arrays.free, observables.mode_values(torch, arrays, groups, s1))
        second = ObservationPoints(s2, arrays.free, observables.mode_values(torch, arrays, groups, s2))
        total = prior_covariance(torch, self._latents, first, second, hyper)
        if diag:
            return torch.diagonal(total[..., 0, :, 0], dim1=-2, dim2=-1).flatten(-2).to(_result_dtype(x1, kind))
        # GPyTorch orders by time first, then by observable.
        ordered = total.transpose(-4, -3).transpose(-2, -1)
        return ordered.flatten(-2).flatten(-3, -2).to(_result_dtype(x1, kind))

    def theta(self) -> Tensor:
        """Return all parameters of the system, shape (batch, p)."""
        if not self.parameter_names:
            return self.raw_deviations.new_zeros((*self.batch_shape, 0))
        return torch.cat([self.value_of(name) for name in self.parameter_names], dim=-1)


class LODEMean(gpytorch.means.Mean):  # type: ignore[misc]
    """The particular solution of a system, at the parameters of a kernel, shape (..., n, o).

    Parameters
    ----------
    kernel : LODEKernel
    """

    def __init__(self, kernel: LODEKernel) -> None:
        super().__init__()
        # Not a submodule, as its parameters are registered with the kernel.
        self.__dict__["_kernel"] = kernel

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of all observables.

        Parameters
        ----------
        x : tensor, shape (..., n, 1)
            Times, in the user's unit.
        """
        kernel: LODEKernel = self.__dict__["_kernel"]
        observables = kernel.compiled
        table = observables.compiled.table.evaluate_values(torch, kernel.theta())
        kind = kernel.raw_deviations.dtype
        values = observables.mean_values(torch, table, x[..., 0].to(kind))
        return values.transpose(-2, -1).to(_result_dtype(x, kind))


def _result_dtype(x: Tensor, parameter_dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a result: that of the times, unless these are integers."""
    return x.dtype if x.dtype.is_floating_point else parameter_dtype


class ModularExactGP(gpytorch.models.ExactGP):  # type: ignore[misc]
    """An exact GP with a ``mean_module`` and a ``covar_module``; a multitask GP unless the data are one column."""

    def forward(self, x: Tensor) -> Any:
        """Return the prior at some times.

        Parameters
        ----------
        x : tensor, shape (..., n, 1)
            Times, in the user's unit.
        """
        if self.train_targets.ndim == 1:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x)[..., 0], self.covar_module(x))
        return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


class LODEExactGP(ModularExactGP):
    """A complete multitask model: the kernel of a system, and its particular solution as the mean.

    Parameters
    ----------
    train_x : tensor, shape (n,) or (n, 1)
        Times.
    train_y : tensor, shape (n, o)
        One column for each observable; or of shape (n,) for a single one.
    likelihood : gpytorch.likelihoods.Likelihood
        For example ``MultitaskGaussianLikelihood(num_tasks=o)``; for a single observable any other, such as
        ``FixedNoiseGaussianLikelihood``.
    system : System
    **options
        As in `LODEKernel`; the window is that of the data by default.
    """

    def __init__(self, train_x: Tensor, train_y: Tensor, likelihood: Any, system: System, **options: Any) -> None:
        times = train_x[:, None] if train_x.ndim == 1 else train_x
        super().__init__(times, train_y, likelihood)
        options.setdefault("window", (float(times.min()), float(times.max())))
        self.covar_module = LODEKernel(system, **options)
        count = len(self.covar_module.observables)
        if train_y.ndim != 1 and train_y.shape[-1] != count:
            got = train_y.shape[-1]
            raise LodekitError(f"expected train_y with a column for each of {count} observables, got {got}")
        if train_y.ndim == 1 and count != 1:
            raise LodekitError(
                f"expected one observable for train_y of one column, got {count}; name it: observables=[...]"
            )
        self.mean_module = LODEMean(self.covar_module)


def to_gpytorch(fitted: LODEGP) -> tuple[LODEExactGP, Any]:
    """Return a fitted model as a GPyTorch model and its likelihood, both in evaluation mode.

    The measurements must be a complete table with estimated noise: multitask models of GPyTorch do not support missing
    values.

    Parameters
    ----------
    fitted : LODEGP
    """
    fit = fitted.fit_
    series, prior, hyper = fit.measurements.series, fit.prior, fit.hyperparameters
    if fit.measurements.inputs or fit.prior.disturbances:
        raise LodekitError("GPyTorch models do not support inputs and disturbances; expected a fit without any")
    same = len({item.times.tobytes() for item in series}) == 1 if series else False
    if not same or not all(item.has_unknown_noise.all() for item in series) or prior.channels is not None:
        raise LodekitError(
            "GPyTorch's multitask models take full tables of one record with learned noise and the latent prior; "
            "expected these"
        )
    times = torch.as_tensor(series[0].times)
    table = torch.as_tensor(np.stack([item.values for item in series], axis=1))
    shared = prior.noise.shared
    options = {"has_global_noise": shared, "has_task_noise": not shared, "noise_constraint": GreaterThan(1e-30)}
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(len(series), **options).to(_DTYPE)
    if shared:
        likelihood.noise = torch.tensor(float(hyper.noise_std[0]) ** 2, dtype=_DTYPE)
    else:
        likelihood.task_noises = torch.as_tensor(hyper.noise_std**2)
    units, names = prior.units, [latent.name for latent in prior.kernels]
    options = {"observables": fit.measurements.names, "window": (units.start, units.start + units.time_scale)}
    model = LODEExactGP(times, table, likelihood, fit.system, latent=names, **options).to(_DTYPE)
    kernel = model.covar_module
    for name, value in zip(kernel.parameter_names, hyper.theta, strict=True):
        if fit.system.parameters[name].fixed is None:
            kernel.set_value(name, value)
    kernel.set_value("lengthscales", hyper.lengthscales * units.time_scale)
    kernel.set_value("deviations", hyper.amplitudes)
    kernel.set_value("mode_deviations", hyper.mode_amplitudes)
    if not fit.layout.estimates_mode_std:
        kernel.raw_mode_deviations.requires_grad_(False)
    return model.eval(), likelihood.eval()


def _to_numpy(tensor: Tensor) -> Any:
    return tensor.detach().cpu().numpy().reshape(-1)


def _fixed_mode_deviation(kernel: LODEKernel) -> float | None:
    """Return the fixed standard deviation of all modes (their gradient is off); None if it is estimated."""
    values = _to_numpy(kernel.value_of("mode_deviations"))
    others = [raw.requires_grad for name, raw in kernel.named_parameters() if name != "raw_mode_deviations"]
    if kernel.raw_mode_deviations.requires_grad or not len(values) or np.ptp(values) or (others and not any(others)):
        return None
    return float(values[0])


def from_gpytorch(model: LODEExactGP) -> LODEGP:
    """Return a trained GPyTorch model as a fitted LODEGP with the same data, parameters and noise.

    Parameters
    ----------
    model : LODEExactGP
    """
    if not isinstance(model, LODEExactGP):
        raise LodekitError(f"expected a LODEExactGP, got {type(model).__name__}")
    kernel, likelihood = model.covar_module, model.likelihood
    shared = not getattr(likelihood, "has_task_noise", False)
    noise = "shared" if shared else "channel"
    fixed = _fixed_mode_deviation(kernel)
    arguments = FitSettings(latent=kernel.latent_names, noise=noise, engine="dense", mode_deviation=fixed)
    times = _to_numpy(model.train_inputs[0][:, 0])
    table = _to_numpy(model.train_targets).reshape(len(times), -1)
    columns = {name: table[:, i] for i, name in enumerate(kernel.observables)}
    measurements = Measurements.from_observations(parse_observations(kernel.system.plain_channels, times, columns))
    units = kernel.compiled.units
    setup = build_setup(kernel.system, arguments, measurements, time_units=units)
    variance = likelihood.noise if shared else likelihood.task_noises
    if not shared and getattr(likelihood, "has_global_noise", False):
        variance = variance + likelihood.noise
    names = "lengthscales", "deviations", "mode_deviations"
    lengthscales, deviations, modes = (_to_numpy(kernel.value_of(name)) for name in names)
    noise_std, theta = np.sqrt(_to_numpy(variance)), _to_numpy(kernel.theta())
    hyper = Hyperparameters(theta, lengthscales / units.time_scale, deviations, modes, noise_std)
    return LODEGP.from_fit(fit_at_point(setup, setup.layout.pack(hyper)))

"""LODE-GPs for GPyTorch and BoTorch: a kernel over the shared covariance code, with autograd, and a ready model.

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

from lodekit.data.measurements import Measurements
from lodekit.data.observations import read_observations
from lodekit.data.units import Units
from lodekit.errors import LodekitError
from lodekit.fitted import Arguments
from lodekit.fitting import keep_point, prepare
from lodekit.model import LODEGP
from lodekit.prior.covariance import fold_matrix
from lodekit.prior.hyperparameters import Hyperparameters
from lodekit.prior.means import CompiledSignal
from lodekit.prior.modes import ModeGroup, mode_groups
from lodekit.prior.observables import ObservableReader, Observables
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
        What is observed, one output each; all channels by default.
    window : (float, float)
        The stretch of time that decaying modes start and growing modes end at; of no matter for controllable systems.
    batch_shape : torch.Size
        Of parameters; one kernel then stands for many.

    Notes
    -----
    A parameter ``a`` of the system is ``kernel.a``, with ``raw_a`` behind it; `Parameter` gives its constraint, prior
    and start. ``lengthscales``, ``deviations`` and ``mode_deviations`` are those of the free functions and modes, all
    in the user's units.
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
        if not isinstance(system, System):
            raise LodekitError(f"expected a System, got {type(system).__name__}")
        start, stop = (float(edge) for edge in window)
        if not start < stop:
            raise LodekitError(f"expected a window with start < stop, got {window}")
        self.system = system
        self.observables = tuple(observables or system.channels)
        self.latent_names = [latent] * system.free_functions if isinstance(latent, str) else list(latent)
        self._latents = Arguments(latent=latent).latents(system)
        units = Units(start, stop - start, np.ones(len(self.observables)))
        self.compiled: Observables = ObservableReader(system).compile(self.observables, units)
        self._groups: tuple[ModeGroup, ...] = mode_groups(self.compiled.compiled)
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
        initial = parameter.start if parameter.start is not None else 1.0
        if np.isfinite(low) and np.isfinite(high):
            constraint = Interval(low, high)
            initial = parameter.start if parameter.start is not None else 0.5 * (low + high)
        elif np.isfinite(low):
            constraint = Positive() if low == 0 else GreaterThan(low)
            initial = parameter.start if parameter.start is not None else low + 1.0
        elif np.isfinite(high):
            constraint = LessThan(high)
            initial = parameter.start if parameter.start is not None else high - 1.0
        self._add(name, torch.full((*self.batch_shape, 1), float(initial), dtype=_DTYPE), constraint)
        prior = parameter.prior
        if prior is not None:
            if isinstance(prior, LogNormal):
                own: Any = LogNormalPrior(float(np.log(prior.median)), prior.spread)
            else:
                own = NormalPrior(prior.mean, prior.std)
            self.register_prior(f"{name}_prior", own, lambda module, name=name: module.value_of(name))

    def value_of(self, name: str) -> Tensor:
        """Return a parameter in its natural units, shape (batch, 1) for those of the system."""
        if f"fixed_{name}" in self._buffers:
            return self._buffers[f"fixed_{name}"]
        raw = self._parameters[f"raw_{name}"]
        constraint = getattr(self, f"raw_{name}_constraint", None)
        return raw if constraint is None else constraint.transform(raw)

    def set_value(self, name: str, value: Any) -> None:
        """Set a parameter to a value in its natural units."""
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
        """Return the number of observables."""
        return len(self.observables)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the covariance, shape (..., n1 o, n2 o), or its diagonal."""
        if x1.shape[-1] != 1 or x2.shape[-1] != 1:
            raise LodekitError(f"expected times as inputs of one dimension, got {x1.shape[-1]}")
        if params.get("last_dim_is_batch"):
            raise LodekitError("last_dim_is_batch makes no sense for functions of time")
        kind = self.raw_deviations.dtype
        values, table = self._coefficients()
        ells, sigmas = self.value_of("lengthscales") / self.compiled.units.span, self.value_of("deviations")
        mode_deviations = self.value_of("mode_deviations")
        s1, s2 = (self._scaled(x[..., 0].to(kind)) for x in (x1, x2))
        if diag:
            # Equal times: one small matrix for each; times are one more batch dimension, the last.
            s1, s2 = s1[..., :, None], s2[..., :, None]
            values, table = values[..., None, :, :, :], table[..., None, :]
            ells, sigmas, mode_deviations = (part[..., None, :] for part in (ells, sigmas, mode_deviations))
        total = self._free_part(values, s1, s2, ells, sigmas)
        if self._groups:
            sizes = torch.tensor([group.size for group in self._groups], device=table.device)
            roots = torch.repeat_interleave(mode_deviations, sizes, dim=-1)[..., None, None, :]
            first = self._modes(table, s1) * roots
            second = first if s1 is s2 else self._modes(table, s2) * roots
            total = total + torch.einsum("...air,...bjr->...aibj", first, second)
        count = len(self.observables)
        if diag:
            return torch.diagonal(total[..., 0, :, 0, :], dim1=-2, dim2=-1).flatten(-2).to(x1.dtype)
        return total.flatten(-2).reshape(*total.shape[:-4], total.shape[-4] * count, -1).to(x1.dtype)

    def _scaled(self, times: Tensor) -> Tensor:
        return (times - self.compiled.units.start) / self.compiled.units.span

    def theta(self) -> Tensor:
        """Return all parameters of the system, shape (batch, p)."""
        if not self.parameter_names:
            return self.raw_deviations.new_zeros((*self.batch_shape, 0))
        return torch.cat([self.value_of(name) for name in self.parameter_names], dim=-1)

    def _coefficients(self) -> tuple[Tensor, Tensor]:
        """Return the coefficients of the observables on the free functions in scaled time, and the whole table."""
        compiled = self.compiled.compiled
        table = compiled.table.evaluate_with(torch, self.theta())
        o, q, k = compiled.free_shape
        powers = self.compiled.units.span ** -torch.arange(k, dtype=table.dtype, device=table.device)
        return table[..., : o * q * k].reshape(*table.shape[:-1], o, q, k) * powers, table

    def _free_part(self, values: Tensor, s1: Tensor, s2: Tensor, ells: Tensor, sigmas: Tensor) -> Tensor:
        """Return the covariance due to the free functions, shape (..., n1, o, n2, o)."""
        count = len(self.observables)
        lag = s1[..., :, None] - s2[..., None, :]
        shape = torch.broadcast_shapes(lag.shape[:-2], values.shape[:-3])
        total = torch.zeros((*shape, lag.shape[-2], count, lag.shape[-1], count), dtype=lag.dtype, device=lag.device)
        length = values.shape[-1]
        order = 2 * (length - 1)
        fold = torch.as_tensor(fold_matrix(length, length), dtype=lag.dtype, device=lag.device)
        orders = torch.arange(order + 1, dtype=lag.dtype, device=lag.device)
        for number, latent in enumerate(self._latents):
            latent.check_order(order)
            ell, sigma = ells[..., number], sigmas[..., number]
            own = values[..., number, :]
            pairs = torch.einsum("...ia,...jb->...ijab", own, own).flatten(-2) @ fold
            # Batches of parameters stand before times: lags get as many dimensions as they need.
            pairs = pairs * (sigma**2)[..., None, None, None] * ell[..., None, None, None] ** -orders
            stack = torch.stack(latent.stack(torch, lag / ell[..., None, None], order), dim=-1)
            total = total + torch.einsum("...ijm,...abm->...aibj", pairs, stack)
        return total

    def _modes(self, table: Tensor, times: Tensor) -> Tensor:
        """Return the basis functions of the modes seen through each observable, shape (..., n, o, r)."""
        compiled, span = self.compiled.compiled, self.compiled.units.span
        columns = []
        start = int(np.prod(compiled.free_shape))
        for o, k in compiled.column_shapes:
            powers = span ** -torch.arange(k, dtype=table.dtype, device=table.device)
            columns.append(table[..., start : start + o * k].reshape(*table.shape[:-1], o, k) * powers)
            start += o * k
        found = []
        for group in self._groups:
            factor = compiled.factors[group.factor]
            operators = columns[factor.column]
            if group.root is not None:
                found.append(_exponentials(times, operators, group.root * span, factor.multiplicity))
            else:
                own = table[..., factor.coefficients]
                degree = own.shape[-1] - 1
                powers = span ** torch.arange(degree, -1, -1, dtype=table.dtype, device=table.device)
                found.append(_fundamental(times, operators, own * powers, factor.multiplicity))
        return torch.cat(found, dim=-1)


def _exponentials(times: Tensor, operators: Tensor, root: complex, multiplicity: int) -> Tensor:
    """Return ``W(d) s^k e^(l s)``, real and imaginary parts, by derivatives of ``W(l) e^(l s)`` in l."""
    s = times - (0.0 if root.real <= 0 else 1.0)
    wave = torch.exp(torch.tensor(root, dtype=torch.complex128, device=times.device) * s)
    length = operators.shape[-1]
    at_root = []
    for q in range(multiplicity):
        weights = [float(np.prod(np.arange(k, k - q, -1))) * root ** (k - q) if k >= q else 0.0 for k in range(length)]
        numbers = torch.tensor(weights, dtype=torch.complex128, device=times.device)
        at_root.append((operators.to(torch.complex128) * numbers).sum(-1))
    columns = []
    for k in range(multiplicity):
        total = torch.zeros(1, dtype=torch.complex128, device=times.device)
        for q in range(k + 1):
            binomial = float(np.prod(np.arange(k, k - q, -1)) / np.prod(np.arange(1, q + 1)))
            total = total + binomial * at_root[q][..., None, :] * (s ** (k - q) * wave)[..., :, None]
        columns += [total.real, total.imag] if root.imag else [total.real]
    return torch.stack(columns, dim=-1)


def _fundamental(times: Tensor, operators: Tensor, factor: Tensor, multiplicity: int) -> Tensor:
    """Return the fundamental system of the balanced companion matrix, seen through the operators."""
    degree = factor.shape[-1] - 1
    full = factor
    for _ in range(multiplicity - 1):
        full = _multiply(full, factor)
    size = degree * multiplicity
    omega = (1.0 + factor[..., 0] ** 2) ** (0.5 / degree)
    scales = omega[..., None] ** (torch.arange(size, dtype=times.dtype, device=times.device) - (size - 1.0))
    shifts = torch.diag(torch.ones(size - 1, dtype=times.dtype, device=times.device), 1)
    last = torch.zeros((size, size), dtype=times.dtype, device=times.device)
    last[-1] = 1.0
    matrix = omega[..., None, None] * shifts - last * (full[..., :size] * scales)[..., None, :]
    flow = torch.linalg.matrix_exp(matrix[..., None, :, :] * times[..., :, None, None])
    row = torch.zeros(size, dtype=times.dtype, device=times.device)
    row[0] = 1.0
    rows = [row.expand(*matrix.shape[:-2], size)]
    for _ in range(operators.shape[-1] - 1):
        rows.append((rows[-1][..., None, :] @ matrix)[..., 0, :])
    weights = torch.einsum("...ok,...kr->...or", operators, torch.stack(rows, dim=-2))
    return torch.einsum("...or,...nrm->...nom", weights, flow)


def _multiply(first: Tensor, second: Tensor) -> Tensor:
    """Return the product of polynomials, lowest power first."""
    width = first.shape[-1] + second.shape[-1] - 1
    parts = []
    for k in range(width):
        terms = [first[..., i] * second[..., k - i] for i in range(first.shape[-1]) if 0 <= k - i < second.shape[-1]]
        parts.append(sum(terms[1:], terms[0]))
    return torch.stack(parts, dim=-1)


class LODEMean(gpytorch.means.Mean):  # type: ignore[misc]
    """The particular solution of a system, at the parameters of a kernel, shape (..., n, o).

    Parameters
    ----------
    kernel : LODEKernel
    """

    def __init__(self, kernel: LODEKernel) -> None:
        super().__init__()
        # Not a submodule: its parameters are registered where the kernel is.
        self.__dict__["_kernel"] = kernel

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of all observables."""
        kernel: LODEKernel = self.__dict__["_kernel"]
        times = x[..., 0]
        table = kernel.compiled.compiled.table.evaluate_with(torch, kernel.theta())
        signals = kernel.compiled.compiled.signals
        return torch.stack([_signal(signal, table, times) for signal in signals], dim=-1).to(x.dtype)


def _signal(signal: CompiledSignal, table: Tensor, times: Tensor) -> Tensor:
    own = table[..., signal.coefficients]
    total = torch.zeros_like(times) + 0.0 * table.sum(-1, keepdim=True)
    for i, (power, sine) in enumerate(zip(signal.powers, signal.sines, strict=True)):
        c, r, w = (own[..., 3 * i + k, None] for k in range(3))
        wave = torch.sin(w * times) if sine else torch.cos(w * times)
        total = total + c * times**power * torch.exp(r * times) * wave
    return total


class LODEExactGP(gpytorch.models.ExactGP):  # type: ignore[misc]
    """A ready multitask model: the kernel of a system, and its particular solution as the mean.

    Parameters
    ----------
    train_x : tensor, shape (n,) or (n, 1)
        Times.
    train_y : tensor, shape (n, o)
        One column for each observable; or of shape (n,) for a single one.
    likelihood : gpytorch.likelihoods.Likelihood
        Such as ``MultitaskGaussianLikelihood(num_tasks=o)``; for a single observable any other, such as
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
            raise LodekitError(
                f"expected train_y with a column for each of {count} observables, got {train_y.shape[-1]}"
            )
        if train_y.ndim == 1 and count != 1:
            raise LodekitError(
                f"expected one observable for train_y of one column, got {count}; name it: observables=[...]"
            )
        self.mean_module = LODEMean(self.covar_module)

    def forward(self, x: Tensor) -> Any:
        """Return the prior at some times."""
        if self.train_targets.ndim == 1:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x)[..., 0], self.covar_module(x))
        return gpytorch.distributions.MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


def to_gpytorch(fitted: LODEGP) -> tuple[LODEExactGP, Any]:
    """Return a fitted model as a GPyTorch model and its likelihood, both in evaluation mode.

    The measurements must be a full table with learned noise: multitask models of GPyTorch know no missing values.
    """
    fit = fitted.fit_
    series, prior, hyper = fit.measurements.series, fit.prior, fit.hyperparameters
    same = len({item.times.tobytes() for item in series}) == 1 if series else False
    if not same or not all(item.learned.all() for item in series) or prior.channels is not None:
        raise LodekitError(
            "GPyTorch's multitask models take full tables with learned noise and the latent prior; expected these"
        )
    times = torch.as_tensor(series[0].times)
    table = torch.as_tensor(np.stack([item.values for item in series], axis=1))
    shared = prior.noise.shared
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(
        num_tasks=len(series),
        rank=0,
        has_global_noise=shared,
        has_task_noise=not shared,
        noise_constraint=GreaterThan(1e-30),
    ).to(_DTYPE)
    if shared:
        likelihood.noise = torch.tensor(float(hyper.noise[0]) ** 2, dtype=_DTYPE)
    else:
        likelihood.task_noises = torch.as_tensor(hyper.noise**2)
    units = prior.units
    model = LODEExactGP(
        times,
        table,
        likelihood,
        fit.system,
        latent=[latent.name for latent in prior.latents],
        observables=fit.measurements.names,
        window=(units.start, units.start + units.span),
    ).to(_DTYPE)
    kernel = model.covar_module
    for name, value in zip(kernel.parameter_names, hyper.theta, strict=True):
        if fit.system.parameters[name].fixed is None:
            kernel.set_value(name, value)
    kernel.set_value("lengthscales", hyper.lengthscales * units.span)
    kernel.set_value("deviations", hyper.deviations)
    kernel.set_value("mode_deviations", hyper.mode_deviations)
    return model.eval(), likelihood.eval()


def from_gpytorch(model: LODEExactGP) -> LODEGP:
    """Return a GPyTorch model, trained there, as a fitted LODEGP: the same data, parameters and noise."""
    if not isinstance(model, LODEExactGP):
        raise LodekitError(f"expected a LODEExactGP, got {type(model).__name__}")
    kernel, likelihood = model.covar_module, model.likelihood
    shared = not getattr(likelihood, "has_task_noise", False)
    arguments = Arguments(latent=kernel.latent_names, noise="shared" if shared else "channel", engine="dense")
    times = model.train_inputs[0][:, 0].detach().cpu().numpy()
    table = model.train_targets.detach().cpu().numpy()
    columns = {name: table[:, i] for i, name in enumerate(kernel.observables)}
    measurements = Measurements.of(read_observations(kernel.system.channels, times, columns))
    units = kernel.compiled.units
    setup = prepare(kernel.system, arguments, measurements, time=units)

    def plain(name: str) -> Any:
        return kernel.value_of(name).detach().cpu().numpy().reshape(-1)

    variance = likelihood.noise if shared else likelihood.task_noises
    if not shared and getattr(likelihood, "has_global_noise", False):
        variance = variance + likelihood.noise
    hyper = Hyperparameters(
        kernel.theta().detach().cpu().numpy().reshape(-1),
        plain("lengthscales") / units.span,
        plain("deviations"),
        plain("mode_deviations"),
        np.sqrt(variance.detach().cpu().numpy().reshape(-1)),
    )
    return LODEGP.from_fit(keep_point(setup, setup.layout.pack(hyper)))

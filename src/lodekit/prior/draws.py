"""Samples from the prior: free functions with their derivatives (random Fourier sums), and whole solutions."""

from __future__ import annotations

import numpy as np

from lodekit.errors import LodekitError
from lodekit.prior.compile import Coefficients
from lodekit.prior.covariance import free_function_variance
from lodekit.prior.kernels import Kernel, average_kernel_derivatives, group_by_window
from lodekit.prior.observables import Observables
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array, IndexArray


def unit_variance_hyperparameters(
    observables: Observables, kernels: tuple[Kernel, ...], theta: Array, lengthscale: float
) -> Hyperparameters:
    """Return hyperparameters with unit prior variance of the observables, on average.

    Shapes: theta (p,).
    """
    values = observables.evaluate(theta)
    deviations = np.ones(len(kernels))
    for number, latent in enumerate(kernels):
        variance = free_function_variance(latent, values.free[:, number], lengthscale, 1.0, values.windows)
        if (variance > 0).any():
            deviations[number] = float(np.exp(-0.5 * np.log(variance[variance > 0]).mean()))
    groups = observables.compiled.groups
    basis, _ = observables.mode_basis(values, groups, np.linspace(0.0, 1.0, 50), with_jacobian=False)
    power = np.max([np.mean(part**2, axis=0) for part in basis], axis=0)
    starts = np.cumsum([0, *(group.size for group in groups)])[:-1]
    modes = 1.0 / np.sqrt(np.maximum(np.add.reduceat(power, starts) if groups else np.zeros(0), 1e-300))
    return Hyperparameters(theta, np.full(len(kernels), lengthscale), deviations, modes, np.zeros(0))


def sample_prior(
    observables: Observables,
    kernels: tuple[Kernel, ...],
    hyper: Hyperparameters,
    times: Array,
    size: int,
    generator: np.random.Generator,
) -> Array:
    """Return observables of solutions drawn from the prior, in the user's units, shape (size, n, o).

    Shapes: times (n,).
    """
    values, scaled = observables.evaluate(hyper.theta), observables.units.scale_times(times)
    groups = observables.compiled.groups
    basis, _ = observables.mode_basis(values, groups, scaled, with_jacobian=False)
    means, _ = observables.means(values, times, with_jacobian=False)
    roots = np.repeat(hyper.mode_amplitudes, [group.size for group in groups])
    weights = roots[:, None] * generator.standard_normal((len(roots), size))
    total = np.stack([part @ weights for part in basis], axis=1) + np.stack(means, axis=1)[:, :, None]
    windows = group_observables_by_window(values)
    every = np.tile(scaled, len(windows)), np.repeat([window for window, _ in windows], len(scaled))
    for number, latent in enumerate(kernels):
        operators = values.free[:, number]
        order = operators.shape[-1]
        latent.check_order(2 * (order - 1))
        ell, amplitude = float(hyper.lengthscales[number]), float(hyper.amplitudes[number])
        stack = sample_free_function(latent, every[0], order, ell, amplitude, size, generator, every[1])
        parts = stack.reshape(order, len(windows), len(scaled), size)
        for place, (_, rows) in enumerate(windows):
            total[:, rows] += np.einsum("oa,ans->nos", operators[rows], parts[:, place])
    return np.asarray(total.transpose(2, 0, 1)) * observables.units.scales


def group_observables_by_window(values: Coefficients) -> list[tuple[float, IndexArray]]:
    """Return the distinct averaging intervals, zero for point values, and the indices of the observables with each."""
    return group_by_window(np.zeros(len(values.free)) if values.windows is None else values.windows)


def sample_free_function(
    kernel: Kernel,
    times: Array,
    order: int,
    lengthscale: float,
    amplitude: float,
    size: int,
    generator: np.random.Generator,
    windows: Array | None = None,
) -> Array:
    """Return draws of a free function and its derivatives, shape (order, n, size).

    Band-limited kernels: a sum of waves by the trapezoidal rule in frequency, exact to rounding over the span of the
    times. Others: a joint sample of the function and its derivatives at all times.

    Shapes: times (n,), windows (n,).
    """
    spans = np.zeros(len(times)) if windows is None else windows
    if not kernel.is_band_limited:
        n, h = len(times), _pairwise_derivatives(kernel, times, spans, lengthscale, 2 * (order - 1))
        joint = np.zeros((order, n, order, n))
        for a in range(order):
            for b in range(order):
                joint[a, :, b] = (-1.0) ** b * amplitude**2 * lengthscale ** (-(a + b)) * h[a + b]
        eigenvalues, vectors = np.linalg.eigh(joint.reshape(order * n, order * n))
        root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
        return np.asarray((root @ generator.standard_normal((order * n, size))).reshape(order, n, size))
    # Cover the relevant spectrum with a margin for derivatives; further if the tolerance requires it.
    usual = kernel.max_frequency + 0.5 * order
    band, reach = (max(usual, extent(order - 1, 1e-16)) for extent in (kernel.bandwidth, kernel.correlation_range))
    length = float(times.max() - (times - spans).min()) + reach * lengthscale if len(times) else lengthscale
    step = 2.0 * np.pi / length
    count = int(np.ceil(band / lengthscale / step)) + 1
    if count > 20_000:  # matrices over all times would take too much memory
        raise LodekitError(
            "samples over so many lengthscales need too many Fourier features; expected times within a few thousand "
            "lengthscales of each other and of the data"
        )
    frequencies: Array = step * np.arange(count, dtype=float)
    density = np.exp(kernel.log_density(frequencies, lengthscale)) / (2.0 * np.pi) * step
    sizes = amplitude * np.sqrt(np.where(frequencies == 0, 1.0, 2.0) * density)
    cosines, sines = (generator.standard_normal((len(frequencies), size)) * sizes[:, None] for _ in range(2))
    # The average of a wave is the wave at the middle of the interval with a smaller amplitude.
    angle = np.outer(times - 0.5 * spans - (times.mean() if len(times) else 0.0), frequencies)
    damped = np.sinc(np.outer(spans, frequencies) / (2.0 * np.pi)) if spans.any() else 1.0
    stack = np.empty((order, len(times), size))
    for a in range(order):
        turned, own = angle + 0.5 * np.pi * a, damped * frequencies**a
        stack[a] = (np.cos(turned) * own) @ cosines + (np.sin(turned) * own) @ sines
    return stack


def _pairwise_derivatives(kernel: Kernel, times: Array, windows: Array, lengthscale: float, order: int) -> Array:
    """Return the derivatives of a covariance over all pairs of times, averaged over windows, (order + 1, n, n)."""
    found = np.empty((order + 1, len(times), len(times)))
    for first, rows in group_by_window(windows):
        for second, columns in group_by_window(windows):
            lag = times[rows, None] - times[None, columns]
            stack = average_kernel_derivatives(kernel, lag, lengthscale, (first, second), order)
            found[:, rows[:, None], columns] = stack
    return found

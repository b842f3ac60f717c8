"""The unconstrained vector that is searched: logarithms of positive values, logits of bounded ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lodekit.fitting import search_options as options
from lodekit.prior.diffuse_modes import DiffuseModes
from lodekit.prior.prior import Hyperparameters
from lodekit.support.arguments import Array
from lodekit.system.parameters import Parameter


@dataclass(frozen=True)
class ParameterTransform:
    """A smooth bijection between a parameter and the real line.

    low, high: The bounds; infinite if there are none.
    scale: A hundredth of the expected magnitude. For an unbounded parameter, ``value = scale sinh(x)``: linear below
        this scale and logarithmic above it, with either sign, so that the search does not depend on its unit.
    """

    low: float
    high: float
    scale: float = 1.0

    @cached_property
    def is_unbounded(self) -> bool:
        """Whether the parameter has no bounds."""
        return math.isinf(self.low) and math.isinf(self.high)

    @cached_property
    def _single_bound(self) -> tuple[float, float] | None:
        """The only bound, and 1 if it is a lower one or -1 if it is an upper one; None with two or without bounds."""
        if math.isinf(self.low) == math.isinf(self.high):
            return None
        return (self.low, 1.0) if math.isinf(self.high) else (self.high, -1.0)

    @cached_property
    def expected_magnitude(self) -> float:
        """The expected magnitude of the parameter, or of its distance from its only bound."""
        return self.scale / options.SEARCH.sinh_scale_fraction

    @cached_property
    def centre(self) -> float:
        """The point of the real line around which starts are drawn."""
        if (single := self._single_bound) is None:
            return 0.0
        return single[1] * math.log(max(self.expected_magnitude, abs(single[0])))

    def distance_from_expected(self, x: float) -> float:
        """Return the distance of a point `x` from the expected magnitude; zero for unbounded parameters below it."""
        if self.is_unbounded:
            return max(0.0, abs(x) - abs(self.inverse(self.expected_magnitude)))
        return abs(x - self.centre)

    def expected_point(self, x: float) -> float:
        """Return the point of expected magnitude that is nearest to a point `x` of the real line."""
        return x - math.copysign(self.distance_from_expected(x), x - self.centre)

    def distance(self, value: float, other: float) -> float:
        """Return the distance of two values: on the real line, or relative to the first for unbounded parameters."""
        if self.is_unbounded:
            return abs(other - value) / max(abs(value), self.expected_magnitude)
        return abs(self.inverse(other) - self.inverse(value))

    def nearest_bound(self, value: float) -> tuple[float, float]:
        """Return the bound next to a value, or zero for an unbounded parameter, and the direction away from it."""
        if self.is_unbounded:
            return 0.0, math.copysign(1.0, value)
        return (self.low, 1.0) if value - self.low <= self.high - value else (self.high, -1.0)

    def log_distance(self, x: float) -> tuple[float, float]:
        """Return the distance from the expected magnitude, or of an unbounded parameter from zero, and its derivative.

        The latter is linear up to the expected magnitude, and logarithmic beyond.
        """
        if not self.is_unbounded:
            return x - self.centre, 1.0
        share = self.forward(x) / self.expected_magnitude
        return math.asinh(share), self.derivative(x) / self.expected_magnitude / math.hypot(1.0, share)

    def forward(self, x: float) -> float:
        """Return the parameter at a point `x` of the real line."""
        if self.is_unbounded:
            return self.scale * math.sinh(max(min(x, 300.0), -300.0))
        if (single := self._single_bound) is not None:
            return single[0] + single[1] * math.exp(min(single[1] * x, 700.0))
        return self.low + (self.high - self.low) / (1.0 + math.exp(-max(min(x, 700.0), -700.0)))

    def forward_many(self, x: Array) -> Array:
        """Return the parameter at many points of the real line, of any shape."""
        if self.is_unbounded:
            return np.asarray(self.scale * np.sinh(x.clip(-300.0, 300.0)))
        if (single := self._single_bound) is not None:
            return np.asarray(single[0] + single[1] * np.exp(np.minimum(single[1] * x, 700.0)))
        return np.asarray(self.low + (self.high - self.low) / (1.0 + np.exp(-x.clip(-700.0, 700.0))))

    def derivative(self, x: float) -> float:
        """Return the derivative of `forward` at `x`."""
        if self.is_unbounded:
            return self.scale * math.cosh(max(min(x, 300.0), -300.0))
        if (single := self._single_bound) is not None:
            return math.exp(min(single[1] * x, 700.0))
        share = 1.0 / (1.0 + math.exp(-max(min(x, 700.0), -700.0)))
        return (self.high - self.low) * share * (1.0 - share)

    def log_jacobian_gradient(self, x: float) -> float:
        """Return the derivative of the logarithm of `derivative` at `x`."""
        if self.is_unbounded:
            return math.tanh(x)
        return -math.tanh(0.5 * x) if (single := self._single_bound) is None else single[1]

    def inverse(self, value: float) -> float:
        """Return the point of the real line at a parameter value inside the bounds."""
        if self.is_unbounded:
            return math.asinh(value / self.scale)
        if (single := self._single_bound) is not None:
            return single[1] * math.log(max(single[1] * (value - single[0]), 1e-300))
        share = min(max((value - self.low) / (self.high - self.low), 1e-12), 1 - 1e-12)
        return math.log(share / (1.0 - share))


class VectorSlices(NamedTuple):
    """The slices of the search vector.

    theta, lengthscales, deviations, mode_deviations, noise, disturbance_lengthscales, disturbance_deviations: In this
        order, without gaps.
    """

    theta: slice
    lengthscales: slice
    deviations: slice
    mode_deviations: slice
    noise: slice
    disturbance_lengthscales: slice
    disturbance_deviations: slice


@dataclass(frozen=True)
class ParameterLayout:
    """The layout of the search vector: transformed free parameters, then logarithms of hyperparameters.

    names: All parameters of the system, in order.
    fixed_values: Values of fixed parameters, NaN elsewhere; (p,).
    transforms: The transform of each free parameter, by its number.
    n_processes, n_mode_groups, n_noise_levels: Number of lengthscales (and standard deviations) of processes, of
        standard deviations of modes, and of noise levels.
    fixed_mode_std: Standard deviation of all modes if it is fixed; the vector has no entries for modes then.
    diffuse_modes: The diffuse prior of modes, if they have one; the vector has no entries for modes then.
    n_coloured_disturbances, n_disturbances: Number of disturbances with a lengthscale, and of all disturbances.
    """

    names: tuple[str, ...]
    fixed_values: Array
    transforms: Mapping[int, ParameterTransform]
    n_processes: int
    n_mode_groups: int
    n_noise_levels: int
    fixed_mode_std: float | None = None
    diffuse_modes: DiffuseModes | None = None
    n_coloured_disturbances: int = 0
    n_disturbances: int = 0

    @cached_property
    def estimates_mode_std(self) -> bool:
        """Whether standard deviations of modes are estimated."""
        return self.fixed_mode_std is None and self.diffuse_modes is None

    @cached_property
    def is_deterministic(self) -> bool:
        """Whether known inputs and initial states determine all channels: no free functions, no disturbances."""
        return not self.n_processes and not self.n_disturbances

    @cached_property
    def free_parameters(self) -> list[int]:
        """The numbers of the free parameters, in the order of the vector."""
        return list(self.transforms)

    @cached_property
    def slices(self) -> VectorSlices:
        """The slices of the vector."""
        modes = self.n_mode_groups if self.estimates_mode_std else 0
        sizes = [len(self.transforms), self.n_processes, self.n_processes, modes, self.n_noise_levels]
        ends = np.cumsum([0, *sizes, self.n_coloured_disturbances, self.n_disturbances]).tolist()
        return VectorSlices(*(slice(start, stop) for start, stop in pairwise(ends)))

    @property
    def size(self) -> int:
        """The length of the vector."""
        return int(self.slices.disturbance_deviations.stop)

    def index_of(self, name: str) -> int:
        """Return the position of a free parameter in the vector."""
        return self.free_parameters.index(self.names.index(name))

    def transform_of(self, name: str) -> ParameterTransform | None:
        """Return the transform of a parameter; None if it is fixed."""
        return self.transforms.get(self.names.index(name))

    def draw_starts(
        self, indices: Sequence[int], attempt: int, generator: np.random.Generator, log_range: float | None = None
    ) -> Array:
        """Return start values around the expected magnitudes; unbounded parameters are drawn with either sign.

        They are drawn in alphabetical order, so that the order of declaration does not matter.
        """
        opt, drawn = options.SEARCH, np.full(len(self.names), math.nan)
        reach = opt.start_log_range if log_range is None else log_range
        ranked = enumerate(sorted(range(len(drawn)), key=self.names.__getitem__))
        for rank, index in (pair for pair in ranked if pair[1] in indices):
            transform = self.transforms[index]
            first = attempt < (2 if transform.is_unbounded else 1)
            # At equal values of all parameters a coefficient such as a*d - b*c may vanish.
            shift = opt.start_stagger * math.sin(rank + 1.0) if first else float(generator.uniform(-reach, reach))
            drawn[index] = transform.forward(transform.centre + shift)
            if transform.is_unbounded:
                negative = attempt == 1 if first else generator.random() < 0.5
                drawn[index] = (-1.0 if negative else 1.0) * transform.expected_magnitude * math.exp(shift)
        return drawn[list(indices)]

    def parameter_values(self, x: Array, indices: Sequence[int], fill_value: float = math.nan) -> Array:
        """Return all parameters, shape (p,): fixed values, those of `x` at `indices`, and `fill_value` for others."""
        theta = np.where(np.isnan(self.fixed_values), fill_value, self.fixed_values)
        theta[list(indices)] = [self.transforms[n].forward(float(x[position])) for position, n in enumerate(indices)]
        return theta

    def parameter_values_many(self, x: Array) -> Array:
        """Return all parameters at many points, shape (k, p), of which only the free parameters are given.

        Shapes: x (k, free).
        """
        theta = np.tile(self.fixed_values, (len(x), 1))
        for column, (n, transform) in zip(x.T, self.transforms.items(), strict=True):
            theta[:, n] = transform.forward_many(column)
        return theta

    def unpack(self, x: Array) -> Hyperparameters:
        """Return the hyperparameters, as values and not logarithms, at a vector of shape (n,)."""
        theta = self.parameter_values(x, self.free_parameters)
        values = np.exp(np.minimum(np.maximum(x, -300.0), 300.0))
        _, lengthscales, deviations, modes, *others = (values[block] for block in self.slices)
        return Hyperparameters(theta, lengthscales, deviations, self.resolve_mode_std(modes, theta), *others)

    def resolve_mode_std(self, mode_std: Array, theta: Array) -> Array:
        """Return the standard deviations of modes: estimated, fixed, or those of the diffuse prior.

        Shapes: theta (p,).
        """
        if self.diffuse_modes is not None:
            return np.asarray(np.exp(np.clip(self.diffuse_modes.log_amplitudes(theta), -300, 300)))
        return mode_std if self.fixed_mode_std is None else np.full(self.n_mode_groups, self.fixed_mode_std)

    def restricted_likelihood_correction(self, x: Array) -> float:
        """Return the restricted-likelihood correction at a vector of shape (n,); zero without diffuse modes."""
        return self.restricted_likelihood_correction_at(self.parameter_values(x, self.free_parameters))

    def restricted_likelihood_correction_at(self, theta: Array) -> float:
        """Return the same at values of the parameters, shape (p,)."""
        return 0.0 if self.diffuse_modes is None else self.diffuse_modes.restricted_likelihood_correction(theta)

    def _free_blocks(self, hyper: Hyperparameters) -> list[Array]:
        """Return the hyperparameters that have entries in the vector, without the parameters."""
        _, lengthscales, deviations, modes, *others = hyper.arrays
        return [lengthscales, deviations, *([modes] if self.estimates_mode_std else []), *others]

    def pack(self, hyper: Hyperparameters) -> Array:
        """Return the vector of some hyperparameters, shape (n,); the inverse of `unpack`."""
        own = [self.transforms[number].inverse(float(hyper.theta[number])) for number in self.free_parameters]
        return np.concatenate([own, *(np.log(np.maximum(part, 1e-300)) for part in self._free_blocks(hyper))])

    def gradient(self, x: Array, gradient: Hyperparameters) -> Array:
        """Return a gradient in the vector, shape (n,), with that of the restricted-likelihood correction.

        Shapes: x (n,).
        """
        theta = gradient.theta
        if self.diffuse_modes is not None and len(self.free_parameters):
            values = self.parameter_values(x, self.free_parameters)
            theta = theta + self.diffuse_modes.vjp(values, gradient.mode_amplitudes, 1.0)
        own = [theta[n] * t.derivative(float(x[i])) for i, (n, t) in enumerate(self.transforms.items())]
        return np.concatenate([own, *self._free_blocks(gradient)])


def build_transforms(
    names: Sequence[str], parameters: Mapping[str, Parameter], magnitudes: Array | None = None
) -> tuple[Array, dict[int, ParameterTransform]]:
    """Return the values of fixed parameters (NaN for others) and the transforms of the free ones, by number.

    Shapes: magnitudes (p,).
    """
    fixed = np.array([parameters[name].fixed for name in names], dtype=float)
    scales = options.SEARCH.sinh_scale_fraction * (np.ones(len(names)) if magnitudes is None else magnitudes)
    free = np.flatnonzero(np.isnan(fixed)).tolist()
    return fixed, {n: ParameterTransform(*parameters[names[n]].interval, float(scales[n])) for n in free}

"""Frequencies for the channel prior: Gauss-Legendre panels, short ones around the peaks of the density.

A covariance is ``k(tau) = int S(w) cos(w tau) dw / pi``. Equidistant frequencies are exact over a window once their
period exceeds the window and the memory of the process, which is very long where a peak is narrow; panels that are
halved around a peak need some ten frequencies more for each halving, whatever the memory. On each panel the density is
looked at as a Legendre series: what its last terms say of the terms that the rule does not integrate tells whether to
halve it. A peak between the nodes leaves no term; but the logarithm of the determinant of the density has a pole there,
which no series of a few terms follows, and so tells where to look, however narrow the peak is and whatever lies under
it. Panels that cannot be halved any more say what they may miss.

Gauss rules for a matrix of spectral densities: as few waves as a window can tell apart, whatever peaks there are.

Over a window of a length T, waves are smooth functions of their frequency: polynomials of a degree of about T times
half the band, and a few more. A rule of Gauss that has the density as its weight integrates these exactly, however
narrow the peaks of the density are, for they are in the weight. Lanczos' process finds it: with the fine rule of panels
as a sum over frequencies, the space of all polynomials times the root of the density is built step by step,
orthonormal, until the waves at the end of the window lie in it. What they still lack there bounds the error of the
covariance: the rule knows what it misses.

For several free functions the weight is a matrix, a step adds as many dimensions, and each frequency of the rule has a
vector in place of a weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from lodekit.prior.channel_prior.spectral_density import ConditionedDensity
from lodekit.prior.kernels import CHANNEL_KERNEL
from lodekit.prior.spectra import SpectralPoint

Array = NDArray[np.float64]
#: Frequencies of one panel, and how far a wave may turn from its middle to its end over the window.
N_PANEL_NODES, MAX_PANEL_PHASE = 16, 4.0
#: The share of the variance that a panel may miss when it is made, and when it serves again at another point.
PANEL_BUILD_TOLERANCE, PANEL_REUSE_TOLERANCE = 1e-14, 1e-10
#: Below the first share of the variance a panel at the end of the band is left out; below the second, nothing is looked
#: at more closely.
NEGLIGIBLE_PANEL_SHARE, MIN_REFINED_SHARE = 1e-17, 1e-28
#: A panel whose largest value exceeds its median by more than this may hide a narrow peak; so may one where the last
#: terms of the logarithm of the determinant exceed that. A pole in the panel, on the axis, makes at least the double.
MAX_PEAK_RATIO, MAX_LOG_DET_CURVATURE = 20.0, 0.02
#: Panels are halved so often at most: more than there are bits between the widest and the narrowest.
MAX_HALVINGS = 60
#: No panel is narrower than this, relative to its frequencies.
MIN_RELATIVE_PANEL_WIDTH = 1e-13
#: Rounding of a density where waves cancel each other.
DENSITY_ROUNDING_TOLERANCE = 1e-15
#: So many panels are too many; so are so many numbers of observables and channels on the free functions, at all
#: frequencies: 32 MB, of which an evaluation has some thirty at the same time.
MAX_PANELS, MAX_PANEL_ENTRIES = 5000, 2_000_000
#: The highest frequency, times the length: beyond, there would be more frequencies than anyone can wait for.
MAX_FREQUENCY_LENGTH = 1e5
#: Where the first panel ends at most, times the longest lengthscale: the density of a process that hardly changes in
#: the window is a peak at zero, whose logarithm is a polynomial and shows nowhere else. And the longest one there is.
MAX_FIRST_PANEL_END, MAX_RELATIVE_LENGTHSCALE = 16.0, 1e8

_LEGENDRE_NODES, _LEGENDRE_WEIGHTS = legendre.leggauss(N_PANEL_NODES)
#: From values on the nodes to coefficients of a Legendre series, shape (order, order); of these the mean and the last
#: three, by which a density is looked at, and the last six, by which the logarithm of the determinant is.
_LEGENDRE_TRANSFORM = (
    _LEGENDRE_WEIGHTS[:, None]
    * legendre.legvander(_LEGENDRE_NODES, N_PANEL_NODES - 1)
    * (np.arange(N_PANEL_NODES) + 0.5)
)
_DENSITY_TRANSFORM, _LOG_DET_TRANSFORM = _LEGENDRE_TRANSFORM[:, [0, -3, -2, -1]], _LEGENDRE_TRANSFORM[:, -6:]


@dataclass(frozen=True)
class QuadratureTolerance:
    """What a rule may miss at points where it serves again.

    noise_variance: Variances of the noise of the observables; (o,).
    tolerance: A share of these.
    min_share: A share of the variance below which nobody looks.
    """

    noise_variance: Array
    tolerance: float = PANEL_REUSE_TOLERANCE
    min_share: float = MIN_REFINED_SHARE

    def share(self, variances: Array) -> float:
        """Return the share of their variance that may be missed, from the variances of the observables."""
        ratio = float(np.min(self.noise_variance / np.where(variances > 0, variances, 1.0), initial=1.0))
        return max(min(self.tolerance * ratio, PANEL_REUSE_TOLERANCE), self.min_share)


@dataclass(frozen=True)
class FrequencyPanels:
    """Frequencies and weights of a rule over some panels.

    lows, highs: Where each panel begins and ends; (p,).
    unresolved_share: The share of a variance that may lie in panels which were too narrow to be halved again.
    """

    lows: Array
    highs: Array
    unresolved_share: float = 0.0

    @classmethod
    def concatenate(cls, panels: list[FrequencyPanels]) -> FrequencyPanels:
        """Return all panels in ascending order."""
        lows, highs = (np.concatenate([getattr(part, side) for part in panels]) for side in ("lows", "highs"))
        order = np.argsort(lows)
        return cls(lows[order], highs[order])

    def select(self, mask: NDArray[np.bool_]) -> FrequencyPanels:
        """Return some of the panels."""
        return FrequencyPanels(self.lows[mask], self.highs[mask])

    def split(self, pieces: int) -> FrequencyPanels:
        """Return equal pieces of all panels."""
        edges = self.lows + (self.highs - self.lows) * (np.arange(pieces + 1) / pieces)[:, None]
        return FrequencyPanels(edges[:-1].ravel(), edges[1:].ravel())

    @cached_property
    def _half_widths(self) -> Array:
        return 0.5 * (self.highs - self.lows)

    @cached_property
    def frequencies(self) -> Array:
        """All frequencies, shape (16 p,)."""
        middles = 0.5 * (self.lows + self.highs)
        return (middles[:, None] + self._half_widths[:, None] * _LEGENDRE_NODES).ravel()

    @cached_property
    def weights(self) -> Array:
        """The share of the density that each frequency stands for, shape (16 p,)."""
        return (self._half_widths[:, None] * _LEGENDRE_WEIGHTS / np.pi).ravel()

    def estimate_errors(self, density: ConditionedDensity) -> PanelErrors:
        """Return what the density adds on each panel, and what is not seen of it."""
        values = density.observable_density.reshape(len(density.observable_density), -1, N_PANEL_NODES)
        series = np.abs(values @ _DENSITY_TRANSFORM) * (2.0 / np.pi * self._half_widths)[:, None]
        energies = whole = series[..., 0]
        if density.absolute_density is not density.observable_density:
            # What is left where waves cancel each other is rounding; nothing smaller needs to be resolved.
            whole = density.absolute_density.reshape(values.shape) @ _LEGENDRE_WEIGHTS * (self._half_widths / np.pi)
            energies = energies + DENSITY_ROUNDING_TOLERANCE * whole
        shares = density.channel_density_ratio.reshape(len(density.channel_density_ratio), -1, N_PANEL_NODES)
        largest, middle = (
            shares.max(axis=-1),
            np.partition(shares, N_PANEL_NODES // 2, axis=-1)[..., N_PANEL_NODES // 2],
        )
        alone = np.exp(density.log_density[:, N_PANEL_NODES // 2 :: N_PANEL_NODES]) * self._half_widths
        is_bent = (
            np.abs(density.half_log_det.reshape(-1, N_PANEL_NODES) @ _LOG_DET_TRANSFORM).max(axis=-1)
            > MAX_LOG_DET_CURVATURE
        )
        # A peak of height h and width g has flanks h (g/d)^2 at a distance d, and the variance g h.
        bound = np.where((largest > MAX_PEAK_RATIO * middle) | is_bent, 0.1 * alone * np.sqrt(largest), 0.0)
        tails = series[..., 1:].max(axis=-1)
        # Below, terms are made of rounding, and halving would not end.
        tails[tails < 20.0 * DENSITY_ROUNDING_TOLERANCE * whole] = 0.0
        return PanelErrors(energies, tails, alone * (shares @ _LEGENDRE_WEIGHTS) / np.pi, bound)

    def is_accurate(self, density: ConditionedDensity, tolerance: QuadratureTolerance) -> bool:
        """Return whether the rule is still accurate at another point, and not far wider than it needs to be there."""
        if self.highs[0] * float(np.max(density.point.lengthscales)) > 2.0 * MAX_FIRST_PANEL_END:
            return False
        look = self.estimate_errors(density)
        totals, _ = look.totals
        share = tolerance.share(totals)
        # What comes after the last panel is less than this.
        beyond = density.observable_density[:, -1] * self._half_widths[-1]
        if not np.isfinite(totals).all() or self.unresolved_share > share or (beyond > share * totals).any():
            return False
        half = look.variances.shape[1] // 2
        is_wide = (look.variances[:, half:] <= min(NEGLIGIBLE_PANEL_SHARE, share * share) * totals[:, None]).all()
        return bool(not is_wide and not look.needs_refinement(look.totals, share).any())


@dataclass(frozen=True)
class PanelErrors:
    """What a rule sees of densities on each panel.

    variances: The variance that each panel adds to the observables; (o, p).
    truncation_errors: The same for the last terms of a Legendre series; (o, p).
    channel_variances: The variance that each panel adds to the channels, about; (c, p).
    peak_bounds: The variance that a peak between the nodes of a panel might have, for each channel; (c, p).
    """

    variances: Array
    truncation_errors: Array
    channel_variances: Array
    peak_bounds: Array

    @property
    def totals(self) -> tuple[Array, Array]:
        """The variances of observables and channels."""
        return self.variances.sum(axis=1), self.channel_variances.sum(axis=1)

    def needs_refinement(self, totals: tuple[Array, Array], eps: float) -> NDArray[np.bool_]:
        """Return which panels miss more than a share of the variance, shape (p,).

        The terms of the series beyond those that the rule integrates are about the square of the last ones that it
        sees, relative to the first.
        """
        allowed = eps * totals[0][:, None]
        missed = self.truncation_errors**2 > allowed * (self.variances + 1e-4 * allowed)
        return np.asarray(missed.any(axis=0) | self.may_hide_peak(totals, eps))

    def may_hide_peak(self, totals: tuple[Array, Array], eps: float) -> NDArray[np.bool_]:
        """Return which panels may hide a peak of more than a share of a channel's variance, as in `coarse`."""
        return np.asarray((self.peak_bounds > eps * totals[1][:, None]).any(axis=0))

    def unresolved_share(self, totals: tuple[Array, Array], mask: NDArray[np.bool_]) -> float:
        """Return the share of a variance that some panels may miss, with `totals` as in `coarse`."""
        parts = zip((self.truncation_errors, self.peak_bounds), totals, strict=True)
        # Channels that no free function moves have no variance, and miss none of it.
        shares = [part[:, mask].sum(axis=1) / np.where(total > 0, total, 1.0) for part, total in parts]
        return float(sum(np.max(share, initial=0.0) for share in shares))


def build_frequency_panels(
    point: SpectralPoint, length: float, share: float = PANEL_REUSE_TOLERANCE
) -> FrequencyPanels | None:
    """Return panels for all lags up to a length; None where the density is not finite, or takes too much memory."""
    made, order = (
        PANEL_BUILD_TOLERANCE / PANEL_REUSE_TOLERANCE * share,
        max(point.free.shape[-1], point.channels.shape[-1]),
    )
    nothing, far = 1e-3 * made, min(MIN_REFINED_SHARE, made * made)
    band = CHANNEL_KERNEL.bandwidth(order, nothing) / float(np.min(point.lengthscales))
    longest = float(np.max(point.lengthscales))
    if not np.isfinite(band) or band * length > MAX_FREQUENCY_LENGTH or not longest < MAX_RELATIVE_LENGTHSCALE * length:
        return None
    edges = np.linspace(0.0, band, int(np.ceil(band * length / (2.0 * MAX_PANEL_PHASE))) + 5)
    doublings = np.arange(max(np.ceil(np.log2(edges[1] * longest / MAX_FIRST_PANEL_END)), 0.0), 0.0, -1.0)
    edges = np.insert(edges, 1, edges[1] * 0.5**doublings)
    # Far beyond the band of the data nothing is looked at more closely.
    powers = ConditionedDensity(edges, point).observable_density
    if not np.isfinite(powers).all():
        return None
    known = np.flatnonzero((powers > far * powers.sum(axis=1, keepdims=True)).any(axis=0))
    top = min(int(np.max(known, initial=0)) + 2, len(edges) - 1)
    todo = FrequencyPanels(edges[:top], edges[1 : top + 1])
    done: list[FrequencyPanels] = []
    room = MAX_PANEL_ENTRIES // (N_PANEL_NODES * (len(point.free) + len(point.channels)) * point.free.shape[1])
    settled, energies, missed = (np.zeros(len(powers)), np.zeros(len(point.channels))), [], 0.0
    for _ in range(MAX_HALVINGS):
        if len(todo.lows) > room:
            return None
        look = todo.estimate_errors(ConditionedDensity(todo.frequencies, point))
        totals = settled[0] + look.totals[0], settled[1] + look.totals[1]
        coarse, peaks = look.needs_refinement(totals, made), look.may_hide_peak(totals, made)
        is_wide = todo.highs - todo.lows > MIN_RELATIVE_PANEL_WIDTH * todo.highs
        missed += look.unresolved_share(totals, coarse & ~is_wide)
        coarse &= is_wide
        done.append(todo.select(~coarse))
        room -= len(done[-1].lows)
        energies.append(look.variances[:, ~coarse])
        settled = settled[0] + energies[-1].sum(axis=1), settled[1] + look.channel_variances[:, ~coarse].sum(axis=1)
        # A peak between the nodes is far narrower than a half.
        todo = FrequencyPanels.concatenate(
            [todo.select(coarse & ~peaks).split(2), todo.select(coarse & peaks).split(4)]
        )
        if not len(todo.lows):
            break
        if len(todo.lows) > MAX_PANELS:
            return None
    needed = (np.concatenate(energies, axis=1) > nothing * settled[0][:, None]).any(axis=0)
    if not np.isfinite(settled[0]).all() or not needed.any():
        return None
    highest = float(np.concatenate([part.highs for part in done])[needed].max())
    found = FrequencyPanels.concatenate(done)
    return replace(found.select(found.highs <= highest), unresolved_share=missed)


ComplexArray = NDArray[np.complex128]
#: Numbers of all vectors at most, some 300 MB.
MAX_LANCZOS_ENTRIES = 20_000_000
#: What may be missed of waves of the whole window, which gradients ask for, and of channels over half the window:
#: relative to their size. Covariances ask for waves of half the window, and miss the square of what these lack.
GRADIENT_WAVE_TOLERANCE, CHANNEL_WAVE_TOLERANCE = 1e-6, 1e-6
#: After so many steps what is left of the waves is looked at: so many at once cost little more than one.
CHECK_INTERVAL = 4
#: So many steps without gain are too many; gains count once less than the second share is left of all waves.
MAX_STALLED_STEPS, CONVERGENCE_ONSET = 12, 0.05
#: A direction of less than this is rounding.
BREAKDOWN_TOLERANCE = 1e-14


@dataclass(frozen=True)
class GaussRule:
    """Frequencies of a few waves that stand for many.

    frequencies: shape (m,)
    rotation: From the amplitudes at the frequencies of the fine rule to those of the few waves; columns are
        orthonormal; (q, f, m).
    truncation_error: For each observable the share of its variance that covariances over the window miss at most;
        (o,).
    """

    frequencies: Array
    rotation: Array | ComplexArray
    truncation_error: Array

    def project(self, fine: ComplexArray) -> ComplexArray:
        """Return what observables see of the few waves, shape (o, m), from what they see of the many, (o, q, f)."""
        return np.asarray(np.tensordot(fine, self.rotation, axes=2))

    def project_vjp(self, cotangent: ComplexArray) -> ComplexArray:
        """Return derivatives in what observables see of the many, shape (o, q, f), from those of the few, (o, m)."""
        return np.asarray(np.tensordot(cotangent, np.conj(self.rotation), axes=(1, 2)))


def build_gauss_rule(
    density: ConditionedDensity, weights: Array, length: float, tolerances: Array, max_nodes: int
) -> GaussRule | None:
    """Return a rule for all lags up to a length; None where it would take too many waves.

    Shapes: weights (f,), tolerances (o,).
    """
    count, roots = len(density.density_roots), np.sqrt(weights)
    # The density of one free function is a number, and the basis is real.
    start = np.abs(density.density_roots) if count == 1 else np.conj(density.density_roots)
    block = (start * roots).transpose(1, 2, 0).reshape(-1, count)
    w = np.tile(density.frequencies, count)[:, None]
    rest, allowed = _target_vectors(density, roots, length, tolerances)
    if count == 1:
        rest = np.concatenate([rest.real, rest.imag], axis=1)
    # What does not fit into memory is refused, as what needs too many waves is.
    max_nodes = min(max_nodes, MAX_LANCZOS_ENTRIES // len(w))
    store = np.empty((len(w), max_nodes + count), dtype=block.dtype, order="F")
    total, taken, worst, steps, gained = 0, 0, np.inf, 0, 0
    # Where rounding keeps the basis from what it must hold, more steps do not help; what is missed tells.
    while (worst > 1.0 and steps - gained < MAX_STALLED_STEPS) or steps < density.point.channels.shape[-1]:
        found = _orthonormalize(block, store[:, :total])
        if found is None:
            break
        if total + found.shape[1] > min(max_nodes, len(w)):
            return None
        store[:, total : total + found.shape[1]] = found
        total += found.shape[1]
        steps, block = steps + 1, w * found
        if steps % CHECK_INTERVAL:
            continue
        rest, taken = _project_out(rest, store[:, taken:total]), total
        left = _residual_norms(rest, len(allowed))
        ratio = float(np.max(left / allowed))
        # As long as waves turn more than polynomials of the degree can, nothing is gained yet.
        if not ratio > 0.5 * worst or ratio <= 1.0 or left.max() > CONVERGENCE_ONSET:
            worst, gained = ratio, steps
    basis = store[:, :total]
    left = _residual_norms(_project_out(rest, store[:, taken:total]), len(allowed))
    if not total or not np.isfinite(left).all():
        return None
    values, vectors = np.linalg.eigh(_adjoint(basis) @ (w * basis))
    return GaussRule(values, (basis @ vectors).reshape(count, -1, total), left[: len(tolerances)] ** 2)


def _target_vectors(
    density: ConditionedDensity, roots: Array, length: float, tolerances: Array
) -> tuple[ComplexArray, Array]:
    """Return what the basis must hold, relative to its size, shape (q f, ...), and what may be missed of each."""
    seen, channels = (np.conj(part) * roots for part in (density.coefficients, density.channel_coefficients))
    middle = 0.5 * (density.frequencies[0] + density.frequencies[-1])
    half = np.exp(1j * (density.frequencies - middle) * (0.5 * length))
    parts = [seen * half, seen * half**2, channels * half]
    found = np.concatenate(parts).reshape(sum(map(len, parts)), -1).T
    sizes = _column_norms(found)
    others = zip(parts[1:], (GRADIENT_WAVE_TOLERANCE, CHANNEL_WAVE_TOLERANCE), strict=True)
    limits = [np.sqrt(tolerances), *(np.full(len(part), limit) for part, limit in others)]
    return np.asarray(found / np.where(sizes > 0, sizes, 1.0)), np.concatenate(limits)


def _project_out(columns: ComplexArray, basis: ComplexArray) -> ComplexArray:
    return np.asarray(columns - basis @ (_adjoint(basis) @ columns))


def _residual_norms(residuals: ComplexArray, count: int) -> Array:
    """Return the sizes of targets, (count,), of which real and imaginary parts may be columns of their own."""
    return np.asarray(np.sqrt(np.sum(_column_norms(residuals).reshape(-1, count) ** 2, axis=0)))


def _column_norms(columns: ComplexArray) -> Array:
    if np.isrealobj(columns):
        return np.asarray(np.sqrt(np.einsum("ij,ij->j", columns, columns)))
    return np.asarray(np.sqrt(np.sum(columns.real**2 + columns.imag**2, axis=0)))


def _adjoint(matrix: ComplexArray) -> ComplexArray:
    # The conjugate of real numbers would be a copy.
    return np.conj(matrix.T) if np.iscomplexobj(matrix) else matrix.T


def _orthonormalize(block: ComplexArray, basis: ComplexArray) -> ComplexArray | None:
    """Return what a block adds to a basis, orthonormal; None where that is nothing but rounding."""
    sizes = _column_norms(block)
    block = block / np.where(sizes > 0, sizes, 1.0)
    for _ in range(2):
        block = _project_out(block, basis)
    if block.shape[1] == 1:
        norm = float(_column_norms(block)[0])
        return block / norm if norm > BREAKDOWN_TOLERANCE else None
    Q, R = np.linalg.qr(block)
    Q = Q[:, np.abs(np.diag(R)) > BREAKDOWN_TOLERANCE]
    if not Q.shape[1]:
        return None
    return np.asarray(np.linalg.qr(_project_out(Q, basis))[0])

"""Gauss quadrature in frequency for the channel prior: Gauss-Legendre panels, and Gauss rules by block Lanczos.

A covariance is ``k(tau) = int S(w) cos(w tau) dw / pi``. Equidistant frequencies are exact over a window if their
period exceeds the window and the memory of the process, which is very long for a narrow peak; panels that are halved
period exceeds the window and the memory of the process, which is very long for a narrow peak; panels that are halved
around a peak need about ten more frequencies for each halving, whatever the memory. On each panel the last terms of a
Legendre series of the density estimate the quadrature error and decide whether to halve it. A peak between the nodes
leaves no trace in these terms, but the logarithm of the determinant of the density has a pole there, which no short
series can follow, so it reveals even the narrowest peak. Panels at the smallest width report an unresolved share.
Over a window of length T, waves are smooth functions of frequency: polynomials of a degree of about T times half the
band, and a few more. A Gauss rule with the density as its weight integrates these exactly, however narrow its peaks
are. The block Lanczos process (Golub and Meurant 2010) finds the rule from the panels: it builds an orthonormal basis
of the polynomials times the root of the density, until the basis contains the waves at the end of the window; the
remaining residual bounds the error of the covariance. For several free functions the weight is a matrix, a step adds as
many dimensions, and each frequency of the rule has a vector in place of a weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.polynomial import legendre

from lodekit.prior.channel_prior.spectral_density import ConditionedDensity
from lodekit.prior.kernels import CHANNEL_KERNEL
from lodekit.prior.spectra import SpectralPoint
from lodekit.support.arguments import Array, ComplexArray, Mask

#: Nodes of one panel.
N_PANEL_NODES = 16
#: The default share of the variance that a panel may miss if it is reused at another point.
PANEL_REUSE_TOLERANCE = 1e-10
#: Below this share of the variance no panel is refined.
MIN_REFINED_SHARE = 1e-28
#: The narrowest panel, relative to its frequencies.
MIN_RELATIVE_PANEL_WIDTH = 1e-13
#: Rounding error of a density with cancelling waves.
DENSITY_ROUNDING_TOLERANCE = 1e-15
#: Limit on the coefficients of observables and channels at all frequencies: 32 MB; an evaluation has about 30 of them.
MAX_PANEL_ENTRIES = 2_000_000
#: The end of the first panel, times the longest lengthscale: the density of a nearly constant process is a peak at zero
#: whose logarithm is a polynomial, so nothing else reveals it.
MAX_FIRST_PANEL_END = 16.0
#: Limit on the entries of the Lanczos basis, some 300 MB.
MAX_LANCZOS_ENTRIES = 20_000_000
#: Relative error of waves over the whole window, for gradients, and of channels over half the window. Covariances need
#: waves over half the window, and their error is the square of that of these waves.
GRADIENT_WAVE_TOLERANCE, CHANNEL_WAVE_TOLERANCE = 1e-6, 1e-6
#: A direction with a norm below this is rounding error.
BREAKDOWN_TOLERANCE = 1e-14

_LEGENDRE_NODES, _LEGENDRE_WEIGHTS = legendre.leggauss(N_PANEL_NODES)
#: From values on the nodes to coefficients of a Legendre series, shape (order, order); of these the mean and the last
#: three, which check a density, and the last six, which check the logarithm of the determinant.
_LEGENDRE_TRANSFORM = (
    _LEGENDRE_WEIGHTS[:, None]
    * legendre.legvander(_LEGENDRE_NODES, N_PANEL_NODES - 1)
    * (np.arange(N_PANEL_NODES) + 0.5)
)
_DENSITY_TRANSFORM, _LOG_DET_TRANSFORM = _LEGENDRE_TRANSFORM[:, [0, -3, -2, -1]], _LEGENDRE_TRANSFORM[:, -6:]


@dataclass(frozen=True)
class QuadratureTolerance:
    """Error tolerance of a quadrature rule that is reused at other points.

    noise_variance: Noise variances of the observables; (o,).
    tolerance: Relative to the noise variances.
    min_share: The smallest relevant share of the variance.
    """

    noise_variance: Array
    tolerance: float = PANEL_REUSE_TOLERANCE
    min_share: float = MIN_REFINED_SHARE

    def share(self, variances: Array) -> float:
        """Return the tolerance as a share of the variances of the observables."""
        ratio = float(np.min(self.noise_variance / np.where(variances > 0, variances, 1.0), initial=1.0))
        return max(min(self.tolerance * ratio, PANEL_REUSE_TOLERANCE), self.min_share)


@dataclass(frozen=True)
class FrequencyPanels:
    """Frequencies and weights of a rule over some panels.

    lows, highs: Start and end of each panel; (p,).
    unresolved_share: The share of a variance that may lie in panels too narrow to be halved again.
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

    def select(self, mask: Mask) -> FrequencyPanels:
        """Return the chosen panels."""
        return FrequencyPanels(self.lows[mask], self.highs[mask])

    def split(self, pieces: int) -> FrequencyPanels:
        """Return all panels, each split into equal pieces."""
        edges = self.lows + (self.highs - self.lows) * (np.arange(pieces + 1) / pieces)[:, None]
        return FrequencyPanels(edges[:-1].ravel(), edges[1:].ravel())

    @cached_property
    def half_widths(self) -> Array:
        """Half the width of each panel, shape (p,)."""
        return 0.5 * (self.highs - self.lows)

    @cached_property
    def frequencies(self) -> Array:
        """All frequencies, shape (16 p,)."""
        middles = 0.5 * (self.lows + self.highs)
        return (middles[:, None] + self.half_widths[:, None] * _LEGENDRE_NODES).ravel()

    @cached_property
    def weights(self) -> Array:
        """The quadrature weights, shape (16 p,)."""
        return (self.half_widths[:, None] * _LEGENDRE_WEIGHTS / np.pi).ravel()

    def is_accurate(self, density: ConditionedDensity, tolerance: QuadratureTolerance) -> bool:
        """Return whether the rule is accurate at another point, and not much wider than necessary there."""
        if self.highs[0] * float(np.max(density.point.lengthscales)) > 2.0 * MAX_FIRST_PANEL_END:
            return False
        errors = PanelErrors(self, density)
        totals, _ = errors.totals
        share = tolerance.share(totals)
        # A bound of the variance beyond the last panel.
        beyond = density.observable_density[:, -1] * self.half_widths[-1]
        if not np.isfinite(totals).all() or self.unresolved_share > share or (beyond > share * totals).any():
            return False
        upper = errors.variances[:, errors.variances.shape[1] // 2 :]
        is_wide = (upper <= min(1e-17, share * share) * totals[:, None]).all()
        return bool(not is_wide and not errors.needs_refinement(errors.totals, share).any())


class PanelErrors:
    """Variances and error estimates of a density on each panel.

    `variances`: the variance of the observables on each panel; (o, p).
    `truncation_errors`: the same for the last terms of a Legendre series; (o, p).
    `channel_variances`: the approximate variance of the channels on each panel; (c, p).
    `peak_bounds`: the variance of a possible peak between the nodes of a panel, for each channel; (c, p).
    """

    def __init__(self, panels: FrequencyPanels, density: ConditionedDensity) -> None:
        half_widths, middle = panels.half_widths, N_PANEL_NODES // 2
        values = density.observable_density.reshape(len(density.observable_density), -1, N_PANEL_NODES)
        series = np.abs(values @ _DENSITY_TRANSFORM) * (2.0 / np.pi * half_widths)[:, None]
        self.variances = absolute = series[..., 0]
        if density.absolute_density is not density.observable_density:
            # If waves cancel, the remainder is rounding error; smaller variances need not be resolved.
            absolute = density.absolute_density.reshape(values.shape) @ _LEGENDRE_WEIGHTS * (half_widths / np.pi)
            self.variances = self.variances + DENSITY_ROUNDING_TOLERANCE * absolute
        shares = density.channel_density_ratio.reshape(len(density.channel_density_ratio), -1, N_PANEL_NODES)
        largest, median = shares.max(axis=-1), np.partition(shares, middle, axis=-1)[..., middle]
        unconditioned = np.exp(density.log_density[:, middle::N_PANEL_NODES]) * half_widths
        # A pole of the log determinant on the axis within the panel causes at least twice this curvature.
        is_bent = np.abs(density.half_log_det.reshape(-1, N_PANEL_NODES) @ _LOG_DET_TRANSFORM).max(axis=-1) > 0.02
        # A peak of height h and width g has flanks h (g/d)^2 at a distance d, and the variance g h.
        self.peak_bounds = np.where((largest > 20.0 * median) | is_bent, 0.1 * unconditioned * np.sqrt(largest), 0.0)
        self.channel_variances = unconditioned * (shares @ _LEGENDRE_WEIGHTS) / np.pi
        self.truncation_errors = series[..., 1:].max(axis=-1)
        # Smaller terms are rounding errors, and halving would not end.
        self.truncation_errors[self.truncation_errors < 20.0 * DENSITY_ROUNDING_TOLERANCE * absolute] = 0.0

    @property
    def totals(self) -> tuple[Array, Array]:
        """The variances of observables and channels."""
        return self.variances.sum(axis=1), self.channel_variances.sum(axis=1)

    def needs_refinement(self, totals: tuple[Array, Array], eps: float) -> Mask:
        """Return which panels miss more than a share of the variance, shape (p,).

        The terms beyond those that the rule integrates are about the square of the last terms of the series, relative
        to the first.
        """
        allowed = eps * totals[0][:, None]
        missed = self.truncation_errors**2 > allowed * (self.variances + 1e-4 * allowed)
        return np.asarray(missed.any(axis=0) | self.may_hide_peak(totals, eps))

    def may_hide_peak(self, totals: tuple[Array, Array], eps: float) -> Mask:
        """Return which panels may hide a peak of more than a share of a channel's variance, shape (p,)."""
        return np.asarray((self.peak_bounds > eps * totals[1][:, None]).any(axis=0))

    def unresolved_share(self, totals: tuple[Array, Array], mask: Mask) -> float:
        """Return the share of the variances that some panels may miss, given the `totals` of all panels."""
        parts = zip((self.truncation_errors, self.peak_bounds), totals, strict=True)
        # Channels without any variance miss nothing.
        shares = [part[:, mask].sum(axis=1) / np.where(total > 0, total, 1.0) for part, total in parts]
        return float(sum(np.max(share, initial=0.0) for share in shares))


def build_frequency_panels(
    point: SpectralPoint, length: float, share: float = PANEL_REUSE_TOLERANCE
) -> FrequencyPanels | None:
    """Return panels for all lags up to a length; None if the density is not finite, or takes too much memory."""
    # New panels are far more accurate than required for reuse.
    eps, order = 1e-4 * share, max(point.free.shape[-1], point.channels.shape[-1])
    negligible, far = 1e-3 * eps, min(MIN_REFINED_SHARE, eps * eps)
    band = CHANNEL_KERNEL.bandwidth(order, negligible) / float(np.min(point.lengthscales))
    longest = float(np.max(point.lengthscales))
    # Beyond these limits there would be too many frequencies to compute.
    if not np.isfinite(band) or band * length > 1e5 or not longest < 1e8 * length:
        return None
    # Over the window, the phase of a wave changes by at most 4 from the middle of a panel to its end.
    edges = np.linspace(0.0, band, int(np.ceil(band * length / 8.0)) + 5)
    doublings = np.arange(max(np.ceil(np.log2(edges[1] * longest / MAX_FIRST_PANEL_END)), 0.0), 0.0, -1.0)
    edges = np.insert(edges, 1, edges[1] * 0.5**doublings)
    # Panels far beyond the band of the data are dropped.
    powers = ConditionedDensity(edges, point).observable_density
    if not np.isfinite(powers).all():
        return None
    known = np.flatnonzero((powers > far * powers.sum(axis=1, keepdims=True)).any(axis=0))
    top = min(int(np.max(known, initial=0)) + 2, len(edges) - 1)
    todo = FrequencyPanels(edges[:top], edges[1 : top + 1])
    done: list[FrequencyPanels] = []
    room = MAX_PANEL_ENTRIES // (N_PANEL_NODES * (len(point.free) + len(point.channels)) * point.free.shape[1])
    settled, energies, missed = (np.zeros(len(powers)), np.zeros(len(point.channels))), [], 0.0
    for _ in range(60):  # more halvings than bits between the widest and the narrowest panel
        if len(todo.lows) > room:
            return None
        look = PanelErrors(todo, ConditionedDensity(todo.frequencies, point))
        totals = settled[0] + look.totals[0], settled[1] + look.totals[1]
        coarse, peaks = look.needs_refinement(totals, eps), look.may_hide_peak(totals, eps)
        is_wide = todo.highs - todo.lows > MIN_RELATIVE_PANEL_WIDTH * todo.highs
        missed += look.unresolved_share(totals, coarse & ~is_wide)
        coarse &= is_wide
        done.append(todo.select(~coarse))
        room -= len(done[-1].lows)
        energies.append(look.variances[:, ~coarse])
        settled = settled[0] + energies[-1].sum(axis=1), settled[1] + look.channel_variances[:, ~coarse].sum(axis=1)
        # A peak between the nodes is far narrower than half a panel.
        halves, quarters = todo.select(coarse & ~peaks).split(2), todo.select(coarse & peaks).split(4)
        todo = FrequencyPanels.concatenate([halves, quarters])
        if not len(todo.lows):
            break
        if len(todo.lows) > 5000:
            return None
    needed = (np.concatenate(energies, axis=1) > negligible * settled[0][:, None]).any(axis=0)
    if not np.isfinite(settled[0]).all() or not needed.any():
        return None
    highest = float(np.concatenate([part.highs for part in done])[needed].max())
    found = FrequencyPanels.concatenate(done)
    return replace(found.select(found.highs <= highest), unresolved_share=missed)


def build_gauss_rule(
    density: ConditionedDensity, weights: Array, length: float, tolerances: Array, max_nodes: int
) -> tuple[Array, ComplexArray, Array] | None:
    """Return frequencies, rotation and errors of a Gauss rule for all lags up to a length; None if it is too large.

    The frequencies have shape (m,). The rotation maps the amplitudes at the frequencies of the panels to those of the
    few waves, with orthonormal columns; (q, f, m). The errors of covariances are shares of the variances; (o,).

    Shapes: weights (f,), tolerances (o,).
    """
    count, roots = len(density.density_roots), np.sqrt(weights)
    # The density of one free function is a scalar, and the basis is real.
    start = np.abs(density.density_roots) if count == 1 else np.conj(density.density_roots)
    block = (start * roots).transpose(1, 2, 0).reshape(-1, count)
    w = np.tile(density.frequencies, count)[:, None]
    rest, allowed = _target_vectors(density, roots, length, tolerances)
    if count == 1:
        rest = np.concatenate([rest.real, rest.imag], axis=1)
    max_nodes = min(max_nodes, MAX_LANCZOS_ENTRIES // len(w))
    store = np.empty((len(w), max_nodes + count), dtype=block.dtype, order="F")
    total, taken, worst, steps, gained = 0, 0, np.inf, 0, 0
    # If rounding stops the convergence, more steps do not help; the residual reports the error.
    while (worst > 1.0 and steps - gained < 12) or steps < density.point.channels.shape[-1]:
        found = _orthonormalize(block, store[:, :total])
        if found is None:
            break
        if total + found.shape[1] > min(max_nodes, len(w)):
            return None
        store[:, total : total + found.shape[1]] = found
        total += found.shape[1]
        steps, block = steps + 1, w * found
        if steps % 4:  # projecting out four blocks at once costs little more than one
            continue
        rest, taken = _project_out(rest, store[:, taken:total]), total
        left = _residual_norms(rest, len(allowed))
        ratio = float(np.max(left / allowed))
        # Convergence starts only when the degree of the polynomials suffices for the waves.
        if not ratio > 0.5 * worst or ratio <= 1.0 or left.max() > 0.05:
            worst, gained = ratio, steps
    basis = store[:, :total]
    left = _residual_norms(_project_out(rest, store[:, taken:total]), len(allowed))
    if not total or not np.isfinite(left).all():
        return None
    values, vectors = np.linalg.eigh(_adjoint(basis) @ (w * basis))
    return values, (basis @ vectors).reshape(count, -1, total), left[: len(tolerances)] ** 2


def _target_vectors(
    density: ConditionedDensity, roots: Array, length: float, tolerances: Array
) -> tuple[ComplexArray, Array]:
    """Return the normalized waves that the basis must contain, shape (q f, ...), and the tolerance of each."""
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
    """Return the norms of the targets, (count,), whose real and imaginary parts may be separate columns."""
    return np.asarray(np.sqrt(np.sum(_column_norms(residuals).reshape(-1, count) ** 2, axis=0)))


def _column_norms(columns: ComplexArray) -> Array:
    return np.asarray(np.linalg.norm(columns, axis=0))


def _adjoint(matrix: ComplexArray) -> ComplexArray:
    # `np.conj` would copy a real matrix.
    return np.conj(matrix.T) if np.iscomplexobj(matrix) else matrix.T


def _orthonormalize(block: ComplexArray, basis: ComplexArray) -> ComplexArray | None:
    """Return the orthonormal extension of a basis by a block; None if the extension is only rounding error."""
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

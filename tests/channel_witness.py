"""The log evidence under the channel prior in extended precision: a graded mesh around all roots, and a plain Cholesky.

Nothing of the engines' quadrature is used: where peaks of the density can be follows from the roots of the minors of
the operator, panels shrink geometrically towards each of them whatever the density there, and are halved until halving
changes nothing. Numbers are those of `numpy.longdouble`: 11 bits more than those of the engines on x86, 60 on ARM; none
where it is the same as a double, and nothing is witnessed there.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from lodekit.data.records import Measurements
from lodekit.prior.prior import Hyperparameters, Prior

Long = np.longdouble
Array = NDArray[Any]
_PI = Long("3.14159265358979323846264338327950288")
_ORDER, _LEVELS = 24, 64
#: Halving a panel must change less than this share of a variance, noise ratios included.
_SHARE = Long("1e-24")
#: Panels that are halved at once, at most.
_MOST = 20_000


def has_extended_precision() -> bool:
    return bool(np.finfo(Long).eps < 1e-18)


def channel_evidence(prior: Prior, measurements: Measurements, hyper: Hyperparameters, doubt: float = np.inf) -> float:
    """Return the log evidence in the user's units, or NaN where rounding may exceed a doubt; noise must be learned.

    Where extended precision has 64 bits, some matrices leave fewer digits than the engines are held to.
    """
    with np.errstate(all="ignore"):
        value, error = _evidence(prior, measurements, hyper)
    return value if error <= doubt * max(measurements.size, abs(value)) else np.nan


def _evidence(prior: Prior, measurements: Measurements, hyper: Hyperparameters) -> tuple[float, float]:
    observed, units = prior.observables.evaluate(hyper.theta), prior.units
    channels = prior.channels
    assert channels is not None
    density = _Density(observed.free, channels.evaluate(hyper.theta).free, hyper)
    times = [units.scale_times(item.times) for item in measurements.series]
    everywhere = np.unique(np.concatenate(times))
    places = [np.searchsorted(everywhere, own) for own in times]
    blocks = density.covariance(everywhere)
    K = np.block([[blocks[i, j][np.ix_(places[i], places[j])] for j in range(len(times))] for i in range(len(times))])
    basis, _ = prior.observables.mode_basis(observed, prior.groups, everywhere, with_jacobian=False)
    if prior.groups:
        stacked = np.concatenate([part[place] for part, place in zip(basis, places, strict=True)]).astype(Long)
        K = K + (stacked * prior.mode_variance(hyper.mode_amplitudes)) @ stacked.T
    noise = [np.full(len(own), prior.noise.variance(o, hyper.noise_std), dtype=Long) for o, own in enumerate(times)]
    K[np.diag_indices(len(K))] += np.concatenate(noise)
    values = []
    for o, (item, scale) in enumerate(zip(measurements.series, units.scales, strict=True)):
        mean = prior.observables.means(observed, item.times, with_jacobian=False)[0][o]
        values.append(item.values.astype(Long) / Long(scale) - mean)
    L = _cholesky(K)
    z = _forward(L, np.concatenate(values))
    value = -(z @ z) / 2 - np.log(np.diag(L)).sum() - len(z) * np.log(2 * _PI) / 2
    alpha = _forward(L.T[::-1, ::-1], z[::-1])[::-1]
    # Entries of the covariance are right to a few units of their last digit.
    error = 5 * np.finfo(Long).eps * np.sum(np.abs(alpha) * np.sqrt(np.diag(K))) ** 2
    return float(value) + float(units.log_jacobian([len(own) for own in times])), float(error)


class _Density:
    def __init__(self, free: Array, channels: Array, hyper: Hyperparameters) -> None:
        self.free, self.channels, self.hyper = free.astype(Long), channels.astype(Long), hyper
        self.cells = self._mesh()

    def on_waves(self, operators: Array, w: Array) -> Array:
        powers = (1j * w.astype(np.clongdouble))[None] ** np.arange(operators.shape[-1])[:, None]
        return np.asarray(np.einsum("oqk,kf->oqf", operators.astype(np.clongdouble), powers))

    def values(self, w: Array) -> Array:
        """Return ``W (B* S^-1 B)^-1 W* / pi``, shape (o, o, f), by Cholesky at each frequency."""
        ell, sigma = self.hyper.lengthscales.astype(Long)[:, None], self.hyper.amplitudes.astype(Long)[:, None]
        log_root = 0.25 * np.log(2 * _PI) + 0.5 * np.log(ell) + np.log(sigma) - 0.25 * (w * ell) ** 2
        # Beyond e^-3000 nothing is left of a density; its inverse must not overflow.
        log_root = np.maximum(log_root, log_root.max(axis=0) - 1500)
        B, W = self.on_waves(self.channels, w), self.on_waves(self.free, w)
        scaled = B * np.exp(-(log_root - log_root.max(axis=0)))[:, None]
        count = scaled.shape[1]
        # Gram-Schmidt, twice, largest channels first: digits of small ones are kept.
        order = np.argsort(-np.abs(scaled).max(axis=1), axis=0)[:, None]
        A = np.take_along_axis(scaled, order, axis=0)
        R = np.zeros((count, count, len(w)), dtype=A.dtype)
        Q = np.zeros_like(A)
        for k in range(count):
            v = A[:, k].copy()
            for _ in range(2):
                for j in range(k):
                    part = np.sum(np.conj(Q[:, j]) * v, axis=0)
                    R[j, k] += part
                    v = v - Q[:, j] * part
            R[k, k] = np.sqrt(np.sum(np.abs(v) ** 2, axis=0))
            Q[:, k] = v / R[k, k]
        X = np.zeros_like(W)
        for k in range(count):
            X[:, k] = (W[:, k] - sum((X[:, j] * R[j, k] for j in range(k)), np.zeros_like(W[:, 0]))) / R[k, k]
        X = X * np.exp(log_root.max(axis=0))
        return np.asarray(np.einsum("iqf,jqf->ijf", X, np.conj(X)) / _PI)

    def _mesh(self) -> Array:
        ell = self.hyper.lengthscales
        band = 16.0 / float(ell.min())
        # Over a unit of time, the span of the data, waves turn by no more than two radians from the middle of a panel.
        edges = [np.linspace(0.0, band, 4 + int(np.ceil(band / 4.0)))]
        steps = band * 2.0 ** -np.arange(2.0, _LEVELS)
        centres = {0.0}
        for root in self._roots():
            if abs(root.imag) < 1.0 and 0.0 < root.real < band:
                centres.add(self._lowest(root.real))
        for centre in centres:
            edges += [centre - steps, centre + steps, np.array([centre])]
        found = np.unique(np.concatenate(edges))
        found = found[(found >= 0) & (found <= band)]
        return np.stack([found[:-1], found[1:]], axis=1).astype(Long)

    def _roots(self) -> list[complex]:
        """Return w where a minor of ``B(i w)`` is zero."""
        B = np.asarray(self.channels, dtype=complex)
        count, width, length = B.shape
        found: list[complex] = []
        size = width * (length - 1) + 1
        points = np.exp(2j * np.pi * np.arange(size) / size)
        for rows in combinations(range(count), width):
            values = [np.linalg.det(np.polyval(B[list(rows)].transpose(2, 0, 1)[::-1], p)) for p in points]
            terms = np.fft.fft(values) / size
            terms[np.abs(terms) < 1e-13 * np.abs(terms).max()] = 0.0
            if np.abs(terms).max() > 0:
                found += [-1j * root for root in np.polynomial.polynomial.polyroots(np.trim_zeros(terms, "b"))]
        return [complex(root) for root in found]

    def _lowest(self, guess: float) -> float:
        """Return where the density has its peak, near a guess that is good to many digits."""
        width = 1e-3 * max(1.0, guess)
        for _ in range(14):
            w = np.linspace(guess - width, guess + width, 41).astype(Long)
            power = np.einsum("iif->if", self.values(np.abs(w))).real
            total = (power / power.max(axis=1, keepdims=True)).sum(axis=0)
            guess, width = float(w[int(np.argmax(total))]), 0.1 * width
        return guess

    def covariance(self, times: Array) -> Array:
        """Return the covariance of the observables over all pairs of times, shape (o, o, n, n)."""
        lag = times.astype(Long)[:, None] - times.astype(Long)[None, :]
        values, where = np.unique(np.abs(lag), return_inverse=True)
        total: Array = np.zeros((len(self.free), len(self.free), len(values)), dtype=np.clongdouble)
        for w, weights in self._settled():
            P = self.values(w) * weights
            for start in range(0, len(w), 20_000):
                part = slice(start, start + 20_000)
                angle = w[part, None] * values
                total += P[..., part].real @ np.cos(angle) + 1j * (P[..., part].imag @ np.sin(angle))
        # k(tau) = Re int S e^(i w tau): what goes with the sine is odd.
        even, odd = total.real[..., where.reshape(lag.shape)], total.imag[..., where.reshape(lag.shape)]
        return np.asarray(even - np.sign(lag) * odd)

    def _settled(self) -> list[tuple[Array, Array]]:
        """Return frequencies and weights of panels that need no halving."""
        x, weights = _rule(_ORDER)
        cells, found = self.cells, []
        totals = None
        for _ in range(40):
            w, own = _spread(cells, x, weights)
            power = np.einsum("iif->if", self.values(w)).real
            whole = np.sum((power * own).reshape(len(power), -1, _ORDER), axis=-1)
            totals = whole.sum(axis=1) if totals is None else totals
            middle = cells.mean(axis=1)
            halves = np.concatenate([np.stack([cells[:, 0], middle], 1), np.stack([middle, cells[:, 1]], 1)])
            w2, own2 = _spread(halves, x, weights)
            power2 = np.einsum("iif->if", self.values(w2)).real
            fine = np.sum((power2 * own2).reshape(len(power), 2, -1, _ORDER), axis=(1, 3))
            bad = (np.abs(fine - whole) > _SHARE * totals[:, None] + Long("2e-18") * whole).any(axis=0)
            bad &= cells[:, 1] - cells[:, 0] > Long("1e-17") * cells[:, 1]
            good = np.repeat(~bad, _ORDER)
            found.append((w[good], own[good]))
            cells = np.concatenate([halves[: len(cells)][bad], halves[len(cells) :][bad]])
            if not len(cells):
                break
            if len(cells) > _MOST:
                # Rounding alone halves so many: this witness does not know.
                return [(np.full(1, np.nan, dtype=Long), np.ones(1, dtype=Long))]
        return found


def _rule(order: int) -> tuple[Array, Array]:
    """Return nodes and weights of Gauss and Legendre, polished in extended precision."""
    x = legendre.leggauss(order)[0].astype(Long)
    for _ in range(3):
        before, own = np.ones_like(x), x.copy()
        for k in range(2, order + 1):
            before, own = own, ((2 * k - 1) * x * own - (k - 1) * before) / Long(k)
        slope = order * (x * own - before) / (x**2 - 1)
        x = x - own / slope
    return x, 2 / ((1 - x**2) * slope**2)


def _spread(cells: Array, x: Array, weights: Array) -> tuple[Array, Array]:
    half = (cells[:, 1] - cells[:, 0]) / 2
    return (cells.mean(axis=1)[:, None] + half[:, None] * x).ravel(), (half[:, None] * weights).ravel()


def _cholesky(K: Array) -> Array:
    L = K.copy()
    for k in range(len(L)):
        L[k, k] = np.sqrt(L[k, k])
        L[k + 1 :, k] /= L[k, k]
        L[k + 1 :, k + 1 :] -= np.outer(L[k + 1 :, k], L[k + 1 :, k])
    return np.asarray(np.tril(L))


def _forward(L: Array, right: Array) -> Array:
    found = right.copy()
    for k in range(len(L)):
        found[k] /= L[k, k]
        found[k + 1 :] -= L[k + 1 :, k] * found[k]
    return np.asarray(found)

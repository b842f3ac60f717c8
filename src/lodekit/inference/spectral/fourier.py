"""Fourier features: cosines and sines on the nodes of the data, and their Gram matrices.

A differential operator multiplies each wave by a number, ``W(i w)``. Gram matrices over the data do not depend on
hyperparameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lodekit.inference.spectral.nodes import NodeFactor, NodeStatistics
from lodekit.prior.spectra import FourierFrequencies
from lodekit.support.arguments import Array

#: The data of one observable; the index of its set of nodes; the features on these nodes, (q, 2 f); their Gram matrix
#: over the data, (2 f, 2 f), or their image under the factor, (m, 2 f); features times data, (2 f,), empty for factors.
GramTerm = tuple[NodeStatistics | NodeFactor, int, Array, Array, Array]


def fourier_basis(frequencies: Array, times: Array) -> Array:
    """Return all cosines, then all sines, at given times, shape (n, 2 f).

    Shapes: frequencies (f,), times (n,).
    """
    angle, count = np.outer(times, frequencies), len(frequencies)
    found = np.empty((len(times), 2 * count))
    np.cos(angle, out=found[:, :count])
    np.sin(angle, out=found[:, count:])
    return found


def apply_operator(basis: Array, a: Array, b: Array) -> Array:
    """Return ``W(d)`` of all waves: columns (cosines, sines) times the coefficients ``a + i b``, shape (n, 2 f).

    ``W(d) cos = a cos - b sin`` and ``W(d) sin = a sin + b cos``.

    Shapes: basis (n, 2 f), a, b (f,).
    """
    C, S = basis[:, : len(a)], basis[:, len(a) :]
    return np.concatenate([C * a - S * b, S * a + C * b], axis=1)


def to_fourier_amplitudes(amplitudes: Array, a: Array, b: Array) -> Array:
    """Return amplitudes of plain cosines and sines, given amplitudes of ``W(d)`` applied to them, shape (2 f, n)."""
    return apply_operator(amplitudes.T, a, -b).T


def compute_gram_matrices(
    frequencies: FourierFrequencies, statistics: Sequence[NodeStatistics | NodeFactor]
) -> list[GramTerm]:
    """Return the features on the nodes of the data and their Gram matrices; equal nodes and weights share them."""
    node_sets: list[tuple[Array, Array]] = []
    products: list[tuple[int, Array, Array]] = []
    terms: list[GramTerm] = []
    for item in statistics:
        number = next((i for i, (nodes, _) in enumerate(node_sets) if _is_same(nodes, item.nodes)), len(node_sets))
        if number == len(node_sets):
            node_sets.append((item.nodes, fourier_basis(frequencies.values, item.nodes)))
        F = node_sets[number][1]
        weights = item.factor if isinstance(item, NodeFactor) else item.weights
        product = next((P for place, other, P in products if place == number and _is_same(other, weights)), None)
        if product is None:
            product = item.apply(F) if isinstance(item, NodeFactor) else F.T @ (weights[:, None] * F)
            products.append((number, weights, product))
        on_data = np.zeros(0) if isinstance(item, NodeFactor) else F.T @ item.weighted_values
        terms.append((item, number, F, product, on_data))
    return terms


def _is_same(first: Array, second: Array) -> bool:
    return first is second or (first.shape == second.shape and bool(np.array_equal(first, second)))

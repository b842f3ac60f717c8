"""Products of waves over the data, which depend on no hyperparameter: made once, used in many evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.spectral.nodes import NodeSums, RootSums
from lodekit.inference.spectral.waves import waves_at
from lodekit.prior.spectra import Frequencies

__all__ = ["Grams", "make_grams"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Grams:
    """Waves on the nodes of the data, and their products; the same for all hyperparameters that share the waves.

    Parameters
    ----------
    frequencies : Frequencies
        Of the waves.
    nodes : list of arrays, shape (q,)
        The different sets of nodes, in scaled time.
    on_nodes : list of arrays, shape (q, 2 f)
        The waves on each set of nodes: all cosines, then all sines.
    sums : list of NodeSums, or of RootSums
        The data.
    node_set, product_of : list of int
        For each of the sums its nodes, and its matrix of products.
    products : list of arrays, shape (2 f, 2 f), or for roots (m, 2 f)
        The weighted products of waves with waves; or the roots' images of the waves.
    on_waves : list of arrays, shape (2 f,)
        For each of the sums, waves times data; empty for roots.
    """

    frequencies: Frequencies
    nodes: list[Array]
    on_nodes: list[Array]
    sums: Sequence[NodeSums | RootSums]
    node_set: list[int]
    product_of: list[int]
    products: list[Array]
    on_waves: list[Array]


def make_grams(frequencies: Frequencies, sums: Sequence[NodeSums | RootSums]) -> Grams:
    """Return waves on the nodes of data, and their products; what several sums share is made once.

    Parameters
    ----------
    frequencies : Frequencies
        Of the waves.
    sums : sequence of NodeSums, or of RootSums
        The data.
    """
    nodes: list[Array] = []
    on_nodes: list[Array] = []
    node_set, product_of, on_waves = [], [], []
    products: list[Array] = []
    weights: list[tuple[int, Array]] = []
    for item in sums:
        number = _position(nodes, item.nodes)
        if number == len(nodes):
            nodes.append(item.nodes)
            on_nodes.append(waves_at(frequencies.values, item.nodes))
        node_set.append(number)
        F = on_nodes[number]
        if isinstance(item, RootSums):
            own, make = item.root, item.apply
            on_waves.append(np.zeros(0))
        else:
            own, make = item.weights, partial(_weighted_gram, item.weights)
            on_waves.append(F.T @ item.values)
        places = [place for place, (where, _) in enumerate(weights) if where == number]
        place = next((place for place in places if _same(weights[place][1], own)), len(weights))
        if place == len(weights):
            weights.append((number, own))
            products.append(make(F))
        product_of.append(place)
    return Grams(frequencies, nodes, on_nodes, sums, node_set, product_of, products, on_waves)


def _weighted_gram(weights: Array, F: Array) -> Array:
    return F.T @ (weights[:, None] * F)


def _position(known: Sequence[Array], wanted: Array) -> int:
    """Return where an array stands in a list; the length of the list where it does not."""
    return next((i for i, other in enumerate(known) if _same(other, wanted)), len(known))


def _same(first: Array, second: Array) -> bool:
    return first is second or (first.shape == second.shape and bool(np.array_equal(first, second)))

"""What waves and data have in common, whatever the hyperparameters: made once, used in many evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.regression import waves_at
from lodekit.inference.views import RootView, View
from lodekit.prior.spectra import Waves

__all__ = ["Base", "make_base"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Base:
    """What waves and data have in common, whatever the hyperparameters: waves on nodes, and their products.

    Parameters
    ----------
    waves : Waves
    nodes : list of arrays, shape (q,)
        The different sets of nodes.
    on_nodes : list of arrays, shape (q, 2 f)
        All cosines, then all sines.
    views : list of View, or of RootView
    node_set, gram_of : list of int
        For each view its nodes, and its Gram matrix.
    grams : list of arrays, shape (2 f, 2 f), or for roots their images of the waves, (m, 2 f)
    sums : list of arrays, shape (2 f,)
        For each view, waves times data.
    """

    waves: Waves
    nodes: list[Array]
    on_nodes: list[Array]
    views: Sequence[View | RootView]
    node_set: list[int]
    gram_of: list[int]
    grams: list[Array]
    sums: list[Array]


def make_base(waves: Waves, views: Any, *, roots: bool) -> Base:
    """Return waves on the nodes of views, and their products; what several views share is made once."""
    frequencies = waves.frequencies
    nodes: list[Array] = []
    on_nodes: list[Array] = []
    node_set, gram_of, sums = [], [], []
    grams: list[Array] = []
    weights: list[tuple[int, Array]] = []
    for view in views:
        number = _position(nodes, view.nodes)
        if number == len(nodes):
            nodes.append(view.nodes)
            on_nodes.append(waves_at(frequencies, view.nodes))
        node_set.append(number)
        F = on_nodes[number]
        own = view.root if roots else view.weights
        places = [place for place, (where, _) in enumerate(weights) if where == number]
        place = next((place for place in places if _same(weights[place][1], own)), len(weights))
        if place == len(weights):
            weights.append((number, own))
            grams.append(view.apply(F) if roots else F.T @ (own[:, None] * F))
        gram_of.append(place)
        sums.append(np.zeros(0) if roots else F.T @ view.values)
    return Base(waves, nodes, on_nodes, views, node_set, gram_of, grams, sums)


def _position(known: Sequence[Array], wanted: Array) -> int:
    """Return where an array stands in a list; the length of the list where it does not."""
    return next((i for i, other in enumerate(known) if _same(other, wanted)), len(known))


def _same(first: Array, second: Array) -> bool:
    return first is second or (first.shape == second.shape and bool(np.array_equal(first, second)))

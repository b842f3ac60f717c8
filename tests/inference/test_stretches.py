"""Stretches of places that are joined two by two, beside the state carried from place to place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lodekit.inference.kalman.block_model import SegmentPlan

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]
#: Five places, which are filled up; the first two blocks are the same stretch, the last one ends early.
STEPS = np.array([[1, 2, 1, 2, 1], [1, 2, 1, 2, 1], [2, 2, 2, 2, 2], [1, 1, 2, 0, 0]])
OBSERVED = np.array([[[0, 1]] * 5, [[0, 1]] * 5, [[0, -1]] * 5, [[0, 1], [1, -1], [-1, -1], [-1, -1], [-1, -1]]])


def parts(generator: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return rows of two observables and of none, and transitions and noises of no step and of two, of three states."""
    rows = np.concatenate([generator.standard_normal((2, 3)), np.zeros((1, 3))])
    transitions = np.concatenate([np.eye(3)[None], 0.5 * generator.standard_normal((2, 3, 3))])
    roots = np.concatenate([np.zeros((1, 3, 3)), generator.standard_normal((2, 3, 3))])
    return rows, transitions, roots @ roots.swapaxes(-1, -2)


def slowly(steps: Numbers, observed: Numbers, rows: Array, transitions: Array, noises: Array) -> tuple[Array, Array]:
    """Return how all that is read in a block, and the state at its end, follow from the start, and their covariance."""
    states, places = [np.eye(3)], len(steps)
    for step in steps:
        states.append(transitions[step] @ states[-1])
    covariance = np.zeros((3 * (places + 1), 3 * (places + 1)))
    for i, step in enumerate(steps):
        before, now = slice(3 * i, 3 * i + 3), slice(3 * i + 3, 3 * i + 6)
        covariance[now] = transitions[step] @ covariance[before]
        covariance[:, now] = covariance[now].T
        covariance[now, now] = transitions[step] @ covariance[before, before] @ transitions[step].T + noises[step]
    reading = np.zeros((2 * places + 3, 3 * (places + 1)))
    for i, seen in enumerate(observed):
        reading[2 * i : 2 * i + 2, 3 * i : 3 * i + 3] = rows[seen]
    reading[-3:, -3:] = np.eye(3)
    return reading @ np.concatenate(states), reading @ covariance @ reading.T


def joined(values: tuple[Array, Array, Array]) -> tuple[SegmentPlan, list[tuple[Array, Array]], Array, Array]:
    plan = SegmentPlan.of(np.arange(4), STEPS, OBSERVED)
    rows, transitions, noises = values
    numbers = plan.step_index[plan.segment_steps]
    levels = plan.combine(rows[plan.observable_index], transitions[numbers], noises[numbers])
    means, covariances = (part[plan.block_segments] for part in levels[-1])
    return plan, levels, means, covariances


def test_joined_as_carried_from_place_to_place() -> None:
    values = parts(np.random.default_rng(0))
    plan, _, found_means, found_covariances = joined(values)
    assert plan.block_segments[0] == plan.block_segments[1]
    assert len(set(plan.block_segments.tolist())) == 3
    there = np.r_[0:10, found_means.shape[1] - 3 : found_means.shape[1]]
    for number, (steps, observed) in enumerate(zip(STEPS, OBSERVED, strict=True)):
        means, covariance = slowly(steps, observed, *values)
        np.testing.assert_allclose(found_means[number][there], means, rtol=1e-13, atol=1e-13)
        own = found_covariances[number][np.ix_(there, there)]
        np.testing.assert_allclose(np.tril(own), np.tril(covariance), rtol=1e-13, atol=1e-13)


def test_slopes_as_differences() -> None:
    generator = np.random.default_rng(1)
    values = parts(generator)
    plan, levels, means, covariances = joined(values)
    in_means = generator.standard_normal(means.shape)
    half = generator.standard_normal(covariances.shape)
    in_covariances = half + half.swapaxes(-1, -2)

    def total(*moved: Array) -> float:
        _, _, others, lower = joined((moved[0], moved[1], moved[2]))
        whole = np.tril(lower) + np.tril(lower, -1).swapaxes(-1, -2)
        return float(np.sum(in_means * others) + np.sum(in_covariances * whole))

    slopes = plan.combine_vjp(levels, in_means, in_covariances)
    numbers = (plan.observable_index, plan.step_index[plan.segment_steps], plan.step_index[plan.segment_steps])
    for which, (slope, chosen) in enumerate(zip(slopes, numbers, strict=True)):
        change = generator.standard_normal(values[which].shape)
        if which == 2:
            change = change + change.swapaxes(-1, -2)
        ends = [
            total(*(own + sign * 1e-6 * change if k == which else own for k, own in enumerate(values)))
            for sign in (1.0, -1.0)
        ]
        expected = float(np.sum(slope * change[chosen]))
        assert abs((ends[0] - ends[1]) / 2e-6 - expected) < 1e-6 * max(1.0, abs(expected))

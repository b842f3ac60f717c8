"""Waves of the channel prior are held against a matrix where a search has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lodekit.errors import LodekitError
from lodekit.inference.engine import EngineTask
from lodekit.inference.fallback import FallbackEngine


def make(value: float, other: float, name: str = "spectral", size: int = 10, error: float = 1e-9) -> Any:
    posterior = SimpleNamespace(value=value, error=0.0, mean_rounding_error=0.0, warnings=lambda: ["one of its own"])
    beside = SimpleNamespace(value=other, error=error)
    noise = SimpleNamespace(noise=SimpleNamespace(n_levels=1))
    first: Any = SimpleNamespace(posterior=lambda _: posterior, size=size, prior=noise)
    factory = SimpleNamespace(approximates_channel_prior=name == "spectral", has_states=False)
    choice: Any = SimpleNamespace(factory=factory)
    measurements: Any = None
    engine = FallbackEngine(first, choice, measurements, EngineTask(size, (), channel_prior=True))
    engine.__dict__["fallback"] = SimpleNamespace(value_with_error=lambda _: (other, error), posterior=lambda _: beside)
    return engine.posterior(SimpleNamespace())  # type: ignore[arg-type]


def test_waves_that_miss_a_part_are_told() -> None:
    assert make(137.577, 137.661).warnings() == [
        "one of its own",
        "Fourier features miss a part of the prior of the channels: the log evidence is 137.577 with them and 137.661 "
        "with a matrix; fit with engine='dense'",
    ]


@pytest.mark.parametrize(
    ("other", "name", "size"),
    [(137.577 + 1e-4, "spectral", 10), (137.661, "dense", 10), (137.661, "spectral", 500), (-np.inf, "spectral", 10)],
)
def test_nothing_is_told_where_a_matrix_says_the_same_or_is_not_asked(other: float, name: str, size: int) -> None:
    assert make(137.577, other, name, size).warnings() == ["one of its own"]


def test_another_engine_answers_where_the_first_one_does_not_reach() -> None:
    """Its posterior says so only when it is asked for curves; without digits, both are refused."""
    assert make(-np.inf, 137.577).value == 137.577
    with pytest.raises(LodekitError, match="has an error of about"):
        make(-np.inf, 137.577, error=1e3)
    assert make(-np.inf, -np.inf).value == -np.inf

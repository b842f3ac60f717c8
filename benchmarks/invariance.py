"""The rule that verdicts depend neither on the order in which a system is written nor on units.

Small random systems with data are fitted as they are, with their parameters, equations or channels in another order,
and with time, outputs and inputs in other units. All that users act on is compared: verdicts, kinds of warnings,
estimates and intervals, after conversion of the units.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import lodekit as lk
from interval_rule import PLANTS, SHARE, OpenCase, Plant, draw_case
from lodekit.errors import LodekitError

#: Searches may end this many nats apart, and estimates this many standard errors: a parabola falls by 0.00125 there.
EVIDENCE, ERRORS = 2e-3, 0.05
FEW = (
    *("square", "product", "ratio", "two inputs", "three inputs", "constant", "oscillator", "one sine, measured"),
    *("swapped lags", "hidden gain", "similarity", "exchange", "weak", "fast", "no input", "disturbed"),
)
MORE = {
    "two outputs": Plant(
        "y' = -a*(y - z) + c*u; z' = a*(y - z) - b*z",
        lambda a, b, c: ([[-a, a], [a, -a - b]], [[c], [0]]),
        outputs="yz",
    ),
    "two chambers": Plant(
        "y' = -a*y + c*u + b*z; z' = -d*z + b*y + e*v",
        lambda a, b, c, d, e: ([[-a - b, b], [b, -d - b]], [[c, 0], [0, e]]),
        ("steps", "random"),
        outputs="yz",
    ),
    "three lags": Plant(
        "a*h' = d*u - h; b*g' = h - g; c*y' = g - y",
        lambda a, b, c, d: ([[-1 / c, 1 / c, 0], [0, -1 / b, 1 / b], [0, 0, -1 / a]], [[0], [0], [d / a]]),
        ("random",),
    ),
    "chain": Plant(
        "y' = -a*(y - z) + u; z' = a*(y - z) - b*(z - x); x' = b*(z - x) - c*x",
        lambda a, b, c: ([[-a, a, 0], [a, -a - b, b], [0, b, -b - c]], [[1], [0], [0]]),
        outputs="yz",
    ),
    "vanishing lag": Plant(
        "a*h' = c*u - h; b*y' = h - y", lambda a, b, c: ([[-200 / b, 200 / b], [0, -1 / a]], [[0], [c / a]])
    ),
    "vanishing coupling": Plant(
        "y' = -a*y + b*z + c*u; z' = d*(y - z)", lambda a, b, c, d: ([[-a, 0 * b], [d, -d]], [[c], [0]])
    ),
    "dead time": Plant("a*y' + y = b*delay(u, T)", lambda a, b, T: ([[-1 / a]], [[b / a]])),
    "two disturbances": Plant(
        "y' = -a*(y - z) + v; z' = a*(y - z) - b*z + c*u + w",
        lambda a, b, c: ([[-a, a], [a, -a - b]], [[0, 0.3, 0], [c, 0, 0.3]]),
        ("steps", "random", "random"),
        {"disturbances": {"v": "white", "w": "white"}},
        outputs="yz",
    ),
    "slow disturbance": Plant(
        "y' = -a*y + b*u + v",
        lambda a, b: ([[-a]], [[b, 0.5]]),
        ("random", "steps"),
        {"disturbances": {"v": "matern-1/2"}},
    ),
}
CASES = {name: PLANTS[name] for name in FEW} | MORE


def draw_invariance_cases(seed: int, only: str = "") -> Iterator[OpenCase]:
    """Yield one random case of each kind."""
    for number, (name, plant) in enumerate(CASES.items()):
        if only in name:
            yield draw_case(name, plant, np.random.default_rng([seed, number, 5]))


def reorder(case: OpenCase, what: str, generator: np.random.Generator) -> OpenCase:
    """Return the same case with its parameters, its equations or its channels in another order."""

    def mixed(items: Mapping[str, Any]) -> dict[str, Any]:
        keys = list(items)
        order = generator.permutation(len(keys))
        # Of two, the other order.
        order = order[::-1] if np.all(order == np.arange(len(keys))) else order
        return {keys[k]: items[keys[k]] for k in order}

    system, options, data = case.system, dict(case.options), dict(case.data)
    parameters = mixed(system.parameters) if what == "parameters" else dict(system.parameters)
    equations = list(mixed(dict.fromkeys(system.equations)) if what == "equations" else system.equations)
    channels = list(system.plain_channels)
    if what == "channels":
        channels, data = list(mixed(dict.fromkeys(channels))), mixed(data)
        options |= {key: mixed(options[key]) for key in ("inputs", "disturbances") if key in options}
    other = lk.System(equations, parameters=parameters, channels=channels)
    return replace(case, system=other, data=data, options=options)


def in_units(case: OpenCase, generator: np.random.Generator) -> tuple[OpenCase, dict[str, float]]:
    """Return the same case in other units, and the factors of channels and parameters, by name.

    Proportional inputs have one unit: of two, the data tell a sum such as a + 2*b, whose weights depend on their units.
    """
    dimensions, units = case.system.dimensions(), {"t": float(generator.choice([3600.0, 1e-3, 60.0, 1e6]))}
    inputs = list(case.options.get("inputs", {}))
    if inputs and np.linalg.matrix_rank(np.array([case.data[name] for name in inputs])) < len(inputs):
        units |= dict.fromkeys(inputs, 10.0 ** generator.integers(-4, 5))

    def factor(powers: Mapping[str, Any]) -> float:
        logs = (float(p) * math.log(units.setdefault(n, 10.0 ** generator.integers(-4, 5))) for n, p in powers.items())
        return math.exp(sum(logs))

    factors = {name: factor(dimensions.channels[name]) for name in case.data}
    factors |= {name: factor(dimensions.parameters[name]) for name in case.system.parameters}
    data = {name: values * factors[name] for name, values in case.data.items()}
    return replace(case, times=case.times * units["t"], data=data), factors


def kind(text: str) -> str:
    """Return the words of a sentence in alphabetical order, without numbers: names may be listed in any order."""
    return " ".join(sorted(re.findall(r"[A-Za-z_']+", re.sub(r"[-+]?\d[\d.]*(?:e[-+]?\d+)?", "", text))))


def summarize(case: OpenCase) -> dict[str, Any]:
    """Return all that is compared of one fit."""
    gp = lk.LODEGP(case.system, random_state=0, **case.options).fit(case.times, dict(case.data))
    try:
        found = gp.validate(case.times, dict(case.data))
        verdicts = {item.name: [item.useful, item.adequate, item.calibrated] for item in found.channels}
    except LodekitError as error:
        verdicts = {type(error).__name__: []}
    checks = {
        each.name: (each.is_autocorrelated, each.is_suspicious, each.has_dependent_noise)
        for each in gp.fit_.diagnosis.checks
    }
    return {
        "identified": {name: each.identified for name, each in gp.parameters_.items()},
        "warnings": sorted(map(kind, gp.warnings_)),
        "converged": gp.converged_,
        "residuals": checks,
        "validation": verdicts,
        "disturbances": {name: each.needed for name, each in gp.disturbances_.items()},
        "evidence": gp.log_evidence_,
        "estimates": gp.parameters_,
        "learned": [name for name in case.data if name not in case.options.get("inputs", {})],
    }


VERDICTS = ("identified", "warnings", "converged", "residuals", "validation", "disturbances")


def compare(first: Mapping[str, Any], second: Mapping[str, Any], factors: Mapping[str, float], rows: int) -> list[str]:
    """Return in what two fits differ."""
    found = [key for key in VERDICTS if first[key] != second[key]]
    shift = rows * sum(math.log(factors.get(name, 1.0)) for name in first["learned"])
    if not abs(second["evidence"] + shift - first["evidence"]) < EVIDENCE:
        found.append("evidence")
    values, ends = [], []
    for name, one in first["estimates"].items():
        two, factor = second["estimates"][name], factors.get(name, 1.0)
        if one.identified and two.identified:
            values.append(abs(two.value / factor - one.value) < ERRORS * one.std_error)
        is_bounded = all(map(math.isfinite, one.interval))
        for edge, other in zip(one.interval, two.interval, strict=True):
            size = abs(edge - one.value) if is_bounded and edge != one.value else abs(edge)
            ends.append(edge == other or abs(other / factor - edge) <= SHARE * size)
    return found + [key for key, same in (("estimates", values), ("intervals", ends)) if not all(same)]


def check_invariance(case: OpenCase, seed: int) -> dict[str, Any]:
    """Return in what the fits of one system differ, by what was changed."""
    start, generator = time.process_time(), np.random.default_rng([seed, 9])
    ways: dict[str, Callable[[], tuple[OpenCase, dict[str, float]]]] = {
        "parameters": lambda: (reorder(case, "parameters", generator), {}),
        "equations": lambda: (reorder(case, "equations", generator), {}),
        "channels": lambda: (reorder(case, "channels", generator), {}),
        "units": lambda: in_units(case, generator),
    }
    found, details = {}, {}
    with threadpool_limits(1, user_api="blas"):
        first = summarize(case)
        for name, change in ways.items():
            other, factors = change()
            second = summarize(other)
            found[name] = compare(first, second, factors, len(case.times))
            if found[name]:
                details[name] = describe(first, second, factors, len(case.times))
    return {
        "case": case.name,
        "seed": seed,
        "different": found,
        "details": details,
        "seconds": time.process_time() - start,
    }


def describe(first: Mapping[str, Any], second: Mapping[str, Any], factors: Mapping[str, float], rows: int) -> list[str]:
    """Return what two fits say about the same, as lines of text."""
    shift = rows * sum(math.log(factors.get(name, 1.0)) for name in first["learned"])
    found = [f"evidence {first['evidence']:.5f} {second['evidence'] + shift:.5f}"]
    found += [f"{key}: {first[key]} | {second[key]}" for key in VERDICTS if first[key] != second[key]]
    for name, one in first["estimates"].items():
        two, factor = second["estimates"][name], factors.get(name, 1.0)
        both = [(each.value / f, each.interval[0] / f, each.interval[1] / f) for each, f in ((one, 1.0), (two, factor))]
        texts = ["{:.5g} ({:.5g}, {:.5g})".format(*numbers) for numbers in both]
        found.append(f"{name}: {texts[0]} {one.note} | {texts[1]} {two.note}")
    return found

"""Whether numbers are right: engines against each other, evidence against many digits, and cases made to break it.

    python benchmarks/trust_numerics.py --fits 1000 --evidences 300 --gaps 200

Four counts, and what does not belong there is listed. Fits: public fits of catalog systems, half of them with one
level of noise for all channels, half of the data from the prior itself, where channels differ by decades; the other
engine evaluates where each fit has ended (where it has too few digits for that, many digits do). Evidences: both
engines at random hyperparameters, far from any optimum, against an independent calculation with 50 or 90 digits; under
the channel prior, in extended precision.
Gaps: modes that grow across a gap, and two or three roots that are 1e-3 to 1e-9 apart, with and without a disturbance,
against one hundred digits: log evidence to 1e-6 nats (1e-12 of it, if that is more), deviations of predictions to 1e-6.
Torture: public fits of extreme systems and data (`torture_cases.py`), each right with many digits, or refused in words.

Right means: the log evidence errs by less than 1e-6, relative to itself or to the number of measurements; the mean at
the data errs by less than 1e-6 of the spread of its channel, or a hundredth of its own deviation. A refusal is a
`LodekitError` of a fit, or a log evidence of minus infinity for a search.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import lodekit as lk
from lodekit.data.records import Measurements
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.fitting.starts.candidates import VarianceTargets, match_variances
from lodekit.inference.fallback import FallbackEngine
from lodekit.prior.prior import Hyperparameters
from lodekit.results.simulation import simulate

sys.path.insert(0, str(Path(__file__).parents[1]))

Array = NDArray[np.float64]
TOLERANCE = 1e-6
#: How answers begin that must not be.
OFFENCES = ("WRONG", "DISAGREE")


def draw_data(seed: int, most: int) -> tuple[lk.catalog.Example, Array, Array, str]:
    """Return an example, times, noisy data, and how the noise is learned."""
    generator = np.random.default_rng(seed)
    examples = lk.catalog.examples()
    example = examples[seed % len(examples)]
    count = int(generator.integers(4, max(5, most // len(example.system.channels)) + 1))
    length = (0.5, 5.0, 5.0)[seed % 3]
    times = 0.3 + np.sort(generator.uniform(0.0, length, count))
    values = {key: float(value) for key, value in example.values.items()}
    try:
        if (seed // 2) % 2:
            raise lk.LodekitError("the exact solution this time")
        table = simulate(example.system, times, values, lengthscale=length / 5, random_state=seed)[0]
    except lk.LodekitError:
        table = example.solution_at(times)
    spread = table.std(axis=0)
    level = 10.0 ** generator.uniform(-3.0, -0.5)
    table = table + level * np.where(spread > 0, spread, 1.0) * generator.standard_normal(table.shape)
    return example, times, table, ("shared", "channel")[seed % 2]


def is_right(found: float, expected: float, size: int) -> bool:
    return bool(abs(found - expected) <= TOLERANCE * max(size, abs(expected)))


def means_agree(first: Array, second: Array, spread: Array, deviation: Array) -> bool:
    """Return whether two means at the data are the same to 1e-6 of the spread, or to a hundredth of their deviation."""
    return bool((np.abs(first - second) <= TOLERANCE * spread + 1e-2 * deviation).all())


def is_alone(setup: FitSetup, hyper: Hyperparameters, value: float) -> bool:
    """Return whether an engine has a value from another one, because it has too few digits of its own there."""
    assert isinstance(setup.engine, FallbackEngine)
    return not is_right(setup.engine.primary.value_with_error(hyper)[0], value, setup.engine.size)


def judge_alone(setup: FitSetup, hyper: Hyperparameters, value: float) -> str:
    """Return whether an evidence is that of many digits, or of extended precision, where engines have no witness."""
    from tests.channel_witness import channel_evidence, has_extended_precision
    from tests.witness import Witness

    expected = np.nan
    if setup.prior.channels is None:
        expected = Witness(setup.system, setup.prior, setup.measurements).evidence(hyper, 90)
    elif has_extended_precision():
        expected = channel_evidence(setup.prior, setup.measurements, hyper, doubt=2e-7)
    if not np.isfinite(expected):
        return "one engine alone, not judged"
    if is_right(value, expected, setup.engine.size):
        return "one engine alone, right by many digits"
    return f"WRONG: one engine alone {value!r}, exact {expected!r}"


def compare_engines(seed: int) -> Iterator[str]:
    """Yield for each of two engines what became of its fit: the other one agrees there, disagrees, or refuses.

    Every fourth round through the catalog is one under the channel prior.
    """
    prior = "channels" if (seed // len(lk.catalog.examples())) % 4 == 1 else "latent"
    # One of these fits takes as long as ten others.
    example, times, table, noise = draw_data(seed, 24 if prior == "channels" else 60)
    spread = np.where(table.std(axis=0) > 0, table.std(axis=0), 1.0)
    for engine in ("dense", "spectral"):
        try:
            options: Any = {"noise": noise, "engine": engine, "prior": prior, "restarts": 2, "random_state": 0}
            gp = lk.LODEGP(example.system, **options).fit(times, table)
            mean, std = gp.predict(times, return_std=True, parameters="fixed")
        except lk.LodekitError as problem:
            yield f"refused: {type(problem).__name__}"
            continue
        other = build_setup(
            example.system,
            FitSettings(noise=noise, engine="spectral" if engine == "dense" else "dense", prior=prior),
            gp.fit_.measurements,
        )
        hyper = gp.fit_.hyperparameters
        value = other.engine.value(hyper)
        try:
            second = other.engine.posterior(hyper).mean(gp.fit_.observables(example.system.channels), times)
        except lk.LodekitError:
            value = -np.inf
        if not np.isfinite(value):
            yield "the other engine refuses"
            continue
        if not is_right(gp.log_evidence_, value, table.size):
            yield f"DISAGREE in evidence: {engine} {gp.log_evidence_!r}, other {value!r}"
        elif not means_agree(mean, second, spread, std):
            apart = float(np.max(np.abs(mean - second) / spread))
            yield f"DISAGREE in the mean: {engine}, by {apart:.2g} of the spread"
        elif is_alone(other, hyper, value):
            yield judge_alone(gp.fit_.setup, hyper, gp.log_evidence_)
        else:
            yield "agree"


def draw_hyperparameters(setup: FitSetup, theta: Array, generator: np.random.Generator) -> Hyperparameters | None:
    """Return hyperparameters that suit the data, moved by up to three decades."""
    levels = setup.layout.n_noise_levels
    noise = setup.prior.noise.level_scales[:levels] * 10.0 ** generator.uniform(-6.0, 0.0, levels)
    theta = theta * np.exp(0.3 * generator.standard_normal(len(theta)))
    length = 10.0 ** generator.uniform(-1.3, 0.7)
    found = match_variances(setup.engine, setup.layout, VarianceTargets.evaluate_at(setup.engine, theta), length, noise)
    if found is None:
        return None
    return Hyperparameters(
        found.theta,
        found.lengthscales * 10.0 ** generator.uniform(-0.3, 0.3, len(found.lengthscales)),
        found.amplitudes * 10.0 ** generator.uniform(-3.0, 3.0, len(found.amplitudes)),
        found.mode_amplitudes * 10.0 ** generator.uniform(-3.0, 4.0, len(found.mode_amplitudes)),
        found.noise_std,
    )


def judge(setup: FitSetup, hyper: Hyperparameters, expected: float, title: str) -> Iterator[str]:
    """Yield whether the evidence is right, refused or wrong, without and with its gradient."""
    for value in (setup.engine.value(hyper), setup.engine.evaluate(hyper).value):
        if not np.isfinite(value):
            yield "refused"
        elif is_right(value, expected, setup.engine.size):
            yield "right"
        else:
            yield f"WRONG: {title} {value!r}, exact {expected!r}"


def check_evidence(seed: int) -> Iterator[str]:
    """Yield for each engine whether its evidence at random hyperparameters is that of fifty digits."""
    from tests.witness import Witness

    example, times, table, noise = draw_data(seed, 24)
    observations = lk.Observations()
    for channel, column in zip(example.system.channels, table.T, strict=True):
        observations = observations.add(times, channel, column)
    measurements = Measurements.from_observations(observations)
    theta = np.array([float(value) for value in example.values.values()])
    expected, hyper = np.nan, None
    for engine in ("dense", "spectral"):
        setup = build_setup(example.system, FitSettings(noise=noise, engine=engine), measurements)
        if hyper is None:
            hyper = draw_hyperparameters(setup, theta, np.random.default_rng(seed))
            if hyper is None:
                return
            expected = Witness(example.system, setup.prior, measurements).evidence(hyper, 90 if seed % 2 else 50)
        yield from judge(setup, hyper, expected, engine)


def check_channel_evidence(seed: int) -> Iterator[str]:
    """Yield for each engine whether its evidence under the channel prior is that of extended precision.

    Lengthscales of channels differ by up to a factor of 25: inputs hardly reach resonances, whose peaks are narrow.
    """
    from tests.channel_witness import channel_evidence, has_extended_precision

    example, times, table, noise = draw_data(seed, 24)
    if not example.system.free_functions or not has_extended_precision():
        return
    observations = lk.Observations()
    for channel, column in zip(example.system.channels, table.T, strict=True):
        observations = observations.add(times, channel, column)
    measurements, generator = Measurements.from_observations(observations), np.random.default_rng(seed)
    theta = np.array([float(value) for value in example.values.values()])
    expected, hyper = np.nan, None
    for engine in ("dense", "spectral"):
        setup = build_setup(example.system, FitSettings(noise=noise, engine=engine, prior="channels"), measurements)
        if hyper is None:
            found = draw_hyperparameters(setup, theta, generator)
            if found is None:
                return
            hyper = Hyperparameters(
                found.theta,
                found.lengthscales * 10.0 ** generator.uniform(-0.4, 0.4, len(found.lengthscales)),
                found.amplitudes,
                # With 64 bits in place of many digits, the witness bears no modes of ten thousand times the data.
                np.ones_like(found.mode_amplitudes),
                np.maximum(found.noise_std, 1e-4 * setup.prior.noise.level_scales[: len(found.noise_std)]),
            )
            expected = channel_evidence(setup.prior, measurements, hyper, doubt=2e-7)
            if not np.isfinite(expected):
                yield "not judged"
                return
        yield from judge(setup, hyper, expected, f"{engine} under the channel prior")


def draw_gap_or_cluster(seed: int) -> tuple[FitSetup, Hyperparameters, float, Array]:
    """Return a system with a mode that grows in a gap, or with almost equal roots; the noise, and times to predict."""
    generator = np.random.default_rng([7, seed])

    def draw_roots(sign: int, count: int) -> list[Fraction]:
        return [sign * Fraction(int(generator.integers(3, 30)), 10) for _ in range(count)]

    is_driven, grows = seed % 2 == 0, seed // 2 % 2 == 0
    if grows:
        roots = draw_roots(1, 1) + draw_roots(-1, int(generator.integers(3)))
        gap = generator.uniform(4.0, 24.0) / float(roots[0])
    else:
        first, apart = draw_roots(-1, 1)[0], Fraction(int(10 ** generator.uniform(0.0, 6.0)), 10**9)
        roots = [first - k * apart for k in range(int(generator.integers(2, 4)))]
        roots += draw_roots(-1, int(generator.integers(2)))
        gap = float(generator.choice([0.0, 3.0]))
    polynomial = [Fraction(1)]
    for root in roots:
        shifted, own = [Fraction(0), *polynomial], [*polynomial, Fraction(0)]
        polynomial = [a - root * b for a, b in zip(shifted, own, strict=True)]
    left = " + ".join(f"({c.numerator}/{c.denominator})*x" + "'" * k for k, c in enumerate(polynomial))
    count = int(generator.integers(5, 12))
    parts = [np.sort(generator.uniform(0.0, 2.0, count)) for _ in range(2)]
    times = np.concatenate([np.linspace(0.0, 2.0, count) if seed % 3 else part for part in parts])
    times[count:] += 2.1 + gap
    noise, values = 10.0 ** generator.uniform(-4.0, 0.0), 0.3 * np.cumsum(generator.standard_normal(2 * count))
    if generator.integers(2):
        values = values * np.exp(-0.3 * times) + noise * generator.standard_normal(2 * count)
    measurements = Measurements.from_observations(lk.Observations().add(times, "x", values, noise))
    kind = ("white", "matern-3/2")[int(generator.integers(2))]
    settings = FitSettings(disturbances={"w": kind}) if is_driven else FitSettings()
    setup = build_setup(lk.System(f"{left} = {'w' if is_driven else '0'}"), settings, measurements)
    modes, none = np.full(len(setup.prior.groups), 10.0 ** generator.uniform(-1.0, 6.0)), np.zeros(0)
    coloured = np.full(int(is_driven and kind != "white"), 0.3)
    level = 10.0 ** generator.uniform(-1.0, 1.0, int(is_driven))
    asked = np.append(generator.uniform(times[0], times[-1], 4), times[count - 1] + 0.5 * gap)
    return setup, Hyperparameters(none, none, none, modes, none, coloured, level), noise, asked


def check_gap_or_cluster(seed: int) -> Iterator[str]:
    """Yield whether evidence, deviations and means are those of one hundred digits, or refused, or said to be rough."""
    from tests.agreement.kalman import filter_exactly
    from tests.witness import Witness

    setup, hyper, noise, asked = draw_gap_or_cluster(seed)
    try:
        posterior = setup.engine.posterior(hyper)
        scale, observables = float(setup.prior.units.scales[0]), setup.prior.observables
        mean = scale * posterior.mean(observables, asked)[:, 0]
        std = scale * np.sqrt(posterior.variance(observables, asked)[:, 0])
    except lk.LodekitError:
        yield "refused"
        return
    if seed % 2 == 0:
        expected, exact_mean, exact_std = filter_exactly(setup, hyper, noise, asked)
    else:
        witness = Witness(setup.system, setup.prior, setup.measurements)
        expected, (exact_mean, exact_std) = witness.evidence(hyper, 100), witness.predict(hyper, asked)
    error, allowed = abs(posterior.value - expected), max(TOLERANCE, 1e-12 * abs(expected))
    worst, spread = float(np.max(np.abs(std / exact_std - 1.0))), setup.measurements.series[0].values.std()
    if posterior.warnings():
        yield "a warning states the error of the evidence"
    elif worst > TOLERANCE:
        yield f"WRONG: a deviation by {worst:.1g} of itself"
    elif not means_agree(mean, exact_mean, spread, exact_std):
        yield f"WRONG: a mean by {np.max(np.abs(mean - exact_mean)):.1g}"
    else:
        yield "right" if error <= allowed else f"WRONG: evidence {posterior.value!r}, exact {expected!r}"


def torture(name: str) -> str:
    """Return what became of one case: right with many digits, refused, or wrong."""
    from tests.witness import Witness

    from torture_cases import CASES

    case = CASES[name]
    try:
        system = case.system()
        data = case.values(case.times)
        gp = lk.LODEGP(system, random_state=0, **{"restarts": 2, **case.options})
        gp.fit(case.times, data, noise_std=case.noise_std)
        names = gp.fit_.measurements.names
        mean, std = (part.T for part in gp.predict(case.times, list(names), return_std=True, parameters="fixed"))
    except lk.LodekitError as problem:
        return f"refused: {str(problem).splitlines()[0]}"
    setup, hyper = gp.fit_.setup, gp.fit_.hyperparameters
    expected, exact = Witness(system, setup.prior, setup.measurements).evidence_and_mean(hyper, 120)
    spread = np.array([np.std(data[key]) or 1.0 for key in names])[:, None]
    if not is_right(gp.log_evidence_, expected, setup.engine.size):
        return f"WRONG evidence: {gp.log_evidence_!r}, exact {expected!r}"
    if not means_agree(mean, exact.reshape(mean.shape), spread, std):
        apart = float(np.max(np.abs(mean - exact.reshape(mean.shape)) / spread))
        return f"WRONG mean, by {apart:.2g} of the spread"
    return "right" if gp.converged_ else "right (the search did not converge)"


def _count(title: str, check: Callable[[int], Iterator[str]], number: int) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in range(number):
        for found in check(seed):
            total[found.split(":")[0]] += 1
            if found.startswith(OFFENCES):
                print(f"  seed {seed}: {found}", flush=True)
    print(f"{title}: " + ", ".join(f"{count} {what}" for what, count in sorted(total.items())), flush=True)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=100, help="how many public fits, half by each engine")
    parser.add_argument("--evidences", type=int, default=60, help="how many random hyperparameters")
    parser.add_argument("--gaps", type=int, default=200, help="how many systems with growth in gaps or equal roots")
    parser.add_argument("--torture", nargs="*", help="names of cases; all by default, none where nothing follows")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    from torture_cases import CASES

    warnings.simplefilter("ignore")
    with threadpool_limits(1, user_api="blas"):
        found: dict[str, Any] = {
            "evidences": _count("evidences against many digits", check_evidence, options.evidences),
            "channels": _count("evidences under the channel prior", check_channel_evidence, options.evidences),
            "fits": _count("fits, engines against each other", compare_engines, options.fits // 2),
            "gaps": _count("gaps and clusters against 100 digits", check_gap_or_cluster, options.gaps),
            "torture": {},
        }
        for name in CASES if options.torture is None else options.torture:
            found["torture"][name] = torture(name)
            print(f"torture, {name}: {found['torture'][name]}", flush=True)
    several = [item for key in ("evidences", "channels", "fits", "gaps") for item in found[key].items()]
    counts = [*several, *((what, 1) for what in found["torture"].values())]
    bad = sum(count for what, count in counts if what.startswith(OFFENCES))
    print(f"wrong: {bad}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

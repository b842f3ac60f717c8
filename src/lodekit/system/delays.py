"""Dead time (delay) of known inputs: ``delay(u, T)`` is a function of its own to the algebra, named by its input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lodekit.algebra.scalars import Element, Scalar, ScalarRing
from lodekit.errors import EquationError, ParameterError
from lodekit.system.grammar import Call
from lodekit.system.parameters import Parameter
from lodekit.system.signals import ExponentialPolynomial, LinearForm


class DelayedChannel(str):
    """The name of a delayed channel, ``delay(u, T)``, which also knows its parts.

    channel: What is delayed.
    time: By how much.

    Examples
    --------
    >>> from lodekit.algebra.scalars import ScalarRing
    >>> name = DelayedChannel("u", ScalarRing(("T",)).parameter("T"))
    >>> name, name.channel
    ('delay(u, T)', 'u')
    """

    __slots__ = ("channel", "time")

    channel: str
    time: Scalar

    def __new__(cls, channel: str, time: Scalar) -> DelayedChannel:
        """Return the name that is made of a `channel` and a `time`."""
        name = super().__new__(cls, f"delay({channel}, {time})")
        name.channel, name.time = channel, time
        return name

    def __reduce__(self) -> tuple[type[DelayedChannel], tuple[str, Scalar]]:
        return DelayedChannel, (self.channel, self.time)


def undelayed_name(name: str) -> str:
    """Return the channel that a name stands for, delayed or not."""
    return name.channel if isinstance(name, DelayedChannel) else name


def apply_delay(call: Call, inner: LinearForm, time: Scalar) -> LinearForm:
    """Return a linear form of channels at an earlier time."""
    if inner.affine_term or not inner.channels:
        raise EquationError(
            "expected channels alone inside delay(...), such as delay(u, T); write known functions of time with t - T",
            call.place,
        )
    signs = {value > 0 for value in time.ring.terms(time.numerator).values()}
    if signs == {False}:
        raise EquationError(f"expected a delay of at least zero, got {time}: an input cannot act ahead", call.place)
    if not time:
        return inner
    channels: dict[str, list[Scalar]] = {}
    for name, values in inner.channels.items():
        first, before = (name.channel, name.time) if isinstance(name, DelayedChannel) else (name, None)
        channels[DelayedChannel(first, time if before is None else before + time)] = values
    return LinearForm(channels, ExponentialPolynomial(time.ring))


def find_required_inputs(channels: Sequence[str]) -> list[str]:
    """Return the channels that must be known inputs, because they are delayed."""
    return list(dict.fromkeys(name.channel for name in channels if isinstance(name, DelayedChannel)))


def constrain_delays_positive(
    parameters: Mapping[str, Parameter], names: Sequence[DelayedChannel]
) -> dict[str, Parameter]:
    """Return parameters of which those that are delays themselves, or multiples of one, are positive.

    Raise where known values make a delay negative. Those of sums are left as they are: one of several may well be
    negative, and what makes a sum negative has no response.
    """
    found = dict(parameters)
    for name in names:
        occurring = _find_parameters(name.time)
        if occurring is None:
            continue
        values = {each: found[each].fixed for each in occurring}
        if None not in values.values():
            above, below = (
                _evaluate(name.time.ring, part, values) for part in (name.time.numerator, name.time.denominator)
            )
            if below and above / below < 0.0:
                known = ", ".join(f"{each} = {fixed:g}" for each, fixed in values.items())
                raise ParameterError(f"expected a delay of at least zero in {name}, got {above / below:g} with {known}")
        elif len(occurring) == 1 and len(name.time.ring.terms(name.time.numerator)) == 1:
            (delay,) = occurring
            try:
                found[delay] = replace(found[delay], positive=True)
            except ParameterError as problem:
                raise ParameterError(f"{delay} is a delay, in {name}, and so at least zero; {problem}") from None
    return found


def _find_parameters(time: Scalar) -> list[str] | None:
    """Return the parameters that a delay depends on; None where constants such as pi stand there, too."""
    vectors = [v for part in (time.numerator, time.denominator) for v in time.ring.terms(part)]
    names = [n for k, n in enumerate(time.ring.names) if any(v[k] for v in vectors)]
    return names if all(name in time.ring.parameters for name in names) else None


def _evaluate(ring: ScalarRing, element: Element, values: Mapping[str, float | None]) -> float:
    """Return a ring element at values of the parameters that it depends on."""
    factors = [1.0 if (value := values.get(name)) is None else value for name in ring.names]
    terms = ring.terms(element).items()
    return sum(c * math.prod(f**e for f, e in zip(factors, v, strict=True)) for v, c in terms)

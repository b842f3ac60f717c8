"""Dead time (delay) of known inputs: the algebra treats ``delay(u, T)`` as a separate channel of that name."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lodekit.algebra.scalars import Element, Scalar, ScalarRing
from lodekit.errors import EquationError, ParameterError
from lodekit.system.grammar import Call
from lodekit.system.parameters import Parameter
from lodekit.system.signals import ExponentialPolynomial, LinearForm


class DelayedChannel(str):
    """The name of a channel with dead time (delay), such as ``delay(u, T)``, with its parts.

    channel: The delayed channel.
    time: The dead time.

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
        """Return the name of a `channel` with a dead `time`."""
        name = super().__new__(cls, f"delay({channel}, {time})")
        name.channel, name.time = channel, time
        return name

    def __reduce__(self) -> tuple[type[DelayedChannel], tuple[str, Scalar]]:
        return DelayedChannel, (self.channel, self.time)


def undelayed_name(name: str) -> str:
    """Return the channel of a name, without its dead time (delay)."""
    return name.channel if isinstance(name, DelayedChannel) else name


def apply_delay(call: Call, inner: LinearForm, time: Scalar) -> LinearForm:
    """Return a linear form of channels with a dead time (delay)."""
    if inner.affine_term or not inner.channels:
        raise EquationError(
            "expected only channels inside delay(...), such as delay(u, T); write known functions of time with t - T",
            call.place,
        )
    signs = {value > 0 for value in time.ring.terms(time.numerator).values()}
    if signs == {False}:
        raise EquationError(
            f"expected a delay of at least zero, got {time}: an input cannot act before it changes", call.place
        )
    if not time:
        return inner
    channels: dict[str, list[Scalar]] = {}
    for name, values in inner.channels.items():
        first, before = (name.channel, name.time) if isinstance(name, DelayedChannel) else (name, None)
        channels[DelayedChannel(first, time if before is None else before + time)] = values
    return LinearForm(channels, ExponentialPolynomial(time.ring))


def check_delayed_inputs(channels: Sequence[str], inputs: Collection[str] = ()) -> None:
    """Raise if a delayed channel is not one of the known inputs."""
    if missing := [name for name in find_required_inputs(channels) if name not in inputs]:
        raise EquationError(
            f"{missing[0]!r} is delayed in the equations, so it must be a known input, with "
            f"inputs={{{missing[0]!r}: 'hold'}}. Delays of outputs (delay differential equations) are not supported"
        )


def find_required_inputs(channels: Sequence[str]) -> list[str]:
    """Return the channels that must be known inputs, because they are delayed."""
    return list(dict.fromkeys(name.channel for name in channels if isinstance(name, DelayedChannel)))


def constrain_delays_positive(
    parameters: Mapping[str, Parameter], names: Sequence[DelayedChannel]
) -> dict[str, Parameter]:
    """Return the parameters; those that are a dead time (delay), or a multiple of one, become positive.

    Raise if known values make a dead time negative. Parameters of sums are unchanged, since one of several may be
    negative; a negative sum has no response.
    """
    found = dict(parameters)
    for name in names:
        ring = name.time.ring
        exponents = [e for part in (name.time.numerator, name.time.denominator) for e in ring.terms(part)]
        occurring = [each for k, each in enumerate(ring.names) if any(e[k] for e in exponents)]
        if not all(each in ring.parameters for each in occurring):  # constants such as pi
            continue
        values = {each: found[each].fixed for each in occurring}
        if None not in values.values():
            above, below = (_evaluate(ring, part, values) for part in (name.time.numerator, name.time.denominator))
            if below and above / below < 0.0:
                known = ", ".join(f"{each} = {fixed:g}" for each, fixed in values.items())
                raise ParameterError(f"expected a delay of at least zero in {name}, got {above / below:g} with {known}")
        elif len(occurring) == 1 and len(ring.terms(name.time.numerator)) == 1:
            (delay,) = occurring
            try:
                found[delay] = replace(found[delay], positive=True)
            except ParameterError as problem:
                raise ParameterError(f"{delay} is a delay, in {name}, and so at least zero; {problem}") from None
    return found


def _evaluate(ring: ScalarRing, element: Element, values: Mapping[str, float | None]) -> float:
    """Return a ring element at given values of its parameters."""
    factors = [1.0 if (value := values.get(name)) is None else value for name in ring.names]
    terms = ring.terms(element).items()
    return sum(c * math.prod(f**e for f, e in zip(factors, v, strict=True)) for v, c in terms)

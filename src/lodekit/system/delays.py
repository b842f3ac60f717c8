"""Known inputs at an earlier time: ``delay(u, T)`` is a function of its own to the algebra, named by what it delays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lodekit.algebra.scalars import Scalar
from lodekit.errors import EquationError
from lodekit.system.forms import LinearForm
from lodekit.system.signals import Signal
from lodekit.system.tree import Call

__all__ = ["Delayed", "channel_of", "delay_form", "delayed_names", "need_inputs"]


class Delayed(str):
    """The name of a delayed channel, ``delay(u, T)``, which also knows its parts.

    Parameters
    ----------
    channel : str
        What is delayed.
    time : Scalar
        By how much.

    Examples
    --------
    >>> from lodekit.algebra.scalars import ScalarRing
    >>> name = Delayed("u", ScalarRing(("T",)).parameter("T"))
    >>> name, name.channel
    ('delay(u, T)', 'u')
    """

    __slots__ = ("channel", "time")

    channel: str
    time: Scalar

    def __new__(cls, channel: str, time: Scalar) -> Delayed:
        """Return the name that is made of a `channel` and a `time`."""
        name = super().__new__(cls, f"delay({channel}, {time})")
        name.channel, name.time = channel, time
        return name

    def __reduce__(self) -> tuple[type[Delayed], tuple[str, Scalar]]:
        return Delayed, (self.channel, self.time)


def channel_of(name: str) -> str:
    """Return the channel that a name stands for, delayed or not."""
    return name.channel if isinstance(name, Delayed) else name


def delay_form(call: Call, inner: LinearForm, time: Scalar) -> LinearForm:
    """Return a linear form of channels at an earlier time.

    Parameters
    ----------
    call : Call
        Where it stands.
    inner : LinearForm
        What is delayed.
    time : Scalar
        By how much.
    """
    if inner.known or not inner.channels:
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
        first, before = (name.channel, name.time) if isinstance(name, Delayed) else (name, None)
        channels[Delayed(first, time if before is None else before + time)] = values
    return LinearForm(channels, Signal(time.ring))


def delayed_names(forms: Iterable[LinearForm]) -> tuple[Delayed, ...]:
    """Return all delayed channels in some forms, in the order of their first appearance."""
    return tuple(dict.fromkeys(name for form in forms for name in form.channels if isinstance(name, Delayed)))


def need_inputs(channels: Sequence[str]) -> list[str]:
    """Return the channels that must be known inputs, because they are delayed."""
    return list(dict.fromkeys(name.channel for name in channels if isinstance(name, Delayed)))

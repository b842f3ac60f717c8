"""exp, sin, cos and sqrt: of constants, with exact values, and of straight lines in time, as known signals."""

from __future__ import annotations

from lodekit.algebra.scalars import Scalar
from lodekit.errors import EquationError
from lodekit.system.constants import RelatedConstantsError, constant_value
from lodekit.system.signals import Signal
from lodekit.system.tree import Call

__all__ = ["constant_of", "wave_of"]


def constant_of(call: Call, argument: Scalar) -> Scalar:
    """Return the exact value of exp, sin, cos or sqrt of a constant.

    Parameters
    ----------
    call : Call
        Which function, and where it stands.
    argument : Scalar
    """
    ring = argument.ring
    if argument.involves_parameters():
        raise EquationError(
            f"{call.function} of a parameter is not a rational coefficient; declare a new parameter for its value",
            call.place,
        )
    try:
        value = constant_value(ring, call.function, argument)
    except RelatedConstantsError as related:
        first, second = related.names
        raise EquationError(
            f"{first} and {second} are related in a way that exact arithmetic would miss; expected one of them. "
            "Write the other as a power or a polynomial of it, or as a decimal number",
            call.place,
        ) from None
    if value is None:
        allowed = {
            "sqrt": "a positive number",
            "exp": "a number or a multiple of pi",
        }.get(call.function, "a number or a multiple of pi/12")
        raise EquationError(
            f"no exact value for {call.function}({argument}); expected {allowed} of moderate size. "
            "Write the value as a decimal number",
            call.place,
        )
    return value


def wave_of(call: Call, slope: Scalar, offset: Scalar) -> Signal:
    """Return exp, sin or cos of ``slope t + offset``, the offset expanded into constants.

    Parameters
    ----------
    call : Call
        Which function, and where it stands.
    slope, offset : Scalar
    """
    ring = slope.ring
    zero = ring.rational(0)
    if call.function == "sqrt":
        raise EquationError("sqrt of a function of time is not an exponential polynomial", call.place)
    if call.function == "exp":
        wave = Signal.wave(slope, zero)
        return wave if not offset else wave.scale(constant_of(call, offset))
    cosine, sine = Signal.wave(zero, slope), Signal.wave(zero, slope, sine=True)
    if not offset:
        return cosine if call.function == "cos" else sine
    if offset.involves_parameters():
        raise EquationError(
            "a parameter stands in a phase; write A*sin(w*t) + B*cos(w*t) with two parameters A and B instead",
            call.place,
        )
    parts = [constant_of(Call(call.place, name, call.arguments), offset) for name in ("cos", "sin")]
    if call.function == "cos":
        return cosine.scale(parts[0]) + sine.scale(-parts[1])
    return sine.scale(parts[0]) + cosine.scale(parts[1])

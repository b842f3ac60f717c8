"""Decimal numbers on lines become floats, many at a time; what is no number is told apart first."""

from __future__ import annotations

import re
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_decimals"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Places = NDArray[np.int64]
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
#: With fewer lines the parser takes longer to load than to work.
_FEW = 20_000
# What a byte is. Digits are zero; of an exponent's sign and of a point without digits before it more below.
_SIGN, _OTHER, _END, _POINT, _EXPONENT, _LATER_SIGN, _BARE_POINT = range(1, 8)
_KINDS = np.full(256, _OTHER, dtype=np.uint8)
_KINDS[list(b"0123456789")] = 0
_KINDS[list(b"+-\n.eE")] = [_SIGN, _SIGN, _END, _POINT, _EXPONENT, _EXPONENT]
_ZERO = np.uint8(ord("0"))


def _make_rules() -> bytes:
    """Return what may follow what, by [before, now, whether digits are between them]: ``[+-] 1.5 e [+-] 3``."""
    rules = np.zeros((8, 8, 2), dtype=bool)
    rules[_END, _SIGN, 0] = rules[_EXPONENT, _LATER_SIGN, 0] = True
    for before in (_END, _SIGN):
        rules[before, _POINT, 1] = rules[before, _BARE_POINT, 0] = True
        rules[before, _EXPONENT, 1] = rules[before, _END, 1] = True
    rules[_POINT, _EXPONENT] = rules[_POINT, _END] = True
    rules[_BARE_POINT, _EXPONENT, 1] = rules[_BARE_POINT, _END, 1] = True
    rules[_EXPONENT, _END, 1] = rules[_LATER_SIGN, _END, 1] = True
    # A table of 256 bytes, as `bytes.translate` wants it, of which the numbers below use the first half.
    return rules.tobytes() + bytes(128)


_RULES = _make_rules()


def read_decimals(lines: NDArray[np.uint8], ends: Places | None = None) -> tuple[Array, Mask]:
    r"""Return the numbers on lines, with a decimal point each, and whether there is one; NaN where there is none.

    Each is the float next to the decimal number, as Python reads it.

    Parameters
    ----------
    lines : array of bytes
        Every line ends with a line feed.
    ends : array of int, optional
        Where the line feeds are, for those who know.

    Examples
    --------
    >>> numbers, valid = read_decimals(np.frombuffer(b"1.5\n-2e3\n\n1.2.3\n", dtype=np.uint8))
    >>> numbers.tolist(), valid.tolist()
    ([1.5, -2000.0, nan, nan], [True, True, False, False])
    """
    ends = np.flatnonzero(lines == 10) if ends is None else ends
    valid = _are_plain(lines, ends)
    if valid.all():
        return _parse(lines.tobytes(), len(ends)), valid
    lengths = np.diff(ends, prepend=-1)
    numbers = np.full(len(ends), np.nan)
    numbers[valid] = _parse(lines[np.repeat(valid, lengths)].tobytes(), int(valid.sum()))
    for line in np.flatnonzero(~valid & (lengths > 1)).tolist():
        text = lines[ends[line] - lengths[line] + 1 : ends[line]].tobytes()
        if _INFINITE.fullmatch(text):
            numbers[line], valid[line] = float(text), True
    return numbers, valid


def _are_plain(lines: NDArray[np.uint8], ends: Places) -> Mask:
    """Return which lines hold a number of digits, at most one point and an exponent; an empty line holds none."""
    places = np.flatnonzero((lines - _ZERO) > 9)  # less than nothing is more than 200 here
    now, digits = _KINDS[lines[places]], np.diff(places, prepend=-1) > 1
    now[(now == _POINT) & ~digits] = _BARE_POINT
    signs = np.flatnonzero(now == _SIGN)
    now[signs[now[signs - 1] == _EXPONENT]] = _LATER_SIGN
    pairs = now << 1 | digits
    pairs[1:] |= now[:-1] << 4
    pairs[:1] |= _END << 4
    fine = np.frombuffer(pairs.tobytes().translate(_RULES), dtype=bool)
    valid = np.ones(len(ends), dtype=bool)
    if not fine.all():
        valid[np.searchsorted(ends, places[~fine])] = False
    return valid


def _parse(text: bytes, count: int) -> Array:
    """Return numbers that are known to be some, one on each line."""
    # Of no lines at all it would divide by their number.
    if count < max(_FEW, 1):
        return np.array(list(map(float, text.split())), dtype=float)
    # SciPy's parser of matrices takes a tenth of the time that Python's takes. It wants no plus before a number, and
    # would not mind what stands behind one.
    from scipy.io import mmread

    head = b"%%%%MatrixMarket matrix array real general\n%d 1\n" % count
    return np.asarray(mmread(BytesIO(head + text.replace(b"+", b""))), dtype=float).ravel()

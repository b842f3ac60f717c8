"""Covariances by the names that users write; `FAMILIES` is the only list of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lodekit.errors import LodekitError
from lodekit.prior.latents import Latent, Matern, SquaredExponential

__all__ = ["FAMILIES", "Family", "read_latent", "registered"]


@dataclass(frozen=True)
class Family:
    """Covariances that a text may name.

    Parameters
    ----------
    expected : str
        What to write, for messages.
    read : function of a text
        Returns the covariance; None where the text names none of the family.
    """

    expected: str
    read: Callable[[str], Latent | None]


#: The largest p of ``matern-p/2``: smoother ones cannot be told from the squared exponential.
_LARGEST = 131


def _read_matern(name: str) -> Latent | None:
    found = re.fullmatch(r"matern-([0-9]{1,3})/2", name)
    if not found or int(found.group(1)) % 2 == 0 or int(found.group(1)) > _LARGEST:
        return None
    return Matern((int(found.group(1)) - 1) // 2)


#: All covariances that ``latent=`` may name.
FAMILIES: list[Family] = [
    Family("'se'", lambda name: SquaredExponential() if name == "se" else None),
    Family(f"'matern-p/2' with odd p up to {_LARGEST}, such as 'matern-7/2'", _read_matern),
]


@contextmanager
def registered(family: Family) -> Iterator[None]:
    """Let one more family of covariances take part, for as long as a ``with`` block lasts.

    Parameters
    ----------
    family : Family
    """
    FAMILIES.append(family)
    try:
        yield
    finally:
        FAMILIES.remove(family)


#: What other libraries call them.
_ELSEWHERE = {
    **dict.fromkeys(("se", "rbf", "gaussian", "squaredexponential", "expquad", "exponentiatedquadratic"), "se"),
    **{f"matern{p}2": f"matern-{p}/2" for p in (1, 3, 5, 7)},
}


def read_latent(name: str) -> Latent:
    """Return the covariance that a text names: ``se``, ``matern-5/2``.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> read_latent("matern-5/2").name
    'matern-5/2'
    >>> read_latent("Matern 5/2")
    Traceback (most recent call last):
    lodekit.errors.LodekitError: expected latent='se' or 'matern-p/2' with odd p up to 131, such as 'matern-7/2', got
    'Matern 5/2', which is 'matern-5/2' here
    """
    for family in FAMILIES:
        found = family.read(name) if isinstance(name, str) else None
        if found is not None:
            return found
    expected = " or ".join(family.expected for family in FAMILIES)
    other = _ELSEWHERE.get(str(name).lower().translate(str.maketrans("", "", "-_/ ")))
    raise LodekitError(f"expected latent={expected}, got {name!r}{f', which is {other!r} here' if other else ''}")

"""What a system has to say while files and tables for it are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lodekit.prior.observables import ObservableReader
from lodekit.system.dimensions import unit_check
from lodekit.system.system import System

__all__ = ["column_checks"]


def column_checks(system: System, declared: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the checks that readers of tables make for a system: of what columns are, and of units that they tell.

    They are arguments of `lodekit.data.planning.Request`, which knows no system.

    Parameters
    ----------
    system : System
    declared : dict of str to str, optional
        Units by name that are known to agree with the equations, such as those of a system file.
    """
    return {"check": ObservableReader(system).read, "check_units": unit_check(system, declared)}

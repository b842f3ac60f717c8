"""The heating system and a walk, each fitted once; who changes a model takes `LODEGP.from_fit` of it."""

from __future__ import annotations

import pytest

import lodekit as lk
from tests.model.heating import HEATING, TIMES, WALK, heating_data


@pytest.fixture(scope="session")
def heated() -> lk.LODEGP:
    return lk.LODEGP(HEATING.system, random_state=0).fit(TIMES, heating_data())


@pytest.fixture(scope="session")
def walk() -> lk.LODEGP:
    return lk.LODEGP(WALK, random_state=0, restarts=1).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})

"""The heating system, fitted once."""

from __future__ import annotations

import pytest

import lodekit as lk
from tests.model.heating import HEATING, TIMES, heating_data


@pytest.fixture(scope="session")
def heated() -> lk.LODEGP:
    return lk.LODEGP(HEATING.system, random_state=0).fit(TIMES, heating_data())

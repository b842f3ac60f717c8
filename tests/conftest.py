"""What holds for all tests: nothing random between two runs, and any order on request."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings

# The same examples in every run, and none from an earlier one; slow machines are no failures.
settings.register_profile("lodekit", derandomize=True, database=None, deadline=None)
settings.load_profile("lodekit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests in each, in another order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("shuffle")
    if seed is None:
        return
    generator = random.Random(seed)
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.split("::")[0], []).append(item)
    # Files stay whole, for what their tests share is made once a file.
    for group in files.values():
        generator.shuffle(group)
    items[:] = [item for name in generator.sample(list(files), len(files)) for item in files[name]]

"""A heating system with data and a fit, made once."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command import HEATING, run


@dataclass(frozen=True)
class Fitted:
    """A folder with ``heating.toml``, ``heating.csv`` and what a fit has written to ``heating-fit``."""

    folder: Path
    done: subprocess.CompletedProcess[str]

    @property
    def model(self) -> str:
        """The folder of the fit."""
        return str(self.folder / "heating-fit")


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """Return a fit of 25 rows with figures, by the commands of the documentation."""
    folder = tmp_path_factory.mktemp("heating")
    made = run(
        *("simulate", "heating", "--from", "-5", "--to", "5", "--n", "25", "--noise", "0.02", "--out", "heating.csv"),
        cwd=folder,
    )
    assert (made.returncode, made.stdout) == (0, "")
    begun = run("init", HEATING, "--param", "a,b", "--title", "A heater", "--out", "heating.toml", cwd=folder)
    assert begun.returncode == 0
    return Fitted(folder, run("fit", "heating.toml", "heating.csv", cwd=folder))

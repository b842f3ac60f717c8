"""The two fits of docs/cli.md, made again from what is written there."""

from __future__ import annotations

import re
from pathlib import Path

from lodekit.system.files import read_system_file
from lodekit.workflow.pipeline import fit_file
from tests.cli.command import run
from tests.real_records import RECORDS, needs

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
BOARD, LAMP = PAGE.split("## Two fits to real measurements")[1].split("**A halogen lamp")

pytestmark = [needs("tclab_mimo_random_steps.csv"), needs("daisy_heating_system.dat")]


def read_rows(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names at the head of the table in a text, and its rows by what they are called."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("|")
    )
    return [name for name in head if name], {row[0]: row[1:] for row in rows}


def check_table(text: str, path: Path, data: Path) -> None:
    """Fit a system file, and compare with a table: whichever is right, the other one agrees within its interval."""
    names, rows = read_rows(text)
    found = fit_file(read_system_file(path), data, random_state=0).gp
    for k, name in enumerate(names):
        told, (low, high) = float(rows["lodekit, no start values"][k]), found.parameters_[name].interval
        first, last = map(float, rows["95 % interval"][k].split(" to "))
        width = high - low
        assert abs(found.parameters_[name].value - told) < 0.1 * width, name
        assert abs(low - first) < 0.3 * width, name
        assert abs(high - last) < 0.3 * width, name
        for label, row in rows.items():
            if label.startswith("least squares"):
                assert low < float(row[k]) < high, name
    assert any("residuals of" in warning and "are correlated" in warning for warning in found.warnings_)


def test_the_board_with_hidden_states(tmp_path: Path) -> None:
    name = "tclab_mimo_random_steps.csv"
    (tmp_path / name).symlink_to(RECORDS / name)
    shown = re.search(r"```\n\$ lodekit (init .*?)\n(.*?)```", BOARD, re.DOTALL)
    assert shown is not None
    done = run(*shown[1].split(), cwd=tmp_path)
    assert done.stderr == shown[2]
    toml = re.search(r"```toml\n(.*?)```", BOARD, re.DOTALL)
    assert toml is not None
    (tmp_path / "physics.toml").write_text(toml[1])
    # The ledger of claims and the gallery repeat the fit, which takes minutes.
    board = read_system_file(tmp_path / "physics.toml").system
    assert set(board.parameters) == set(re.findall(r"\b(?:K\d|tau|s|Ta)\b", BOARD.split("| ---")[0].splitlines()[-1]))


def test_the_lamp_as_it_was_guessed(tmp_path: Path) -> None:
    name = "daisy_heating_system.dat"
    done = run("init", "lamp.toml", "--data", str(RECORDS / name), cwd=tmp_path)
    assert done.returncode == 0
    assert "tau*y' + y - y0 = K*u" in LAMP
    assert read_system_file(tmp_path / "lamp.toml").system.equations == ("tau*y' + y - y0 = K*u",)
    check_table(LAMP, tmp_path / "lamp.toml", RECORDS / name)

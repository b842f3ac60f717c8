"""A short form of `benchmarks/trust.py`: units and calibration on few systems, and the tables of `docs/trust.md`.

Numerics and input have short forms of their own: `test_numerics.py` here, and `tests/properties/test_trust_input.py`.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibration
import trust_parts
import units
from trust import read_options, run_part, write_docs

ROOT = Path(__file__).parents[2]


def test_other_units_give_the_same_answer() -> None:
    options = read_options(["--jobs", "1", "--systems", "free_decay", "--points", "12"])
    found = run_part("units", options)
    assert found["bad"] == 0
    assert found["counts"] == {"another answer": 0, "the same answer": 6}
    assert 0 < max(found["worst"].values()) < 1e-6


def test_a_wrong_factor_is_another_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter that is said to change with the units otherwise than it does."""
    real = units.in_other_units

    def wrong(*arguments: Any, **options: Any) -> Any:
        system, scales, sizes = real(*arguments, **options)
        return system, scales, sizes | {"k": sizes["k"] * Fraction(1000002, 1000000)}

    monkeypatch.setattr(units, "in_other_units", wrong)
    rows = units.compare(calibration.find("free_decay"), 12, 0.02, units.SCALINGS[:1])
    assert not any(map(units.is_same, rows))


@pytest.fixture(scope="module")
def calibrated() -> dict[str, Any]:
    options = read_options(["calibration", "--jobs", "1", "--systems", "heating", "free_decay", "--data-sets", "2"])
    return run_part("calibration", options)


def test_bands_and_intervals_hold_the_truth(calibrated: dict[str, Any]) -> None:
    """Four data sets tell little: coverage within four binomial errors, and rising with the level."""
    found = calibrated["all"]
    assert found["data_sets"] == calibrated["total"] == 4
    assert set(calibrated["systems"]) == {"heating", "free_decay"}
    np.testing.assert_allclose(found["errors"][0], np.sqrt(0.25 / 4))
    for shares in (*found["bands"].values(), found["intervals"]):
        assert len(shares) == len(calibration.SHARES) == 4
        assert (np.diff(shares) >= 0).all()
        off = np.abs(np.array(shares) - calibration.SHARES)
        assert (off <= 4 * np.array(found["errors"])).all()


@pytest.mark.parametrize("old", ["", "old\n"])
def test_figures_are_put_between_the_marks_of_a_page(calibrated: dict[str, Any], tmp_path: Path, old: str) -> None:
    page = tmp_path / "page.md"
    other = "<!-- trust: fits -->\nas it was\n<!-- end -->\n"
    page.write_text(f"before\n<!-- trust: calibration -->\n{old}<!-- end -->\nbetween\n{other}")
    write_docs(page, {"parts": {"calibration": calibrated}})
    text = page.read_text()
    assert "old\n" not in text
    assert "| **all** | 4 |" in text
    assert text.startswith("before\n<!-- trust: calibration -->\n")
    assert text.endswith(f"\n<!-- end -->\nbetween\n{other}")
    write_docs(page, {"parts": {"calibration": calibrated}})
    assert page.read_text() == text


def test_the_page_has_a_place_for_every_part() -> None:
    text = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    for name in trust_parts.PARTS:
        assert text.count(f"<!-- trust: {name} -->") == 1


def test_what_must_not_be_is_counted() -> None:
    gather = trust_parts.PARTS["evidences"].gather
    assert gather(["right", "refused", "right"])["bad"] == 0
    assert gather(["right", "WRONG: dense 1.0, exact 2.0"])["problems"] == ["WRONG: dense 1.0, exact 2.0"]
    torture = trust_parts.PARTS["torture"].gather([["stiff modes", "right"], ["triple root", "WRONG mean, by 2"]])
    assert torture["counts"] == {"refused": 0, "right": 1}
    assert torture["bad"] == 1

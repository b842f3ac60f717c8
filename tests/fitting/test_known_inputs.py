"""Searches where known inputs drive all that was measured: from nothing to the optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import expm

import greybox_records
from greybox_plants import NOISE, SAME, run_kind, run_plant
from greybox_speed import DELAYED, by_least_squares, driven_record, fit_long
from lodekit.fitting import search_options as options
from lodekit.prior.expm import expm_action, expm_action_vjp
from tests.real_records import RECORDS, needs


def test_rows_of_flows_and_their_derivatives_against_matrix_exponentials() -> None:
    generator = np.random.default_rng(0)
    M, dM = generator.standard_normal((3, 3)) - 2.0 * np.eye(3), generator.standard_normal((2, 3, 3))
    w, dw, times = generator.standard_normal((2, 3)), generator.standard_normal((2, 2, 3)), generator.uniform(0, 9, 40)
    values, slopes = expm_action(w, dw, M, dM, times)
    for k, s in enumerate(times):
        np.testing.assert_allclose(values[:, k], w @ expm(s * M), atol=1e-12)
        for p in range(2):
            block = np.block([[M, dM[p]], [np.zeros((3, 3)), M]])
            expected = dw[p] @ expm(s * M) + w @ expm(s * block)[:3, 3:]
            np.testing.assert_allclose(slopes[p, :, k], expected, atol=1e-10)
    weights = generator.standard_normal(values.shape)
    pulled = expm_action_vjp(w, M, times, weights)
    found_slopes = np.tensordot(dw, pulled[0], 2) + np.tensordot(dM, pulled[1], 2)
    np.testing.assert_allclose(found_slopes, np.tensordot(slopes, weights, 3), rtol=1e-10)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_a_random_plant_with_a_hidden_state_is_found_from_nothing(seed: int) -> None:
    found = run_plant(seed)
    assert found["below"] < SAME
    for name, value in found["values"].items():
        assert found["found"][name] == pytest.approx(value, rel=20 * NOISE)


def test_a_long_record_is_learned_from_a_piece_of_it_and_ends_at_least_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """What short records are for long ones, shorter ones are for this: the last steps are on all rows."""
    monkeypatch.setattr(options, "SEARCH", replace(options.SEARCH, long_record_rows=2000, subsample_rows=500))
    record = driven_record(3000)
    line = fit_long(DELAYED, record)
    found, errors = (np.array([line[key][name] for name in DELAYED[1]]) for key in ("values", "errors"))
    expected = by_least_squares(*record[1:], np.array([5.2, 2.9, 2.1, 4.9, 1.1]))
    np.testing.assert_array_less(np.abs(found - expected) / errors, 0.01)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_evidence_tells_held_from_straight(seed: int) -> None:
    found = run_kind(seed)
    assert found["right"]
    assert found["by"] > 10.0


@needs(greybox_records.LAMP)
def test_the_lamp_is_found_as_by_least_squares() -> None:
    found = greybox_records.lamp(RECORDS)
    assert found["apart"] < 5e-3
    assert found["told"]


@needs(greybox_records.TCLAB)
def test_two_hidden_heaters_are_found_as_by_least_squares() -> None:
    found = greybox_records.tclab(RECORDS, ["shared"], whole=False)["shared"]
    left, least = found["sizes"]
    assert left < 1.0001 * least
    for ours, theirs in found["points"]:
        assert abs(ours - theirs) < 1.0


@needs(greybox_records.SCHOOL)
def test_the_school_is_found_and_what_data_do_not_tell_is_said() -> None:
    found = greybox_records.school(RECORDS)
    assert found["training"] <= 0.37
    assert found["test"] <= 0.345
    assert found["open"] == ["Rea"]

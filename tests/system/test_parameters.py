"""Parameters hold what is known of them, and refuse contradictions."""

import math

import numpy as np
import pytest

import lodekit as lk
from lodekit.errors import LodekitError, ParameterError
from lodekit.system.parameters import parse_parameters


def test_signs_and_bounds_combine() -> None:
    assert lk.Parameter().interval == (-math.inf, math.inf)
    assert lk.Parameter(positive=True).interval == (0, math.inf)
    assert lk.Parameter(positive=True, bounds=(-1, 3)).interval == (0, 3)
    assert lk.Parameter(bounds=(3, None)).interval == (3, math.inf)
    assert lk.Parameter(bounds=(None, 3), positive=True).interval == (0, 3)
    assert lk.Parameter(bounds=[1, 2], start=1.5).bounds == (1.0, 2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"bounds": (2, 1)}, "lower bound below the upper one, got 2 and 1; exchange them"),
        ({"bounds": (1, 1)}, "fixed="),
        ({"bounds": 3}, "two numbers"),
        ({"bounds": (1, math.nan)}, "lower bound below the upper one"),
        ({"positive": True, "bounds": (-2, -1)}, "contradicts"),
        ({"positive": True, "start": -1}, "above zero"),
        ({"positive": True, "start": 0}, "above zero"),
        ({"bounds": (0, 1), "fixed": 2}, "within 0 to 1"),
        ({"start": "big"}, "expected a number"),
        ({"start": math.inf}, "finite"),
        ({"fixed": True}, "expected a number"),
        ({"fixed": 10**400}, r"fixed= below 1\.8e308, got a larger one"),
        ({"bounds": (0, 10**400)}, r"bounds= below 1\.8e308"),
        ({"bounds": (0, [])}, "expected a number for bounds=, got list"),
        ({"bounds": "12"}, "two numbers"),
        ({"fixed": "3"}, "expected a number for fixed=, got '3'; write a number, without quotation marks"),
        ({"positive": True, "bounds": (0, 5), "fixed": 0}, "above zero and within 0 to 5"),
        ({"positive": "yes"}, "positive=True"),
        ({"prior": [5, 1]}, "expected prior=Normal"),
        ({"prior": np.array([5, 1])}, "expected prior=Normal"),
        ({"prior": "channels"}, "goes with the model"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        lk.Parameter(**options)  # type: ignore[arg-type]


def test_priors_are_made_again_whatever_the_order_in_which_their_numbers_were_kept() -> None:
    definition = lk.Parameter(prior=lk.LogNormal(3, 0.5)).definition()
    definition["prior"] = dict(reversed(definition["prior"].items()))
    assert lk.Parameter.from_definition(definition).prior == lk.LogNormal(3, 0.5)


def test_masses_of_log_normal_priors_are_told_over_the_whole_range_of_floats() -> None:
    assert lk.LogNormal(1e300, 1).log_mass(1e-30, 1e300) == pytest.approx(math.log(0.5))


def test_parameters_are_declared_as_text_as_names_or_with_what_is_known() -> None:
    assert list(parse_parameters("a b,c")) == ["a", "b", "c"]
    assert list(parse_parameters(("a", "β"))) == ["a", "β"]
    assert parse_parameters({"a": lk.Parameter(start=2)})["a"].start == 2.0


@pytest.mark.parametrize("bad", [3, ["a", "a"], {"a": 3}, ["t"], ["1a"], [None]])
def test_bad_declarations_are_refused(bad: object) -> None:
    with pytest.raises(LodekitError):
        parse_parameters(bad)  # type: ignore[arg-type]

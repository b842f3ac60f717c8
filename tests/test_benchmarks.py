"""Every script in benchmarks/ runs at its smallest size, so that a broken one is noticed before it is needed."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: The smallest arguments of each script.
SMALLEST = {
    "ablation": "--sets disturbances --seeds 1 --only snap",
    "ahead": "--plants 1 --kinds steady --textbook",
    "algebra": "--quick --only heating",
    "boundary": "--samples 20",
    "calibration": "--seeds 1 --systems free_decay",
    "certificate": "--noise 0.02 --systems heating",
    "cli": "--runs 1 --only inspect",
    "comparison": "--seeds 1 --methods lodekit",
    "dense": "--rows 75 --seeds 0",
    "disk": "--rows 1000",
    "disturbances": "--parts plants --seeds 1",
    "gpu": "--cpu-rows 150",
    "greybox": "--part delays compartments response --seeds 1 --largest 1000",
    "identification": "--part equivalent --seeds 1 --only product",
    "learning": "--seeds 1",
    "markov": "--rows 1000",
    "paper": "",
    "plans": "--count 2",
    "priors": "--seeds 1 --systems free_decay --jobs 1",
    "reading": "--rows 1000",
    "residual_verdicts": "--records 1 --levels --rows 30",
    "scaling": "--points 2000 --largest 0 --seconds 0 --stream 4000 --dask 4000",
    "search": "--plants decay --seeds 1",
    "stream": "--rows 1000 --streams 1",
    "trust": "evidences --evidences 1 --jobs 1",
    "trust_numerics": "--fits 2 --evidences 1 --gaps 4 --torture",
    "validation": "--rows 60 --runs 1 --only free",
    "units": "--quick --systems free_decay --noise 0.02",
}
#: Constants of modules, for scripts whose arguments do not make them small enough.
SMALLER: dict[str, dict[str, float]] = {
    "ablation": {"disturbances.ROWS": 100},
    "dense": {"dense.SECONDS": 0.01},
    "disturbances": {"disturbances.ROWS": 100},
    "stream": {"stream.FITTED": 300, "stream.HEALTHY": 200, "stream.FAULTY": 100},
}
#: Scripts that cannot run here, with the reason.
NOT_RUN = {
    "claims": "tests/test_claims.py runs it",
    "comparison_school": "needs darkgreybox",
    "comparison_solver": "needs probdiffeq",
    "installed": "installs packages into an empty environment",
    "mutants": "needs cosmic-ray",
    "real": "takes minutes, and needs real records",
    "structure": "tests/test_architecture.py runs it",
    "studio": "needs a browser",
    "studio_pictures": "needs a browser",
    "trust_input": "limits the memory of its process; tests/properties/test_trust_input.py runs it",
}


def test_every_script_is_listed() -> None:
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef main()" in path.read_text()}
    assert scripts == {*SMALLEST, *NOT_RUN}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", SMALLEST)
def test_script_runs_at_its_smallest_size(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, path = SMALLEST[name].split(), tmp_path / "found.json"
    if "--json" in (ROOT / "benchmarks" / f"{name}.py").read_text():
        arguments += ["--json", str(path)]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # some scripts set these
        monkeypatch.setenv(variable, "1")
    for constant, value in SMALLER.get(name, {}).items():
        monkeypatch.setattr(constant, value)
    code: object = 0
    try:
        importlib.import_module(name).main()
    except SystemExit as end:
        code = end.code
    assert not code
    assert "--json" not in arguments or json.loads(path.read_text())

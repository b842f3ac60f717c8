"""What the core can do where nothing else is installed; run as a script, in an environment without any extra."""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from importlib.metadata import requires, version
from importlib.util import find_spec
from pathlib import Path

#: What extras bring, and what would make the core heavy if something brought it along.
ABSENT = ("torch", "gpytorch", "matplotlib", "streamlit", "plotly", "polars", "pandas", "pyarrow", "dask", "sklearn")


def main() -> None:
    """Read, fit, save and report, from text and from Parquet, in Python and by commands."""
    found = [name for name in ABSENT if find_spec(name)]
    assert not found, f"expected the core alone, found {found}"
    import lodekit as lk

    assert lk.__version__ == version("lodekit")
    assert any(row.startswith("numpy") for row in requires("lodekit") or ())
    import duckdb

    from lodekit.__main__ import main as command

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = [f"{k / 10},{2 * 0.9**k + 0.01 * (-1) ** k:.6f}" for k in range(25)]
        (place / "log.csv").write_text("\n".join(["t,x", *rows]))
        values = ", ".join(f"({row})" for row in rows)
        target = str(place / "log.parquet")
        duckdb.sql(f"COPY (SELECT * FROM (VALUES {values}) AS rows(t, x)) TO '{target}' (FORMAT parquet)")  # noqa: S608
        system = lk.System("x' = -k*x", parameters=["k"])
        assert "k" in str(system.operator_matrix)  # a matrix of SymPy
        gp = lk.LODEGP(system, random_state=0).fit(place / "log.csv")
        # 0.9 in each tenth; the noise is a two-hundredth of the start.
        assert abs(gp.parameters_["k"].value - 1.0536) < 0.1
        gp.save(place / "model.lodekit")
        # A model that is loaded computes it again, and may round otherwise.
        assert abs(lk.LODEGP.load(place / "model.lodekit").log_evidence_ - gp.log_evidence_) < 1e-6
        (place / "plant.toml").write_text('equations = ["x\' = -k*x"]\n[parameters]\nk = {}\n')
        out = place / "found"
        sys.argv = ["lodekit", "fit", str(place / "plant.toml"), target, "--out", str(out), "--quiet"]
        with suppress(SystemExit):
            command()
        page = (out / "report.html").read_text(encoding="utf-8")
        assert "plotly.js" in page
        assert "1.05" in page
    assert not set(ABSENT) & set(sys.modules)


if __name__ == "__main__":
    main()

"""Claim: real records with hidden states and held inputs give parameters that least squares confirms.

Fits the models of docs/cli.md to a TCLab record and to the DaISy heating record, with known inputs; and the latter
once more as if its input were a smooth function, to show what that costs. The witness simulates the same equations with
the inputs held between samples, and fits them by least squares.
The records are not part of the project:

    python benchmarks/real.py FOLDER [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

import lodekit as lk
from greybox_records import march
from lodekit.data.tables import read_table

Array = NDArray[np.float64]
POSITIVE = lk.Parameter(positive=True)
BOARD = lk.System(
    """
    tau*TH1' + (TH1 - Ta) = K1*Q1 + K3*(TH2 - TH1)
    tau*TH2' + (TH2 - Ta) = K2*Q2 + K3*(TH1 - TH2)
    s*T1' + T1 = TH1
    s*T2' + T2 = TH2
    """,
    parameters={**dict.fromkeys(("K1", "K2", "K3", "tau", "s"), POSITIVE), "Ta": lk.Parameter()},
    channels=["Q1", "Q2", "TH1", "TH2", "T1", "T2"],
)
LAMP = lk.System(
    "tau*y' + y - y0 = K*u", parameters={"K": POSITIVE, "tau": POSITIVE, "y0": lk.Parameter()}, channels=["u", "y"]
)
BOARD_COLUMNS = {"t": "1", "Q1": "2", "Q2": "3", "T1": "4", "T2": "5"}


def fit(system: lk.System, times: Array, values: dict[str, Array], inputs: tuple[str, ...]) -> dict[str, Any]:
    begin = time.perf_counter()
    gp = lk.LODEGP(system, inputs=dict.fromkeys(inputs, "hold") or None, random_state=0).fit(times, values)
    return {
        "seconds": time.perf_counter() - begin,
        "noise": gp.noise_,
        "warnings": gp.warnings_,
        "parameters": {name: [e.value, *e.interval] for name, e in gp.parameters_.items()},
    }


def board_states(p: Array, x0: Array, times: Array, inputs: Array) -> Array:
    k1, k2, k3, tau, s, ambient = p
    A = np.array([[-1 - k3, k3, 0, 0], [k3, -1 - k3, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]) / tau
    A[2, 0], A[2, 2], A[3, 1], A[3, 3] = 1 / s, -1 / s, 1 / s, -1 / s
    B = np.zeros((4, 3))
    B[0, 0], B[1, 1], B[0, 2], B[1, 2] = k1 / tau, k2 / tau, 1 / tau, 1 / tau
    held = np.column_stack([inputs, np.full(len(inputs), ambient)])
    return march(A, held @ B.T, times, x0)[:, 2:]


def least_squares_board(times: Array, values: dict[str, Array], *, free: bool) -> dict[str, float]:
    inputs = np.column_stack([values["Q1"], values["Q2"]])
    measured = np.column_stack([values["T1"], values["T2"]])
    first = np.concatenate([measured[0], measured[0]])
    start = np.array([0.6, 0.3, 0.3, 180.0, 20.0, 22.0, *(first[:2] if free else [])])

    def mismatch(p: Array) -> Array:
        x0 = np.concatenate([p[6:], measured[0]]) if free else first
        return (board_states(p[:6], x0, times, inputs) - measured).ravel()

    found = least_squares(mismatch, start, x_scale=np.abs(start)).x
    return dict(zip(("K1", "K2", "K3", "tau", "s", "Ta"), found.tolist(), strict=False))


def least_squares_lamp(times: Array, values: dict[str, Array]) -> dict[str, float]:
    def mismatch(p: Array) -> Array:
        gain, tau, rest, first = p
        drive = (gain * values["u"] + rest)[:, None] / tau
        return march(np.array([[-1 / tau]]), drive, times, np.array([first]))[:, 0] - values["y"]

    found = least_squares(mismatch, [20.0, 70.0, 10.0, values["y"][0]], x_scale=[1, 10, 1, 10]).x
    return dict(zip(("K", "tau", "y0"), found.tolist(), strict=False))


def show(title: str, found: dict[str, Any], seconds: float | None = None) -> None:
    cells = [
        f"{name} {value:.4g}" if isinstance(value, float) else "{} {:.4g} ({:.4g} to {:.4g})".format(name, *value)
        for name, value in found.items()
    ]
    print(f"{title}: {', '.join(cells)}" + ("" if seconds is None else f"; {seconds:.1f} s"))


def estimate_table(results: dict[str, Any], known: str, rest: dict[str, str]) -> list[str]:
    """Return the estimates of a record as a table: of a fit with its intervals, and of others by their titles."""

    def cells(values: list[float]) -> list[str]:
        return [f"{value:#.3g}".rstrip(".") for value in values]

    own = results[known]["parameters"]
    rows = {"lodekit, no start values": cells([found[0] for found in own.values()])}
    rows["95 % interval"] = [" to ".join(cells(found[1:])) for found in own.values()]
    for title, key in rest.items():
        values = results[key].get("parameters", results[key])
        rows[title] = cells([values[name][0] if isinstance(values[name], list) else values[name] for name in own])
    lines = [f"| | {' | '.join(own)} |", "| --- |" + " ---: |" * len(own)]
    return lines + [f"| {title} | {' | '.join(each)} |" for title, each in rows.items()]


def make_tables(results: dict[str, Any]) -> dict[str, list[str]]:
    """Return the tables of docs/cli.md."""
    board = ("hidden states start at the measured temperatures", "free initial states")
    lamp = {
        "least squares simulation": "lamp, least squares",
        "lodekit, u as a smooth function": "lamp, u a smooth function",
    }
    return {
        "board": estimate_table(
            results, "board", {f"least squares, {each}": f"board, least squares, {each}" for each in board}
        ),
        "lamp": estimate_table(results, "lamp, u known", lamp),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    board = read_table(options.folder / "tclab_mimo_random_steps.csv", BOARD.channels, mapping=BOARD_COLUMNS)
    results["board"] = fit(BOARD, board.times, board.values, ("Q1", "Q2"))
    show("board, lodekit", results["board"]["parameters"], results["board"]["seconds"])
    for free, title in ((False, "hidden states start at the measured temperatures"), (True, "free initial states")):
        results[f"board, least squares, {title}"] = least_squares_board(board.times, board.values, free=free)
        show(f"board, least squares, {title}", results[f"board, least squares, {title}"])
    lamp = read_table(
        options.folder / "daisy_heating_system.dat", LAMP.channels, mapping={"t": "1", "u": "2", "y": "3"}
    )
    for title, inputs in (("u known", ("u",)), ("u a smooth function", ())):
        results[f"lamp, {title}"] = fit(LAMP, lamp.times, lamp.values, inputs)
        show(f"lamp, {title}", results[f"lamp, {title}"]["parameters"], results[f"lamp, {title}"]["seconds"])
    results["lamp, least squares"] = least_squares_lamp(lamp.times, lamp.values)
    show("lamp, least squares", results["lamp, least squares"])
    for name, found in results.items():
        for text in found.get("warnings", []):
            print(f"warning, {name}: {text}")
    if options.json:
        options.json.write_text(
            json.dumps({**results, "tables": make_tables(results)}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()

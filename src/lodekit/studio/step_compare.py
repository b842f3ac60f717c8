"""The fifth step: every fit of the session, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from lodekit.studio.desk import Desk
from lodekit.studio.fits import forget, read_fit
from lodekit.studio.frame import heading, notice, show_table
from lodekit.studio.step_fit import list_parameters

__all__ = ["show_comparison"]


def show_comparison(desk: Desk) -> None:
    """Show all fits in one table.

    Parameters
    ----------
    desk : Desk
    """
    heading("Compare")
    tray = [(name, found) for name in desk.session.tray if (found := read_fit(desk, name)) and "trouble" not in found]
    if not tray:
        notice("Each fit is kept here: change equations, windows or parameters, fit again, and compare.")
        return
    head = ["fit", "equations", "parameters", "fitted to", "log evidence", "validation", "residuals", "certificate"]
    best = _best(tray)
    lines = [_describe(name, found, is_best=name == best) for name, found in tray]
    show_table(head, lines, numbers=[4], words="All fits of this session")
    if len({_data(found) for _, found in tray}) > 1:
        st.caption("Evidences are compared only where fits have the same data and the same window.")
    left, right = st.columns([3, 7], vertical_alignment="bottom")
    chosen = left.selectbox("A fit to take out of the tray", [name for name, _ in tray], key=f"out-{len(tray)}")
    if right.button("Take it out", key="forget", icon=":material/delete:") and chosen:
        forget(desk, str(chosen))
        st.rerun()


def _data(found: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what makes evidences comparable: the file, the window, and the number of measurements."""
    return found["source"], tuple(found["window"]), found["observations"]


def _best(tray: list[tuple[str, dict[str, Any]]]) -> str:
    """Return the most likely of several fits to the same data; empty where there are none."""
    if len(tray) < 2 or len({_data(found) for _, found in tray}) > 1:
        return ""
    return max(tray, key=lambda item: float(item[1]["log_evidence"]))[0]


def _describe(name: str, found: Mapping[str, Any], *, is_best: bool) -> list[Any]:
    parameters = []
    for own in list_parameters(found):
        error = f" ± {own[2][0]}" if isinstance(own[2], tuple) else ""
        parameters.append(f"{own[0]} = {own[1][0]}{error}{f' ({own[5]})' if own[5] else ''}")
    first, last = found["window"]
    checked = found["validation"]
    if checked is None:
        validated = "nothing held out"
    elif "trouble" in checked:
        validated = "not possible"
    else:
        each = checked["channels"].items()
        validated = "\n".join(f"{c}: {o['fit_percent']:.1f} %" for c, o in each if o["fit_percent"] is not None)
    evidence = (f"{found['log_evidence']:.3f}{' ★' if is_best else ''}", found["log_evidence"])
    strict = found["certificate"].get("strict")
    return [
        name if found["converged"] else f"{name} (failed)",
        "\n".join(found["equations"]),
        "\n".join(parameters) or "none",
        f"{found['source']}\n{first:.4g} to {last:.4g}, {found['observations']} values",
        evidence,
        validated,
        "independent" if found["independent"] else "correlated",
        "unknown"
        if strict is None
        else f"{'strict' if strict else 'not strict'}, {found['certificate']['residual']:.0e}",
    ]

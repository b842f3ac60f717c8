"""What the studio draws: figures and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.data.preview import preview_table
from lodekit.data.time_reference import TimeReference
from lodekit.report.panels import PlotlyPanel, ReportContext, line_trace, stack_panels
from lodekit.report.time_series import channels_figure
from lodekit.studio.data_files import open_data_file
from lodekit.studio.figures import apply_theme, comparison_figure, pole_figure, record_figure
from lodekit.studio.session import analyze_system, modes_at
from lodekit.support.html import read_asset


def test_figures_change_their_colours_on_dark_ground_and_nothing_else() -> None:
    points = {"x": (np.arange(3.0), np.array([1.0, 2.0, 1.0]))}
    figure = record_figure(points, titles={}, window=(0.0, 2.0), fitted=(0.0, 1.0), clock=TimeReference())
    light, dark = apply_theme(figure, dark=False), apply_theme(figure, dark=True)
    assert light["data"][0]["y"] == dark["data"][0]["y"] == [1.0, 2.0, 1.0]
    assert light["data"][0]["marker"]["color"] != dark["data"][0]["marker"]["color"]
    assert pole_figure([-1 + 2j])["data"][0]["y"] == [2.0]


def test_records_with_dates_are_drawn_over_dates_and_windows_are_read_from_them(tmp_path: Path) -> None:
    rows = [f"2024-03-30T{hour:02}:00:00+01:00,{hour}" for hour in range(20)]
    (tmp_path / "log.csv").write_text("\n".join(["time,x", *rows]))
    opened = open_data_file(tmp_path / "log.csv")
    figure = record_figure(opened.points(), titles={}, window=opened.window, fitted=(1.0, 2.0), clock=opened.clock)
    assert figure["layout"]["xaxis"]["type"] == "date"
    assert figure["layout"]["xaxis"]["title"]["text"] == "time (UTC+01:00)"
    # By the clock on the wall, in milliseconds.
    noon = np.datetime64("2024-03-30T12:00", "ms").astype(float)
    assert figure["data"][0]["x"][12] == noon
    assert figure["layout"]["shapes"][0]["x0"] == noon - 11 * 3.6e6
    assert preview_table(tmp_path / "log.csv", time_column="x").skipped_columns == {"time": "contains dates"}
    # Plotly names the edges of a selection by dates.
    assert opened.clock.from_wall_clock("2024-03-30 12:30:00.5") == pytest.approx(12.5 + 0.5 / 3600)


def test_inputs_after_the_measurements_do_not_change_the_axis_of_an_input() -> None:
    t, held = np.arange(20.0), np.arange(23.0)
    u = np.where(held < 20, held // 5 % 2, 1000.0)
    gp = lk.LODEGP(lk.System("y' = -y + u"), inputs={"u": "hold"}, random_state=0)
    gp.fit(lk.Observations().add(t, "y", np.sin(t)).add(held, "u", u))
    context = ReportContext(gp, {}, "", {}, (0.0, 22.0))
    low, high = channels_figure(context)[1]["yaxis2"]["range"]
    assert (low, high) == pytest.approx((-0.06, 1.06))


def test_intervals_in_tables_may_have_two_lines_and_numbers_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    components = pytest.importorskip("lodekit.studio.components")
    shown: list[str] = []
    monkeypatch.setattr(components.st, "html", shown.append)
    components.show_table(["interval"], [[("1.2e-05 to 3.76e-05", (1.2e-5, 3.76e-5))]])
    assert "1.2e-05 to <wbr>3.76e-05" in shown[0]
    rules = [rule for rule in read_asset("studio.css").splitlines() if "nowrap" in rule and ".lk-wide" in rule]
    assert rules == [".lk-wide td.number { white-space: nowrap; }"]


def test_the_legend_is_below_the_plots_where_the_toolbar_does_not_cover_it() -> None:
    traces = [line_trace(name, [0.0, 1.0], [0.0, 1.0], "#000000") for name in ("mean", "truth")]
    layout = stack_panels([PlotlyPanel("y", traces, (0.0, 1.0))], height=90, time_label="t", span=(0.0, 1.0))[1]
    assert layout["legend"]["y"] < 0
    assert layout["legend"]["yanchor"] == "top"
    # There is room for it below the label of the axis.
    area = layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]
    assert -layout["legend"]["y"] * area + 24 < layout["margin"]["b"]


def test_curves_of_compared_fits_share_one_figure() -> None:
    def curves(shift: float, names: list[str], last: int) -> dict[str, Any]:
        layout: dict[str, Any] = {"annotations": [{"text": name} for name in names]}
        layout["xaxis"] = {"range": [0.0, float(last)], "title": {"text": "t in s"}}
        data: list[dict[str, Any]] = []
        for axis in ["y", "y2"][: len(names)]:
            layout[axis.replace("y", "yaxis")] = {"range": [shift, 1.0 + shift]}
            trace = {"x": list(range(last)), "y": [shift] * last, "yaxis": axis}
            data += [{"name": name, **trace} for name in ("measurements", "mean")]
        return {"data": data, "layout": layout, "panels": names, "window": [1, last - 2]}

    records = [curves(0.0, ["u", "x"], 5), curves(1.0, ["u", "x"], 6)]
    found = comparison_figure({"fit-1": records, "fit-2": [curves(2.0, ["x"], 9)]})
    # Each curve ends with the window of its fit; the measurements of all fits are shown.
    shown = [(trace["name"], trace["yaxis"], trace["x"][0], trace["x"][-1]) for trace in found["data"]]
    measured = [("measurements", "y", 0, last) for last in (4, 5, 8)]
    assert shown == [*measured, ("fit-1", "y", 1, 3), ("fit-1", "y", 1, 4), ("fit-2", "y", 1, 7)]
    assert len({trace["line"]["color"] for trace in found["data"][3:]}) == 2
    assert [trace["showlegend"] for trace in found["data"]] == [True, False, False, True, False, True]
    assert found["layout"]["xaxis"]["range"] == [1, 7]
    assert found["layout"]["yaxis"]["range"] == [0.0, 3.0]
    # A measurement in the data of several fits is drawn once.
    again = comparison_figure({"fit-1": records[:1], "fit-2": records[:1]})
    assert [trace["name"] for trace in again["data"]].count("measurements") == 2


def test_poles_are_found_for_delayed_inputs_without_data() -> None:
    system = lk.System("tau*y' + y = K*delay(u, Td)", parameters=["tau", "K", "Td"])
    inputs = analyze_system(system).inputs[-1]
    assert inputs == ("u",)
    assert modes_at(system, inputs, {"tau": 4.0, "K": 1.0, "Td": 1.0}) == pytest.approx((-0.25,))


def test_numbers_that_mark_failures_are_neither_drawn_nor_fitted(tmp_path: Path) -> None:
    """They were drawn, with the advice to use an option of Python, although fits read them as missing."""
    rows = "\n".join(f"{k},{-999 if k in (3, 7) else 20 + k % 5}" for k in range(30))
    (tmp_path / "log.csv").write_text(f"t,room\n{rows}\n")
    found = open_data_file(tmp_path / "log.csv")
    assert found.points()["room"][1].min() == 20.0
    (note,) = (note for note in found.notes if "-999" in note)
    assert note == "the column room is -999 in some rows, as if a sensor failed: read as missing"

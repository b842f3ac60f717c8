"""Drawing from values: what is drawn is what was given, and matplotlib's global state stays as it was."""

from __future__ import annotations

import pickle
import sys
from io import BytesIO
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from lodekit import LodekitError, plotting

T = np.linspace(0.0, 10.0, 50)


def line(ax: Any, label: str) -> Any:
    """Return what was drawn under a label."""
    return next(item for item in ax.get_lines() if item.get_label() == label)


def test_a_channel_is_drawn_as_given() -> None:
    _, (ax,) = plotting.make_panels(1)
    mean, std, truth = np.sin(T), 0.1 + 0.01 * T, np.cos(T)
    data = (np.array([1.0, 2.0, 30.0]), np.array([0.1, 0.2, 0.3]))
    style: dict[str, Any] = {"window": (2.0, 8.0), "label": "f1", "unit": "K"}
    plotting.draw_channel(ax, T, mean, std, data=data, truth=truth, samples=np.stack([mean, truth]), **style)
    np.testing.assert_array_equal(line(ax, "mean").get_ydata(), mean)
    np.testing.assert_array_equal(line(ax, "truth").get_ydata(), truth)
    # The point at 30 lies outside the times.
    np.testing.assert_array_equal(line(ax, "data").get_xdata(), [1.0, 2.0])
    box = ax.collections[0].get_paths()[0].get_extents()
    assert box.ymax == pytest.approx(float(np.max(mean + 1.959963984540054 * std)), rel=1e-12)
    assert box.ymin == pytest.approx(float(np.min(mean - 1.959963984540054 * std)), rel=1e-12)
    assert len([item for item in ax.get_lines() if item.get_color() == plotting.OKABE_ITO["green"]]) == 2
    assert ax.get_ylabel() == "f1 (K)"
    assert [(patch.get_x(), patch.get_width()) for patch in ax.patches] == [(0.0, 2.0), (8.0, 2.0)]


@pytest.mark.parametrize(
    ("window", "spans"), [((-1.0, 20.0), []), ((20.0, 30.0), [(0.0, 10.0)]), ((-5.0, -1.0), [(0.0, 10.0)]), (None, [])]
)
def test_only_times_outside_the_measurements_are_shaded(window: Any, spans: list[tuple[float, float]]) -> None:
    _, (ax,) = plotting.make_panels(1)
    plotting.draw_channel(ax, T, T, window=window)
    assert [(patch.get_x(), patch.get_width()) for patch in ax.patches] == spans


def test_many_points_are_thinned_and_the_legend_says_so() -> None:
    figure, (ax,) = plotting.make_panels(1)
    times = np.linspace(0, 10, 100_000)
    plotting.draw_channel(ax, T, T, data=(times, times))
    points = line(ax, "data (2000 of 100000)")
    assert len(points.get_xdata()) == 2000
    assert points.get_xdata()[[0, -1]].tolist() == [0.0, 10.0]
    plotting.add_legend(figure, [ax], outside=True)
    assert "data (2000 of 100000)" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_few_and_many_points_look_the_same() -> None:
    _, axes = plotting.make_panels(2)
    styles = set()
    for ax, count in zip(axes, (20, 1000), strict=True):
        times = np.linspace(0, 10, count)
        plotting.draw_channel(ax, T, T, data=(times, times))
        points, curve = line(ax, "data"), line(ax, "mean")
        styles.add((points.get_color(), points.get_markersize(), points.get_zorder()))
        # Points are visible beside the curve, and the curve on the points.
        assert points.get_markersize() > curve.get_linewidth()
        assert points.get_zorder() < curve.get_zorder()
    assert len(styles) == 1


@pytest.mark.parametrize(("count", "columns", "labelled"), [(3, 1, [2]), (5, 2, [3, 4]), (1, 2, [0])])
def test_panels_share_time_and_label_it_once_a_column(count: int, columns: int, labelled: list[int]) -> None:
    figure, axes = plotting.make_panels(count, columns=columns)
    assert len(axes) == len(figure.axes) == count
    assert figure.get_figwidth() == 6.5
    assert all(axes[0].get_shared_x_axes().joined(axes[0], ax) for ax in axes[1:])
    plotting.label_bottom(axes, "t (s)")
    figure.draw_without_rendering()
    assert [j for j, ax in enumerate(axes) if ax.get_xlabel() == "t (s)"] == labelled
    assert [
        j for j, ax in enumerate(axes) if any(tick.label1.get_visible() for tick in ax.xaxis.get_major_ticks())
    ] == (labelled)


def test_figures_are_shown_by_notebooks_saved_without_a_display_and_pickled() -> None:
    figure, (ax,) = plotting.make_panels(1)
    plotting.draw_channel(ax, T, T)
    assert figure._repr_png_().startswith(b"\x89PNG")
    for kind in ("pdf", "svg"):
        figure.savefig(BytesIO(), format=kind)
    assert pickle.loads(pickle.dumps(figure)).axes[0].get_lines()[0].get_label() == "mean"  # noqa: S301


def test_global_state_of_matplotlib_is_left_alone() -> None:
    import matplotlib.pyplot as plt

    before = dict(mpl.rcParams)
    figure, axes = plotting.make_panels(2)
    plotting.draw_channel(axes[0], T, T, T)
    plotting.add_legend(figure, axes, outside=True)
    figure.draw_without_rendering()
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == []


def test_exact_zeros_do_not_break_the_logarithmic_axis() -> None:
    figure, axes = plotting.make_panels(2)
    residual = np.where(np.arange(50) % 2, 0.0, -3e-16)
    plotting.draw_residual(axes[0], T, residual, label="x' = u")
    plotting.draw_residual(axes[1], T, np.zeros(50))
    np.testing.assert_array_equal(line(axes[0], "relative residual").get_ydata(), np.full(25, 3e-16))
    assert len(line(axes[0], "exactly zero").get_xdata()) == 25
    assert line(axes[0], "machine precision").get_ydata()[0] == np.finfo(float).eps
    figure.draw_without_rendering()
    for ax in axes:
        low, high = ax.get_ylim()
        assert 0 < low < 1e-16 < high
        assert all((np.asarray(item.get_ydata()) > 0).all() for item in ax.get_lines())


def test_a_surface_has_the_two_regions_and_bears_gaps_and_flatness() -> None:
    x, y = np.meshgrid(np.linspace(-4, 4, 41), np.linspace(-4, 4, 41), indexing="ij")
    heights = -0.5 * (x**2 + y**2)
    heights[0, 0] = -np.inf
    for values in (heights, np.zeros_like(x), np.full_like(x, -np.inf)):
        figure, (ax,) = plotting.make_panels(1, height_each=3)
        plotting.draw_evidence(ax, x, y, values, estimate=(0.0, 0.0), truth=(9.0, 0.0), labels=("a", "b"))
        figure.draw_without_rendering()
        if values is heights:
            edge = ax.collections[1].get_paths()[0].vertices
            # The radius is sqrt(chi2_2(0.95)); contours are linear between the nodes.
            assert np.hypot(*edge.T) == pytest.approx(2.4477, abs=0.02)
            assert ax.get_xlim()[1] > 9.0


def test_modes_count() -> None:
    _, (ax,) = plotting.make_panels(1)
    plotting.draw_modes(ax, [-1 + 2j, -1 - 2j, 0], [1, 1, 3], time_unit="s")
    assert ax.get_lines()[2].get_xdata().tolist() == [-1, -1, 0]
    assert [text.get_text() for text in ax.texts] == ["×3", "decaying", "growing"]
    assert ax.get_xlabel() == "real part (1/s)"


def test_slow_modes_are_distinguishable_next_to_a_fast_one() -> None:
    slow = [-0.1 + 0.5j, -0.1 - 0.5j, -2, 0]
    figure, (ax,) = plotting.make_panels(1, width=4.0, height_each=2.8)
    plotting.draw_modes(ax, [-1000, *slow])
    figure.draw_without_rendering()
    places = ax.transData.transform([(root.real, root.imag) for root in map(complex, slow)])
    distances = np.linalg.norm(places[:, None] - places, axis=-1) + figure.bbox.width * np.eye(len(slow))
    # A mark is 8 points wide.
    assert distances.min() > 8.0 * figure.dpi / 72.0
    assert (ax.get_xscale(), ax.get_yscale()) == ("symlog", "symlog")
    plotting.draw_modes(other := plotting.make_panels(1)[1][0], [-1, *slow])
    assert other.get_xscale() == "linear"


@pytest.mark.parametrize("high", [0.6, 4.0, 40.0])
def test_labels_of_logarithmic_axes_do_not_overlap(high: float) -> None:
    figure, axes = plotting.make_panels(2, columns=2, share=False)
    for ax in axes:
        ax.plot([0.01, high], [0.0, 1.0])
        plotting.set_axis_scale(ax, "x", np.array([0.01, high]))
    assert_separate_labels(figure, axes)


@pytest.mark.parametrize("first", [493_074.5, 4_930_874.5])
def test_labels_of_long_times_do_not_overlap(first: float) -> None:
    figure, axes = plotting.make_panels(3, columns=3, share=False)
    for ax in axes:
        ax.plot([first, first + 8000.0], [0.0, 1.0])
    plotting.label_time(axes, "h")
    assert_separate_labels(figure, axes)


def assert_separate_labels(figure: Any, axes: Any) -> None:
    figure.draw_without_rendering()
    for ax in axes:
        shown = [text for text in ax.get_xticklabels(which="both") if text.get_text()]
        boxes = sorted((text.get_window_extent() for text in shown), key=lambda box: box.x0)
        assert len(boxes) >= 2
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_limits_include_the_usual_band_and_all_other_values() -> None:
    band = np.where(T < 1.0, 100.0, 1.0)
    assert plotting.typical_limits(T, 0.0 * T, band, (0.0, 10.0)) == (-3.0, 3.0)
    assert plotting.typical_limits(T, 0.0 * T, band, (5.0, 10.0), np.array([9.0])) == (-1.0, 9.0)
    assert plotting.typical_limits(T, 0.0 * T, band, (20.0, 30.0)) == (-3.0, 3.0)


def test_limits_leave_out_bands_that_are_far_larger_than_the_curve_unless_a_process_explains_them() -> None:
    band, window = np.full(len(T), 1e6), (0.0, 10.0)
    assert plotting.typical_limits(T, 0.0 * T + 5.0, band, window) == (4.5, 5.5)
    # Curves near zero: of a free function or a disturbance, and of rounding errors.
    assert plotting.typical_limits(T, 0.0 * T + 5.0, band, window, has_process=True)[1] > 9e5
    assert plotting.typical_limits(T, 0.0 * T + 1e-9, band, window)[1] > 9e5


@pytest.mark.parametrize("axes", ["axes", 3, ["a", "b"], []])
def test_wrong_axes_are_refused(axes: Any) -> None:
    with pytest.raises(LodekitError, match="expected"):
        plotting.read_axes(axes, ["f1", "f2"])


def test_a_wrong_number_of_axes_says_what_to_try() -> None:
    _, axes = plotting.make_panels(2)
    with pytest.raises(LodekitError, match=r"expected 3 axes, one for each of f1, f2, u, got 2; try .*subplots\(3"):
        plotting.read_axes(axes, ["f1", "f2", "u"])
    with pytest.raises(LodekitError, match="at least one panel"):
        plotting.make_panels(0)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(LodekitError, match=r"pip install 'lodekit\[plot\]'"):
        plotting.make_panels(1)


@pytest.mark.parametrize(
    ("first", "last", "years"),
    [("2024-12-20", "2025-01-12", "2024–2025"), ("2025-01-02", "2025-01-20", "2025"), ("2024-11-01", "2025-03-01", "")],
)
def test_dates_on_both_sides_of_new_year_have_both_years(first: str, last: str, years: str) -> None:
    figure, (ax,) = plotting.make_panels(1)
    ax.plot(np.array([first, last], dtype="datetime64[D]").astype(float), [0, 1])
    plotting.label_time([ax], "d", None)
    figure.draw_without_rendering()
    assert ax.xaxis.get_offset_text().get_text() == years
    assert pickle.loads(pickle.dumps(figure)).axes[0].xaxis.get_offset_text().get_text() == years  # noqa: S301

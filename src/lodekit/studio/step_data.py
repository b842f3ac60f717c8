"""The second step: a record, what its columns are, and which parts of it are fitted and kept for validation."""

from __future__ import annotations

from typing import Any

import streamlit as st

from lodekit.errors import LodekitError
from lodekit.studio.desk import Desk
from lodekit.studio.drawing import draw_record
from lodekit.studio.frame import heading, notice, show
from lodekit.studio.recording import Match, Recording
from lodekit.studio.saving import LARGEST
from lodekit.studio.session import Assignment
from lodekit.studio.simulating import MOST_TIMES, Wish

__all__ = ["show_data"]

_ROLES = {"": "measured", "hold": "known input, held", "linear": "known input, straight", "auto": "known input, either"}
_NONE = "– not measured –"
_ENDINGS = ["csv", "tsv", "txt", "dat", "parquet", "pq", "gz"]
_BRUSHES = ("the fit", "validation")


def show_data(desk: Desk) -> None:
    """Show the record, before anything else is done with it.

    Parameters
    ----------
    desk : Desk
    """
    heading("Data")
    drop, simulate = st.columns(2, gap="large")
    with drop:
        _take_file(desk)
    with (
        simulate,
        st.expander("Simulate data instead", icon=":material/science:", key=f"simulate-{desk.session.revision}"),
    ):
        _simulate(desk)
    if trouble := desk.room.trouble.get("data"):
        notice(trouble, "warning")
    try:
        recording = desk.recording
    except LodekitError as problem:
        notice(desk.say(problem), "warning")
        return
    if recording is None:
        notice("Drop a CSV or Parquet file with a column of times, or simulate one from the equations above.")
        return
    _describe(desk, recording)
    if recording.records:
        _draw(desk, recording)
        _match(desk, recording)


def _take_file(desk: Desk) -> None:
    number = len(desk.room.taken)
    found = st.file_uploader(
        f"Drop a record: CSV or Parquet, up to {LARGEST >> 20} MB", type=_ENDINGS, key=f"upload-{number}"
    )
    if found is None or found.file_id in desk.room.taken:
        return
    desk.room.taken.append(found.file_id)
    desk.take_file(found.name, found.getvalue())
    st.rerun()


def _simulate(desk: Desk) -> None:
    system = desk.system
    if system is None:
        st.write("Write equations first; data are simulated from them.")
        return
    example = desk.example
    what = "the exact solution of this example" if example else "a random solution at the values of the sliders"
    st.caption(f"Measurements of {what}, with noise.")
    with st.form("simulate", border=False):
        left, right = st.columns(2)
        start = left.number_input("First time", value=0.0, key="sim-start")
        stop = right.number_input("Last time", value=10.0, key="sim-stop")
        count = left.number_input("How many times", 2, MOST_TIMES, 60, key="sim-count")
        noise = right.number_input("Noise, % of a channel", 0.0, 100.0, 2.0, key="sim-noise")
        gaps = left.number_input("Missing, %", 0.0, 90.0, 0.0, key="sim-gaps")
        seed = right.number_input("Seed", 0, 10**6, 0, key="sim-seed")
        hidden = st.multiselect("Hidden channels", system.channels, key="sim-hidden")
        if not st.form_submit_button("Simulate", type="primary"):
            return
    try:
        desk.simulate(Wish(start, stop, int(count), noise / 100, gaps / 100, tuple(hidden), int(seed)))
    except LodekitError as problem:
        notice(desk.say(problem), "warning")
        return
    st.rerun()


def _describe(desk: Desk, recording: Recording) -> None:
    look, own = recording.look, desk.session
    time = f"time in column {look.time.name} ({look.why})" if look.time else "no column of times"
    parts = [f"**{own.file}**: {look.count} lines", time, *recording.notes]
    parts += [f"{name} left out: it {why}" for name, why in look.left_out.items()]
    st.markdown("; ".join(part.replace("[", "\\[").replace("$", "\\$") for part in parts) + ".")
    if look.time is None:
        dt = st.number_input("The time between two lines", min_value=0.0, value=own.dt or 0.0, key=f"dt-{own.revision}")
        if (dt or None) != own.dt:
            desk.change(dt=dt or None)
            st.rerun()


def _draw(desk: Desk, recording: Recording) -> None:
    own = desk.session
    record, span = _choose_record(desk, recording), recording.window
    points = recording.points(record)
    fitted = tuple(edge if edge is not None else whole for edge, whole in zip(own.window, span, strict=True))
    named = {item.assignment.column: item.assignment for item in desk.matches if item.assignment.column}
    titles = {}
    for column in points:
        unit = recording.unit(column)
        role = _ROLES[named[column].kind] if column in named else "not used"
        if column in named and named[column].channel != column:
            role = f"{named[column].channel}, {role}"
        titles[column] = f"{column} – {role}" if not unit or unit in column else f"{column} in {unit} – {role}"
    held = [column for column, item in named.items() if item.kind in ("hold", "auto")]
    figure = draw_record(
        points,
        titles=titles,
        held=held,
        window=recording.span(record),
        fitted=None if own.window == (None, None) and own.held_out is None else (fitted[0], fitted[1]),
        held_out=own.held_out,
        time_unit=recording.time_unit,
        origin=recording.origin,
    )
    brush = _BRUSHES[0]
    if len(recording.records) < 2:
        label = "Drag over the plot to mark a window for"
        brush = st.segmented_control(label, _BRUSHES, default=brush, key="brush") or brush
    else:
        st.caption("Drag over the plot to mark a window for the fit. A validation needs a file with one record.")
    words = f"The record: {len(points)} columns from t = {span[0]:.6g} to {span[1]:.6g}. " + "; ".join(
        titles[column] for column in points
    )
    key = f"record-{own.revision}-{own.window}-{own.held_out}-{record}"
    event: Any = show(figure, words, key, on_select="rerun", selection_mode="box")
    boxes = event.selection.box if event and event.selection else []
    if boxes:
        low, high = sorted(float(edge) for edge in boxes[0]["x"][:2])
        desk.mark(max(low, span[0]), min(high, span[1]), for_validation=brush == _BRUSHES[1])
        st.rerun()
    _windows(desk, recording, (fitted[0], fitted[1]))


def _choose_record(desk: Desk, recording: Recording) -> str:
    """Return which of several records is drawn, chosen by its name; empty where there is only one."""
    names = list(recording.records)
    if len(names) < 2:
        return ""
    own = desk.session
    place = names.index(own.record) if own.record in names else 0
    chosen = st.selectbox(
        f"Which of the {len(names)} records is shown; all are fitted together",
        names,
        place,
        key=f"which-{own.revision}",
    )
    if chosen != names[place]:
        desk.change(record=str(chosen))
        st.rerun()
    return str(chosen)


def _windows(desk: Desk, recording: Recording, fitted: tuple[float, float]) -> None:
    """Show the windows as numbers, for keyboards, and buttons for the usual choices; one record can be validated on."""
    own, span, is_one = desk.session, recording.window, len(recording.records) < 2
    key = f"{own.revision}-{own.window}-{own.held_out}"
    all_of_it, split, one, two, three, four = st.columns([3, 4, 2, 2, 2, 2], vertical_alignment="bottom")
    if all_of_it.button("Fit to all of it", key="fit-all", width="stretch"):
        desk.change(window=(None, None), held_out=None)
        st.rerun()
    if is_one and split.button("Keep the last 30 % for validation", key="split", width="stretch"):
        edge = span[0] + 0.7 * (span[1] - span[0])
        desk.change(window=(None, edge), held_out=(edge, span[1]))
        st.rerun()
    first = one.number_input("Fit from", value=fitted[0], format="%.6g", key=f"from-{key}")
    last = two.number_input("Fit to", value=fitted[1], format="%.6g", key=f"to-{key}")
    if (first, last) != fitted:
        desk.mark(first, last, for_validation=False)
        st.rerun()
    if not is_one:
        return
    held = own.held_out or (span[1], span[1])
    begin = three.number_input("Validate from", value=held[0], format="%.6g", key=f"hold-from-{key}")
    end = four.number_input("Validate to", value=held[1], format="%.6g", key=f"hold-to-{key}")
    if (begin, end) != held:
        desk.mark(begin, end, for_validation=True)
        st.rerun()


def _match(desk: Desk, recording: Recording) -> None:
    """Show what each channel is matched with, to be changed."""
    matches = desk.matches
    if not matches:
        return
    st.markdown("**Which column is which channel**, and what is known of it")
    for item in matches:
        _match_one(desk, recording, item)
    if all(not item.assignment.column for item in matches):
        notice("No column is matched with a channel yet; choose at least one.", "warning")


def _match_one(desk: Desk, recording: Recording, item: Match) -> None:
    own, revision = item.assignment, desk.session.revision
    columns = [_NONE, *recording.columns]
    name, where, role, why = st.columns([2, 4, 4, 5], vertical_alignment="center")
    name.markdown(f"`{own.channel}`")
    column = where.selectbox(
        f"Column of {own.channel}",
        columns,
        index=columns.index(own.column) if own.column in columns else 0,
        key=f"column-{revision}-{own.channel}",
        label_visibility="collapsed",
    )
    kind = role.selectbox(
        f"Role of {own.channel}",
        list(_ROLES),
        index=list(_ROLES).index(own.kind),
        format_func=_ROLES.__getitem__,
        key=f"role-{revision}-{own.channel}",
        label_visibility="collapsed",
        disabled=not own.column,
    )
    why.caption(item.reason)
    new = Assignment(own.channel, "" if column == _NONE else str(column), str(kind) if column != _NONE else "")
    if new != own:
        desk.room.session = desk.session.with_assignment(new)
        st.rerun()

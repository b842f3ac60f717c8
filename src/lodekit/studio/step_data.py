"""The data step: a record, the roles of its columns, and the windows for fit and validation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import streamlit as st

from lodekit.data.tables.columns import IGNORED_COLUMN
from lodekit.errors import DataError, LodekitError
from lodekit.studio.components import edit_value, show_figure, show_heading, show_notice, upload_file
from lodekit.studio.controller import OUTDATED_MESSAGE, SessionController
from lodekit.studio.data_files import MAX_SIMULATION_TIMES, ColumnMatch, DataFile
from lodekit.studio.figures import record_figure
from lodekit.studio.session import DISTURBANCE_KINDS, PROPOSED_KIND, ColumnAssignment
from lodekit.studio.session_files import MAX_UPLOAD_BYTES
from lodekit.support.text import format_count

ROLE_LABELS = {"": "measured", "hold": "known input, held"}
ROLE_LABELS |= {"linear": "known input, linear", "auto": "known input, automatic"}
DISTURBANCE_LABELS = {kind: f"disturbance, {kind}" for kind in DISTURBANCE_KINDS}
NOT_MEASURED, NO_TIME_COLUMN = "– not measured –", "– none: rows at equal intervals –"
DATA_FILE_EXTENSIONS = ["csv", "tsv", "txt", "dat", "parquet", "pq", "gz"]
CONSTANT_ADVICE = """{0} is treated as an unknown, smooth function of time; if it is a constant, enter it under \
'Additional parameters' in step 1; if it is noise that drives the system, choose 'disturbance' as the role of {0}."""
WINDOW_TARGETS = ("the fit", "validation")
#: Key of the page's state: whether a typed window is not valid.
REFUSED_WINDOW = "refused window"


def render_data(controller: SessionController) -> None:
    """Show the record, its windows and the roles of its columns."""
    show_heading("Data")
    drop, simulate = st.columns(2, gap="large")
    with drop:
        label = f"Upload a record: CSV or Parquet, up to {MAX_UPLOAD_BYTES >> 20} MB"
        if (file := upload_file(controller, label, DATA_FILE_EXTENSIONS, "upload")) is not None:
            controller.set_file(*file)
            with suppress(LodekitError):
                read_file(controller)
            st.rerun()
    key = f"simulate-{controller.session.revision}"
    with simulate, st.expander("Simulate data instead", icon=":material/science:", key=key):
        _simulation_form(controller)
    if trouble := controller.errors.get("data"):
        show_notice(trouble, "warning")
    if not (own := controller.session).file:
        show_notice("Upload a CSV or Parquet file with a time column, or simulate data from the equations above.")
        return
    # Shown also if the file cannot be split.
    label, about = "Split at gaps into several records", "A gap is more than six times as long as most steps."
    split = edit_value(st.checkbox, label, own.split_gaps, "split-gaps", help=about)
    if split != own.split_gaps:
        controller.change(split_gaps=split, record="")
        st.rerun()
    if (recording := read_file(controller)) is None:
        return
    _describe_file(controller, recording)
    if recording.error:
        show_notice(controller.error_message(DataError(recording.error)), "warning")
    if recording.records:
        _show_record(controller, recording)
        _edit_columns(controller, recording)


def read_file(controller: SessionController) -> DataFile | None:
    """Return the contents of the data file; a spinner is shown if this takes longer than a moment."""
    with st.spinner(f"Reading {controller.session.file}", show_time=True):
        _ = controller.matches_or_empty
        return controller.data_file


def _simulation_form(controller: SessionController) -> None:
    system = controller.system
    if system is None:
        st.write("Enter equations first; data are simulated from them.")
        return
    example = controller.example
    what = "the exact solution of this example" if example else "a random solution at the values of the sliders"
    st.caption(f"Measurements of {what}, with noise.")
    with st.form("simulate", border=False):
        left, right = st.columns(2)
        start = left.number_input("First time", value=0.0, key="sim-start")
        stop = right.number_input("Last time", value=10.0, key="sim-stop")
        count = left.number_input("Number of times", 2, MAX_SIMULATION_TIMES, 60, key="sim-count")
        noise = right.number_input("Noise, % of channel std", 0.0, 100.0, 2.0, key="sim-noise")
        gaps = left.number_input("Missing values, %", 0.0, 90.0, 0.0, key="sim-gaps")
        seed = right.number_input("Random seed", 0, 10**6, 0, key="sim-seed")
        hidden = st.multiselect("Hidden channels", system.channels, key="sim-hidden")
        if controller.is_outdated:
            show_notice(OUTDATED_MESSAGE, "warning")
        if not st.form_submit_button("Simulate", type="primary", disabled=controller.is_outdated):
            return
    options = {"start": start, "stop": stop, "noise": noise / 100, "missing_fraction": gaps / 100}
    try:
        controller.simulate(**options, count=int(count), hidden=tuple(hidden), seed=int(seed))
    except LodekitError as problem:
        show_notice(controller.error_message(problem), "warning")
        return
    st.rerun()


def _describe_file(controller: SessionController, data_file: DataFile) -> None:
    look, own = data_file.preview, controller.session
    time = f"time column {look.time.name} ({look.time_reason})" if look.time else "no time column"
    parts = [f"**{own.file}**: {format_count(look.n_rows, 'line')}", time, *data_file.notes]
    parts += [f"{name} is not used: it {why}" for name, why in look.skipped_columns.items()]
    parts += ["no gap found, so this is one record"] * (own.split_gaps and len(data_file.records) == 1)
    st.markdown("; ".join(part.replace("[", "\\[").replace("$", "\\$") for part in parts) + ".")
    names, now = [*look.names, NO_TIME_COLUMN], look.time.name if look.time else NO_TIME_COLUMN
    chosen = str(edit_value(st.columns(2)[0].selectbox, "Time column", now, "time-column", options=names))
    if chosen != now:
        column = IGNORED_COLUMN if chosen == NO_TIME_COLUMN else chosen
        controller.session = controller.session.with_assignment(ColumnAssignment("t", column))
        st.rerun()
    if look.time is None:
        dt = edit_value(st.number_input, "Sampling interval", own.dt or 0.0, "dt", min_value=0.0)
        if (dt or None) != own.dt:
            controller.change(dt=dt or None)
            st.rerun()


def _show_record(controller: SessionController, data_file: DataFile) -> None:
    own = controller.session
    record, span = _choose_record(controller, data_file), data_file.window
    points = data_file.points(record)
    fitted = tuple(edge if edge is not None else whole for edge, whole in zip(own.window, span, strict=True))
    named = {item.assignment.column: item.assignment for item in controller.matches if item.assignment.column}
    titles = {}
    for column in points:
        unit = data_file.unit(column)
        role = ROLE_LABELS[named[column].kind] if column in named else "not used"
        if column in named and named[column].channel != column:
            role = f"{named[column].channel}, {role}"
        titles[column] = f"{column} – {role}" if not unit or unit in column else f"{column} in {unit} – {role}"
    held = [column for column, item in named.items() if item.kind in ("hold", "auto")]
    figure = record_figure(
        points,
        titles=titles,
        held_inputs=held,
        window=data_file.span(record),
        fitted=None if own.window == (None, None) and own.held_out is None else (fitted[0], fitted[1]),
        held_out=own.held_out,
        clock=data_file.clock,
    )
    brush = WINDOW_TARGETS[0]
    if data_file.has_one_time_axis:
        label = "Drag over the plot to set the window for"
        brush = st.segmented_control(label, WINDOW_TARGETS, default=brush, key="brush") or brush
    else:
        st.caption("Drag over the plot to set the window for the fit. Validation needs a file with one record.")
    words = f"The record: {len(points)} columns from t = {span[0]:.6g} to {span[1]:.6g}. " + "; ".join(
        titles[column] for column in points
    )
    key = f"record-{own.revision}-{own.window}-{own.held_out}-{record}"
    event: Any = show_figure(figure, words, key, on_select="rerun", selection_mode="box")
    boxes = event.selection.box if event and event.selection else []
    if boxes:
        low, high = sorted(data_file.clock.from_wall_clock(edge) for edge in boxes[0]["x"][:2])
        _set_window(controller, max(low, span[0]), min(high, span[1]), for_validation=brush == WINDOW_TARGETS[1])
    _edit_windows(controller, data_file, (fitted[0], fitted[1]))


def _choose_record(controller: SessionController, data_file: DataFile) -> str:
    """Return the name of the record that is drawn; empty if there is only one."""
    names = list(data_file.records)
    if len(names) < 2:
        return ""
    own = controller.session
    record = own.record if own.record in names else names[0]
    label = f"Record to show (all {len(names)} are fitted together)"
    chosen = str(edit_value(st.selectbox, label, record, "record", options=names))
    if chosen != record:
        controller.change(record=chosen)
        st.rerun()
    return chosen


def _set_window(controller: SessionController, low: float, high: float, *, for_validation: bool) -> None:
    """Set a window, say so if this shortens the other one, and draw the page again."""
    before = controller.session
    controller.set_window(low, high, for_validation=for_validation)
    other = "window" if for_validation else "held_out"
    if getattr(before, other) != getattr(controller.session, other):
        changed = "fit" if for_validation else "validation"
        st.toast(f"The window of the {changed} was shortened, because the windows must not overlap.")
    st.rerun()


def _edit_windows(controller: SessionController, data_file: DataFile, fitted: tuple[float, float]) -> None:
    """Show the windows as numbers or dates, and buttons for common choices; validation needs one record."""
    own, span, is_one, clock = controller.session, data_file.window, data_file.has_one_time_axis, data_file.clock

    def edit(label: str, window: tuple[float, float], columns: Sequence[Any], *, for_validation: bool) -> bool:
        names = (f"{label} from", f"{label} to")
        if clock.has_dates:
            dates = [f"{date:%Y-%m-%d %H:%M:%S}" for date in clock.to_dates(window)]
            fields = zip(columns, names, dates, strict=True)
            given = [edit_value(column.text_input, name, date, name) for column, name, date in fields]
            try:
                options = zip(given, names, (False, True), strict=True)
                read = [clock.parse_time(text.strip(), name, is_end=end) for text, name, end in options]
            except LodekitError as problem:
                show_notice(str(problem), "warning")
                return False
            pairs = zip(given, dates, read, window, strict=True)
            new = tuple(old if text == date else edge for text, date, edge, old in pairs)
        else:
            edges = zip(columns, names, window, strict=True)
            new = tuple(edit_value(column.number_input, n, value, n, format="%.6g") for column, n, value in edges)
        if new == window:
            return True
        low, high = max(new[0], span[0]), min(new[1], span[1])
        if low < high:
            _set_window(controller, low, high, for_validation=for_validation)
        order, got = f"{names[0]!r} must be earlier than {names[1]!r}", clock.format_times(*new)
        show_notice(f"{order}, got {got}; the record is between {clock.format_times(*span)}.", "warning")
        return False

    all_of_it, split = st.columns(2)
    if all_of_it.button("Fit to all data", key="fit-all", width="stretch"):
        # A new revision also discards numbers that are being typed.
        controller.change(window=(None, None), held_out=None, revision=own.revision + 1)
        st.rerun()
    if is_one and split.button("Keep the last 30 % for validation", key="split", width="stretch"):
        edge = float(f"{span[0] + 0.7 * (span[1] - span[0]):.12g}")
        controller.change(window=(None, None))
        controller.set_window(edge, span[1], for_validation=True)
        st.rerun()
    if st.session_state.get("windows of revision") != own.revision:
        for name in ("Fit from", "Fit to", "Validate from", "Validate to"):
            st.session_state.pop(f"{name} before", None)
        st.session_state["windows of revision"] = own.revision
    fields = st.columns(4)
    is_valid = edit("Fit", fitted, fields[:2], for_validation=False)
    if is_one:
        is_valid &= edit("Validate", own.held_out or (span[1], span[1]), fields[2:], for_validation=True)
    st.session_state[REFUSED_WINDOW] = not is_valid


def _edit_columns(controller: SessionController, data_file: DataFile) -> None:
    """Show the column and the role of each channel, for editing."""
    if matches := controller.matches:
        st.markdown("**Columns of the channels**, and their roles")
        for item in matches:
            _edit_column(controller, data_file, item)
        unmatched = [own.assignment.channel for own in matches if not own.assignment.column and not own.is_user_choice]
        unmatched = [name for name in unmatched if name in controller.parsed.undifferentiated]
        if not controller.is_measured:
            show_notice("No column is assigned to a channel yet; choose at least one.", "warning")
        elif unmatched:
            show_notice([CONSTANT_ADVICE.format(name) for name in unmatched])
    elif controller.system is None:
        st.markdown("**Columns of the channels** appear here once there are equations in step 1.")
        if st.button("Propose equations for this file", key="propose", icon=":material/auto_awesome:"):
            controller.apply_proposal()
            st.rerun()


def _edit_column(controller: SessionController, data_file: DataFile, item: ColumnMatch) -> None:
    own = item.assignment
    columns = [NOT_MEASURED, *data_file.columns]
    name, where, role, why = st.columns([2, 4, 4, 5], vertical_alignment="center")
    name.markdown(f"`{own.channel}`")
    place = own.column if own.column in columns else NOT_MEASURED
    hidden: dict[str, Any] = {"label_visibility": "collapsed"}
    labels = (ROLE_LABELS if own.column else {"": "not measured"}) | DISTURBANCE_LABELS
    choice = {"options": list(labels), "format_func": labels.__getitem__}
    column_label, role_label = f"Column of {own.channel}", f"Role of {own.channel}"
    column = edit_value(where.selectbox, column_label, place, f"column-{own.channel}", options=columns, **hidden)
    kind = edit_value(role.selectbox, role_label, own.kind, f"role-{own.channel}", **choice, **hidden)
    why.caption(item.reason)
    new = ColumnAssignment(own.channel, kind=str(kind) if kind in DISTURBANCE_KINDS and column == place else "")
    if column != NOT_MEASURED and not new.kind:
        new = ColumnAssignment(own.channel, str(column), str(kind) if column == own.column else PROPOSED_KIND)
    if new != own:
        session = controller.session.with_assignment(new)
        # A column belongs to one channel, so another channel with this column gets the old one.
        others = (each.assignment for each in controller.matches if each.assignment.channel != own.channel)
        for other in (each for each in others if new.column and each.column == new.column):
            kind = PROPOSED_KIND if own.column else ""
            session = session.with_assignment(ColumnAssignment(other.channel, own.column, kind))
        controller.session = session
        st.rerun()

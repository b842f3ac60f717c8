"""The processes that answer requests of pages: analysis of equations, data files, curves for sliders, and tasks.

Every request is a function of plain values in `REQUEST_HANDLERS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from lodekit.data.time_reference import TimeReference
from lodekit.errors import EquationError, LodekitError
from lodekit.fitting.settings import FitSettings
from lodekit.fitting.setup import FitSetup, build_setup
from lodekit.fitting.starts.candidates import StartPoint, build_start_points
from lodekit.prior.prior import Hyperparameters
from lodekit.studio import data_files
from lodekit.studio.figures import PlotlyFigure, curves_figure
from lodekit.studio.server import serve_requests
from lodekit.studio.session import (
    NO_EQUATIONS_MESSAGE,
    CatalogEntry,
    ColumnAssignment,
    EquationText,
    ParsedEquations,
    StudioSession,
    analyze_system,
    find_time_column,
    modes_at,
)
from lodekit.studio.session_files import generate_system_file, unpack_session
from lodekit.studio.worker import SYSTEM_FILE, run_task
from lodekit.support.arguments import Array
from lodekit.support.files import write_atomically
from lodekit.system import grammar
from lodekit.system.catalog import Example, examples
from lodekit.system.display import format_analysis
from lodekit.system.files import read_system_file
from lodekit.system.parameters import MAX_PARAMETERS, Parameter, find_channel_names, find_likely_parameters
from lodekit.system.system import System
from lodekit.workflow.pipeline import prepare_fit
from lodekit.workflow.system_proposal import guess_column_roles, propose_first_order_equations

#: The longest accepted text.
MAX_EQUATION_CHARACTERS = 20_000


def parse_typed_equations(text: str, declared: str = "") -> tuple[System, tuple[str, ...]]:
    """Return the system of a text, and undeclared names that only multiply others: they are treated as parameters.

    Examples
    --------
    >>> parse_typed_equations("tau*y' + y = K*u")
    (<System of 1 equation in y, u, parameters tau, K>, ('tau', 'K'))
    """
    if len(text) > MAX_EQUATION_CHARACTERS:
        raise LodekitError(f"expected at most {MAX_EQUATION_CHARACTERS} characters of equations, got {len(text)}")
    try:
        parsed = grammar.parse_equations(text)
        if advice := next(filter(None, (grammar.suggest_derivative(equation.text) for equation in parsed)), ""):
            raise EquationError(advice)
        used = {name for equation in parsed for name in equation.names}
        own = [name for name in dict.fromkeys(declared.replace(",", " ").split()) if name in used]
        inferred: list[str] = []
        while True:
            try:
                return System(text, parameters=dict.fromkeys((*own, *inferred), Parameter())), tuple(inferred)
            except EquationError:
                new = _likely_parameter(parsed, (*own, *inferred))
                if not new or len(inferred) >= MAX_PARAMETERS:
                    raise
                inferred.append(new)
    except RecursionError:
        raise LodekitError("expected equations with fewer nested brackets") from None


def _likely_parameter(equations: Sequence[grammar.Equation], known: Sequence[str]) -> str:
    """Return a name that only multiplies others, and is not a parameter yet; empty if there is none.

    The first factor of a product is usually the parameter; a term of a sum, as in ``(T2 - T1)/R``, is usually a
    channel. The last one of three, as in ``a*x*y``, makes the equation nonlinear.
    """
    channels = find_channel_names(equations, known)
    found = find_likely_parameters(equations, channels) if channels[1:] else []
    nodes = [node for equation in equations for node in grammar.walk_equation(equation)]
    for node in (node for node in nodes if isinstance(node, grammar.Product)):
        names = [name for operator, factor in node.factors if operator == "*" for name in grammar.find_names(factor)]
        first = next((k for k, name in enumerate(names) if name in channels and name not in found), 0)
        found = [name for name in found if not first or name not in names[first:]]
    sums = [node for node in nodes if isinstance(node, grammar.Sum)]
    summed = {term.name for node in sums if node.terms[1:] for _, term in node.terms if isinstance(term, grammar.Name)}
    return min(found, key=lambda name: name in summed, default="")


#: With more measurements the curve would lag behind a slider.
MAX_SLIDER_MEASUREMENTS = 4000


#: The setup of a fit, a first guess of lengthscales, amplitudes and noise, units of channels, and those of time.
SliderModel = tuple[FitSetup, Hyperparameters, Mapping[str, str], TimeReference]


def compute_curve(
    setup: FitSetup, record_setup: FitSetup, hyper: Hyperparameters, values: Mapping[str, float], n_times: int = 240
) -> tuple[Array, Array, float]:
    """Return times over the measurements of a record, the posterior mean there, (n, channels), and the log evidence."""
    layout = setup.layout
    theta = np.array([values.get(n, value) for n, value in zip(layout.names, hyper.theta, strict=True)], float)
    hyper = replace(hyper, theta=theta, mode_amplitudes=layout.resolve_mode_std(hyper.mode_amplitudes, theta))
    times, names = np.linspace(*record_setup.measurements.window, n_times), setup.channels
    with setup.limit_threads(), np.errstate(all="ignore"):
        observables = record_setup.observable_compiler.compile_unscaled(names, record_setup.prior.units)
        mean = record_setup.engine.posterior(hyper).mean(observables, times)
        evidence = setup.engine.value(hyper) + layout.restricted_likelihood_correction_at(theta)
    if not np.isfinite(mean).all():
        raise LodekitError("the curve is not finite at these values; move the sliders")
    return times, mean, float(evidence)


def make_slider_model(system: Path, data: Path, values: Mapping[str, float], **options: Any) -> SliderModel:
    """Return a setup on the measurements of a file, with a first guess of the hyperparameters."""
    file = read_system_file(system)
    gp, found = prepare_fit(file, data, **options)
    if found.measurements.size > MAX_SLIDER_MEASUREMENTS:
        expected = f"expected at most {MAX_SLIDER_MEASUREMENTS} measurements for this curve"
        raise LodekitError(f"{expected}, got {found.measurements.size}; select a shorter window in step 2")
    arguments = FitSettings(**{item.name: getattr(gp, item.name) for item in fields(FitSettings)})
    arguments.check()
    setup = build_setup(file.system, arguments, found.measurements)
    objective, layout = setup.objective, setup.layout
    theta = np.array([values.get(name, 1.0) for name in layout.names], float)
    kept = setup.measurements
    scatter = kept.difference_noise_std()
    levels = None if scatter is None else setup.prior.noise.level_medians(scatter)
    generator = np.random.default_rng(0)
    with setup.limit_threads():
        series = [item for part in kept.records.values() for item in part.decimated_series()]
        starts = build_start_points(objective, [StartPoint("given", theta)], series, 1, generator, levels)
    if not starts:
        raise LodekitError("no curve can be computed at these values; move the sliders, or check the units")
    units = {**found.units, **file.units}
    return setup, layout.unpack(starts[0].x), units, TimeReference(found.origin, units.get("t", ""))


@cache
def _catalog() -> dict[str, Example]:
    return {example.name: example for example in examples()}


_parse_cached = lru_cache(maxsize=32)(parse_typed_equations)


def _require_system(text: EquationText) -> System:
    try:
        return _parse_cached(*text)[0]
    except LodekitError:
        raise LodekitError(NO_EQUATIONS_MESSAGE) from None


def list_samples() -> dict[str, CatalogEntry]:
    """Return the examples of the catalog, by name."""
    return {
        name: {
            "story": example.story,
            "equations": tuple(example.system.equations),
            "parameters": dict(example.system.parameters),
            "values": {key: float(value) for key, value in example.values.items()},
        }
        for name, example in _catalog().items()
    }


def understand(text: EquationText) -> ParsedEquations:
    """Return equations as parsed, and what they imply."""
    if not text[0].strip():
        return ParsedEquations(is_empty=True)
    try:
        return analyze_system(*_parse_cached(*text))
    except LodekitError as problem:
        return ParsedEquations(str(problem))


def locate_exponents(
    text: EquationText, given: Sequence[str], values: Mapping[str, float]
) -> tuple[tuple[complex, ...], tuple[complex, ...]]:
    """Return the poles of the response to known channels, and the uncontrollable modes."""
    system = _require_system(text)
    return modes_at(system, given, values) if given else (), modes_at(system, (), values)


@lru_cache(maxsize=64)
def show_proof(text: EquationText) -> tuple[str, tuple[str, ...], str]:
    """Return the Smith form and all solutions of a system, the proved identities, or the reason if there are none."""
    algebra = format_analysis(_require_system(text), omitted=("Equations", "What this means", "Notes"))
    try:
        return algebra, tuple(_require_system(text).verify()), ""
    except LodekitError as problem:
        return algebra, (), str(problem)


def simulate_data(text: EquationText, values: Mapping[str, float], example: str, options: Mapping[str, Any]) -> str:
    """Return simulated measurements as the text of a CSV file."""
    return data_files.simulate_csv(_require_system(text), values, _catalog().get(example), **options)


@lru_cache(maxsize=4)
def _open_cached(
    path: Path, dt: float | None, time_column: str, split: tuple[ColumnAssignment, ...], stamp: tuple[int, int]
) -> data_files.DataFile:
    return data_files.open_data_file(path, dt, time_column, split)


def open_file(
    path: Path, dt: float | None, time_column: str = "", split: tuple[ColumnAssignment, ...] = ()
) -> data_files.DataFile:
    """Return the contents of a data file, and its points; if columns are given, it is split at their gaps."""
    state = path.stat()
    return _open_cached(path, dt, time_column, split, (state.st_mtime_ns, state.st_size))


def propose(path: Path) -> tuple[str, dict[str, str], tuple[ColumnAssignment, ...]]:
    """Return the proposal of ``lodekit init`` for a data file: equations, parameters, and columns not found by name.

    For each parameter its options are in TOML; everything is empty if no column looks like an input.
    """
    preview = open_file(path, None).preview
    guesses = guess_column_roles(preview)
    equations, about = propose_first_order_equations(guesses)
    if not equations:
        return "", {}, ()
    matched = data_files.match_channels(preview, _require_system((equations, ", ".join(about))), ())
    recognized = {item.assignment for item in matched}
    proposed = (ColumnAssignment(guess.channel, guess.column.name, guess.input_kind) for guess in guesses)
    return equations, about, tuple(each for each in proposed if each not in recognized)


def match_file(
    path: Path, dt: float | None, text: EquationText, changed: Sequence[ColumnAssignment]
) -> list[data_files.ColumnMatch]:
    """Return the column of each channel."""
    preview = open_file(path, dt, find_time_column(changed)).preview
    return data_files.match_channels(preview, _require_system(text), changed)


def write_system(session: StudioSession, text: EquationText, path: Path | None, use_starts: bool) -> str:
    """Return the text of the system file; its title is the example, if the equations are those of the example."""
    system, example = _require_system(text), _catalog().get(session.example)
    if example is None or list(example.system.equations) != list(system.equations):
        session = replace(session, example="")
    if path is None:
        return generate_system_file(session, system, use_starts=use_starts)
    look = open_file(path, session.dt, find_time_column(session.assignments)).preview
    roles, options = data_files.to_column_roles(look, data_files.match_channels(look, system, session.assignments))
    return generate_system_file(session, system, look, roles, use_starts=use_starts, **options)


_model_cache: dict[object, SliderModel] = {}


def _cached_slider_model(session: StudioSession, text: EquationText, path: Path, folder: Path) -> SliderModel:
    """Return the model for the sliders; everything but the parameters is a first guess."""
    status = path.stat()
    key = (text, path, status.st_mtime_ns, status.st_size, session.assignments, str(session.fit_options))
    if key not in _model_cache:
        # One model for each of a few sessions.
        if len(_model_cache) >= 4:
            _model_cache.pop(next(iter(_model_cache)))
        folder.mkdir(exist_ok=True)
        write_atomically(folder / SYSTEM_FILE, write_system(replace(session, entries=()), text, path, use_starts=False))
        values = session.values(list(_require_system(text).parameters))
        _model_cache[key] = make_slider_model(folder / SYSTEM_FILE, path, values, **session.fit_options)
    return _model_cache[key]


def draw_curve(session: StudioSession, text: EquationText, path: Path, record: str) -> tuple[PlotlyFigure, str, float]:
    """Return the posterior mean at the slider values over the measurements, the figure in words, and the evidence."""
    setup, hyper, units, clock = _cached_slider_model(session, text, path, path.parent / "sliders")
    values = session.values(list(_require_system(text).parameters))
    records = setup.record_setups
    record_setup = records.get(record, next(iter(records.values())))
    times, mean, log_evidence = compute_curve(setup, record_setup, hyper, values)
    inputs = record_setup.measurements.inputs
    measured = {item.observable: (item.times, item.values) for item in record_setup.measurements.plotted_series}
    curves = {name: (times, curve) for name, curve in zip(setup.channels, mean.T, strict=True)}
    kinds = {name: signal.kind for name, signal in inputs.items()}
    listed = ", ".join(f"{name} = {value:.6g}" for name, value in values.items()) or "no parameters"
    where = f" of record {record}" if record else ""
    words = f"Posterior mean of {', '.join(setup.channels)} over the measurements{where}, at {listed}"
    figure = curves_figure(curves, clock, kinds, units, measured)
    return figure, f"{words}; log evidence {log_evidence:.3f}", log_evidence


_REQUESTS = (propose, list_samples, understand, locate_exponents, show_proof, simulate_data, open_file, match_file)
#: The functions that pages can call, by name.
REQUEST_HANDLERS: dict[str, Any] = {function.__name__: function for function in (*_REQUESTS, write_system, draw_curve)}
REQUEST_HANDLERS |= {"open_session": unpack_session, "run_task": run_task}


def main() -> None:
    """Answer requests until standard input ends."""
    serve_requests(REQUEST_HANDLERS, warm_up=_catalog)


if __name__ == "__main__":
    main()

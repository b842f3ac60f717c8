"""LODEGP, the estimator: a Gaussian process whose every realization satisfies a linear ODE system.

Its methods are functions of the fit. It follows the conventions of scikit-learn, which is not required.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate

from lodekit.data.row_store import missing_outputs_error
from lodekit.data.sources import LoadedData, load_data
from lodekit.data.tables.frames import dataframe_library
from lodekit.errors import LodekitError, NotFittedError
from lodekit.fitting.settings import FitSettings
from lodekit.prior.observables import table_checks
from lodekit.results import (
    experiment_design,
    figures,
    prediction,
    residuals as residuals_module,
    state_space as state_space_module,
    storage,
)
from lodekit.results.certificate import Certificate, compute_certificate
from lodekit.results.fit import Fit, fit_with_hold_selection, update_fit
from lodekit.results.simulation import simulate_response
from lodekit.results.stream.stream import start_stream
from lodekit.results.summary import bse, conf_int, cov_params, format_fit_html, format_one_line, intervals, summary
from lodekit.results.validation import validate
from lodekit.support.files import write_atomically
from lodekit.support.labels import Labels
from lodekit.support.text import P, R, describe_unknown, reject_invalid_call, suggest_arguments
from lodekit.support.units import find_unit_conversion, is_known_unit
from lodekit.system.system import System
from lodekit.uncertainty.estimates import Estimate
from lodekit.uncertainty.variance_tests import Disturbance

__all__ = ["LODEGP", "Certificate", "NotFittedError"]


def with_suggestions(function: Callable[P, R]) -> Callable[P, R]:
    """Return a method that `support.text.with_suggestions` returns as well, without another file between its calls."""

    @wraps(function)
    def method(*values: P.args, **arguments: P.kwargs) -> R:
        try:
            return function(*values, **arguments)
        except TypeError:
            reject_invalid_call(function, values, arguments)
            raise

    return method


def as_estimator_method(function: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a function of a fit as a method of an estimator, with the same documentation and other arguments."""

    @wraps(function)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if "as_frame" in signature.parameters and (given := kwargs.get("as_frame")) in (None, True):
            # True selects the DataFrame library of the data passed to `fit`, if any.
            kwargs["as_frame"] = self.fit_.frame_library or given
        return function(self.fit_, *args, **kwargs)

    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    vars(method)["__signature__"] = signature.replace(parameters=[inspect.Parameter("self", first.kind), *others])
    return with_suggestions(method)


@suggest_arguments
class LODEGP:
    """A Gaussian process over the solutions of a system of linear ODEs.

    Parameters
    ----------
    system : System
        The equations with their channels and parameters.
    latent : str or sequence of str
        Kernel of the free functions: ``"se"``, or ``"matern-p/2"`` with odd p; one for all or one for each.
    prior : {"latent", "channels"}
        Prior of the functions of time: independent processes for the free functions, as in the paper; or for the
        channels, conditioned on the equations, with hyperparameters in the units of the channels. For the prior of a
        parameter of the equations, use ``lk.Parameter(prior=lk.LogNormal(10, 0.3))``.
    noise : {"channel", "shared"}
        One estimated noise level for each observable, or one number for all of them, each in its own unit.
    engine : {"auto", "dense", "spectral", "modal", "markov"}
        How the log evidence is computed: by a Cholesky decomposition; with Fourier features, at a cost that does not
        depend on the number of measurements; with modes alone; or by a Kalman filter, in time proportional to the
        number of measurements. ``engine_`` states the choice and the reason.
    tolerance : float
        Largest error of the covariance in the spectral engine, relative to the covariance and to the noise.
    restarts : int
        Maximum number of starting points of the optimiser; the search ends early if two of them agree.
    random_state : int, optional
        Random seed for the optimiser's starting points. Random ones are used after those computed from the data,
        unless two searches have already agreed.
    n_jobs : int, optional
        Number of starting points that joblib searches in parallel, -1 for one on each core. Choose a backend (loky,
        Dask, Ray, Spark) with ``joblib.parallel_config``.
    device : str, optional
        PyTorch device of the dense engine, such as ``"cuda"``; NumPy is used by default.
    mode_deviation : float or {"open", "learned"}, optional
        Prior standard deviation of every mode, in the unit of the function p of the mode; it is 1 in the paper.
        ``"open"`` makes it so large that the data alone determine initial states, and is the default if known inputs
        drive all measured channels or exact values fix the initial state; otherwise ``"learned"``, estimated.
    inputs : dict of str to {"hold", "linear", "auto"}, optional
        Known inputs: channels known for all times from their samples, by zero-order hold or linear interpolation;
        ``"auto"`` fits both and keeps the more likely one. Everything else is estimated given these inputs.
    disturbances : dict of str to str, optional
        Unmeasured channels that drive the equations: ``"white"`` noise, or ``"matern-1/2"`` and smoother for
        correlated ones. ``disturbances_`` has their estimated standard deviations and lengthscales.

    Examples
    --------
    >>> import numpy as np
    >>> import lodekit as lk
    >>> t = np.linspace(0, 10, 40)
    >>> system = lk.System("x'' + c*x' + k*x = 0", parameters={n: lk.Parameter(positive=True) for n in "ck"})
    >>> x = np.exp(-0.2 * t) * np.cos(np.sqrt(3.96) * t) + 0.01 * np.sin(50 * t)
    >>> gp = lk.LODEGP(system, random_state=0).fit(t, x)
    >>> abs(gp.parameters_["k"].value - 4) < 0.05
    True
    """

    #: The result of `fit`, as one value.
    fit_: Fit

    def __init__(
        self,
        system: System,
        *,
        latent: str | Sequence[str] = "se",
        prior: str = "latent",
        noise: str = "channel",
        engine: str = "auto",
        tolerance: float = 1e-10,
        restarts: int = 6,
        random_state: int | None = None,
        n_jobs: int | None = None,
        device: str | None = None,
        mode_deviation: float | str | None = None,
        inputs: Mapping[str, str] | None = None,
        disturbances: Mapping[str, str] | None = None,
    ) -> None:
        self.system, self.latent, self.prior, self.noise = system, latent, prior, noise
        self.engine, self.tolerance, self.restarts, self.random_state = engine, tolerance, restarts, random_state
        self.n_jobs, self.device, self.mode_deviation = n_jobs, device, mode_deviation
        self.inputs, self.disturbances = inputs, disturbances
        if isinstance(system, System):
            FitSettings(inputs=inputs).parse_inputs(system)

    @classmethod
    def from_fit(cls, fit: Fit) -> LODEGP:
        """Return a fitted estimator from a fit.

        Parameters
        ----------
        fit : Fit
            Its settings become the arguments of the estimator.

        Examples
        --------
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
        >>> lk.LODEGP.from_fit(gp.fit_).log_evidence_ == gp.log_evidence_
        True
        """
        model = cls(fit.system, **fit.settings.to_dict())
        model.fit_ = fit
        return model

    def __repr__(self) -> str:
        known, shown = inspect.signature(type(self).__init__).parameters, []
        for name, value in self.get_params().items():
            default = known[name].default
            if default is inspect.Parameter.empty:
                shown.append(repr(value))
            elif type(value) is not type(default) or value != default:
                shown.append(f"{name}={value!r}")
        state = format_one_line(self.fit_) if "fit_" in vars(self) else "not fitted; call fit(t, Y)"
        return f"<LODEGP({', '.join(shown)}), {state}>"

    def _repr_html_(self) -> str | None:
        return format_fit_html(self.fit_) if "fit_" in vars(self) else None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Called only for missing attributes; all attributes of a fit come from `fit_`.
            if "fit_" not in vars(self) and (name == "fit_" or isinstance(vars(LODEGP).get(name), property)):
                raise NotFittedError("this LODEGP has not been fitted yet; call fit(t, Y) first")
            return object.__getattribute__(self, name)

    def _arguments(self) -> FitSettings:
        if not isinstance(self.system, System):
            raise LodekitError(f"expected a System, got {type(self.system).__name__}; try LODEGP(System(...))")
        settings = FitSettings(**{item.name: getattr(self, item.name) for item in fields(FitSettings)})
        settings.check()
        settings.parse_inputs(self.system)
        settings.parse_disturbances(self.system)
        return settings

    @with_suggestions
    def fit(
        self,
        t: Any,
        Y: Any = None,
        noise_std: Any = None,
        *,
        time: str | None = None,
        columns: Mapping[str, Any] | None = None,
        dt: float | None = None,
        records: str | None = None,
        split_gaps: bool = False,
        timezone: str | None = None,
        missing: Sequence[float] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> LODEGP:
        """Estimate parameters, hyperparameters and noise from measurements; return the estimator itself.

        Parameters
        ----------
        t : array-like, shape (n,), Observations, Statistics, path, DataFrame, Series, Source, or a list of these
            Times, in any order; times may repeat. Or a table with times and values in columns, which are recognised by
            name: the path of a CSV or Parquet file, a pattern for several, or a DataFrame of any library, including
            Dask. Files may be larger than memory, and times may be in the index. Dates become seconds since the first
            one. A list contains several records, ``[(t1, Y1), (t2, Y2)]``, files or DataFrames: they share all
            estimates, but each has its own functions of time and initial state. For several files of one record, use a
            pattern, or a list in the list.
        Y : array (n, channels), dict of observable to array, or DataFrame
            Values; NaN or masked if missing. A dict may contain any observables, such as ``"f1'"``. None if `t`
            contains them.
        noise_std : number, array or dict, optional
            Standard deviation of the noise; zero makes values exact. Estimated if not given. For files and DataFrames
            a number, or a dict of channel to number or column.
        time : str, optional
            The time column of files or DataFrames; by default ``t``, ``time``, ``date`` or similar.
        columns : dict of observable to column, optional
            Columns of files or DataFrames that have other names: a name, or a number counted from one. ``t`` is the
            time, ``std(f1)`` the known noise of f1.
        dt : float, optional
            Sampling interval of a file or DataFrame without a time column.
        records : str, optional
            The column of a file or DataFrame that contains the record of each row.
        split_gaps : bool
            Whether to split a record at gaps that are six times as long as most sampling intervals, since inputs are
            unknown in gaps.
        timezone : str, optional
            The time zone of dates without one in files or DataFrames, such as ``"Europe/Berlin"``. It is needed if
            clocks change during the record.
        missing : sequence of float, optional
            Numbers that mark missing values in files or DataFrames, such as ``[-999, 9999]``.
        units : dict of str to str, optional
            Units of channels and of the time ``t``: columns with another unit in their names are converted. With
            ``{"t": "h"}``, dates become hours since the first one.

        Returns
        -------
        self : LODEGP
            With ``parameters_``, ``noise_``, ``log_evidence_`` and more, all computed from ``fit_``.

        Examples
        --------
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
        >>> gp.engine_
        'dense: 4 measurements; exact, and fast up to 200'
        >>> walks = [([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]}), ([0, 1, 2], {"x": [5.0, 4.1, 2.9]})]
        >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit(walks)
        >>> gp.records_, gp.predict([0.5], record=1).shape
        (('0', '1'), (1, 2))
        """
        arguments = self._arguments()
        options = {"time": time, "columns": columns, "dt": dt, "records": records, "split_gaps": split_gaps}
        units = Labels().updated(units=units).units
        self._check_units(units)
        source = self._read(t, Y, noise_std, timezone=timezone, missing=missing, units=units, **options)
        outputs = [name for name in self.system.plain_channels if name not in (self.inputs or ())]
        if outputs and set(found := source.measurements.names) <= set(self.inputs or ()):
            raise missing_outputs_error(found, outputs, source.notes, are_arrays=Y is not None)
        fit = fit_with_hold_selection(self.system, arguments, source.measurements, Labels.from_dict(source.labels))
        fit = replace(fit, frame_library=dataframe_library(t) or dataframe_library(Y))
        # A loaded source has already shown its notes.
        self.fit_ = fit if source is t else replace(fit, notes=source.plain_notes)
        return self.label(units=units)

    def _check_units(self, units: Mapping[str, str], observables: Sequence[str] = ()) -> None:
        known = dict.fromkeys(("t", *self.system.plain_channels, *self.system.parameters, *observables))
        unit = units.get("t", "s")
        if is_known_unit(unit) and find_unit_conversion("s", unit) is None:
            raise LodekitError(f"expected a unit of time for t, such as 's' or 'h', got {unit!r}")
        for name in units:
            if name not in known:
                raise LodekitError(f"unknown name {name!r} in units; {describe_unknown(str(name), known)}")

    @with_suggestions
    def update(
        self,
        t: Any,
        Y: Any = None,
        noise_std: Any = None,
        *,
        time: str | None = None,
        columns: Mapping[str, Any] | None = None,
        relearn: bool = True,
        record: str | int | None = None,
    ) -> LODEGP:
        """Add measurements and fit again, starting from the current estimates; return the estimator itself.

        Parameters
        ----------
        t, Y, noise_std, time, columns
            As in `fit`, for the new measurements only: later ones, or other channels at any time. Dates are counted
            from the same origin, and columns are those of the fit by default.
        relearn : bool
            Whether to estimate parameters and hyperparameters again; otherwise they are kept.
        record : str or int, optional
            The record of these measurements; a new name adds a record. Required if there are several.

        Examples
        --------
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
        >>> gp.update([4, 5], {"x": [4.1, 5.0]}).fit_.measurements.size
        6
        >>> gp.update([0, 1, 2], {"x": [5.0, 4.1, 2.9]}, record="back").records_
        ('0', 'back')
        """
        fit, arguments = self.fit_, self._arguments()
        if self.system.definition() != fit.system.definition():
            raise LodekitError("the system was changed after the fit; call fit with all measurements")
        known = {"since": fit.clock.origin, **fit.labels.read_options}
        source = self._read(t, Y, noise_std, time=time, columns=columns, **known)
        fit.clock.check_origin(source.origin)
        self.fit_ = update_fit(fit, source.measurements, arguments, reestimate=relearn, record=record)
        return self

    def _read(self, t: Any, Y: Any, noise_std: Any, **options: Any) -> LoadedData:
        """Return the data from any form that `fit` accepts."""
        if exact := [name for name in self.inputs or () if isinstance(noise_std, Mapping) and name in noise_std]:
            raise LodekitError(
                f"known inputs are taken as exact, got noise_std for {exact[0]}; leave it out, or leave {exact[0]} "
                "out of inputs= to estimate it from noisy measurements"
            )
        options |= table_checks(self.system)
        options["inputs"] = tuple(self.inputs or ())
        options["never"] = tuple(self.disturbances or ()) if isinstance(self.disturbances, Mapping) else ()
        return load_data(t, Y, self.system.plain_channels, noise_std=noise_std, **options)

    @property
    def parameters_(self) -> dict[str, Estimate]:
        """The parameters of the system with standard errors and intervals, by name."""
        return self.fit_.estimates

    @property
    def disturbances_(self) -> dict[str, Disturbance]:
        """The disturbances by name: standard deviation, lengthscale, and whether each is needed."""
        return self.fit_.disturbances

    @property
    def hyperparameters_(self) -> dict[str, float]:
        """Lengthscales and amplitudes (standard deviations) by name, in the user's units."""
        return self.fit_.described_hyperparameters

    @property
    def noise_(self) -> dict[str, float]:
        """Estimated noise levels by name, in the user's units; under ``"shared"`` if there is one for all."""
        return self.fit_.noise

    @property
    def log_evidence_(self) -> float:
        """The log evidence at the optimum, in the user's units."""
        return self.fit_.log_evidence

    @property
    def converged_(self) -> bool:
        """Whether the search converged, and is not clearly worse than smooth curves without equations."""
        return self.fit_.converged

    @property
    def engine_(self) -> str:
        """The engine that was used, and the reason."""
        return str(self.fit_.engine_choice)

    @property
    def records_(self) -> tuple[str, ...]:
        """The names of the records: file names, cells of a column, or numbers from zero; ``"0"`` if there is one."""
        return self.fit_.record_names

    @property
    def warnings_(self) -> list[str]:
        """Warnings about the fit, in sentences; empty if there are none."""
        return self.fit_.warnings

    @property
    def labels_(self) -> dict[str, Any]:
        """Title, units, origin and other labels, as a dict."""
        return self.fit_.labels.to_dict()

    @with_suggestions
    def label(
        self, *, title: str | None = None, units: Mapping[str, str] | None = None, origin: str | None = None
    ) -> LODEGP:
        """Set labels for figures, reports and files, which are saved with the model; return the estimator itself.

        Labels that are not given are unchanged.

        Parameters
        ----------
        title : str, optional
            Title of reports.
        units : dict of str to str, optional
            Units of channels, parameters and the time ``t``, by name; values are not converted.
        origin : str, optional
            The date of time zero, in ISO format, if times are counted from a date.

        Examples
        --------
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
        >>> gp.label(title="A walk", units={"t": "s", "x": "m"}).labels_["title"]
        'A walk'
        """
        labels = self.fit_.labels.updated(title, units, origin)
        self._check_units(units or {}, self.fit_.measurements.names)
        self.fit_ = replace(self.fit_, labels=labels)
        return self

    @classmethod
    @with_suggestions
    def load(cls, path: str | Path) -> LODEGP:
        """Load a fitted model that was written by `save`.

        Parameters
        ----------
        path : str or Path
            The file, or a folder written by ``lodekit fit``.

        Examples
        --------
        >>> import tempfile
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gp.save(f"{folder}/walk.lodekit")
        ...     lk.LODEGP.load(f"{folder}/walk.lodekit").system.channels
        ('x', 'v')
        """
        return cls.from_fit(storage.load_fit(path))

    @with_suggestions
    def report(self, path: str | Path, **options: Any) -> None:
        """Write a report on the fit as one HTML page, completely or not at all.

        Parameters
        ----------
        path : str or Path
            The file; an existing one is replaced.
        **options
            Those of `lodekit.report.make_report`, such as ``title``, ``units`` and ``validation``.

        Examples
        --------
        >>> import tempfile
        >>> import lodekit as lk
        >>> gp = lk.LODEGP(lk.System("x' = v"), random_state=0).fit([0, 1, 2, 3], {"x": [0.0, 0.9, 2.1, 3.0]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gp.report(f"{folder}/report.html", title="A walk")
        ...     "<h1>A walk</h1>" in Path(folder, "report.html").read_text(encoding="utf-8")
        True
        """
        # Reports are made from estimators: their package imports this module.
        write_atomically(path, import_module("lodekit.report").make_report(self, **options))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the estimator, as scikit-learn does.

        Parameters
        ----------
        deep : bool
            Ignored; for compatibility with scikit-learn.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.LODEGP(lk.System("x' = v"), restarts=3).get_params()["restarts"]
        3
        """
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **arguments: Any) -> LODEGP:
        """Change arguments, as in scikit-learn, and return the estimator itself; an existing fit is not changed.

        Parameters
        ----------
        **arguments
            Arguments of the estimator by name.

        Examples
        --------
        >>> import lodekit as lk
        >>> lk.LODEGP(lk.System("x' = v")).set_params(restarts=3).restarts
        3
        """
        known = self.get_params()
        for name, value in arguments.items():
            if name not in known:
                raise LodekitError(f"unknown argument {name!r}; {describe_unknown(name, list(known))}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the estimator for scikit-learn."""
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, multi_output=True),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(one_d_array=True, two_d_array=False, allow_nan=False),
        )

    save = as_estimator_method(storage.save_fit)
    predict = as_estimator_method(prediction.predict)
    sample = as_estimator_method(prediction.sample)
    residual = equation_residual = as_estimator_method(residuals_module.equation_residual)
    residuals = as_estimator_method(residuals_module.residuals)
    validate = as_estimator_method(validate)
    diagnose = as_estimator_method(residuals_module.diagnose)
    state_space = as_estimator_method(state_space_module.state_space)
    transfer_function = as_estimator_method(state_space_module.transfer_function)
    certificate = as_estimator_method(compute_certificate)
    log_evidence = as_estimator_method(prediction.log_evidence)
    score = as_estimator_method(prediction.score)
    simulate = as_estimator_method(simulate_response)
    plan_experiment = as_estimator_method(experiment_design.plan_next_experiment)
    stream = as_estimator_method(start_stream)
    summary = as_estimator_method(summary)
    intervals = as_estimator_method(intervals)
    conf_int = as_estimator_method(conf_int)
    cov_params = as_estimator_method(cov_params)
    bse = property(as_estimator_method(bse))
    plot = as_estimator_method(figures.plot)
    plot_parameters = as_estimator_method(figures.plot_parameters)
    plot_residual = as_estimator_method(figures.plot_residual)
    plot_evidence = as_estimator_method(figures.plot_evidence)
    plot_modes = as_estimator_method(figures.plot_modes)
    plot_spectrum = as_estimator_method(figures.plot_spectrum)
    plot_residuals = as_estimator_method(figures.plot_residuals)
    plot_bode = as_estimator_method(figures.plot_bode)
    plot_step = as_estimator_method(figures.plot_step)

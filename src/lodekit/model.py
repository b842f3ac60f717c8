"""LODEGP, the estimator: a Gaussian process whose every realization satisfies a linear ODE system."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lodekit.answers import Answers, Certificate, NotFittedError
from lodekit.data.measurements import Measurements
from lodekit.data.sources import Source, read_source
from lodekit.errors import DataError, FitError, LodekitError
from lodekit.figures import Figures
from lodekit.inference.assembly import make_engine, make_prior
from lodekit.inference.checks import check_count, check_exact_values_met, check_seed
from lodekit.inference.dense_posterior import DensePosterior
from lodekit.inference.device import find_device
from lodekit.inference.engine import Engine
from lodekit.inference.engines import Choice, choose
from lodekit.inference.problem import Hyperparameters, Scaling
from lodekit.learning.diagnosis import describe_hyperparameters, describe_noise, find_warnings
from lodekit.learning.fit import Penalty, learn
from lodekit.learning.result import Estimate, estimate_parameters, format_summary
from lodekit.learning.search import Optimum, hessian
from lodekit.learning.steps import warn_of_steps
from lodekit.learning.transforms import Layout, parameter_transforms
from lodekit.prior.latents import Latent, read_latent
from lodekit.storage import StorageError, pack_measurements, read_state, unpack_measurements, write_state
from lodekit.system.system import System

__all__ = ["LODEGP", "Certificate", "NotFittedError"]

Array = NDArray[np.float64]
_NOISES = ("shared", "channel")
_PRIORS = ("latent", "channels")
_ENGINES = ("auto", "dense", "spectral")
#: Below this many rows one thread is enough.
_SMALL = 1000


class LODEGP(Answers, Figures):
    """A Gaussian process over the solutions of a system of linear ODEs.

    Parameters
    ----------
    system : System
    latent : str or sequence of str
        Covariance of the free functions: ``"se"``, or ``"matern-p/2"`` with odd p; one for all or one each.
    prior : {"latent", "channels"}
        Independent processes for the free functions, as in the paper; or for the channels, conditioned on the
        equations: canonical, with hyperparameters in the channels' units.
    engine : {"auto", "dense", "spectral"}
        How the evidence is computed: by Cholesky, or on waves at a cost that does not depend on the number of
        measurements; ``engine_`` says what was used, and why.
    tolerance : float
        Of the spectral engine: the largest error of the covariance, relative to itself and to the noise.
    noise : {"shared", "channel"}
        One noise standard deviation for all observables (in their own units), or one for each.
    restarts : int
        How many starts are followed at most; the search ends early when two agree.
    random_state : int, optional
        Seed of the starts.
    n_jobs : int, optional
        Follow the starts in parallel with joblib; its backends (loky, Dask, Ray, Spark) are chosen by
        ``joblib.parallel_config``.
    device : str, optional
        Where the dense engine computes, through PyTorch: ``"cuda"``; NumPy does otherwise.

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

    def __init__(
        self,
        system: System,
        *,
        latent: str | Sequence[str] = "se",
        prior: str = "latent",
        noise: str = "shared",
        engine: str = "auto",
        tolerance: float = 1e-10,
        restarts: int = 6,
        random_state: int | None = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ) -> None:
        self.system = system
        self.latent = latent
        self.prior = prior
        self.noise = noise
        self.engine = engine
        self.tolerance = tolerance
        self.restarts = restarts
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the estimator, as scikit-learn does."""
        return {name: getattr(self, name) for name in self._argument_names()}

    def set_params(self, **arguments: Any) -> LODEGP:
        """Change arguments of the estimator, as scikit-learn does."""
        for name, value in arguments.items():
            if name not in self._argument_names():
                known = ", ".join(self._argument_names())
                raise LodekitError(f"unknown argument {name!r}; expected one of {known}")
            setattr(self, name, value)
        return self

    @classmethod
    def _argument_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def __repr__(self) -> str:
        return f"LODEGP({self.system!r}, latent={self.latent!r}, noise={self.noise!r})"

    def fit(
        self,
        t: Any,
        Y: Any = None,
        noise_std: Any = None,
        *,
        time: str | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> LODEGP:
        """Learn parameters, hyperparameters and noise from measurements.

        Parameters
        ----------
        t : array-like, shape (n,), Observations, Statistics, path, list of paths, DataFrame, or Source
            Times, in any order; repeated times are fine. A path, pattern or list of CSV and Parquet files, or a
            DataFrame of any library, Dask included, holds times and values in columns, which are found by name;
            files may be larger than memory. Dates become seconds since the first one.
        Y : array (n, channels), dict of observable to array, or DataFrame
            NaN for missing values; a dict may hold any observables, such as ``"f1'"``. None where `t` holds them.
        noise_std : number, array or dict, optional
            Known noise; zero makes values exact. Learned where not given. For files and DataFrames a number, or a
            dict of channel to number or column.
        time : str, optional
            The column of the time in files or DataFrames; ``t``, ``time``, ``date`` and the like by default.
        columns : dict of observable to column, optional
            For columns of files or DataFrames with other names: a name, or a number counted from one. ``t`` is the
            time, ``std(f1)`` the known noise of f1.

        Returns
        -------
        self : LODEGP
            With ``parameters_``, ``hyperparameters_``, ``noise_``, ``log_evidence_``, ``converged_``, ``engine_``.
        """
        self._check_arguments()
        source = self._read_source(t, Y, noise_std, time, columns)
        choice, engine, layout = self._prepare_fit(source.measurements)
        self._learn(source.measurements, choice, engine, layout)
        # Other data, other names.
        self.labels_: dict[str, Any] = source.labels
        return self

    def _learn(
        self, measurements: Measurements, choice: Choice, engine: Engine, layout: Layout, known: Array | None = None
    ) -> LODEGP:
        """Learn everything, from a point of an earlier fit where there is one."""
        scatter, groups = measurements.scatter(), engine.prior.noise_group
        if scatter is not None:
            scatter = np.array([np.median(scatter[np.equal(groups, group)]) for group in range(max(groups) + 1)])
        # Threads that wait for each other make small matrices slower, much slower on a busy machine.
        with self._threads(choice, engine):
            optimum = learn(
                self.system,
                engine,
                layout,
                measurements.thumbnail(),
                restarts=self.restarts,
                random_state=self.random_state,
                n_jobs=self.n_jobs,
                scatter=scatter,
                known=known,
            )
            curvature = self._curvature_at(engine, layout, optimum)
        return self._set_fitted(measurements, choice, engine, layout, optimum, curvature)

    @staticmethod
    def _threads(choice: Choice, engine: Engine) -> Any:
        return threadpool_limits(1 if choice.name == "spectral" or engine.size < _SMALL else None, user_api="blas")

    def update(
        self,
        t: Any,
        Y: Any = None,
        noise_std: Any = None,
        *,
        time: str | None = None,
        columns: Mapping[str, Any] | None = None,
        relearn: bool = True,
    ) -> LODEGP:
        """Add new measurements to a fitted model; what was learned so far is where the search starts.

        Parameters
        ----------
        t, Y, noise_std, time, columns
            As in `fit`. Dates are counted from the same origin.
        relearn : bool
            Whether parameters and hyperparameters are learned anew, or kept as they are.

        Returns
        -------
        self : LODEGP
        """
        self._require_fitted()
        origin = self.labels_.get("origin")
        since = datetime.fromisoformat(origin) if origin else None
        source = self._read_source(t, Y, noise_std, time, columns, since)
        if source.origin != since and source.origin is not None:
            raise DataError("expected times as numbers, like those of the fit, got dates")
        measurements = self._measurements + source.measurements
        old = self._engine.prior
        scales = dict(zip(self._measurements.names, old.rows.scales.tolist(), strict=True))
        choice, engine, layout = self._prepare_fit(measurements, old.rows.scaling, scales)
        x = self._carry_over(engine, layout, measurements.names)
        if not np.isfinite(engine.value(layout.unpack(x))):
            # The posterior says what is wrong; the model stays as it was.
            engine.posterior(layout.unpack(x)).mean(engine.prior.rows, np.array(measurements.window))
        if relearn and layout.size:
            return self._learn(measurements, choice, engine, layout, x)
        return self._keep(measurements, choice, engine, layout, x)

    def _keep(self, measurements: Measurements, choice: Choice, engine: Engine, layout: Layout, x: Array) -> LODEGP:
        """Take a point as it is; nothing is learned."""
        with self._threads(choice, engine):
            value = engine.value(layout.unpack(x))
            optimum = Optimum(x, value, True, "kept", 1, np.zeros(layout.size, dtype=bool))
            curvature = self._curvature_at(engine, layout, optimum)
        return self._set_fitted(measurements, choice, engine, layout, optimum, curvature)

    def _carry_over(self, engine: Engine, layout: Layout, names: Sequence[str]) -> Array:
        """Return what was learned, in a new layout; noise of new observables starts at a tenth of their size."""
        old = self._hyper
        noise = 0.1 * engine.prior.noise_units[: layout.noises]
        known = dict(zip(self._measurements.names, self._engine.prior.noise_group, strict=True))
        for name, group in zip(names, engine.prior.noise_group, strict=True):
            if layout.noises and name in known and len(old.noise):
                noise[group] = old.noise[known[name]]
        return layout.pack(
            Hyperparameters(old.theta, old.lengthscales, old.deviations, old.mode_deviations, np.array(noise))
        )

    def _read_source(
        self,
        t: Any,
        Y: Any,
        noise_std: Any,
        time: str | None = None,
        columns: Mapping[str, Any] | None = None,
        since: datetime | None = None,
    ) -> Source:
        """Return what is read from anything that `fit` accepts."""
        channels, check = self.system.channels, self._reader.read
        return read_source(t, Y, channels, noise_std=noise_std, time=time, columns=columns, since=since, check=check)

    def _read(self, t: Any, Y: Any, noise_std: Any, time: str | None) -> Measurements:
        return self._read_source(t, Y, noise_std, time).measurements

    def _prepare_fit(
        self, measurements: Measurements, scaling: Scaling | None = None, scales: Mapping[str, float] | None = None
    ) -> tuple[Choice, Engine, Layout]:
        latents = self._latents()
        choice = choose(
            self.engine,
            size=measurements.size,
            latents=latents,
            exact=measurements.has_exact_values,
            on_channels=self.prior == "channels" and bool(latents),
            in_memory=measurements.sums is None,
            device=self.device,
        )
        channels = self.system.channels if self.prior == "channels" else None
        prior = make_prior(
            measurements, self._reader.rows, latents, self.noise, channels=channels, scaling=scaling, scales=scales
        )
        engine = make_engine(choice, prior, measurements, tolerance=self.tolerance, device=self.device)
        names = prior.rows.compiled.parameters
        summaries = measurements.summaries
        unit = float(np.median([np.hypot(item.mean, item.spread) for item in summaries])) or 1.0
        fixed, transforms = parameter_transforms(names, self.system.parameters, unit)
        learned_noise = any(item.learned for item in summaries)
        noises = len(prior.noise_units) if learned_noise else 0
        return choice, engine, Layout(names, fixed, transforms, prior.sources, len(prior.groups), noises)

    def _curvature_at(self, engine: Engine, layout: Layout, optimum: Optimum) -> Array:
        if not layout.free:
            # Standard errors are those of the parameters: without these nobody asks for the curvature.
            return np.zeros((layout.size, layout.size))
        return hessian(engine, layout, optimum.x, penalty=Penalty(layout, self.system.parameters))

    def _set_fitted(
        self,
        measurements: Measurements,
        choice: Choice,
        engine: Engine,
        layout: Layout,
        optimum: Optimum,
        curvature: Array,
    ) -> LODEGP:
        hyper = layout.unpack(optimum.x)
        posterior = engine.posterior(hyper)
        value = posterior.value
        if not np.isfinite(value):
            raise FitError("the evidence is not finite at the optimum; check units and starting values")
        if isinstance(posterior, DensePosterior):
            check_exact_values_met(posterior)
        self._measurements, self._engine, self._layout, self._choice = measurements, engine, layout, choice
        self._fitted_arguments = {key: value for key, value in self.get_params().items() if key != "system"}
        self._optimum, self._curvature, self._hyper = optimum, curvature, hyper
        self._posterior = posterior
        self.parameters_: dict[str, Estimate] = estimate_parameters(layout, optimum.x, curvature, optimum.at_bound)
        self.log_evidence_ = -value
        self.converged_ = optimum.converged
        self.engine_ = str(choice)
        self.noise_ = describe_noise(measurements.summaries, hyper, self.noise)
        self.hyperparameters_ = describe_hyperparameters(engine.prior, hyper, self.system.channels)
        self.warnings_ = find_warnings(self.system, posterior, hyper, optimum, self.parameters_)
        if measurements.sums is None and self._latents():
            self.warnings_ += warn_of_steps(measurements.series, self.noise_, self.system.channels)
        self.labels_ = dict(getattr(self, "labels_", {}))
        return self

    def label(self, *, title: str = "", units: Mapping[str, str] | None = None, origin: str = "") -> LODEGP:
        """Say what figures, reports and files call things; kept when the model is saved.

        Parameters
        ----------
        title : str
        units : dict of str to str, optional
            Of channels, parameters and ``t``.
        origin : str
            The date that is time zero, where times are seconds since then.
        """
        self._require_fitted()
        self.labels_ = {"title": title, "units": dict(units or {}), "origin": origin}
        return self

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file: JSON and arrays, whole or not at all."""
        self._require_fitted()
        rows = self._engine.prior.rows
        data, arrays = pack_measurements(self._measurements)
        arrays |= {"x": self._optimum.x, "curvature": self._curvature, "at_bound": self._optimum.at_bound}
        state = {
            "system": self.system.definition(),
            "arguments": self._fitted_arguments,
            "labels": self.labels_,
            "scaling": [rows.scaling.start, rows.scaling.span],
            "scales": dict(zip(self._measurements.names, rows.scales.tolist(), strict=True)),
            "optimum": [self._optimum.value, self._optimum.converged, self._optimum.message, self._optimum.evaluations],
        }
        write_state(path, state | data, arrays)

    @classmethod
    def load(cls, path: str | Path) -> LODEGP:
        """Return a model that `save` has written, ready to predict."""
        state, arrays = read_state(path)
        try:
            model = cls(System.from_definition(state["system"]), **state["arguments"])
            measurements = unpack_measurements(state, arrays)
            value, converged, message, evaluations = state["optimum"]
            optimum = Optimum(arrays["x"], value, converged, message, evaluations, arrays["at_bound"])
            start, span = state["scaling"]
            choice, engine, layout = model._prepare_fit(measurements, Scaling(start, span), state["scales"])
            if arrays["x"].shape != (layout.size,) or arrays["curvature"].shape != (layout.size, layout.size):
                raise StorageError(f"{path} does not fit its own system; it was changed after it was saved")
            model.labels_ = _read_labels(state.get("labels", {}))
            return model._set_fitted(measurements, choice, engine, layout, optimum, arrays["curvature"])
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as problem_found:
            raise StorageError(f"{path} is not a complete lodekit model: {problem_found}") from None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, multi_output=True),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(one_d_array=True, two_d_array=False, allow_nan=False),
        )

    def _check_arguments(self) -> None:
        if not isinstance(self.system, System):
            raise LodekitError(f"expected a System, got {type(self.system).__name__}; try LODEGP(System(...))")
        if self.noise not in _NOISES:
            raise LodekitError(f"expected noise='shared' or 'channel', got {self.noise!r}")
        if self.prior not in _PRIORS:
            raise LodekitError(f"expected prior='latent' or 'channels', got {self.prior!r}")
        if self.engine not in _ENGINES:
            raise LodekitError(f"expected engine='auto', 'dense' or 'spectral', got {self.engine!r}")
        if isinstance(self.tolerance, bool) or not isinstance(self.tolerance, Real) or not 0 < self.tolerance <= 0.1:
            raise LodekitError(f"expected a tolerance above zero and at most 0.1, got {self.tolerance!r}")
        if self.device is not None:
            find_device(self.device)
        check_count("restarts", self.restarts)
        check_seed(self.random_state)
        if self.n_jobs is not None and (not isinstance(self.n_jobs, Integral) or self.n_jobs == 0):
            raise LodekitError(f"expected n_jobs as a whole number other than zero, or None, got {self.n_jobs!r}")

    def _latents(self) -> tuple[Latent, ...]:
        count = self.system.free_functions
        if not isinstance(self.latent, str | Sequence):
            raise LodekitError(f"expected latent as a text or a list of texts, got {type(self.latent).__name__}")
        names = [self.latent] * count if isinstance(self.latent, str) else list(self.latent)
        if len(names) != count:
            raise LodekitError(f"expected one latent for each of the {count} free functions, got {len(names)}")
        return tuple(read_latent(name) for name in names)

    def summary(self) -> str:
        """Return the result as a table."""
        self._require_fitted()
        title = [
            ("Channels", str(len(self.system.channels))),
            ("Observations", str(self._engine.size)),
            ("Free functions", str(self.system.free_functions)),
            ("Log evidence", f"{self.log_evidence_:.3f}"),
            ("Converged", "yes" if self.converged_ else "no"),
            ("Engine", self._choice.name),
        ]
        others = {**self.hyperparameters_, **{f"noise ({name})": value for name, value in self.noise_.items()}}
        return format_summary(title, self.parameters_, others, self.warnings_)


def _read_labels(labels: Any) -> dict[str, Any]:
    """Return labels from a file, checked."""
    found = dict(labels)
    if found:
        units, origin = found["units"], found["origin"]
        if not all(isinstance(text, str) for text in (found["title"], origin, *units, *units.values())):
            raise TypeError("labels are texts")
        if origin:
            datetime.fromisoformat(origin)
    return found

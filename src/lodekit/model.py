"""LODEGP, the estimator: a Gaussian process whose every realization satisfies a linear ODE system."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from lodekit.algebra.operators import OperatorMatrix
from lodekit.errors import LodekitError
from lodekit.inference.assembly import make_problem, merge
from lodekit.inference.checks import check_count, check_exact_values_met, check_finite, check_seed, read_times
from lodekit.inference.dense import Factorization, evaluate, factorize
from lodekit.inference.observations import DataError, Observations, read_observations
from lodekit.inference.posterior import Posterior
from lodekit.inference.problem import Hyperparameters, Problem, Rows, Scaling
from lodekit.inference.residuals import equation_terms
from lodekit.learning.diagnosis import near_degeneracies
from lodekit.learning.fit import Penalty, learn
from lodekit.learning.result import Estimate, estimate_parameters, format_summary
from lodekit.learning.search import Optimum, hessian
from lodekit.learning.transforms import Layout, parameter_transforms
from lodekit.prior.compile import compile_rows
from lodekit.prior.latents import Latent, read_latent
from lodekit.storage import StorageError, read_state, write_state
from lodekit.system.grammar import parse_expression
from lodekit.system.linear import Reader
from lodekit.system.signals import Signal
from lodekit.system.system import System

__all__ = ["LODEGP", "Certificate", "NotFittedError"]

Array = NDArray[np.float64]
_NOISES = ("shared", "channel")
_ENGINES = ("auto", "dense")
#: Below this many rows one thread is enough.
_SMALL = 400


class NotFittedError(LodekitError):
    """The estimator has not seen any data yet."""


@dataclass(frozen=True)
class Certificate:
    """The proof that the posterior satisfies the equations.

    Parameters
    ----------
    identities : tuple of str
        What the algebra proved exactly.
    residual : float
        The largest relative residual of the posterior mean over the times that were asked for, in floats.
    """

    identities: tuple[str, ...]
    residual: float

    def __str__(self) -> str:
        lines = ["Proved exactly:", *(f"  {line}" for line in self.identities)]
        return "\n".join([*lines, f"Largest relative residual in floats: {self.residual:.2g}"])


class LODEGP:
    """A Gaussian process over the solutions of a system of linear ODEs.

    Parameters
    ----------
    system : System
    latent : str or sequence of str
        Covariance of the free functions: ``"se"``, or ``"matern-p/2"`` with odd p; one for all or one each.
    engine : {"auto", "dense"}
        How the evidence is computed; ``engine_`` says what was used.
    noise : {"shared", "channel"}
        One noise standard deviation for all observables (in their own units), or one for each.
    restarts : int
        How many starts are followed at most; the search ends early when two agree.
    random_state : int, optional
        Seed of the starts.
    n_jobs : int, optional
        Follow the starts in parallel with joblib; its backends (loky, Dask, Ray, Spark) are chosen by
        ``joblib.parallel_config``.

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
        noise: str = "shared",
        engine: str = "auto",
        restarts: int = 6,
        random_state: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.system = system
        self.latent = latent
        self.noise = noise
        self.engine = engine
        self.restarts = restarts
        self.random_state = random_state
        self.n_jobs = n_jobs

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

    def fit(self, t: ArrayLike | Observations, Y: Any = None, noise_std: Any = None) -> LODEGP:
        """Learn parameters, hyperparameters and noise from measurements.

        Parameters
        ----------
        t : array-like, shape (n,), or Observations
            Times, in any order; repeated times are fine.
        Y : array (n, channels), dict of observable to array, or DataFrame
            NaN for missing values; a dict may hold any observables, such as ``"f1'"``.
        noise_std : number, array or dict, optional
            Known noise; zero makes values exact. Learned where not given.

        Returns
        -------
        self : LODEGP
            With ``parameters_``, ``hyperparameters_``, ``noise_``, ``log_evidence_``, ``converged_``, ``engine_``.
        """
        self._check_arguments()
        observations = read_observations(self.system.channels, t, Y, noise_std)
        self._read_observables(observations.observables)
        problem, layout = self._prepare_fit(observations)
        # Threads that wait for each other make small matrices slower, much slower on a busy machine.
        with threadpool_limits(1 if problem.size < _SMALL else None, user_api="blas"):
            optimum = learn(
                self.system,
                problem,
                layout,
                merge(observations),
                restarts=self.restarts,
                random_state=self.random_state,
                n_jobs=self.n_jobs,
            )
            penalty = Penalty(layout, self.system.parameters)
            curvature = hessian(problem, layout, optimum.x, penalty=penalty) if layout.size else np.zeros((0, 0))
        return self._set_fitted(observations, problem, layout, optimum, curvature)

    def _prepare_fit(self, observations: Observations) -> tuple[Problem, Layout]:
        problem = make_problem(observations, self._rows, self._latents(), self.noise)
        names = problem.rows.compiled.parameters
        unit = float(np.median([np.sqrt(np.mean(values**2)) for values in problem.values])) or 1.0
        fixed, transforms = parameter_transforms(names, self.system.parameters, unit)
        learned_noise = any(np.isnan(known).any() for known in problem.known_noise)
        noises = 0 if not learned_noise else 1 if self.noise == "shared" else len(problem.values)
        return problem, Layout(names, fixed, transforms, len(problem.latents), len(problem.groups), noises)

    def _set_fitted(
        self, observations: Observations, problem: Problem, layout: Layout, optimum: Optimum, curvature: Array
    ) -> LODEGP:
        hyper = layout.unpack(optimum.x)
        state = factorize(problem, hyper)
        if state is None:
            raise LodekitError(
                "the covariance of the data is not finite at the optimum; check units and starting values"
            )
        check_exact_values_met(Posterior(problem, hyper, state))
        self._data, self._problem, self._layout = observations, problem, layout
        self._fitted_arguments = {key: value for key, value in self.get_params().items() if key != "system"}
        self._optimum, self._curvature, self._hyper = optimum, curvature, hyper
        self._state: Factorization = state
        self.parameters_: dict[str, Estimate] = estimate_parameters(layout, optimum.x, curvature, optimum.at_bound)
        self.log_evidence_ = problem.jacobian - state.value
        self.converged_ = optimum.converged
        self.engine_ = f"dense: {problem.size} rows"
        self.noise_ = self._describe_noise()
        self.hyperparameters_ = self._describe_hyperparameters()
        self.warnings_ = self._find_warnings()
        return self

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file: JSON and arrays, whole or not at all."""
        self._posterior  # noqa: B018
        arrays = {"x": self._optimum.x, "curvature": self._curvature, "at_bound": self._optimum.at_bound}
        for i, series in enumerate(self._data.series):
            arrays |= {f"times_{i}": series.times, f"values_{i}": series.values, f"std_{i}": series.std}
        state = {
            "system": self.system.definition(),
            "arguments": self._fitted_arguments,
            "observables": [series.observable for series in self._data.series],
            "optimum": [self._optimum.value, self._optimum.converged, self._optimum.message, self._optimum.evaluations],
        }
        write_state(path, state, arrays)

    @classmethod
    def load(cls, path: str | Path) -> LODEGP:
        """Return a model that `save` has written, ready to predict."""
        state, arrays = read_state(path)
        try:
            model = cls(System.from_definition(state["system"]), **state["arguments"])
            observations = Observations()
            for i, name in enumerate(state["observables"]):
                observations = observations.add(arrays[f"times_{i}"], name, arrays[f"values_{i}"], arrays[f"std_{i}"])
            value, converged, message, evaluations = state["optimum"]
            optimum = Optimum(arrays["x"], value, converged, message, evaluations, arrays["at_bound"])
            problem, layout = model._prepare_fit(observations)
            if arrays["x"].shape != (layout.size,) or arrays["curvature"].shape != (layout.size, layout.size):
                raise StorageError(f"{path} does not fit its own system; it was changed after it was saved")
            return model._set_fitted(observations, problem, layout, optimum, arrays["curvature"])
        except (KeyError, TypeError, ValueError, IndexError) as problem_found:
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
        if self.engine not in _ENGINES:
            raise LodekitError(f"expected engine='auto' or 'dense', got {self.engine!r}")
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

    def _rows(self, observables: Sequence[str], scaling: Scaling, scales: Array) -> Rows:
        matrix, known = self._read_observables(observables)
        return Rows(compile_rows(self.system, matrix, known), scaling, scales)

    def _read_observables(self, observables: Sequence[str]) -> tuple[OperatorMatrix, list[Signal]]:
        operator = self.system.operator
        reader = Reader(operator.ring, self.system.channels)
        entries, known = [], []
        for text in observables:
            form = reader.form(parse_expression(text))
            entries.append([form.channels.get(name, []) for name in self.system.channels])
            known.append(form.known)
        return OperatorMatrix.from_scalars(operator.ring, entries, operator.width, operator.variable), known

    def _describe_noise(self) -> dict[str, float]:
        if not len(self._hyper.noise):
            return {}
        if self.noise == "shared":
            return {"shared": float(self._hyper.noise[0])}
        learned = {s.observable: bool(np.isnan(s.std).any()) for s in merge(self._data)}
        values = zip(learned, self._hyper.noise, strict=True)
        return {name: float(value) for name, value in values if learned[name]}

    def _describe_hyperparameters(self) -> dict[str, float]:
        span = self._problem.rows.scaling.span
        found = {}
        for i, (ell, sigma) in enumerate(zip(self._hyper.lengthscales, self._hyper.deviations, strict=True), 1):
            found[f"lengthscale of free function {i}"] = float(ell * span)
            found[f"deviation of free function {i}"] = float(sigma)
        for i, sigma in enumerate(self._hyper.mode_deviations, 1):
            found[f"deviation of mode {i}"] = float(sigma)
        return found

    def _find_warnings(self) -> list[str]:
        warnings = []
        if not self.converged_:
            warnings.append(f"the search did not converge: {self._optimum.message}")
        warnings += [f"parameter {name} is {e.note}" for name, e in self.parameters_.items() if not e.identified]
        noises = len(self._hyper.noise)
        if noises and self._optimum.at_bound[-noises:].any():
            warnings.append(
                "a noise level sits at the limit of its search: the data look free of noise, or are all noise"
            )
        warnings += near_degeneracies(self.system, self._hyper.theta)
        if self._state.jitter:
            warnings.append(f"a jitter of {self._state.jitter:.0e} was added to factorize the covariance")
        return warnings

    @property
    def _posterior(self) -> Posterior:
        if not hasattr(self, "_state"):
            raise NotFittedError("this LODEGP has not been fitted yet; call fit(t, Y) first")
        return Posterior(self._problem, self._hyper, self._state)

    def predict(
        self,
        t: ArrayLike,
        observable: str | Sequence[str] | None = None,
        return_std: bool = False,
        return_cov: bool = False,
    ) -> Any:
        """Return the posterior mean, and its standard deviation or covariance on request.

        Parameters
        ----------
        t : array-like, shape (n,)
        observable : str or sequence of str, optional
            Linear differential expressions of the channels, such as ``"f1'"``, ``"f1 - f2"``; all channels by default.
        return_std, return_cov : bool

        Returns
        -------
        mean : array, shape (n, channels), or (n,) for a single observable
        std : array of the same shape
        cov : array, shape (n, o, n, o), or (n, n) for a single observable
        """
        posterior, times, rows, single = self._prepare(t, observable)
        with np.errstate(all="ignore"):
            mean = posterior.mean(rows, times)
            found: list[Array] = [mean[:, 0] if single else mean]
            if return_std:
                std = np.sqrt(posterior.variance(rows, times))
                found.append(std[:, 0] if single else std)
            if return_cov:
                covariance = posterior.covariance(rows, times)
                found.append(covariance[:, 0, :, 0] if single else covariance)
        for part in found:
            check_finite(part, times)
        return found[0] if len(found) == 1 else tuple(found)

    def sample(
        self,
        t: ArrayLike,
        size: int = 1,
        random_state: int | None = None,
        observable: str | Sequence[str] | None = None,
    ) -> Array:
        """Return functions drawn from the posterior, shape (size, n, channels), or (size, n) for one observable."""
        posterior, times, rows, single = self._prepare(t, observable)
        check_count("size", size)
        check_seed(random_state)
        with np.errstate(all="ignore"):
            drawn = posterior.sample(rows, times, int(size), np.random.default_rng(random_state))
        check_finite(drawn.transpose(1, 0, 2), times)
        return drawn[:, :, 0] if single else drawn

    def residual(
        self, t: ArrayLike, *, samples: int = 0, random_state: int | None = None, relative: bool = False
    ) -> Array:
        """Apply A(d) in closed form to the posterior mean, or to samples, and subtract b(t).

        Parameters
        ----------
        t : array-like, shape (n,)
        samples : int
            How many samples to take instead of the mean.
        relative : bool
            Divide by the sum of the sizes of the terms of each equation.

        Returns
        -------
        array, shape (n, equations), or (samples, n, equations)
        """
        self._posterior  # noqa: B018
        equations, times = equation_terms(self.system), read_times(t)
        if samples:
            values = self.sample(times, samples, random_state, equations.observables)
        else:
            values = np.asarray(self.predict(times, equations.observables))[None]
        found = equations.residual(self._hyper.theta, times, values, relative=relative)
        return found if samples else found[0]

    def certificate(self, t: ArrayLike | None = None) -> Certificate:
        """Return the exact identities of the algebra and the largest numerical residual, in one printable object."""
        self._posterior  # noqa: B018
        times = self._problem.times if t is None else read_times(t)
        residual = self.residual(times, relative=True)
        return Certificate(self.system.verify(), float(np.max(np.abs(residual), initial=0.0)))

    def log_evidence(self, values: Mapping[str, float] | None = None, *, return_gradient: bool = False) -> Any:
        """Return the log evidence at the learned hyperparameters, with some parameters changed, and its gradient.

        Parameters
        ----------
        values : dict of str to float, optional
            Parameters of the system to change.
        return_gradient : bool
            Also return the derivatives in the parameters of the system, as a dict.
        """
        self._posterior  # noqa: B018
        theta = self._hyper.theta.copy()
        if values is not None and not isinstance(values, Mapping):
            raise LodekitError(f"expected values as a dict of names to numbers, got {type(values).__name__}")
        for name, value in (values or {}).items():
            if name not in self._layout.names:
                known = ", ".join(self._layout.names) or "none"
                raise LodekitError(f"unknown parameter {name!r}; expected some of: {known}")
            if not isinstance(value, Real) or not np.isfinite(value):
                raise LodekitError(f"expected a finite number for {name!r}, got {value!r}")
            theta[self._layout.names.index(name)] = float(value)
        hyper = Hyperparameters(
            theta, self._hyper.lengthscales, self._hyper.deviations, self._hyper.mode_deviations, self._hyper.noise
        )
        found = evaluate(self._problem, hyper)
        if return_gradient:
            return -found.value, {n: -float(g) for n, g in zip(self._layout.names, found.theta, strict=True)}
        return -found.value

    def score(self, t: ArrayLike | Observations, Y: Any = None, noise_std: Any = None) -> float:
        """Return the mean log predictive density of measurements, noise included.

        Where `noise_std` is not given, the noise is the learned one, or the typical known one of the training data.
        """
        posterior = self._posterior
        total, count = 0.0, 0
        for series in merge(read_observations(self.system.channels, t, Y, noise_std)):
            rows = self._rows([series.observable], self._problem.rows.scaling, np.ones(1))
            mean = posterior.mean(rows, series.times)[:, 0]
            noise = np.where(np.isnan(series.std), self._typical_noise(series.observable), series.std)
            variance = posterior.variance(rows, series.times)[:, 0] + noise**2
            if not (variance > 0).all():
                raise DataError("the predictive density is infinite without noise; give noise_std= for the new data")
            total += float(np.sum(-0.5 * (series.values - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)))
            count += len(mean)
        return total / count

    def _typical_noise(self, observable: str) -> float:
        """Return the standard deviation of the noise of one more measurement of an observable."""
        if self.noise == "shared" and self.noise_:
            return self.noise_["shared"]
        if observable in self.noise_:
            return self.noise_[observable]
        series = merge(self._data)
        known = [s.std[~np.isnan(s.std)] for s in series if s.observable == observable] or [
            s.std[~np.isnan(s.std)] for s in series
        ]
        joined = np.concatenate(known)
        return float(np.sqrt(np.mean(joined**2))) if len(joined) else max(self.noise_.values(), default=0.0)

    def summary(self) -> str:
        """Return the result as a table."""
        self._posterior  # noqa: B018
        title = [
            ("Channels", str(len(self.system.channels))),
            ("Observations", str(self._problem.size)),
            ("Free functions", str(self.system.free_functions)),
            ("Log evidence", f"{self.log_evidence_:.3f}"),
            ("Converged", "yes" if self.converged_ else "no"),
            ("Engine", self.engine_),
        ]
        others = {**self.hyperparameters_, **{f"noise ({name})": value for name, value in self.noise_.items()}}
        return format_summary(title, self.parameters_, others, self.warnings_)

    def _prepare(self, t: ArrayLike, observable: str | Sequence[str] | None) -> tuple[Posterior, Array, Rows, bool]:
        posterior, times = self._posterior, read_times(t)
        single = isinstance(observable, str)
        if observable is None:
            texts = list(self.system.channels)
        elif isinstance(observable, str):
            texts = [observable]
        elif isinstance(observable, Iterable):
            texts = [str(text) for text in observable]
        else:
            raise LodekitError(f"expected an observable as text, or a list of texts, got {type(observable).__name__}")
        if not texts:
            raise LodekitError("expected at least one observable, got an empty list")
        rows = self._rows(texts, self._problem.rows.scaling, np.ones(len(texts)))
        return posterior, times, rows, single

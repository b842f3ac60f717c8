"""The kernel for GPyTorch agrees with the native engine: covariance, evidence, gradient, posterior; and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lodekit as lk
from lodekit.inference.dense.engine import DenseEngine, factorize_covariance
from lodekit.inference.dense.evidence import assemble_covariance
from tests.inference.fitted import EXAMPLES, EXTRA, solution_table, values_of

torch = pytest.importorskip("torch")
gpytorch = pytest.importorskip("gpytorch")

from lodekit.integrations.gpytorch import LODEExactGP, LODEKernel, LODEMean, from_gpytorch, to_gpytorch  # noqa: E402
from tests.integrations.kernels import make_kernel  # noqa: E402

CASES = [*EXAMPLES, *EXTRA]
# GPyTorch's own deprecation notices are not ours.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def native_covariance(data: Any, hyper: Any) -> Any:
    """The covariance of the data in the user's units, ordered by time, then by observable."""
    state = factorize_covariance(data, hyper)
    assert state is not None
    K = assemble_covariance(data, state.kernel_derivatives, state.terms)
    K = np.tril(K) + np.tril(K, -1).T
    count, n = len(data.index), len(data.times)
    scales = np.repeat(data.prior.units.scales, n)
    return (K * np.outer(scales, scales)).reshape(count, n, count, n).transpose(1, 0, 3, 2).reshape(n * count, -1)


@pytest.mark.parametrize("name", CASES)
def test_covariance_is_that_of_the_native_engine(name: str) -> None:
    for latent in ("se", "matern-41/2"):
        data, hyper, kernel = make_kernel(name, latent)
        times = torch.as_tensor(data.times)[:, None]
        expected = native_covariance(data, hyper)
        found = kernel(times).to_dense().detach().numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * scale)
        np.testing.assert_allclose(
            kernel(times, diag=True).detach().numpy(), np.diag(expected), rtol=0, atol=1e-9 * scale
        )
        part = kernel(times[:3], times[2:]).to_dense().detach().numpy()
        width = len(data.index)
        np.testing.assert_allclose(part, expected[: 3 * width, 2 * width :], rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("name", ["heating", "free_decay", "shaken_oscillator", "two_room", "three_tank", "growth"])
def test_evidence_and_gradient_are_those_of_the_native_engine(name: str) -> None:
    data, hyper, kernel = make_kernel(name)
    times = torch.as_tensor(data.times)[:, None]
    table = torch.as_tensor(np.stack(values_of(data), axis=1))
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(
        num_tasks=len(data.index), rank=0, has_task_noise=False
    ).double()
    likelihood.noise = torch.tensor(float(hyper.noise_std[0]) ** 2, dtype=torch.float64)
    units = data.prior.units
    model = LODEExactGP(
        times, table, likelihood, kernel.system, window=(units.start, units.start + units.time_scale)
    ).double()
    model.covar_module.load_state_dict(kernel.state_dict())
    model.train()
    likelihood.train()
    with gpytorch.settings.max_cholesky_size(10_000):
        loss = -gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(times), table) * table.numel()
        loss.backward()
    native = DenseEngine(data).evaluate(hyper)
    assert -loss.item() == pytest.approx(native.value, rel=1e-9)
    own = model.covar_module
    for number, parameter in enumerate(own.parameter_names):
        raw = getattr(own, f"raw_{parameter}")
        constraint = getattr(own, f"raw_{parameter}_constraint", None)
        slope = 1.0
        if constraint is not None:
            probe = raw.detach().clone().requires_grad_()
            slope = float(torch.autograd.grad(constraint.transform(probe).sum(), probe)[0])
        expected = native.gradient.theta[number]
        assert -raw.grad.item() / slope == pytest.approx(expected, rel=1e-6, abs=1e-6 * abs(native.value))


@pytest.mark.parametrize("noise", ["shared", "channel"])
def test_a_fitted_model_goes_to_gpytorch_and_back(noise: str) -> None:
    example = lk.catalog.heating()
    times = np.linspace(-5, 5, 25)
    table = solution_table(example, times) + 0.02 * np.random.default_rng(0).standard_normal((25, 3))
    fitted = lk.LODEGP(example.system, noise=noise, random_state=0).fit(times, table)
    model, likelihood = to_gpytorch(fitted)
    new = np.linspace(-6, 7, 9)
    with torch.no_grad(), gpytorch.settings.max_cholesky_size(10_000):
        posterior = model(torch.as_tensor(new)[:, None])
        noisy = likelihood(posterior)
    mean, std = fitted.predict(new, return_std=True, parameters="fixed")
    np.testing.assert_allclose(posterior.mean.numpy(), mean, atol=1e-5)
    np.testing.assert_allclose(posterior.variance.clamp_min(0).sqrt().numpy(), std, atol=1e-4)
    levels = np.broadcast_to(list(fitted.noise_.values()), 3)
    np.testing.assert_allclose((noisy.variance - posterior.variance).numpy()[0], levels**2, rtol=1e-6)
    again = from_gpytorch(model)
    assert again.log_evidence_ == pytest.approx(fitted.log_evidence_, rel=1e-8)
    for name, estimate in fitted.parameters_.items():
        assert again.parameters_[name].value == pytest.approx(estimate.value, rel=1e-9)
        assert again.parameters_[name].std_error == pytest.approx(estimate.std_error, rel=1e-3)


def test_training_in_gpytorch_moves_named_parameters() -> None:
    parameters = {"a": lk.Parameter(positive=True, prior=lk.LogNormal(3.0, 1.0)), "b": lk.Parameter(bounds=(0.1, 5))}
    system = lk.System("f1' = -a*(f1-f2)+u; f2' = -b*(f2-f1)", parameters=parameters)
    times = np.linspace(-5, 5, 12)
    table = solution_table(lk.catalog.heating(), times)
    x, y = torch.as_tensor(times), torch.as_tensor(table)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=3).double()
    model = LODEExactGP(x, y, likelihood, system).double()
    names = {name for name, _ in model.named_parameters()}
    assert {"covar_module.raw_a", "covar_module.raw_b", "covar_module.raw_lengthscales"} <= names
    assert [name for name, *_ in model.named_priors()] == ["covar_module.a_prior"]
    model.train()
    likelihood.train()
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = -mll(model(*model.train_inputs), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert model.covar_module.a.item() > 0
    assert 0.1 < model.covar_module.b.item() < 5
    model.eval()
    fixed = gpytorch.settings.fast_pred_var
    with torch.no_grad(), fixed():
        assert model(torch.linspace(-6, 6, 5, dtype=torch.float64)[:, None]).mean.shape == (5, 3)


def test_a_single_observable_with_known_noise() -> None:
    example = lk.catalog.heating()
    generator = np.random.default_rng(0)
    times, std = np.linspace(-5, 5, 15), generator.uniform(0.01, 0.2, 15)
    values = solution_table(example, times)[:, 0] + std * generator.standard_normal(15)
    fitted = lk.LODEGP(example.system, random_state=0, restarts=1).fit(times, {"f1": values}, noise_std=std)
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.as_tensor(std**2))
    model = LODEExactGP(
        torch.as_tensor(times), torch.as_tensor(values), likelihood, example.system, observables=["f1"]
    ).double()
    kernel, hyper = model.covar_module, fitted.fit_.hyperparameters
    for name, value in zip(kernel.parameter_names, hyper.theta, strict=True):
        kernel.set_value(name, value)
    kernel.set_value("lengthscales", hyper.lengthscales * 10.0)
    kernel.set_value("deviations", hyper.amplitudes)
    model.train()
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    loss = mll(model(*model.train_inputs), model.train_targets) * 15
    assert loss.item() == pytest.approx(fitted.log_evidence_, rel=1e-8)
    model.eval()
    with torch.no_grad():
        found = model(torch.linspace(-6, 6, 5, dtype=torch.float64)[:, None])
    mean, deviation = fitted.predict(np.linspace(-6, 6, 5), "f1", return_std=True, parameters="fixed")
    np.testing.assert_allclose(found.mean.numpy(), mean, atol=1e-6)
    np.testing.assert_allclose(found.variance.sqrt().numpy(), deviation, atol=1e-5)
    with pytest.raises(lk.LodekitError, match="name it"):
        LODEExactGP(torch.as_tensor(times), torch.as_tensor(values), likelihood, example.system)
    with pytest.raises(lk.LodekitError, match="a column for each"):
        LODEExactGP(torch.as_tensor(times), torch.zeros(15, 2), likelihood, example.system)


def test_batches_of_parameters_and_of_times() -> None:
    system = lk.System("x'' + c*x' + k*x = u; z' = -k*z", parameters=["c", "k"])
    one = LODEKernel(system).double()
    many = LODEKernel(system, batch_shape=torch.Size([3])).double()
    c = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    many.set_value("c", c)
    times = torch.linspace(0, 1, 4, dtype=torch.float64)[:, None]
    stacked = many(times).to_dense()
    width = len(system.channels)
    assert stacked.shape == (3, 4 * width, 4 * width)
    for number in range(3):
        one.set_value("c", c[number])
        torch.testing.assert_close(stacked[number], one(times).to_dense(), rtol=1e-10, atol=1e-10)
    batch = torch.stack([times, times + 0.5])
    torch.testing.assert_close(one(batch).to_dense()[1], one(batch[1]).to_dense(), rtol=1e-10, atol=1e-10)
    assert many(times, diag=True).shape == (3, 4 * width)


@pytest.mark.parametrize("name", ["heating", "free_decay", "double oscillation", "fast forcing"])
def test_answers_have_the_kind_of_the_times_and_are_computed_in_double_precision(name: str) -> None:
    data, _, kernel = make_kernel(name)
    times = torch.as_tensor(data.times, dtype=torch.float32)[:, None]
    for answer in (lambda x: kernel(x).to_dense(), lambda x: kernel(x, diag=True), LODEMean(kernel)):
        single, double = answer(times), answer(times.double())
        assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
        # The fast forcing turns three hundred radians a second: single precision of its angle is the least of all.
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4 * float(double.detach().abs().max()))


def test_the_mean_is_the_particular_solution() -> None:
    system = lk.System("x' = -x + b*sin(2*t) + 3", parameters={"b": lk.Parameter(start=2.0)})
    kernel = LODEKernel(system, window=(0.0, 5.0)).double()
    times = np.linspace(0, 5, 7)
    found = LODEMean(kernel)(torch.as_tensor(times)[:, None])[:, 0]
    expected = 2.0 * (np.sin(2 * times) - 2 * np.cos(2 * times)) / 5.0 + 3.0
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-12)


def test_a_channel_in_an_acquisition_function_of_botorch() -> None:
    botorch = pytest.importorskip("botorch")
    from botorch.acquisition import UpperConfidenceBound
    from botorch.acquisition.objective import ScalarizedPosteriorTransform
    from botorch.models.gpytorch import GPyTorchModel

    class Model(LODEExactGP, GPyTorchModel):  # type: ignore[misc]
        num_outputs = 3

    example = lk.catalog.heating()
    times = np.linspace(-5, 5, 10)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=3).double()
    model = Model(torch.as_tensor(times), torch.as_tensor(solution_table(example, times)), likelihood, example.system)
    model = model.double().eval()
    only = ScalarizedPosteriorTransform(torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))
    acquisition = UpperConfidenceBound(model, beta=4.0, posterior_transform=only)
    values = acquisition(torch.linspace(-5, 5, 6, dtype=torch.float64)[:, None, None])
    assert values.shape == (6,)
    assert bool(torch.isfinite(values).all())
    assert botorch.__version__


def test_what_gpytorch_cannot_take_is_said() -> None:
    times = np.linspace(0, 1, 6)
    system = lk.System("x' = -x + u")
    fitted = lk.LODEGP(system, random_state=0, restarts=1).fit(
        times, {"x": times, "u": np.where(times > 0.5, np.nan, 1)}
    )
    with pytest.raises(lk.LodekitError, match="full tables"):
        to_gpytorch(fitted)
    kernel = LODEKernel(system).double()
    with pytest.raises(lk.LodekitError, match="one dimension"):
        kernel(torch.zeros(3, 2)).to_dense()
    with pytest.raises(lk.LodekitError, match="start < stop"):
        LODEKernel(system, window=(1.0, 1.0))
    with pytest.raises(lk.LodekitError, match="rename it"):
        LODEKernel(lk.System("x' = -forward*x", parameters=["forward"]))
    with pytest.raises(lk.LodekitError, match="expected a LODEExactGP"):
        from_gpytorch(kernel)
    fixed = LODEKernel(lk.System("x' = -k*x", parameters={"k": lk.Parameter(fixed=2)})).double()
    with pytest.raises(lk.LodekitError, match="is fixed"):
        fixed.set_value("k", 3.0)

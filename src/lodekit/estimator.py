"""The manners of an estimator: methods that are functions over its fit, and what scikit-learn expects of one.

That is arguments by name, and tags; scikit-learn itself is not needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from lodekit.errors import LodekitError

__all__ = ["get_params", "method_of_fit", "set_params", "show_arguments", "sklearn_tags"]

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def method_of_fit(function: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a function over a fit as a method of an estimator, with the same documentation and all other arguments.

    Parameters
    ----------
    function : callable
        Its first argument is a `lodekit.fitted.Fit`; the method takes `fit_` for it, so no docstring need describe it.
    """

    @wraps(function)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self.fit_, *args, **kwargs)

    signature = inspect.signature(function)
    first, *others = signature.parameters.values()
    vars(method)["__signature__"] = signature.replace(parameters=[inspect.Parameter("self", first.kind), *others])
    return method


def get_params(self: Any, deep: bool = True) -> dict[str, Any]:
    """Return the arguments of the estimator, as scikit-learn does.

    Parameters
    ----------
    deep : bool
        Has no effect; scikit-learn passes it.

    Examples
    --------
    >>> import lodekit as lk
    >>> lk.LODEGP(lk.System("x' = v"), restarts=3).get_params()["restarts"]
    3
    """
    names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
    return {name: getattr(self, name) for name in names}


def show_arguments(self: Any) -> str:
    """Return the arguments of the estimator as they would be written: those without a default, and those that differ.

    Examples
    --------
    >>> import lodekit as lk
    >>> show_arguments(lk.LODEGP(lk.System("x' = v"), restarts=3, noise="channel"))
    '<System of 1 equation in x, v>, restarts=3'
    """
    known = inspect.signature(type(self).__init__).parameters
    shown = []
    for name, value in get_params(self).items():
        default = known[name].default
        if default is inspect.Parameter.empty:
            shown.append(repr(value))
        elif type(value) is not type(default) or value != default:
            shown.append(f"{name}={value!r}")
    return ", ".join(shown)


def set_params(self: T, **arguments: Any) -> T:
    """Return the estimator with some arguments changed, as scikit-learn does; a fit stays as it is.

    Parameters
    ----------
    **arguments
        By name, as the estimator is made with.

    Examples
    --------
    >>> import lodekit as lk
    >>> lk.LODEGP(lk.System("x' = v")).set_params(restarts=3).restarts
    3
    """
    known = get_params(self)
    for name, value in arguments.items():
        if name not in known:
            raise LodekitError(f"unknown argument {name!r}; expected one of {', '.join(known)}")
        setattr(self, name, value)
    return self


def sklearn_tags(self: Any) -> Any:
    """Return what scikit-learn wants to know of the estimator; only it asks, so it is there."""
    from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

    return Tags(
        estimator_type="regressor",
        target_tags=TargetTags(required=True, multi_output=True),
        regressor_tags=RegressorTags(),
        input_tags=InputTags(one_d_array=True, two_d_array=False, allow_nan=False),
    )

"""Devices on which PyTorch computes."""

from __future__ import annotations

from typing import Any

from lodekit.errors import LodekitError

__all__ = ["find_device"]


def find_device(name: str) -> Any:
    """Return a PyTorch device; raise where it is not there, or has no double precision.

    Parameters
    ----------
    name : str
        As PyTorch writes it: ``"cuda"``, ``"cuda:1"`` or ``"cpu"``.
    """
    try:
        import torch
    except ImportError:
        raise LodekitError(f"device={name!r} needs PyTorch; try: pip install 'lodekit[gpytorch]'") from None
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise LodekitError(f"expected a device such as 'cuda', 'cuda:1' or 'cpu', got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LodekitError(f"device={name!r} was asked for, but PyTorch sees no CUDA device here")
    if device.type not in ("cuda", "cpu"):
        raise LodekitError(f"device={name!r} has no double precision; expected 'cuda' or 'cpu'")
    return device

"""Batches of images out of farthing's shared cache: fetched and decoded once for all jobs on a machine.

    from farthing_batches import Batches
    loader = DataLoader(Batches("batches://host:29600/photos", batch_size=256), batch_size=None)

`Reader` gives NumPy arrays, and needs no PyTorch. `Batches`, `Samples`, `SampleOrder` and `BatchOrder` are for PyTorch's DataLoader.
README.md has the rest."""
from .reader import Batch, BatchError, Info, Reader, check, numpy_batches

__all__ = ["Batch", "BatchError", "BatchOrder", "Batches", "Info", "Reader", "SampleOrder", "Samples", "check", "numpy_batches"]

_OF_TORCH = {"Batches": "batches", "Samples": "samples", "SampleOrder": "samples", "BatchOrder": "samples"}


def __getattr__(name):
    # Those who use NumPy or JAX need not have PyTorch.
    if name in _OF_TORCH:
        import importlib
        return getattr(importlib.import_module("." + _OF_TORCH[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

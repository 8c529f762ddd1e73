"""Gradients of whole batches in f32: ours are no more than twice as far from exact ones as PyTorch's (bench/engine/gradients.py)."""
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: set FARTHING_TORCH_PYTHON to a Python that has it")
pytest.importorskip("torchvision", reason="needs torchvision")
pytest.importorskip("safetensors.torch", reason="needs the safetensors package")

ROOT = Path(__file__).resolve().parents[2]
FARTHING = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()
STEP = FARTHING.parent / "tests" / "image_step"
sys.path.insert(0, str(ROOT / "bench" / "engine"))
import gradients  # noqa: E402

SEEDS = 2


def mean_error(found, side):
    return sum(gradients.root_mean_square(sides[side]) for sides in found) / len(found)


@pytest.mark.parametrize("model, batch, channels, size, classes", [("mnist-cnn", 32, 1, 28, 10), ("cifar-cnn", 32, 3, 32, 10),
                                                                   ("resnet18", 64, 3, 64, 200)])
def test_no_more_than_twice_as_far_from_exact(model, batch, channels, size, classes):
    found = [gradients.measure(STEP, model, batch, size, classes, seed, ["native"], channels) for seed in range(1, SEEDS + 1)]
    assert mean_error(found, "native") <= 2 * mean_error(found, "PyTorch")
    assert mean_error(found, "native") < 0.02


def test_errors_are_seen():
    torch = gradients.torch
    exact = {"weight": torch.ones(4).double(), "bias": torch.zeros(4).double()}
    found = {"weight": torch.tensor([1.0, 1.0, 1.0, 1.2]).double(), "bias": torch.full((4,), 1e-12).double()}
    assert gradients.errors_of(found, exact) == {"weight": pytest.approx(0.1)}

"""Modules that PyTorch exported: output, loss and gradients are PyTorch's, as tests/torch/make_exported_modules.py recorded them."""
import array
import json
import math
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEP = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve().parent / "tests" / "exported_step"
MODULES = sorted((ROOT / "tests" / "torch" / "exported" / "modules").glob("*.pt2"))
TOLERANCE = 2e-5  # of f32 sums over at most some thousands of products, relative to a tensor's norm


def read(path):
    """{name: [floats]} of a safetensors file of F32, and of I32 as they are."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    return {name: array.array("f" if entry["dtype"] == "F32" else "i", body[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] in ("F32", "I32")}


def norm(values):
    return math.sqrt(sum(x * x for x in values))


@pytest.mark.parametrize("back_end", ["cpu", "portable", "reference"])
@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_numbers_are_pytorchs(module, back_end, tmp_path):
    out = tmp_path / "out.safetensors"
    done = subprocess.run([STEP, module, module.with_suffix(".safetensors"), out, back_end, "f32"], text=True,
                          capture_output=True, timeout=120, env={**os.environ, "FARTHING_PLUGINS": str(STEP.parents[1])})
    assert done.returncode == 0, done.stderr
    ours, theirs = read(out), read(module.with_suffix(".safetensors"))
    largest = max(norm(values) for name, values in theirs.items() if name.startswith("gradient."))
    assert abs(ours["loss"][0] - theirs["loss"][0]) <= TOLERANCE * abs(theirs["loss"][0])
    compared = 0
    for name, values in theirs.items():
        found = ours["output"] if name == "output" else ours.get(name.removeprefix("gradient."))
        if name != "output" and not name.startswith("gradient."):
            continue
        difference = norm([a - b for a, b in zip(found, values, strict=True)])
        # A bias in front of a batch norm has no gradient but rounding.
        assert difference <= TOLERANCE * max(norm(values), 0.05 * largest), name
        compared += 1
    assert compared > 3

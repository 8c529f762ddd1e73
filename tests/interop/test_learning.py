"""resnet18 learns on CIFAR-10 images as PyTorch's does: the same weights, recipe and data, loss curves laid over each other.

Needs a Python with torch and torchvision: run under it, or name it in FARTHING_TORCH_PYTHON (scripts/run-tests does that);
skipped aloud otherwise. With FARTHING_CIFAR10 naming a folder of the real files those are used; otherwise a set of the
same format whose classes differ by coloured gratings. LEARNING_CHART names a picture to draw the curves to.
"""
import json
import os
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed here")
import numpy as np  # noqa: E402  (comes with torch)

ROOT = pathlib.Path(__file__).resolve().parents[2]
FARTHING = os.environ.get("FARTHING", str(ROOT / "build" / "farthing"))
STEPS, BATCH, RATE, MOMENTUM = 300, 64, 0.02, 0.9
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def write_gratings(folder, count):
    """Ten classes of gratings (direction and colour) under strong noise, in CIFAR-10's binary format."""
    draw = np.random.default_rng(7)
    rows, columns = np.mgrid[0:32, 0:32]
    for name, images in (("data_batch_1.bin", count), ("test_batch.bin", count // 10)):
        records = np.zeros((images, 3073), np.uint8)
        for i in range(images):
            label = draw.integers(10)
            angle, phase = np.pi * label / 10, draw.uniform(0, 2 * np.pi)
            wave = np.sin((rows * np.sin(angle) + columns * np.cos(angle)) * 0.8 + phase)
            picture = 128 + 30 * wave[None] * np.array([1, 0.5, -0.5])[:, None, None] + draw.normal(0, 45, (3, 32, 32))
            records[i, 0], records[i, 1:] = label, np.clip(picture, 0, 255).astype(np.uint8).ravel()
        records.tofile(folder / name)


def read_training(folder):
    parts = []
    for path in sorted(folder.glob("data_batch_*.bin*")):
        data = path.read_bytes()
        if path.suffix == ".xz":
            import lzma
            data = lzma.decompress(data)
        parts.append(np.frombuffer(data, np.uint8).reshape(-1, 3073))
    records = np.concatenate(parts)
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return images, torch.from_numpy(records[:, 0].astype(np.int64))


def train_torch(model, images, labels):
    mean, deviation = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, DEVIATION))
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM)
    losses, order = [], torch.randperm(len(images))
    for step in range(STEPS):
        chosen = order[torch.arange(step * BATCH, (step + 1) * BATCH) % len(order)]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model((images[chosen].float() / 255 - mean) / deviation), labels[chosen])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_ours(weights, data, folder):
    command = [FARTHING, "train", "--model", "resnet18", "--data", str(data), "--weights", str(weights), "--batch", str(BATCH),
               "--steps", str(STEPS), "--lr", str(RATE), "--momentum", str(MOMENTUM), "--augment", "none", "--json",
               "--runs", str(folder / "runs"), "--validate-every", "1000"]
    reply = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert reply.returncode == 0, reply.stderr
    steps = [e for e in map(json.loads, reply.stdout.splitlines()) if e["event"] == "step"]
    return [(e["step"], e["loss"]) for e in steps]


def draw_chart(path, ranges):
    lines = "\n".join(f"{end} {ours} {theirs}" for _, end, ours, theirs in ranges)
    kind = "svg" if path.endswith("svg") else "pngcairo"
    subprocess.run(["gnuplot"], check=True, text=True, timeout=60, input=f"""
set terminal {kind} size 800,450
set output '{path}'
set xlabel 'step'
set ylabel 'training loss'
$curves << END
{lines}
END
plot $curves using 1:2 with linespoints title 'farthing', $curves using 1:3 with linespoints title 'PyTorch'
""")


def test_resnet18_learns_as_pytorchs_does(tmp_path):
    data = pathlib.Path(os.environ.get("FARTHING_CIFAR10", tmp_path / "cifar"))
    if not data.exists():
        data.mkdir()
        write_gratings(data, 20000)
    torch.manual_seed(1)
    model = torchvision.models.resnet18(num_classes=10)
    torch.save(model.state_dict(), tmp_path / "start.pth")
    theirs = train_torch(model.train(), *read_training(data))
    ours = train_ours(tmp_path / "start.pth", data, tmp_path)
    ranges, begin = [], 0
    for end, loss in ours:
        ranges.append((begin, end, loss, float(np.mean(theirs[begin:end]))))
        begin = end
    for begin, end, mine, other in ranges:
        print(f"steps {begin + 1:4} to {end:4}: farthing {mine:.4f}, PyTorch {other:.4f}")
    if os.environ.get("LEARNING_CHART"):
        draw_chart(os.environ["LEARNING_CHART"], ranges)
    # Batches are drawn in different orders, so single ranges scatter; the area between the curves must be small.
    lengths = np.array([end - begin for begin, end, _, _ in ranges])
    gap = np.array([mine - other for _, _, mine, other in ranges])
    level = np.array([other for _, _, _, other in ranges])
    assert abs((gap * lengths).sum()) / (level * lengths).sum() < 0.06
    assert (np.abs(gap) * lengths).sum() / (level * lengths).sum() < 0.10
    assert ours[-1][1] < 0.9 * ours[0][1]

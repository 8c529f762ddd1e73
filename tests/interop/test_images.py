"""Images as PyTorch users prepare them: the same numbers reach the model, so that the same images are told right.

Runs where a Python has torch and torchvision ($FARTHING_TORCH_PYTHON names one for scripts/run-tests)."""
import json
import os
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: set FARTHING_TORCH_PYTHON to a Python that has it")
pytest.importorskip("torchvision", reason="needs torchvision")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
v2 = pytest.importorskip("torchvision.transforms.v2", reason="needs torchvision 0.15")

ROOT = Path(__file__).resolve().parents[2]
FARTHING = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()


def run(*arguments):
    done = subprocess.run([FARTHING, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class Net(nn.Module):
    """The network of PyTorch's CIFAR-10 tutorial; `side` is what its convolutions leave of an image."""

    def __init__(self, channels=3, side=5):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = functional.relu(self.fc1(x))
        x = functional.relu(self.fc2(x))
        return self.fc3(x)


def draw(count, channels, side):
    """Blobs whose place and colour depend on the class, in noise: learned in part within some steps."""
    labels = torch.randint(0, 10, (count,))
    images = torch.randint(0, 120, (count, channels, side, side))
    for image, label in zip(images, labels.tolist()):
        top, left = 3 + 2 * (label // 2), 4 + 3 * (label % 5)
        image[label % channels, top:top + 9, left:left + 8] += 90
    return images.to(torch.uint8), labels


def write_cifar(folder, parts):
    for name, (images, labels) in parts.items():
        rows = torch.cat([labels.to(torch.uint8)[:, None], images.reshape(len(images), -1)], dim=1)
        (folder / name).write_bytes(rows.numpy().tobytes())


def write_mnist(folder, parts):
    for name, (images, labels) in parts.items():
        count, _, height, width = images.shape
        shape = b"".join(n.to_bytes(4, "big") for n in (count, height, width))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + shape + images.numpy().tobytes())
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            b"\0\0\x08\x01" + count.to_bytes(4, "big") + labels.to(torch.uint8).numpy().tobytes())


def train(net, images, labels, steps=80):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for _ in range(steps):
        chosen = torch.randint(0, len(labels), (32,))
        optimizer.zero_grad()
        functional.cross_entropy(net(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    return net.eval()


def judge(net, images, labels):
    """Right ones and loss; none may be so close that rounding could decide it."""
    with torch.no_grad():
        logits = net(images)
    best = logits.topk(2).values
    assert (best[:, 0] - best[:, 1]).min() > 1e-4
    return (logits.argmax(1) == labels).sum().item(), functional.cross_entropy(logits, labels).item()


def evaluate(*arguments):
    return json.loads(run("evaluate", *arguments, "--json").stdout)


def test_the_tutorials_checkpoint_scores_as_in_pytorch(tmp_path):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    training, test = draw(500, 3, 32), draw(400, 3, 32)
    write_cifar(tmp_path, {"data_batch_1.bin": training, "test_batch.bin": test})
    normalize = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)])
    net = train(Net(), normalize(training[0]), training[1])
    correct, loss = judge(net, normalize(test[0]), test[1])
    assert 100 < correct < 400  # a figure that something else would not give
    torch.save(net.state_dict(), tmp_path / "cifar_net.pth")

    flags = ["--model", "cifar-cnn", "--data", tmp_path, "--weights", tmp_path / "cifar_net.pth"]
    ours = evaluate(*flags, "--normalize", "0.5/0.5")
    assert round(ours["accuracy"] * 400) == correct and ours["samples"] == 400
    assert ours["loss"] == pytest.approx(loss, rel=1e-5)
    assert evaluate(*flags)["loss"] != pytest.approx(loss, rel=1e-3)

    # and so does what export makes of it, which knows
    run("export", "--model", "cifar-cnn", "--weights", tmp_path / "cifar_net.pth", "--normalize", "0.5/0.5", "--to",
        "safetensors", "--out", tmp_path / "known.safetensors")
    again = evaluate("--model", "cifar-cnn", "--data", tmp_path, "--weights", tmp_path / "known.safetensors")
    assert again["loss"] == ours["loss"]


@pytest.mark.parametrize("kind", ["cifar", "mnist"])
@pytest.mark.parametrize("steps, theirs, side", [
    ("resize=36,centre-crop=28", [v2.Resize(36), v2.CenterCrop(28)], 28),
    ("resize=40x24", [v2.Resize((40, 24))], None),
])
def test_transforms_of_sets_in_memory_are_torchvisions(tmp_path, kind, steps, theirs, side):
    """The model sees what it would after torchvision's transforms of float tensors: losses agree to f32's rounding."""
    torch.manual_seed(2)
    torch.set_num_threads(1)
    channels, raw = (3, 32) if kind == "cifar" else (1, 28)
    training, test = draw(300, channels, raw), draw(200, channels, raw)
    (write_cifar if kind == "cifar" else write_mnist)(
        tmp_path, dict(zip(["data_batch_1.bin", "test_batch.bin"] if kind == "cifar" else ["train", "t10k"],
                           (training, test))))
    prepare = v2.Compose([v2.ToDtype(torch.float32, scale=True), *theirs, v2.Normalize([0.4] * channels, [0.3] * channels)])
    height, width = (side, side) if side else (40, 24)

    def left(size):
        return ((size - 4) // 2 - 4) // 2
    net = Net(channels, 1)
    net.fc1 = nn.Linear(16 * left(height) * left(width), 120)
    train(net, prepare(training[0]), training[1])
    correct, loss = judge(net, prepare(test[0]), test[1])
    torch.save(net.state_dict(), tmp_path / "net.pth")
    ours = evaluate("--model", "cifar-cnn", "--data", tmp_path, "--weights", tmp_path / "net.pth", "--normalize", "0.4/0.3",
                    "--validation-transform", steps)
    assert round(ours["accuracy"] * 200) == correct
    assert ours["loss"] == pytest.approx(loss, rel=1e-4)

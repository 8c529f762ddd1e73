"""The network of PyTorch's MNIST example, and a shard of `farthing data shard` as tensors."""
import gzip
import struct
import tarfile

import numpy
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        x = self.dropout1(functional.max_pool2d(x, 2))
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(self.dropout2(x))


def read_idx(raw):
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    dimensions = raw[3]
    shape = struct.unpack(f">{dimensions}I", raw[4:4 + 4 * dimensions])
    return numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape)


def read_shard(path):
    """(images, labels) of the training samples in a .tar.gz with MNIST's files."""
    with tarfile.open(path) as tar:
        found = {("images" if "images" in m.name else "labels"): read_idx(tar.extractfile(m).read())
                 for m in tar.getmembers() if m.isfile() and "ubyte" in m.name and "t10k" not in m.name}
    images = torch.from_numpy(found["images"].astype(numpy.float32) / 255).unsqueeze(1)
    return (images - 0.1307) / 0.3081, torch.from_numpy(found["labels"].astype(numpy.int64))

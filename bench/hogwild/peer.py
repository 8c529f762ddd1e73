"""PyTorch's side of bench/hogwild: Hogwild! after the scheme of the public example (pytorch/examples, mnist_hogwild).

    peer.py MODEL DATA_FOLDER BATCH PROCESSES SECONDS

torch.multiprocessing with spawn, a model in shared memory, in each process a DataLoader and an SGD optimizer with momentum of
its own, one thread each. Prints one JSON line: samples a second of all processes together, after a warm-up.
"""
import gzip
import json
import lzma
import pathlib
import sys
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "engine"))
from peer import MODELS  # noqa: E402  the same networks as in bench/engine

WARM_UP = 5  # batches


def read(folder, name):
    for ending, unpack in (("", open), (".gz", gzip.open), (".xz", lzma.open)):
        path = pathlib.Path(folder) / (name + ending)
        if path.exists():
            with unpack(path, "rb") as file:
                return bytearray(file.read())
    sys.exit(f"{folder} has no {name}")


class Images(Dataset):
    """As torchvision's: a sample is scaled and normalized when it is asked for."""

    def __init__(self, model, folder):
        if model == "mnist-cnn":
            self.images = torch.frombuffer(read(folder, "train-images-idx3-ubyte"), dtype=torch.uint8)[16:].view(-1, 1, 28, 28)
            self.labels = torch.frombuffer(read(folder, "train-labels-idx1-ubyte"), dtype=torch.uint8)[8:].long()
        else:
            rows = [torch.frombuffer(read(folder, f"data_batch_{i}.bin"), dtype=torch.uint8).view(-1, 3073) for i in range(1, 6)]
            rows = torch.cat(rows)
            self.images, self.labels = rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return (self.images[index].float() / 255 - 0.1307) / 0.3081, self.labels[index]


def train(rank, model, dataset, batch, seconds, barrier, counts):
    torch.set_num_threads(1)
    torch.manual_seed(1 + rank)
    loader = DataLoader(dataset, batch_size=batch, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    model.train()
    done, samples, begun = 0, 0, 0.0
    while True:
        for images, labels in loader:
            if done == WARM_UP:
                barrier.wait()
                begun = time.perf_counter()
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            done += 1
            if done > WARM_UP:
                samples += len(labels)
                elapsed = time.perf_counter() - begun
                if elapsed >= seconds:
                    counts[rank] = samples / elapsed
                    return


def main():
    name, folder, batch, processes, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    mp.set_start_method("spawn")
    torch.manual_seed(1)
    model = MODELS[name][0]()
    model.share_memory()
    dataset = Images(name, folder)
    dataset.images.share_memory_()
    dataset.labels.share_memory_()
    barrier, counts = mp.Barrier(processes), mp.Array("d", processes)
    workers = [mp.Process(target=train, args=(rank, model, dataset, batch, seconds, barrier, counts)) for rank in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    print(json.dumps({"peer": f"PyTorch {torch.__version__}", "samples_per_s": sum(counts)}))


if __name__ == "__main__":
    main()

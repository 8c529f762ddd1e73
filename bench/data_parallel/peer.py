"""PyTorch's side of bench/data_parallel: DistributedDataParallel over gloo, one thread in each process.

    peer.py MODEL BATCH_PER_WORKER WORKERS SECONDS

Random data in memory; a step is forward, loss, backward with its all-reduce, and SGD with momentum. Prints one JSON line: samples a
second of all processes together, after a warm-up.
"""
import json
import os
import pathlib
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "engine"))
from peer import MODELS, torchvision_model  # noqa: E402  the same networks as in bench/engine

WARM_UP = 5  # steps
CLASSES = 10


def make(name):
    return torchvision_model(name, CLASSES) if name.startswith("resnet") else MODELS[name][0]()


def train(rank, name, batch, workers, seconds, port, rates):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=workers)
    torch.manual_seed(0)
    model = DistributedDataParallel(make(name).train())
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    images = torch.randn(batch, *MODELS[name][1])
    labels = torch.randint(0, CLASSES, (batch,))
    steps, begun, go_on = 0, 0.0, torch.ones(1)
    while go_on.item() > 0:
        if steps == WARM_UP:
            dist.barrier()
            begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        steps += 1
        if steps > WARM_UP and steps % 10 == 0:  # all of them stop at the same step
            go_on[0] = float(time.perf_counter() - begun < seconds)
            dist.broadcast(go_on, 0)
    rates[rank] = (steps - WARM_UP) * batch / (time.perf_counter() - begun)
    dist.destroy_process_group()


def main():
    name, batch, workers, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    mp.set_start_method("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rates = mp.Array("d", workers)
    processes = [mp.Process(target=train, args=(rank, name, batch, workers, seconds, port, rates)) for rank in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
        if process.exitcode != 0:
            sys.exit(f"a process of the peer ended with {process.exitcode}")
    print(json.dumps({"peer": f"PyTorch {torch.__version__}", "samples_per_s": sum(rates)}))


if __name__ == "__main__":
    main()

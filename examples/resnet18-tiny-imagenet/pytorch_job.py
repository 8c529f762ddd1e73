"""A PyTorch job of this example: ResNet-18 on batches of the shared cache, or of any data that farthing reads. Prints one JSON line at
the end; `run` makes the report of it. It is also how the package is used in a script of one's own.

    python pytorch_job.py ADDRESS [--epochs 3] [--batch 256] [--workers 4] [--lr 0.01] [--seed 1] [--share order]"""
import argparse
import json
import sys
import time

import torch
from torch.utils.data import DataLoader
from torchvision.models import resnet18

from farthing_batches import Batches


def evaluate(net, loader, device):
    net.eval()
    right = seen = 0
    with torch.no_grad():
        for images, labels in loader:
            right += int((net(images.to(device)).argmax(1) == labels.to(device)).sum())
            seen += len(labels)
    net.train()
    return right / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", default="order")
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train = Batches(arguments.address, batch_size=arguments.batch, seed=arguments.seed, share=arguments.share, epochs=arguments.epochs)
    validation = Batches(arguments.address, batch_size=min(arguments.batch, train.info.validation), split="validation",
                         share=arguments.share)
    loader = DataLoader(train, batch_size=None, num_workers=arguments.workers, persistent_workers=arguments.workers > 0,
                        pin_memory=device == "cuda")
    net = resnet18(num_classes=len(train.info.class_names)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=arguments.lr, momentum=0.9)

    validation_loader = DataLoader(validation, batch_size=None)
    waited = computed = evaluated = 0.0
    images_seen, begun = 0, time.perf_counter()
    for epoch in range(arguments.epochs):
        asked = time.perf_counter()
        for images, labels in loader:
            got = time.perf_counter()
            loss = torch.nn.functional.cross_entropy(net(images.to(device, non_blocking=True)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if device == "cuda":
                torch.cuda.synchronize()
            images_seen += len(labels)
            waited += got - asked
            asked = time.perf_counter()
            computed += asked - got
        trained = time.perf_counter()
        accuracy = evaluate(net, validation_loader, device)  # after every epoch, as farthing does
        evaluated += time.perf_counter() - trained
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy {accuracy:.3f}", file=sys.stderr, flush=True)
    print(json.dumps({"accuracy": accuracy, "elapsed_s": time.perf_counter() - begun, "samples": images_seen, "data_wait_s": waited,
                      "compute_s": computed, "evaluate_s": evaluated}))


if __name__ == "__main__":
    main()

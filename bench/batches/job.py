"""One PyTorch job of bench/batches: goes through epochs of batches and prints one JSON line. Both sides touch every batch the same way, and
train nothing: what is measured is the data.

    job.py farthing  ADDRESS  BATCH EPOCHS WORKERS SEED SHARE
    job.py torch     FOLDER   BATCH EPOCHS WORKERS SEED         torchvision's ImageFolder
    job.py streaming REMOTE   BATCH EPOCHS WORKERS SEED LOCAL   MosaicML Streaming
    job.py streaming-write FOLDER REMOTE                        makes the latter's data

When it is ready to begin it prints "ready" and waits for a line on its input, so that all jobs of a measurement begin together."""
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

SIZE = 224
OURS = f"random-resized-crop={SIZE},flip,normalize=imagenet"


def torchvision_transform():
    """From the bytes of a file, as a tensor. torchvision's own decoder and its newer transforms take three quarters of the time that Pillow takes."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2
    finish = v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
                         v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    return lambda data: finish(decode_jpeg(data, mode=ImageReadMode.RGB))


def open_farthing(address, batch, epochs, workers, seed, share):
    from farthing_batches import Batches
    from torch.utils.data import DataLoader
    data = Batches(address, batch_size=batch, seed=seed, transform=OURS, share=share, epochs=epochs)
    return DataLoader(data, batch_size=None, num_workers=workers, persistent_workers=workers > 0), data


def open_torch(folder, batch, epochs, workers, seed):
    import torch
    from torchvision import datasets, io
    data = datasets.ImageFolder(os.path.join(folder, "train"), torchvision_transform(), loader=io.read_file)
    generator = torch.Generator().manual_seed(seed)
    return torch.utils.data.DataLoader(data, batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0,
                                       generator=generator), data


def open_streaming(remote, batch, epochs, workers, seed, local):
    import numpy
    import torch
    from streaming import StreamingDataset
    transform = torchvision_transform()

    class Images(StreamingDataset):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return transform(torch.from_numpy(numpy.frombuffer(bytearray(sample["image"]), numpy.uint8))), sample["label"]

    data = Images(remote=remote, local=local, shuffle=True, batch_size=batch, shuffle_seed=seed)
    return torch.utils.data.DataLoader(data, batch, num_workers=workers, persistent_workers=workers > 0), data


def write_streaming(folder, remote):
    from streaming import MDSWriter
    classes = sorted(p for p in Path(folder, "train").iterdir() if p.is_dir())
    with MDSWriter(out=remote, columns={"image": "bytes", "label": "int"}) as out:
        for label, path in enumerate(classes):
            for image in sorted(path.iterdir()):
                out.write({"image": image.read_bytes(), "label": label})


def main():
    kind, arguments = sys.argv[1], sys.argv[2:]
    if kind == "streaming-write":
        write_streaming(*arguments)
        return
    import torch
    torch.set_num_threads(1)
    address, batch, epochs, workers, seed = arguments[0], *map(int, arguments[1:5])
    loader, data = {"farthing": open_farthing, "torch": open_torch, "streaming": open_streaming}[kind](
        address, batch, epochs, workers, seed, *arguments[5:])
    print("ready", flush=True)
    sys.stdin.readline()
    times, images, total = [time.time()], 0, 0.0
    for _ in range(epochs):
        for x, y in loader:
            total += float(x[:, :, ::8, ::8].sum())
            images += len(y)
        times.append(time.time())
    print(json.dumps({"images": images, "times": times, "sum": total,
                      "figures": data.figures() if kind == "farthing" else {}}), flush=True)


if __name__ == "__main__":
    main()

"""PyTorch's side of bench/loader: reads a line "FOLDER CASE WORKERS BATCH SECONDS" and answers with one JSON line.

torchvision's ImageFolder and a DataLoader with as many worker processes as farthing has threads. It stays alive between
questions, and its workers, once their queues are full, sleep while the other side runs.

    peer.py make FROM TO COUNT    makes JPEGs of 500 x 375 (quality 90, 4:2:0) out of small ones
"""
import json
import os
import pathlib
import random
import sys
import time


def make(source, target, count):
    import numpy
    from PIL import Image
    names = sorted(p for p in pathlib.Path(source).rglob("*") if p.suffix.lower() in (".jpeg", ".jpg"))
    draw, noise = random.Random(1), numpy.random.default_rng(1)
    total = 0
    for i in range(count):
        canvas = Image.new("RGB", (500, 375))
        for x in range(0, 500, 128):
            for y in range(0, 375, 128):
                tile = Image.open(draw.choice(names)).convert("RGB").resize((128, 128), Image.BICUBIC)
                canvas.paste(tile, (x, y))
        pixels = numpy.asarray(canvas, dtype=numpy.float32) + noise.normal(0, 5, (375, 500, 1))
        path = pathlib.Path(target, "train", f"class{i % 10}", f"{i:05d}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype("uint8")).save(path, quality=90, subsampling="4:2:0")
        total += path.stat().st_size
    print(f"{count} images of {total // count} bytes on average", file=sys.stderr)


class Job:
    def __init__(self, folder, case, workers, batch):
        import torch
        from torchvision import datasets, transforms
        end = [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
        steps = {
            "pad-crop": [transforms.RandomCrop(64, padding=8), transforms.RandomHorizontalFlip()],
            "random-resized-crop": [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()],
        }[case]
        data = datasets.ImageFolder(os.path.join(folder, "train"), transforms.Compose(steps + end))
        self.batch = batch
        self.loader = torch.utils.data.DataLoader(data, batch, shuffle=True, num_workers=workers, drop_last=True,
                                                  persistent_workers=True)
        self.batches = iter(self.loader)
        self.warm_up = 4 * workers  # what lies ready in the queues

    def next(self):
        try:
            next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            next(self.batches)

    def measure(self, seconds):
        for _ in range(self.warm_up):
            self.next()
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            self.next()
            count += self.batch
        return count / (time.perf_counter() - begun)


def main():
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    import torch
    import torchvision
    torch.set_num_threads(1)
    jobs = {}
    name = f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}"
    for line in sys.stdin:
        folder, case, workers, batch, seconds = line.split()
        key = (folder, case, workers, batch)
        if key not in jobs:
            jobs.clear()
            jobs[key] = Job(folder, case, int(workers), int(batch))
        print(json.dumps({"images_per_second": jobs[key].measure(float(seconds)), "peer": name}), flush=True)


if __name__ == "__main__":
    main()

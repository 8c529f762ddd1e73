"""Samples by index as a PyTorch Dataset, and samplers that give them in the job's order."""
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch.utils.data import Dataset, Sampler, get_worker_info

from .job import Job
from .reader import Info, plan_batch


class Index(int):
    """The index of a sample, with the number of the batch that it is for: the epoch in whose way it is augmented, and where the job
    is. Data workers get it from the sampler."""

    number: int

    def __new__(cls, sample: int, number: int) -> "Index":
        index = super().__new__(cls, sample)
        index.number = number
        return index

    def __reduce__(self):
        return Index, (int(self), self.number)


class Samples(Dataset):
    """Samples of a data set by their index: (image, label), for those who need an order or a collate function of their own.

        samples = Samples("batches://host:29600/photos", batch_size=64)
        loader = DataLoader(samples, batch_sampler=BatchOrder(samples), num_workers=4)

    BatchOrder and SampleOrder give the job's order, which the cache prepares for, and tell data workers the epoch. Any other sampler
    works too, and then has the augmentation of the epoch that set_epoch() has set before the workers were started."""

    def __init__(self, address: str, *, batch_size: int, seed: int = 0, split: str = "train", shuffle: Optional[bool] = None,
                 transform: Optional[str] = None, augment: Optional[str] = None, image_size: Optional[int] = None,
                 share: Optional[str] = "order", form: Optional[str] = "decoded", rank: Optional[int] = None,
                 world_size: Optional[int] = None, max_bad_images: Optional[float] = None, timeout: float = 60.0,
                 order: str = ""):
        """As Batches; `form` is "decoded" or "encoded"."""
        if form not in ("decoded", "encoded"):
            raise ValueError(f'samples are cached as "decoded" or "encoded", not as {form!r}')
        self._job = Job(address, batch_size=batch_size, seed=seed, split=split, shuffle=shuffle, transform=transform,
                        augment=augment, image_size=image_size, share=share, form=form, rank=rank, world_size=world_size, threads=1, by_index=True,
                        max_bad_images=max_bad_images, timeout=timeout, order=order, end=None)
        self._epoch = 0

    @property
    def info(self) -> Info:
        """What the data set is: counts, sizes, class names."""
        return self._job.info

    def __len__(self) -> int:
        return self._job.samples

    def set_epoch(self, epoch: int) -> None:
        """In whose way samples are augmented that are asked for by plain numbers."""
        self._epoch = epoch

    def __getitem__(self, index: int) -> Tuple[torch.Tensor, int]:
        worker = get_worker_info()
        number = getattr(index, "number", self._epoch * self.info.batches_per_epoch)
        reader = self._job.reader(*((worker.id, worker.num_workers) if worker else (0, 1)))
        image, label = reader.get(int(index), number)
        return torch.from_numpy(image), label

    def __getitems__(self, indices: List[int]) -> List[Tuple[torch.Tensor, int]]:
        return [self[index] for index in indices]

    def plan(self, number: int) -> List[int]:
        """The samples of this rank in batch `number`, counted from the start of epoch 0."""
        return plan_batch(self._job.plan, number)


class BatchOrder(Sampler):
    """The job's batches as lists of indices: for DataLoader's batch_sampler."""

    def __init__(self, samples: Samples, drop_last: bool = False):
        self._samples = samples
        short = samples._job.last_count < samples._job.plan["batch"]
        self._length = samples.info.batches_per_epoch - (drop_last and short)
        self._epoch, self._start = 0, 0

    def __len__(self) -> int:
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch."""
        self._epoch, self._start = epoch, 0

    def __iter__(self) -> Iterator[List[Index]]:
        epoch, start = self._epoch, self._start
        self._epoch, self._start = epoch + 1, 0
        base = epoch * self._samples.info.batches_per_epoch
        for number in range(start, self._length):
            yield [Index(sample, base + number) for sample in self._samples.plan(base + number)]

    def state_dict(self, epoch: int, batches: int) -> Dict[str, Any]:
        """Where the job is once the training has taken `batches` of `epoch`: the sampler itself is ahead of it."""
        return {"epoch": epoch, "batch": batches, "order": self._samples._job.order}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on in mid-epoch."""
        self._epoch, self._start = state["epoch"], state["batch"]


class SampleOrder(Sampler):
    """The job's order, index by index: for DataLoader's sampler."""

    def __init__(self, samples: Samples):
        self._batches = BatchOrder(samples)

    def __len__(self) -> int:
        samples = self._batches._samples
        base = samples.info.batches_per_epoch - 1
        whole = samples._job.plan["batch"] // samples._job.world_size
        return base * whole + len(samples.plan(base))

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch."""
        self._batches.set_epoch(epoch)

    def __iter__(self) -> Iterator[Index]:
        for batch in self._batches:
            yield from batch

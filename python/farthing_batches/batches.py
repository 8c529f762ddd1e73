"""Batches as a PyTorch IterableDataset: an item is a batch, ready for the network."""
import os
import warnings
from typing import Any, Dict, Iterator, Optional, Tuple

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from .job import Job
from .reader import Info


class Pair(tuple):
    """(images, labels) of a batch. Collating several, as a DataLoader does that has its own batch_size, is an error."""


def _refuse_to_collate(*_, **__):
    raise ValueError("an item of Batches is a batch already: give batch_size to Batches, and batch_size=None to DataLoader")


default_collate_fn_map[Pair] = _refuse_to_collate


class Epochs:
    """Which epoch comes next: the same answer in every data worker, whichever way these were started.

    PyTorch starts new data workers for every epoch, or keeps them (persistent_workers), and does not tell them which epoch it is. But all
    workers of a series have the same base seed. In memory that they share, the first to begin the n-th round of a series notes
    which epoch that is, and the others find it there. Those that begin at once note the same: `next` is read first and written
    last, so who has not seen the round's mark has seen the old `next`."""

    def __init__(self) -> None:
        self._shared = torch.zeros(6, dtype=torch.int64).share_memory_()
        self._rounds = 0  # that this process has begun

    SERIES, ROUND, EPOCH, NEXT, RESUMED, START = range(6)

    def set_next(self, epoch: int, start: int = 0) -> None:
        """The next epoch is this one, from batch `start` on."""
        self._shared[self.START] = start
        self._shared[self.RESUMED] = epoch
        self._shared[self.NEXT] = epoch

    def begin(self) -> Tuple[int, int]:
        """The epoch that begins, and its first batch."""
        shared, worker = self._shared, get_worker_info()
        self._rounds += 1
        following = int(shared[self.NEXT])
        series = worker.seed - worker.id if worker else -os.getpid()
        if int(shared[self.SERIES]) != series or int(shared[self.ROUND]) != self._rounds:
            shared[self.EPOCH] = following
            shared[self.ROUND] = self._rounds
            shared[self.SERIES] = series
            shared[self.NEXT] = following + 1
        epoch = int(shared[self.EPOCH])
        return epoch, int(shared[self.START]) if epoch == int(shared[self.RESUMED]) else 0

    @property
    def current(self) -> int:
        """The epoch that was started last; the next one if there is none."""
        return int(self._shared[self.EPOCH if self.begun else self.NEXT])

    @property
    def begun(self) -> bool:
        return int(self._shared[self.SERIES]) != 0

    @property
    def begun_by_workers(self) -> bool:
        return int(self._shared[self.SERIES]) > 0


class Batches(IterableDataset):
    """Batches of a data set, (images, labels): float32 (count, channels, height, width), normalized, and int64 (count).

        loader = DataLoader(Batches("batches://host:29600/photos", batch_size=256), batch_size=None, num_workers=0)
        for images, labels in loader: ...

    An iteration is one epoch; the next one is the next epoch, or what set_epoch() says. With any number of data workers, started any way,
    batches come in the same order. On a coordinator's machine, or one with an agent, workers are not needed: decoding is done
    elsewhere.

    A batch is the job's own, and may be changed in place. With `copy=False` its images stay where they are, in memory that all jobs share and
    PyTorch does not know to be read-only: a change in place (`images.mul_(2)`) then ends the process (SIGSEGV).

    In a job of several ranks (torch.distributed, or the arguments) each has `batch_size` samples of every batch, and all together every
    sample once an epoch."""

    def __init__(self, address: str, *, batch_size: int, seed: int = 0, split: str = "train", shuffle: Optional[bool] = None,
                 transform: Optional[str] = None, augment: Optional[str] = None, image_size: Optional[int] = None,
                 share: Optional[str] = "order", form: Optional[str] = "auto", rank: Optional[int] = None,
                 world_size: Optional[int] = None, drop_last: bool = False, epochs: Optional[int] = None, copy: bool = True,
                 threads: int = 0, max_bad_images: Optional[float] = None, timeout: float = 60.0, order: str = ""):
        """
        batch_size   samples of a batch, of this rank
        seed, shuffle     of the order and of everything random in the transform; shuffled by default where split is "train"
        split        "train" or "validation"
        transform    as `--transform`, "random-resized-crop=224,flip"; None: the usual one
        augment      as `--augment`, for data sets that are not image files
        share        what jobs on the data have in common: "order" (which costs nothing in randomness between jobs but the order),
                     "all" (augmentation too: batches are made once for all jobs), "none" (all by this job's seed)
        form         what is cached: "auto" (by measured cost), "encoded", "decoded" or "batches"
        drop_last    leave out the last batch of an epoch if it is smaller
        epochs       that the job will take, if known: nothing is prepared beyond its end
        copy         give tensors that may be changed in place; False: give images in shared memory, which must not be written to
        threads      that decode in a process, where that has to be done there; 0: one a core, and in data workers one
        max_bad_images    share of images that may be unreadable before reading fails; None: 0.001
        timeout      seconds that a batch may take
        order        of another job (its `order`), to have the same"""
        super().__init__()
        self._job = Job(address, batch_size=batch_size, seed=seed, split=split, shuffle=shuffle, transform=transform,
                        augment=augment, image_size=image_size, share=share, form=form, rank=rank, world_size=world_size,
                        threads=threads, max_bad_images=max_bad_images, timeout=timeout, order=order, end=epochs)
        self._copy = copy
        self._short = self._job.last_count < batch_size * self._job.world_size
        self._drop_last = drop_last and self._short
        if self._job.last_count < self._job.world_size and not drop_last:
            warnings.warn(f"the last batch of an epoch has {self._job.last_count} samples for {self._job.world_size} ranks, so that some "
                          "ranks get an empty one; drop_last=True leaves it out", stacklevel=2)
        self._epochs = Epochs()
        self._given: Optional[int] = None  # batches of the current epoch that this process has given, where that is known

    @property
    def info(self) -> Info:
        """What the data set is: counts, sizes, class names."""
        return self._job.info

    @property
    def order(self) -> str:
        """By which another job (`order=`) has the same order."""
        return self._job.order

    def __len__(self) -> int:
        return self._job.info.batches_per_epoch - self._drop_last

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; also of data workers that are kept."""
        self._epochs.set_next(epoch)

    def __iter__(self) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
        worker = get_worker_info()
        epoch, start = self._epochs.begin()
        base = epoch * self._job.info.batches_per_epoch
        first, end = base + start, base + len(self)
        index, count = (worker.id, worker.num_workers) if worker else (0, 1)
        self._given = start
        for number in range(first + index, end, count):
            reader = self._job.reader(index, count, number - index)
            batch = reader._next(read_only=False)
            if batch is None:
                return
            images = torch.from_numpy(batch.images)
            if self._copy:
                images = images.clone()
            labels = torch.from_numpy(batch.labels)
            self._given = batch.number - base + 1
            del batch
            yield Pair((images, labels))

    def figures(self) -> Dict[str, Any]:
        """What this process has had from the cache so far. Empty where it has read nothing from one."""
        reader = self._job._reader
        return reader.figures() if reader is not None and not get_worker_info() else {}

    def state_dict(self, batches: Optional[int] = None) -> Dict[str, Any]:
        """Where the job is, for load_state_dict(). `batches` is how many of this epoch the training has taken: needed where data workers
        read, which are ahead of it."""
        if batches is None:
            if self._epochs.begun_by_workers:
                raise ValueError("data workers are ahead of the training: say how many batches of this epoch it has taken, "
                                 "state_dict(batches=...)")
            batches = self._given or 0
        return {"epoch": self._epochs.current, "batch": batches, "order": self._job.order,
                "batch_size": self._job.batch_size, "world_size": self._job.world_size}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on in mid-epoch, with the same batches as if it had not stopped. Before the loader is iterated."""
        same = (self._job.batch_size, self._job.world_size)
        if (state["batch_size"], state["world_size"]) != same:
            raise ValueError(f"the job had batches of {state['batch_size']} on {state['world_size']} ranks; this one has {same[0]} on "
                             f"{same[1]}")
        self._job.take_order(state["order"])
        done = state["batch"] >= len(self)
        self._epochs.set_next(state["epoch"] + done, 0 if done else state["batch"])

    def close(self) -> None:
        """Leaves the job in this process. Iterating joins it again."""
        self._job.close()

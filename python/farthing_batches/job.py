"""A job of PyTorch processes: ranks that each have a part of every batch, and data workers that take turns."""
import os
from typing import Any, Dict, Optional, Tuple

import torch.distributed
from torch.utils.data import get_worker_info

from .reader import BatchError, Info, Reader, check


def find_rank(rank: Optional[int], world_size: Optional[int]) -> Tuple[int, int, bool]:
    """Rank and world size, and whether they are those of torch.distributed's default group."""
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size go together")
    if rank is not None and world_size is not None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} of {world_size}; ranks count from 0")
        return rank, world_size, False
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size(), True
    return 0, 1, False


class Job:
    """What all processes of a rank know of their job. It is registered when it is made, so that wrong addresses and options are
    found at once, and is done when the process that made it closes it or ends; each process that reads opens a reader of its own.
    Can be pickled."""

    def __init__(self, address: str, *, batch_size: int, rank: Optional[int], world_size: Optional[int], order: str,
                 end: Optional[int], **options: Any):
        self.address = str(address)
        self.rank, self.world_size, grouped = find_rank(rank, world_size)
        self.batch_size = batch_size
        self._options = dict(options, batch_size=batch_size * self.world_size, rank=self.rank, world_size=self.world_size)
        self._end = end  # epochs
        self._reader: Optional[Reader] = None
        self._registration: Optional[Reader] = None
        self._process = 0
        if grouped and self.world_size > 1:
            self._register_together(order)
        else:
            # Ranks that cannot talk to each other agree on where the order begins: at its beginning.
            self._register(order or ("rotation=0" if self.world_size > 1 else ""))

    def _register(self, order: str) -> None:
        check(self.address)
        # A reader of no batches: it begins where it ends. It keeps the job while data workers come and go.
        reader = self._registration = Reader(self.address, **self._options, order=order, first_batch=1, batch_limit=1)
        self.info: Info = reader.info
        self._job, self.order, self.plan = reader.job, reader.order, reader._plan

    def _register_together(self, order: str) -> None:
        """Rank 0 says where the order begins, or what is wrong."""
        answer: list = [None, None]
        if self.rank == 0:
            try:
                self._register(order)
                answer[0] = self.order
            except BatchError as error:
                answer[1] = error
        torch.distributed.broadcast_object_list(answer, src=0)
        if answer[1]:
            raise answer[1]
        if self.rank > 0:
            self._register(answer[0])

    @property
    def samples(self) -> int:
        return self.info.training if self._options["split"] == "train" else self.info.validation

    @property
    def last_count(self) -> int:
        """Samples of the last batch of an epoch, of all ranks together."""
        whole = self.batch_size * self.world_size
        return self.samples - (self.info.batches_per_epoch - 1) * whole

    def reader(self, worker: int, workers: int, first_batch: int = 0) -> Reader:
        """This process's reader, whose next batch is `worker` after `first_batch`."""
        mine = self._reader is not None and self._process == os.getpid()
        if mine and (self._options.get("worker"), self._options.get("workers")) == (worker, workers):
            if self._reader.position != first_batch:
                self._reader.seek(first_batch)
            return self._reader
        self._options.update(worker=worker, workers=workers)
        options = dict(self._options)
        if get_worker_info() and not options["threads"]:
            options["threads"] = 1  # there are other workers for the other cores
        self._reader = Reader(self.address, **options, job=self._job, first_batch=first_batch,
                              batch_limit=self._end * self.info.batches_per_epoch if self._end else None)
        self._process = os.getpid()
        return self._reader

    def take_order(self, order: str) -> None:
        """Has the order of another job, or of this one before it was interrupted."""
        if order != self.order:
            self.close()
            self._register(order)

    def close(self) -> None:
        if self._reader is not None and self._process == os.getpid():
            self._reader.close()
        self._reader = None
        if self._registration is not None:
            self._registration.close()  # no more than that of this process
        self._registration = None

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_reader": None, "_registration": None}

"""Batches as NumPy arrays: one process's end of a job, over libfarthing_batches.so."""
import atexit
import ctypes
import json
import os
import threading
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from . import _library
from ._library import BatchError, byref, functions, require

ACCESS_TIMEOUT_S = 2.0


class Batch(NamedTuple):
    """Some samples of a data set, ready for a network."""

    images: np.ndarray  #: float32 (count, channels, height, width), normalized; read-only, in shared memory where it can be
    labels: np.ndarray  #: int64 (count)
    number: int  #: from the start of epoch 0
    epoch: int


class Info(NamedTuple):
    """What a data set is, and how a job reads it."""

    training: int  #: samples
    validation: int
    batches_per_epoch: int
    channels: int
    height: int
    width: int
    class_names: List[str]


def check(address: str, timeout: float = ACCESS_TIMEOUT_S) -> None:
    """Raises BatchError with the first thing that cannot be reached, of a coordinator, its cache and its data."""
    require(functions().check(address.encode(), timeout))


def plan_batch(plan: Dict[str, int], number: int) -> List[int]:
    """The samples of batch `number` by a reader's plan; a pure function, for processes that have no reader."""
    room = (ctypes.c_int64 * plan["batch"])()
    return room[:functions().plan_batch(byref(_library.Plan(**plan)), number, room)]


class _Lease:
    """A batch that is out. It goes back when nobody has an array of it any more, in whichever thread that happens."""

    def __init__(self, reader: "_Handle", lease: int):
        self.reader, self.lease = reader, lease

    def __del__(self):
        self.reader.give_back(self.lease)


class _Memory:
    """Floats of a lease, for numpy.asarray(), whose arrays keep this alive."""

    def __init__(self, lease: _Lease, address: int, shape: Tuple[int, ...], read_only: bool):
        self.lease = lease
        self.__array_interface__ = {"version": 3, "typestr": "<f4", "shape": shape, "data": (address, read_only)}


class _Handle:
    """The C reader of this process. It is closed when that is asked for, or nobody has it any more, and all its batches are back."""

    def __init__(self, pointer: ctypes.c_void_p):
        self.pointer, self.process = pointer, os.getpid()
        self.lock = threading.RLock()  # guards what follows; entered again by a finalizer that runs in the middle
        self.uses, self.closing = 0, False  # batches that are out, and calls under way
        _handles.add(self)

    def take(self, batch: _library.Batch) -> None:
        with self.lock:
            self.uses += 1
        try:
            require(functions().next(self.pointer, byref(batch)))  # may wait, so not under the lock
        except BaseException:
            self._used()
            raise
        if batch.number < 0:
            self._used()

    def give_back(self, lease: int) -> None:
        if self.process == os.getpid():  # else it is the parent's, of which a fork has made a copy
            functions().give_back(self.pointer, lease)
            self._used()

    def _used(self) -> None:
        with self.lock:
            self.uses -= 1
            self._close_if_idle()

    def close(self) -> None:
        with self.lock:
            self.closing = True
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self.closing and self.uses == 0 and self.pointer and self.process == os.getpid():
            pointer, self.pointer = self.pointer, None
            functions().close(pointer)

    def __del__(self):
        self.close()


_handles: "weakref.WeakSet[_Handle]" = weakref.WeakSet()


def _after_fork() -> None:
    # What the parent has open is closed here, without a message to the coordinator; a reader used here opens its own.
    for handle in list(_handles):
        handle.lock = threading.RLock()
        if handle.pointer and handle.process != os.getpid():
            functions().abandon(handle.pointer)
    _handles.clear()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    # Says that the jobs are done: finalizers of what is still referred to may not run.
    for handle in list(_handles):
        handle.close()


class Reader:
    """Reads batches of a data set, one after another, as NumPy arrays.

    `address` is what `farthing train --data` takes: `batches://host:port/NAME` of a coordinator, or a folder, archive, bucket or
    built-in set, which are then read and decoded by this process.

    An array stays as it is while anything refers to it, and goes back to the cache after that. Where data lies in shared memory it is
    not copied, and cannot be written to.

    A reader can be pickled, and used after a fork: the other process then opens its own, at the same place."""

    def __init__(self, address: str, *, batch_size: int, seed: int = 0, shuffle: Optional[bool] = None, split: str = "train",
                 transform: Optional[str] = None, augment: Optional[str] = None, image_size: Optional[int] = None,
                 share: Optional[str] = None, form: Optional[str] = None, rank: int = 0, world_size: int = 1, worker: int = 0,
                 workers: int = 1, threads: int = 0, by_index: bool = False, first_batch: int = 0, batch_limit: Optional[int] = None,
                 job: str = "", order: str = "", max_bad_images: Optional[float] = None, timeout: float = 60.0):
        """
        batch_size      samples of a batch, of all ranks together
        seed, shuffle   of the order and of everything random in the transform; shuffled by default where split is "train"
        split           "train" or "validation"
        transform       as --transform, "random-resized-crop=224,flip"; None: the usual one
        augment         as --augment, for data sets that are not image files
        share           what jobs have in common: "none", "order" or "all"
        form            what is cached: "auto", "encoded", "decoded" or "batches"
        rank, world_size      each rank has a part of every batch
        worker, workers       each worker has every workers-th batch
        threads         that decode here, where that has to be done; 0: one a core
        by_index        samples are asked for with get(), instead of batches with next()
        first_batch, batch_limit   numbers from the start of epoch 0; None: endless
        job             what `job` says of a reader in another process of this job
        order           what `order` says of a reader of another job, to have the same
        max_bad_images  share of images that may be unreadable before reading fails
        timeout         seconds that a batch may take"""
        if split not in _library.SPLITS:
            raise ValueError(f'split is "train" or "validation", not {split!r}')
        shuffle = split == "train" if shuffle is None else bool(shuffle)
        self.address = str(address)
        self._options: Dict[str, Any] = dict(
            batch=batch_size, seed=seed, shuffle=shuffle, split=split, transform=transform, augment=augment,
            image_size=image_size or 0, share=share, form=form, rank=rank, ranks=world_size if world_size > 1 else 0,
            worker=worker, workers=workers, threads=threads, by_index=by_index, first_batch=first_batch, batch_limit=batch_limit or 0, job=job or None, order=order or None,
            max_bad_images=max_bad_images or 0.0, timeout_s=timeout)
        self._handle: Optional[_Handle] = None
        self._position = first_batch  # where the next process continues, counted as first_batch is
        self._open()

    def _open(self) -> _Handle:
        if self._handle and self._handle.process == os.getpid():
            if not self._handle.pointer or self._handle.closing:
                raise ValueError("the reader is closed")
            return self._handle
        values = {k: v.encode() if isinstance(v, str) and k != "split" else v for k, v in self._options.items()}
        options = _library.Options(**{**values, "split": _library.SPLITS[self._options["split"]],
                                      "first_batch": self._position})
        pointer = ctypes.c_void_p()
        require(functions().open(self.address.encode(), byref(options), byref(pointer)))
        self._handle = _Handle(pointer)
        self.job: str = functions().job(pointer).decode()  #: by which data workers of this rank have the same job
        self.order: str = functions().order(pointer).decode()  #: by which other ranks, or a resumed job, have the same order
        self._options["job"] = self.job or None
        found = functions().get_info(pointer).contents
        self.info = Info(found.training, found.validation, found.batches_per_epoch, found.channels, found.height, found.width,
                         [found.class_names[i].decode(errors="replace") for i in range(found.classes)])
        self._plan = {name: getattr(found.plan, name) for name, _ in found.plan._fields_}
        return self._handle

    def next(self) -> Optional[Batch]:
        """The next batch; None after the last."""
        return self._next(True)

    def _next(self, read_only: bool) -> Optional[Batch]:
        # PyTorch, which knows no read-only tensors, would warn of an array that says what it is.
        handle = self._open()
        batch = _library.Batch()
        handle.take(batch)
        if batch.number < 0:
            return None
        lease = _Lease(handle, batch.lease)
        info, count = self.info, batch.count
        images = np.asarray(_Memory(lease, batch.images, (count, info.channels, info.height, info.width), read_only))
        labels = np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(batch.labels)).copy() if count else np.empty(0, "i8")
        self._position = batch.number - self._options["worker"] + self._options["workers"]
        return Batch(images, labels, batch.number, batch.epoch)

    def seek(self, first_batch: int) -> None:
        """Goes on at another batch."""
        require(functions().seek(self._open().pointer, first_batch))
        self._position = first_batch

    @property
    def position(self) -> int:
        """The number by which another reader, as its `first_batch`, continues after what this one has given."""
        return self._position

    def plan(self, number: int) -> List[int]:
        """The samples of this rank in batch `number`, from the start of epoch 0."""
        return plan_batch(self._plan, number)

    def get(self, sample: int, number: int = 0) -> Tuple[np.ndarray, int]:
        """A sample by its index, as batch `number` has it, and its label; of readers that were opened `by_index`."""
        handle, info = self._open(), self.info
        image = np.empty((info.channels, info.height, info.width), np.float32)
        label = ctypes.c_int64()
        require(functions().get(handle.pointer, number, sample, image.ctypes.data, byref(label)))
        return image, label.value

    def figures(self) -> Dict[str, Any]:
        """What the job has had from the cache so far: hits, waits, misses, seconds, bytes, dollars. Empty without a cache."""
        text = functions().figures(self._open().pointer)
        try:
            return json.loads(ctypes.string_at(text).decode())
        finally:
            functions().free_text(text)

    def close(self) -> None:
        """Leaves the job. Arrays that are still referred to stay valid."""
        if self._handle:
            self._handle.close()

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.next, None)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_):
        self.close()

    def __getstate__(self):
        return {**self.__dict__, "_handle": None}


def numpy_batches(address: str, *, batch_size: int, epochs: int = 1, **options) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
    """(images, labels) of `epochs` epochs, as NumPy arrays: for JAX, or whatever else. Options are Reader's."""
    first = options.pop("first_batch", 0)
    with Reader(address, batch_size=batch_size, first_batch=first, **options) as reader:
        end = epochs * reader.info.batches_per_epoch
        for _ in range(first, end):
            batch = reader.next()
            if batch is None:
                return
            yield batch.images, batch.labels

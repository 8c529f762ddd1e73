"""libfarthing_batches.so by ctypes: the structs and functions of src/batches/client/reader.h."""
import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_uint64, c_void_p
from functools import lru_cache
from pathlib import Path

OK = 0
SPLITS = {"train": 0, "validation": 1}


class Options(ctypes.Structure):
    _fields_ = [("batch", c_int64), ("seed", c_uint64), ("shuffle", c_int), ("split", c_int), ("transform", c_char_p),
                ("augment", c_char_p), ("image_size", c_int), ("share", c_char_p), ("form", c_char_p), ("rank", c_int),
                ("ranks", c_int), ("worker", c_int), ("workers", c_int), ("threads", c_int), ("by_index", c_int), ("first_batch", c_int64),
                ("batch_limit", c_int64), ("job", c_char_p), ("order", c_char_p), ("max_bad_images", c_double), ("timeout_s", c_double)]


class Plan(ctypes.Structure):
    _fields_ = [("seed", c_uint64), ("samples", c_int64), ("batch", c_int64), ("rotation", c_int64), ("shuffle", c_int),
                ("rank", c_int), ("ranks", c_int)]


class Info(ctypes.Structure):
    _fields_ = [("training", c_int64), ("validation", c_int64), ("batches_per_epoch", c_int64), ("classes", c_int),
                ("channels", c_int), ("height", c_int), ("width", c_int), ("class_names", POINTER(c_char_p)),
                ("plan", Plan)]


class Batch(ctypes.Structure):
    _fields_ = [("images", c_void_p), ("labels", c_void_p), ("count", c_int64), ("number", c_int64),
                ("epoch", c_int64), ("lease", c_uint64)]


FUNCTIONS = {  # name: result, arguments
    "error": (c_char_p,),
    "check": (c_int, c_char_p, c_double),
    "open": (c_int, c_char_p, POINTER(Options), POINTER(c_void_p)),
    "close": (None, c_void_p),
    "abandon": (None, c_void_p),
    "get_info": (POINTER(Info), c_void_p),
    "job": (c_char_p, c_void_p),
    "order": (c_char_p, c_void_p),
    "next": (c_int, c_void_p, POINTER(Batch)),
    "seek": (c_int, c_void_p, c_int64),
    "give_back": (None, c_void_p, c_uint64),
    "plan_batch": (c_int64, POINTER(Plan), c_int64, POINTER(c_int64)),
    "get": (c_int, c_void_p, c_int64, c_int64, c_void_p, POINTER(c_int64)),
    "figures": (c_void_p, c_void_p),
    "free_text": (None, c_void_p),
    "run_agent": (c_int, c_char_p, c_char_p, c_char_p, c_uint64, c_double),
}


class BatchError(RuntimeError):
    """What farthing could not do; the message says on what, why, and what to do about it. `status` is a word for it, such as
    "timeout" or "peer lost"."""

    NAMES = ["ok", "invalid", "no memory", "io", "no space", "timeout", "peer lost", "corrupt", "unsupported", "diverged",
             "interrupted"]

    def __init__(self, message, status=3):
        super().__init__(message)
        self.status = self.NAMES[status] if isinstance(status, int) else status

    def __reduce__(self):  # as PyTorch passes exceptions of its data workers on
        return type(self), (str(self), self.status)


def _find():
    here = Path(__file__).resolve().parent
    named = os.environ.get("FARTHING_BATCHES_LIBRARY")
    # In the package where it is installed; in build/ where it is used out of the repository.
    places = [Path(named)] if named else [here / "libfarthing_batches.so", here.parents[1] / "build" / "libfarthing_batches.so"]
    for place in places:
        if place.exists():
            return place
    raise ImportError(f"no libfarthing_batches.so at {' or '.join(map(str, places))}: pip install the package, or run make")


@lru_cache(maxsize=None)
def functions():
    """The library's functions, loaded when they are first needed, by their names without "fth_reader_"."""
    library = ctypes.CDLL(str(_find()))
    # The program by which a job starts this machine's agent, where there is none.
    os.environ.setdefault("FARTHING_BATCHES_AGENT", f"{sys.executable}\n{Path(__file__).resolve().parent / 'agent.py'}")
    found = {}
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(library, "fth_reader_" + name)
        function.restype, function.argtypes = result, arguments
        found[name] = function
    return type("Functions", (), {name: staticmethod(f) for name, f in found.items()})


def require(status):
    """Raises what the last call of this thread has left."""
    if status != OK:
        raise BatchError(functions().error().decode(errors="replace"), status)


__all__ = ["SPLITS", "Batch", "BatchError", "Info", "Options", "Plan", "byref", "functions", "require"]

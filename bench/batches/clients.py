"""Many clients of one machine, for bench/batches: `clients.py ADDRESS JOBS WORKERS RATE SECONDS`.

JOBS jobs of WORKERS data workers each, a process for every worker, that together take RATE batches a second for SECONDS. Prints
"ready", and at the end a JSON line."""
import json
import multiprocessing
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from farthing_batches import Reader  # noqa: E402

OPTIONS = dict(batch_size=8, split="validation", shuffle=True, share="all", form="batches")
WARM_UP = 8  # batches


def work(address, job, worker, workers, every_s, seconds, barrier, taken, longest):
    reader = Reader(address, worker=worker, workers=workers, job=job, **OPTIONS)
    for _ in range(WARM_UP):
        reader.next()
    barrier.wait()
    begun, count, worst = time.monotonic(), 0, 0.0
    while (now := time.monotonic()) < begun + seconds:
        due = begun + count * every_s
        if due > now:
            time.sleep(due - now)
        asked = time.monotonic()
        reader.next()
        worst = max(worst, time.monotonic() - asked)
        count += 1
    with taken.get_lock():
        taken.value += count
        longest.value = max(longest.value, worst)


def main():
    address, jobs, workers, rate, seconds = sys.argv[1], *map(int, sys.argv[2:6])
    names = []
    for seed in range(jobs):
        with Reader(address, seed=seed, first_batch=1, batch_limit=1, **OPTIONS) as reader:
            names.append(reader.job)
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(jobs * workers + 1)
    taken, longest = context.Value("q", 0), context.Value("d", 0.0)
    processes = [context.Process(target=work, args=(address, name, w, workers, jobs * workers / rate, seconds, barrier, taken, longest))
                 for name in names for w in range(workers)]
    for process in processes:
        process.start()
    barrier.wait()
    print("ready", flush=True)
    for process in processes:
        process.join()
    failed = sum(process.exitcode != 0 for process in processes)
    print(json.dumps({"batches_per_second": taken.value / seconds, "longest_ms": round(1e3 * longest.value, 1), "failed": failed}), flush=True)


if __name__ == "__main__":
    main()

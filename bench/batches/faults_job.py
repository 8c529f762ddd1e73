"""A job of bench/batches/faults that reads batches as NumPy arrays: `faults_job.py JSON`.

JSON has "address", "options" (Reader's), "record", "epochs_file" and "pace_s". A line of the record is written for each batch, and a job
that was killed goes on after the last. It reads until the epochs file exists, and then as many epochs as that says."""
import json
import os
import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from farthing_batches import Reader  # noqa: E402


def main():
    how = json.loads(sys.argv[1])
    record, epochs_file = Path(how["record"]), Path(how["epochs_file"])
    lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    numbers = [line["number"] for line in lines if "number" in line]
    # The job as it was first registered: with it a reader opens also while nobody answers.
    known = next((line["job"] for line in lines if "job" in line), "")
    file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(**line):
        os.write(file, (json.dumps(line) + "\n").encode())  # whole, or not at all

    asked = time.monotonic()
    write(began=asked)
    reader = Reader(how["address"], first_batch=numbers[-1] + 1 if numbers else 0, job=known, **how["options"])
    write(opened=time.monotonic(), asked=asked, job=known or reader.job, per_epoch=reader.info.batches_per_epoch)
    end = None
    while True:
        if end is None and epochs_file.exists():
            end = int(epochs_file.read_text()) * reader.info.batches_per_epoch
        if end is not None and reader.position >= end:
            break
        asked = time.monotonic()
        batch = reader.next()
        got = time.monotonic()
        write(number=batch.number, epoch=batch.epoch, asked=asked, got=got, checksum=zlib.crc32(batch.images.tobytes()),
              labels=batch.labels.tolist(), marks=[[round(float(c.mean()), 4), round(float(c.max() - c.min()), 4)]
                                                   for image in batch.images for c in image[:2]])
        if end is None:
            time.sleep(how["pace_s"])
    figures = reader.figures()
    asked = time.monotonic()
    reader.close()
    write(closed=time.monotonic(), asked=asked, figures=figures)


if __name__ == "__main__":
    main()

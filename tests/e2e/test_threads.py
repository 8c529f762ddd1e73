"""Everything that runs in several threads at once, for `make tsan`: each scenario has as many of the program's threads
working together as there are, and under ThreadSanitizer any report of a race fails the run (scripts/run-tsan)."""
import signal
import subprocess

import pytest
from conftest import FARTHING, PATIENCE_S, checkpoints, environment, record, wait_for

MODEL = ["--model", "mnist-cnn", "--batch", 16]


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


@pytest.mark.parametrize("strategy", [[], ["--strategy", "hogwild", "--workers", 4]], ids=["single", "hogwild"])
def test_training_that_saves_validates_and_stops(farthing, tiny, strategy):
    """Loader, writer, lease, mirror, notice and watchdog threads; an interrupt in the middle, and a second process."""
    store = farthing.folder / "bucket"
    command = ["train", *MODEL, "--data", tiny, "--epochs", 6, "--checkpoint-every", 2, "--checkpoints", store,
               "--augment", "flip-crop", "--loader-threads", 2, "--watch", f"file:{farthing.folder / 'notice'}",
               *strategy]
    process = farthing.start(*command)
    wait_for(lambda: len(list(store.glob("checkpoints/step-*.json"))) >= 2, "two checkpoints", PATIENCE_S)
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code in (0, 75), err
    result = farthing(*command, "--json")
    assert result.events[-1]["event"] == "end"
    assert list(store.glob("checkpoints/step-*.json"))


def test_a_parameter_server_with_four_workers(farthing, tiny):
    """Requests, checks, updates, copies for readers, checkpoints and validation, all at once."""
    address = farthing.folder / "address"
    with open(farthing.folder / "server.txt", "w") as log, open(address, "w") as out:
        server = subprocess.Popen([FARTHING, "serve", "parameters", *map(str, MODEL), "--data", tiny, "--name", "server",
                                   "--port", "0", "--epochs", "4", "--checkpoint-every", "4"],
                                  cwd=farthing.folder, env=environment(), stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=log, text=True)
    try:
        wait_for(lambda: "http://" in address.read_text(), "the server's address", PATIENCE_S)
        url = next(word for word in address.read_text().split() if word.startswith("http://"))
        workers = [farthing.start("train", "--strategy", "parameter-server", "--server", url, *MODEL, "--data", tiny,
                                  "--epochs", 4, "--share", f"{i + 1}/4", "--name", f"worker{i}",
                                  "--compress", "none" if i % 2 else "f16") for i in range(4)]
        for worker in workers:
            code, _, err = finish(worker)
            assert code == 0, err
        assert server.wait(PATIENCE_S) == 0, (farthing.folder / "server.txt").read_text()
    finally:
        server.kill()
        server.wait()
    run = farthing.folder / "runs/server"
    assert checkpoints(run) and any(event["event"] == "end" for event in record(run))


def test_a_parameter_server_of_this_machine(farthing, tiny):
    """The same with the server and its workers as children of one command."""
    farthing("train", *MODEL, "--data", tiny, "--strategy", "parameter-server", "--workers", 4, "--epochs", 2)
    assert any((run / "last.safetensors").exists() for run in farthing.runs())

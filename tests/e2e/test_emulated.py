"""The emulated back end: layers take the time they are given, and the numbers of a step follow from its samples."""
import json

import pytest
from conftest import FARTHING, record

pytestmark = pytest.mark.skipif(not (FARTHING.parent / "farthing_emulated.so").exists(),
                                reason="farthing_emulated.so was not built")

LAYERS = ("conv1", "conv2", "fc1", "fc2")  # of mnist-cnn


def bench(farthing, emulate, *arguments, code=0):
    done = farthing("bench", "--model", "mnist-cnn", "--device", "emulated", "--seconds", 0.3, "--batch", 8,
                    *arguments, env={"FARTHING_EMULATE": emulate}, code=code)
    return json.loads(done.out) if code == 0 else done.err


def train(farthing, name, *arguments):
    farthing("train", "--model", "linear", "--data", "digits", "--device", "emulated", "--name", name, "--lr", 0.1,
             *arguments, env={"FARTHING_EMULATE": "step=0.001"})
    return [event for event in record(farthing.folder / "runs" / name) if event["event"] == "epoch"]


def test_a_step_takes_its_time(farthing):
    assert bench(farthing, "step=0.05")["step_ms"] >= 50
    assert bench(farthing, "step=0.05,batch=4")["step_ms"] >= 100  # 8 samples


def test_layers_take_the_times_of_a_file(farthing):
    (farthing.folder / "own.times").write_text("# seconds\n" + "".join(f"{layer} 0.004 0.016\n" for layer in LAYERS))
    assert bench(farthing, "times=own.times")["step_ms"] >= 80
    bench(farthing, "times=own.times", "--times", "seen.times")
    seen = {name: (float(forward), float(backward)) for name, forward, backward in
            (line.split() for line in (farthing.folder / "seen.times").read_text().splitlines() if line[0] != "#")}
    assert list(seen) == list(LAYERS)
    # Waits end late on a busy machine, which the waits after them make good.
    assert sum(forward for forward, _ in seen.values()) >= 0.0159
    assert sum(sum(both) for both in seen.values()) >= 0.0799
    bench(farthing, "times=seen.times,step=0.01")  # what it writes it can read


def test_times_of_the_whole_network_fit_the_narrow_one(farthing):
    farthing("bench", "--model", "vgg19-narrow", "--device", "emulated", "--seconds", 0.1, "--batch", 1, "--height", 32,
             "--width", 32, "--classes", 20,
             env={"FARTHING_EMULATE": f"step=0.01,times={FARTHING.parent.parent / 'bench/scaling/vgg19.times'}"})


def test_numbers_follow_from_the_samples(farthing):
    first = train(farthing, "first", "--batch", 64, "--epochs", 2, "--seed", 1)
    again = train(farthing, "again", "--batch", 64, "--epochs", 2, "--seed", 1)
    parts = train(farthing, "parts", "--batch", 16, "--accumulate", 4, "--epochs", 2, "--seed", 1)
    assert len(first) == len(again) == len(parts) == 2
    for event, same, part in zip(first, again, parts):
        assert same["train_loss"] == event["train_loss"]
        assert part["train_loss"] == pytest.approx(event["train_loss"], rel=1e-6)
        assert part["train_accuracy"] == event["train_accuracy"]  # a whole number of samples
    assert train(farthing, "other", "--batch", 64, "--epochs", 1, "--seed", 2)[0]["validation_loss"] == \
        first[0]["validation_loss"]


def test_a_step_shows_which_samples_it_had(farthing):
    """Of the first step alone: another seed, another order, another number."""
    def first_loss(name, seed):
        train(farthing, name, "--batch", 64, "--steps", 1, "--seed", seed)
        return next(event["loss"] for event in record(farthing.folder / "runs" / name) if event["event"] == "step")

    assert first_loss("one", 1) == first_loss("same", 1)
    assert abs(first_loss("two", 2) - first_loss("one-more", 1)) > 1e-4


def test_a_trace_has_every_pass(farthing):
    farthing("train", "--model", "linear", "--data", "digits", "--device", "emulated", "--batch", 64, "--steps", 5,
             env={"FARTHING_EMULATE": "step=0.002,trace=passes"})
    passes = [line.split() for line in (farthing.folder / "passes").read_text().splitlines()]
    assert [(int(number), int(samples)) for _, _, number, samples, _, _ in passes] == [(i, 64) for i in range(5)]
    moments = [float(moment) for moment, *_ in passes]
    assert all(later - earlier >= 0.002 for earlier, later in zip(moments, moments[1:]))
    first = next(event for event in record(farthing.only_run()) if event["event"] == "step")
    assert first["loss"] == pytest.approx(float(passes[0][4]), rel=1e-6)


@pytest.mark.parametrize("emulate, message", [
    ("", "FARTHING_EMULATE=step="),
    ("step", "not name=value"),
    ("step=soon", "not a number of seconds"),
    ("step=1,backward=2", "not a share"),
    ("step=1,speed=2", "unknown setting \"speed\""),
    ("batch=4", "neither step=SECONDS nor times=FILE"),
    ("times=none.times", "none.times"),
])
def test_mistakes(farthing, emulate, message):
    assert message in bench(farthing, emulate, code=1)


def test_mistakes_in_a_file(farthing):
    file = farthing.folder / "own.times"
    file.write_text("conv1 0.1\n")
    assert "own.times, line 1: expected a layer" in bench(farthing, "times=own.times", code=1)
    file.write_text("conv9 0.1 0.1\n")
    assert "no layer conv9" in bench(farthing, "times=own.times", code=1)
    file.write_text("conv1 0.1 0.1\n")
    assert "own.times has no times of layer conv2" in bench(farthing, "times=own.times", code=1)

"""A run in a store that is killed in its first seconds: at each moment when what is stored, or what is on the machine,
changes, the same command continues the run, and ends with the weights of a run that nothing happened to."""
import json
import shutil
import signal

import pytest
from conftest import FARTHING, SANITIZED, Program, record, tensors

KILL_POINT = FARTHING.parent / "tests" / "kill_point.so"
pytestmark = [pytest.mark.skipif(not KILL_POINT.exists(), reason="tests/kill_point.so was not built"),
              pytest.mark.skipif(SANITIZED, reason="a sanitizer wants to be loaded first")]

# In the order in which a run passes them.
POINTS = ["before rename store/lease.json",
          "after rename store/lease.json",
          "after rename runs/A/run.json",
          "before rename store/run.json",
          "after rename store/run.json",
          'after write "event":"start"',
          "after rename events/000001.jsonl",
          'before write "event":"step"',
          'after write "event":"step"',
          "before rename -f000001.safetensors",
          "before rename -f000001.json",
          "after rename -f000001.json"]
BEFORE_THE_FIRST_STEP, IN_THE_FIRST_STEPS = POINTS[4], POINTS[8]  # the store knows of no step yet in both


class Machine(Program):
    def __init__(self, folder, store, data):
        folder.mkdir()
        super().__init__(folder)
        self.arguments = ["train", "--model", "linear", "--data", data, "--batch", 16, "--steps", 40, "--threads", 1,
                          "--checkpoint-every", 10, "--lease", "1s", "--watch", "none", "--checkpoints", store,
                          "--name", "A"]

    def train(self, *more, code=0):
        return self(*self.arguments, *more, code=code)

    def train_until(self, point, *more):
        result = self(*self.arguments, *more, code=-signal.SIGKILL,
                      env={"LD_PRELOAD": str(KILL_POINT), "KILL_POINT": point})
        assert "error" not in result.err

    @property
    def run(self):
        return self.folder / "runs/A"

    def weights(self):
        return tensors(self.run / "last.safetensors")


@pytest.fixture
def machines(tmp_path, tiny):
    return [Machine(tmp_path / name, tmp_path / "store", tiny) for name in ("first", "second")]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tiny):
    folder = tmp_path_factory.mktemp("uninterrupted")
    machine = Machine(folder / "machine", folder / "store", tiny)
    machine.train()
    return machine.weights()


@pytest.mark.parametrize("point", POINTS)
def test_the_same_command_continues(machines, uninterrupted, point):
    machine = machines[0]
    machine.train_until(point)
    machine.train()
    assert machine.runs() == [machine.run]
    assert machine.weights() == uninterrupted


def test_killed_at_every_point_one_after_another(machines, uninterrupted):
    machine = machines[0]
    lease = machine.folder.parent / "store/lease.json"
    for point in POINTS:
        owner = json.loads(lease.read_text())["fence"] + 1 if lease.exists() else 1
        machine.train_until(point.replace("000001", f"{owner:06}"))
    machine.train()
    assert machine.weights() == uninterrupted


@pytest.mark.parametrize("point", POINTS[2::3])
def test_the_first_machine_continues_what_another_has_taken_over(machines, uninterrupted, point):
    """Each has a record of the run's beginning that the store never got."""
    first, second = machines
    first.train_until(point)
    second.train_until(IN_THE_FIRST_STEPS)
    first.train()
    assert first.weights() == uninterrupted
    assert "already finished" in second.train().out


def test_what_was_paid_before_the_kill_is_in_the_bill(machines):
    machine = machines[0]
    machine.train_until(IN_THE_FIRST_STEPS)
    machine.train()
    assert [event["event"] for event in record(machine.run)][:3] == ["start", "step", "resume"]
    assert machine("report", "A", "--json").events[0]["resumes"] == 1


def test_another_machine_fails_before_the_first_step(machines, uninterrupted):
    """It is the same command, and its failure does not end the run of the first machine."""
    first, second = machines
    first.train_until(IN_THE_FIRST_STEPS)
    broken = second.folder / "runs"
    broken.write_text("not a folder")
    assert second.train(code=1).err
    first.train()
    assert first.weights() == uninterrupted


@pytest.mark.parametrize("point", [IN_THE_FIRST_STEPS, POINTS[-1]])
def test_another_command_is_refused(machines, uninterrupted, point):
    machine = machines[0]
    machine.train_until(point)
    assert "has another configuration (--seed is 1 there and 2 here)" in machine.train("--seed", 2, code=1).err
    machine.train()
    assert machine.weights() == uninterrupted


def test_another_command_takes_the_place_of_a_run_without_a_step(machines):
    machine = machines[0]
    machine.train_until(BEFORE_THE_FIRST_STEP)
    machine.train("--seed", 2)
    assert json.loads((machine.run / "run.json").read_text())["configuration"]["seed"] == 2


def test_a_name_that_another_run_has_is_refused_before_the_store_changes(machines):
    """The store was removed; the record of what was in it is still here."""
    machine, store = machines[0], machines[0].folder.parent / "store"
    machine.train_until(IN_THE_FIRST_STEPS)
    shutil.rmtree(store)
    error = machine.train(code=1).err
    assert "there is a run A in runs already" in error and "choose another --name" in error
    assert [path.name for path in store.rglob("*") if path.is_file()] == ["lease.json"]


def test_a_standby_continues_under_the_name(machines, uninterrupted):
    first, second = machines
    first.train_until(BEFORE_THE_FIRST_STEP)
    second("standby", *second.arguments[1:-2])
    assert second.weights() == uninterrupted
    assert "already finished" in first.train().out


@pytest.mark.parametrize("point", POINTS[2:3] + POINTS[5:6] + POINTS[7:9])
def test_without_a_store_resume_continues(machines, uninterrupted, point):
    machine = machines[0]
    machine.arguments = [*machine.arguments[:-8], "--name", "A", "--resume"]
    machine.train_until(point)
    machine.train()
    assert machine.weights() == uninterrupted

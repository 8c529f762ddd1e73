"""farthing plan: what it predicts from a worker's profile and a link, and that it leaves nothing behind."""
import json
import subprocess

import pytest
from conftest import FARTHING, PATIENCE_S, environment, needs_gloo
from s3_server import free_port

emulated = pytest.mark.skipif(not (FARTHING.parent / "farthing_emulated.so").exists(),
                              reason="farthing_emulated.so was not built")
EMULATE = {"FARTHING_EMULATE": "step=0.02"}
RUN = ["--model", "mnist-cnn", "--data", "digits", "--device", "emulated"]  # 4.8 MB of gradients


def plan(farthing, *arguments, run=(), env=EMULATE):
    return json.loads(farthing("plan", "--profile-for", "0.3s", "--json", *arguments, "--", "train", *RUN, *run,
                               env=env).out)


@emulated
def test_a_fast_link_pays(farthing):
    result = plan(farthing, "--nodes", "1,2,4", "--link", "400Gbit,1us", "--price", "3.6",
                  run=["--batch-per-worker", 8, "--scale-lr", "sqrt", "--lr", 0.1])
    assert [size["nodes"] for size in result["sizes"]] == [1, 2, 4]
    assert [size["batch"] for size in result["sizes"]] == [8, 16, 32]
    assert [round(size["learning_rate"], 4) for size in result["sizes"]] == [0.1, 0.1414, 0.2]
    assert result["sizes"][0]["efficiency"] == pytest.approx(1)
    assert all(size["step_s"] >= 0.02 for size in result["sizes"])
    assert result["pays"] and result["fastest"] == 4 and result["choose"] > 1
    for size in result["sizes"]:
        assert size["epoch_usd"] == pytest.approx(size["nodes"] * size["epoch_s"] * 3.6 / 3600)
        assert size["epoch_s"] == pytest.approx(-(-20000 // size["batch"]) * size["step_s"])
    assert result["link"]["source"] == "told"
    assert [profile["batch"] for profile in result["profiles"]] == [8]


@emulated
def test_a_slow_link_does_not(farthing):
    result = plan(farthing, "--nodes", "1,2,4", "--link", "1Mbit,10ms", run=["--batch-per-worker", 8])
    assert result["choose"] == 1 and result["cheapest"] == 1 and not result["pays"]
    assert "does not pay" in result["why"]
    for size in result["sizes"][1:]:
        # Each byte crosses a node's link 2 (n - 1) / n times in each direction, most of it behind a step of 20 ms.
        crossing = 2 * (size["nodes"] - 1) / size["nodes"] * 4 * result["parameters"] / (1e6 / 8)
        assert size["limited_by"] == "bandwidth"
        assert crossing <= size["step_s"] <= 1.5 * crossing


@emulated
def test_half_the_bytes_take_half_the_time(farthing):
    exposed = [plan(farthing, "--nodes", "2", "--link", "1Mbit,1us", run=["--wire", wire])["sizes"][0]["exposed_s"]
               for wire in ("f32", "bf16")]
    assert exposed[1] == pytest.approx(exposed[0] / 2, rel=0.1)


@emulated
def test_a_global_batch_is_profiled_in_its_parts(farthing):
    result = plan(farthing, "--nodes", "1,2,8", run=["--batch", 64],
                  env={"FARTHING_EMULATE": "step=0.02,batch=64"})
    assert [(size["batch"], size["worker_batch"]) for size in result["sizes"]] == [(64, 64), (64, 32), (64, 8)]
    assert [profile["batch"] for profile in result["profiles"]] == [64, 32, 8]
    compute = [profile["compute_s"] for profile in result["profiles"]]
    assert compute[0] >= 0.02 and compute[1] >= 0.01 and compute[2] >= 0.0025
    assert result["link"]["source"] == "assumed"
    assert "epoch_usd" not in result["sizes"][0]  # no price


def test_for_people_on_the_real_device(farthing):
    (farthing.folder / "run.yaml").write_text("model: linear\ndata: digits\nbatch: 64\n")
    before = set(farthing.folder.iterdir())
    text = farthing("plan", "--nodes", "1,2", "--profile-for", "0.3s", "--price", "1", "run.yaml").out
    assert set(farthing.folder.iterdir()) == before  # no run, nothing
    for part in ("linear on digits", "10Gbit,50us (assumed)", "per node and hour (--price)", "cheapest:", "fastest:",
                 "choose:", "efficiency"):
        assert part in text


@needs_gloo
def test_a_launcher_has_the_link_measured(farthing):
    """Two processes that take themselves for two machines: the first one plans, the other only helps to measure."""
    port, processes = free_port(), []
    for rank in range(2):
        launched = environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), FARTHING_NODE=f"machine{rank}")
        processes.append(subprocess.Popen([FARTHING, "plan", "--nodes", "1,2", "--profile-for", "0.2s", "--json", "--",
                                           "train", "--model", "linear", "--data", "digits"], cwd=farthing.folder,
                                          env=launched, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=PATIENCE_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    link = json.loads(said[0][0])["link"]
    assert link["source"] == "measured" and link["bytes_per_s"] > 0 and link["latency_s"] > 0
    assert said[1][0] == ""


@pytest.mark.parametrize("arguments, message", [
    (["--nodes", "2,1"], "go upwards"),
    (["--nodes", "0"], "such as 1,2,4,8"),
    (["--nodes", "1,,2"], "such as 1,2,4,8"),
    (["--nodes", "1,"], "such as 1,2,4,8"),
    (["--link", "fast"], "such as 25Gbit,50us"),
    (["--price", "free"], "free"),
    (["one.yaml", "two.yaml"], "one FILE.yaml"),
    (["none.yaml"], "none.yaml"),
    (["--", "train", "--model", "nonesuch"], "nonesuch"),
])
def test_mistakes(farthing, arguments, message):
    done = farthing("plan", *arguments, code=None)
    assert done.code in (1, 2) and message in done.err

"""Networks that PyTorch exported (.pt2): trained, interrupted, with every strategy, and without the file."""
import json
import shutil
import signal
import struct
import zipfile
from pathlib import Path

import pytest
from conftest import PATIENCE_S, Result, checkpoints, needs_gloo, png, stop, tensors, wait_for, write_mnist
from test_functions_train import invoke, serve, shards, start  # noqa: F401: fixtures

NETWORKS = Path(__file__).resolve().parents[1] / "torch" / "exported"
JOB = ["train", "--model", "net.pt2", "--data", "data", "--batch", "20", "--seed", "3", "--threads", "1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_mnist(tmp_path_factory.mktemp("exported") / "data", 400, 60)


@pytest.fixture
def folder(farthing, data):
    """The program, in a folder with net.pt2 and data."""
    (farthing.folder / "data").symlink_to(data)
    use(farthing, "digits")
    return farthing


def use(farthing, name):
    shutil.copy(NETWORKS / f"{name}.pt2", farthing.folder / "net.pt2")


def remove(farthing):
    (farthing.folder / "net.pt2").unlink()


def metadata(path):
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8:8 + size])["__metadata__"]


def weights(farthing):
    return tensors(farthing.only_run() / "last.safetensors")


# ---- one process ----

def test_trained_and_used(folder):
    """After training nothing but the model file is needed."""
    result = folder(*JOB, "--epochs", "3", "--json")
    assert result.end["loss"] < 2
    run = folder.only_run()
    assert run.name.startswith("net-data-")
    assert json.loads((run / "run.json").read_text())["configuration"]["model"] == "net.pt2"
    assert metadata(run / "last.safetensors")["model"] == "net.pt2"
    remove(folder)
    best = run / "best.safetensors"
    measured = folder("evaluate", "--weights", best, "--data", "data", "--json").events[-1]
    assert measured["loss"] == pytest.approx(result.end["best_loss"], rel=1e-5)
    assert folder("evaluate", run, "--json").events[-1]["loss"] == pytest.approx(measured["loss"], rel=1e-5)
    (folder.folder / "x.png").write_bytes(png(28, 28, 1))
    (predicted,) = folder("predict", "--weights", best, "x.png", "--json").events
    assert 0 < predicted["predictions"][0]["probability"] <= 1
    folder("export", "--weights", best, "--to", "onnx", "--out", "net.onnx")
    assert (folder.folder / "net.onnx").stat().st_size > 4286 * 4
    folder("export", "--weights", best, "--to", "safetensors", "--out", "again.safetensors")
    assert tensors(folder.folder / "again.safetensors") == tensors(best)
    assert metadata(folder.folder / "again.safetensors")["network"] == metadata(best)["network"]
    # And to start from, without the network's name.
    folder("train", "--weights", best, "--data", "data", "--steps", "1", "--name", "tuned")
    assert metadata(folder.folder / "runs" / "tuned" / "last.safetensors")["network"] == metadata(best)["network"]


def test_starts_with_the_weights_in_the_file(folder):
    """A rate of next to nothing leaves them as they are."""
    first = folder("evaluate", "--model", "net.pt2", "--weights", "net.pt2", "--data", "data", "--json").events[-1]
    kept = folder(*JOB, "--steps", "1", "--lr", "1e-30", "--momentum", "0", "--name", "kept", "--json").end
    drawn = folder(*JOB, "--steps", "1", "--lr", "1e-30", "--momentum", "0", "--reinitialize", "--name", "drawn", "--json").end
    assert drawn["loss"] != pytest.approx(kept["loss"], rel=1e-6)
    kept, drawn = (tensors(folder.folder / "runs" / name / "last.safetensors") for name in ("kept", "drawn"))
    assert kept["head.weight"] != drawn["head.weight"] and kept["stem.1.weight"] == drawn["stem.1.weight"]
    folder("export", "--model", "net.pt2", "--weights", "net.pt2", "--to", "safetensors", "--out", "file.safetensors")
    assert tensors(folder.folder / "file.safetensors")["head.weight"] == kept["head.weight"]
    assert first["samples"] == 60


def test_rows_tied_weights_and_constants(folder):
    use(folder, "rows")
    folder(*JOB, "--steps", "10")
    found = weights(folder)
    assert found["a.weight"] == found["b.weight"] and found["a.bias"] != found["b.bias"]
    assert found["order"] == ("I64", (16,), struct.pack("<16q", *range(16)))
    run = folder.only_run()
    remove(folder)
    folder("evaluate", "--weights", run / "last.safetensors", "--data", "data")
    # What is one tensor cannot be two.
    content = bytearray((run / "last.safetensors").read_bytes())
    (size,) = struct.unpack("<Q", content[:8])
    begin = json.loads(content[8:8 + size])["b.weight"]["data_offsets"][0]
    content[8 + size + begin] ^= 1
    (folder.folder / "torn.safetensors").write_bytes(content)
    failed = folder("evaluate", "--weights", "torn.safetensors", "--data", "data", code=1)
    assert "a.weight" in failed.err and "b.weight" in failed.err and "differ" in failed.err


@pytest.mark.parametrize("change", ["missing", "other"])
def test_killed_and_resumed(folder, change):
    """Bit for bit, and without the file as it was."""
    job = [*JOB, "--steps", "300", "--validate-every", "5", "--checkpoint-every", "20"]
    folder(*job, "--runs", "whole")
    (whole,) = folder.folder.glob("whole/*/last.safetensors")
    process = folder.start(*job)
    wait_for(lambda: folder.runs() and checkpoints(folder.runs()[0]), "a checkpoint")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    remove(folder)
    if change == "other":
        use(folder, "digits-wide")
    result = folder(*job, "--resume")
    assert ("another network" in result.err) == (change == "other")
    assert weights(folder) == tensors(whole)


def test_taken_over_on_another_machine(folder, data, tmp_path):
    """The store has all that is needed."""
    job = [*JOB, "--steps", "400", "--checkpoint-every", "20", "--checkpoints", tmp_path / "store", "--lease", "off"]
    process = folder.start(*job, "--runs", "here")
    wait_for(lambda: list(tmp_path.glob("store/checkpoints/step-*.json")), "a checkpoint")
    stop(process, signal.SIGTERM)
    assert (tmp_path / "store" / "network.json").exists()
    remove(folder)
    result = folder(*job, "--runs", "there", "--json")
    assert result.end["steps"] == 400
    assert (tmp_path / "store" / "last.safetensors").exists()


# ---- several processes ----

@pytest.mark.parametrize("how", ["--workers", "--processes"])
def test_hogwild(folder, how):
    result = folder(*JOB, "--strategy", "hogwild", how, "2", "--epochs", "2", "--json")
    assert result.end["steps"] == 40
    assert metadata(folder.only_run() / "last.safetensors")["network"]


@needs_gloo
def test_data_parallel(folder):
    use(folder, "rows")  # without batch norm, whose statistics are those of a worker's part
    alone = folder(*JOB, "--epochs", "2", "--runs", "alone", "--json").end
    together = Result(0, folder("launch", "--workers", "2", "--", *JOB, "--epochs", "2", "--json").out, "").end
    assert together["steps"] == alone["steps"]
    assert together["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    run = folder.only_run()
    remove(folder)
    more = folder("launch", "--workers", "2", "--", "train", "--resume", run.name, "--epochs", "3", "--json")
    assert more.end["steps"] == 60


def test_parameter_server(folder):
    result = folder(*JOB, "--strategy", "parameter-server", "--workers", "2", "--epochs", "2", "--json")
    assert result.end["samples"] >= 800
    run = folder.only_run()
    assert metadata(run / "last.safetensors")["network"]
    remove(folder)
    folder("evaluate", "--weights", run / "last.safetensors", "--data", "data")


def test_a_worker_gets_the_network_from_the_server(folder, serve):  # noqa: F811
    server = serve("--model", folder.folder / "net.pt2", "--data", folder.folder / "data", "--steps", "8")
    use(folder, "digits-wide")  # the worker's file is another one
    result = folder(*JOB, "--strategy", "parameter-server", "--server", f"http://127.0.0.1:{server.port}", "--json")
    assert result.end["reason"] == "server"
    assert server.client().version() == 8
    other = folder("train", "--model", "linear", "--data", "data", "--strategy", "parameter-server", "--server",
                   f"http://127.0.0.1:{server.port}", code=1)
    assert "serves net.pt2" in other.err


def test_a_function(serve, start, shards):  # noqa: F811
    server = serve("--model", NETWORKS / "digits.pt2", "--shards", shards, "--epochs", "1")
    result = invoke(start(), server, batch_sz_train=50)
    assert result["finished"] and result["samples"] == 522
    pulled, _ = server.client().pull()
    assert pulled["head.weight"].shape == (10, 392)


# ---- errors ----

@pytest.mark.parametrize("network, words", [
    ("digits-eval", ["eval mode", "torch.export.export(model.train()"]),
    ("digits-fixed", ["(2, 1, 28, 28)", "batch", "dynamic_shapes"]),
    ("map", ["(N, 2, 28, 28)", "(N, K)"]),
])
def test_what_cannot_be_trained_is_explained(folder, network, words):
    use(folder, network)
    failed = folder(*JOB, "--steps", "1", code=1)
    for word in words:
        assert word in failed.err
    assert not folder.runs()


def test_data_of_another_shape(folder):
    failed = folder("train", "--model", "net.pt2", "--data", "shapes", "--steps", "1", code=1)
    assert "(N, 1, 28, 28)" in failed.err and "(N, 3, 28, 28)" in failed.err
    use(folder, "rows")
    failed = folder("train", "--model", "net.pt2", "--data", "shapes", "--steps", "1", code=1)
    assert "(N, 784)" in failed.err and "(N, 3, " in failed.err


def test_files_that_are_none(folder):
    (folder.folder / "net.pt2").write_bytes(b"PK\x03\x04" + bytes(100))
    assert "net.pt2" in folder(*JOB, "--steps", "1", code=1).err
    remove(folder)
    assert "net.pt2" in folder(*JOB, "--steps", "1", code=1).err


def change_program(farthing, change):
    """Calls `change` with the graph of net.pt2 and its first node of an operator by name."""
    path = farthing.folder / "net.pt2"
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    (name,) = (name for name in entries if name.endswith("models/model.json"))
    program = json.loads(entries[name])
    graph = program["graph_module"]["graph"]
    change(graph, {node["target"].split(".")[3]: node for node in reversed(graph["nodes"])})
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in {**entries, name: json.dumps(program)}.items():
            archive.writestr(entry, content)


def tensor(name, argument):
    return {"name": name, "kind": 1, "arg": argument}


def leave_out_weight(operator):
    def change(graph, nodes):
        node = nodes[operator]
        node["inputs"] = [i for i in node["inputs"] if i["name"] != "weight"]
    return change


def replace(operator, by, *inputs):
    """The node with another operator, with arguments besides `self`, which stays."""
    def change(graph, nodes):
        node = nodes[operator]
        first = node["inputs"][0]["arg"]
        node["target"] = f"torch.ops.aten.{by}"
        node["inputs"] = [tensor(name, argument if argument else first) for name, argument in inputs]
    return change


def remove_result(graph, nodes):
    nodes["flatten"]["inputs"][0]["arg"] = nodes["relu_"]["inputs"][0]["arg"]
    nodes["relu_"]["outputs"] = []


def join(graph, nodes):
    """Stacks an image and a row."""
    names = [{"name": nodes[operator]["inputs"][0]["arg"]["as_tensor"]["name"]} for operator in ("flatten", "linear")]
    nodes["linear"]["target"] = "torch.ops.aten.stack.default"
    nodes["linear"]["inputs"] = [tensor("tensors", {"as_tensors": names}), tensor("dim", {"as_int": 4})]


def recur(graph, nodes):
    """As many layers as make the number of parameters zero in 32 bits."""
    sizes = graph["tensor_values"]["relu_"]["sizes"]
    graph["tensor_values"]["relu_"]["sizes"] = [*sizes[:2], {"as_int": 49}]
    nodes["relu_"]["target"] = "torch.ops.aten.flatten.using_ints"
    replace("flatten", "gru.input", ("input", None), ("num_layers", {"as_int": 1 << 30}), ("params", {"as_tensors": []}),
            ("batch_first", {"as_bool": True}), ("bidirectional", {"as_bool": True}),
            ("has_biases", {"as_bool": False}))(graph, nodes)


def freeze(graph, nodes):
    for value in graph["tensor_values"].values():
        value["requires_grad"] = False


@pytest.mark.parametrize("change, words", [
    (leave_out_weight("conv2d"), "no argument weight"),
    (leave_out_weight("linear"), "no argument weight"),
    (replace("flatten", "mul.Tensor", ("self", {"as_int": 2}), ("other", {"as_int": 3})), "none of its arguments is a tensor"),
    (replace("flatten", "transpose.int", ("self", None), ("dim0", {"as_int": 0}), ("dim1", {"as_int": 1})),
     "another number of dimensions"),
    (replace("flatten", "repeat.default", ("self", None), ("repeats", {"as_ints": [1, 2]})), "fewer dimensions"),
    (replace("flatten", "adaptive_avg_pool2d.default", ("self", None)), "its result has 2 dimensions"),
    (remove_result, "its result is not described"),
    (join, "different ranks"),
    (recur, "there may be 1 to 30"),
    (freeze, "net.pt2 has no parameters to train"),
])
def test_programs_that_cannot_be(folder, change, words):
    """Programs that PyTorch would not write are refused as well."""
    change_program(folder, change)
    failed = folder(*JOB, "--dry-run", code=1)
    assert words in failed.err
    assert len(failed.err.splitlines()) == 1


def test_files_of_weights_are_no_networks(folder):
    assert "--weights net.pth" in folder("train", "--model", "net.pth", "--data", "data", code=1).err
    assert "--model net.pt2" in folder("train", "--weights", "net.pt2", "--data", "data", code=2).err


def test_options_that_do_not_fit(folder):
    folder(*JOB, "--steps", "1")
    last = folder.only_run() / "last.safetensors"
    assert "--reinitialize" in folder("train", "--model", "linear", "--reinitialize", code=2).err
    assert "--weights" in folder(*JOB, "--reinitialize", "--weights", last, code=2).err
    use(folder, "rows")
    refused = folder(*JOB, "--weights", last, "--steps", "1", code=1).err
    assert "first.weight" in refused

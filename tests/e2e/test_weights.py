"""Which model is meant: files, runs, folders and stores; what a file says of itself, and what is wrong with it."""
import json
import math
import struct

import pytest
from conftest import Program, png, tensors


@pytest.fixture(scope="module")
def linear(tmp_path_factory, tiny):
    """A run of a model that is not the default, in its folder."""
    program = Program(tmp_path_factory.mktemp("linear"))
    program("train", "--model", "linear", "--data", tiny, "--batch", 64, "--epochs", 1, "--threads", 1, "--name", "a")
    program.run = program.only_run()
    return program


def without_metadata(path, target, prefix="", extra=()):
    """The same tensors, as another program would write them: the file says nothing of itself."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors(path).items():
        header[prefix + name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    for name in extra:
        header[name] = {"dtype": "F32", "shape": [2], "data_offsets": [len(body), len(body) + 8]}
        body += struct.pack("<ff", 1, 2)
    text = json.dumps(header).encode()
    target.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return target


def write_floats(path, shapes):
    """A safetensors file of zeros."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    return path


# ---- the model of a file ----

def test_evaluate_takes_the_model_that_the_file_names(linear, tiny):
    result = linear("evaluate", "--weights", "runs/a/best.safetensors", "--data", tiny, "--threads", 1)
    assert result.out.startswith("linear on ")
    wrong = linear("evaluate", "--weights", "runs/a/best.safetensors", "--data", tiny, "--model", "mnist-cnn", code=1)
    assert "best.safetensors is of the model linear, not of mnist-cnn: leave out --model" in wrong.err
    wrong = linear("export", "--weights", "a", "--model", "mnist-cnn", "--out", "x.onnx", code=1)
    assert "is of the model linear, not of mnist-cnn" in wrong.err


def test_models_are_recognized_by_their_tensors(linear, tiny):
    plain = without_metadata(linear.run / "best.safetensors", linear.folder / "plain.safetensors")
    named = linear("evaluate", "--weights", plain, "--data", tiny, "--threads", 1)
    assert named.out.startswith("linear on ") and "its tensors are those of linear" in named.err
    other = without_metadata(linear.run / "best.safetensors", linear.folder / "part.safetensors", prefix="net.body.",
                             extra=["loss.weight"])
    part = linear("evaluate", "--weights", other, "--data", tiny, "--threads", 1)
    assert part.out.split(";")[0].split(" in ")[0] == named.out.split(";")[0].split(" in ")[0]
    assert "'net.body.' taken off the names; 1 other tensor left out" in part.err
    wrong = linear("evaluate", "--weights", plain, "--model", "cifar-cnn", "--data", tiny, code=1)
    assert "its tensors are those of linear: --model linear" in wrong.err


def errors(result):
    return [line for line in result.err.splitlines() if "error: " in line or "warning: " in line]


def test_weights_that_fit_no_model_are_refused_in_one_line(farthing, tiny):
    foreign = write_floats(farthing.folder / "foreign.safetensors", {f"{i}.weight": [4, 4] for i in range(40)})
    (line,) = errors(farthing("train", "--data", tiny, "--weights", foreign, code=2))
    assert f"{foreign} does not say of which model its weights are, and its tensors are those of none" in line
    (line,) = errors(farthing("train", "--data", tiny, "--model", "linear", "--normalize", "0.5/0.5", "--weights",
                              foreign, code=1))
    assert "does not fit linear; 2 missing: " in line and "; 40 unexpected: " in line


@pytest.mark.parametrize("name, words", [
    ("distilbert.transformer.layer.0.attention.q_lin.weight", "DistilBERT"),
    ("transformer.layer.0.attention.q_lin.weight", "DistilBERT"),
    ("roberta.encoder.layer.0.intermediate.dense.weight", "RoBERTa"),
])
def test_relatives_of_bert_are_refused_by_name(farthing, tiny, name, words):
    prefix = name.split(".")[0] + "." if name.split(".")[0] != "transformer" else ""
    path = write_floats(farthing.folder / "relative.safetensors",
                        {prefix + "embeddings.word_embeddings.weight": [20, 8], name: [8, 8]})
    expected = f"{path}: its tensors are those of {words}, which is not supported; BERT is"
    assert expected in farthing("train", "--data", tiny, "--weights", path, code=2).err
    assert expected in farthing("evaluate", "--data", tiny, "--weights", path, code=1).err
    shown = farthing("weights", path)
    assert expected in shown.err and name in shown.out


def test_a_named_model_has_the_channels_of_its_file(farthing, tiny):
    farthing("train", "--model", "resnet20", "--data", tiny, "--batch", 32, "--steps", 1, "--threads", 1, "--name", "a")
    plain = without_metadata(farthing.folder / "runs/a/last.safetensors", farthing.folder / "plain.safetensors")
    (farthing.folder / "p.png").write_bytes(png(28, 28, 90))
    predict = ["predict", "p.png", "--weights", plain, "--size", 28, "--json", "--logits", "--threads", 1]
    assert farthing(*predict, "--model", "resnet20").events == farthing(*predict).events
    for model in (["--model", "resnet20"], []):
        result = farthing("export", "--weights", plain, *model, "--size", 28, "--out", "x.onnx")
        assert "resnet20 for 1x28x28 images" in result.out


def test_a_folder_with_a_colon_in_its_name(linear):
    folder = linear.folder / "a:b"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes((linear.folder / "runs/a/best.safetensors").read_bytes())
    assert linear("weights", "a:b").out == linear("weights", "a:b/model.safetensors").out.replace("a:b/model.safetensors", "a:b")


def test_weights_lists_a_file(linear):
    text = linear("weights", "a").out
    assert text.splitlines()[0] == "runs/a/best.safetensors: safetensors, 2 tensors, 7,850 parameters, 31 kB"
    assert "fits linear with 1 input channel and 10 classes" in text
    assert "fc.weight  F32    (10, 784)    7,840" in text and "normalization" in text
    facts = json.loads(linear("weights", "runs/a/best.safetensors", "--json").out)
    assert facts["fits"] == {"model": "linear", "channels": 1, "classes": 10, "prefix": ""}
    assert facts["metadata"]["model"] == "linear" and facts["parameters"] == 7850 and facts["bytes"] == 31400
    assert {"name": "fc.bias", "dtype": "F32", "shape": [10], "count": 10} in facts["tensors"]
    assert "there is no file nothing.pth" in linear("weights", "nothing.pth", code=1).err
    assert "no file was named" in linear("weights", code=2).err


# ---- cheap things first ----

@pytest.mark.parametrize("arguments, words", [
    (["train", "--model", "resnet81"], 'there is no model "resnet81"'),
    (["train", "--weights", "none.pth"], "none.pth"),
    (["train", "--weights", "s3://bucket/m.pth"], "copy it first: farthing store cp 's3://bucket/m.pth' ."),
    (["evaluate", "--weights", "none.pth"], "there is no file none.pth"),
    (["evaluate", "--weights", "runs/a/best.safetensors", "--model", "resnet81"], 'there is no model "resnet81"'),
    (["predict", "--weights", "a", "--model", "resnet81", "x.png"], 'there is no model "resnet81"'),
    (["predict", "--weights", "none.pth", "x.png"], "there is no file none.pth"),
])
def test_names_are_checked_before_data_is_read(linear, arguments, words):
    wrong = linear(*arguments, "--data", "/no/such/data", code=1)
    assert words in wrong.err and "/no/such/data" not in wrong.err


def test_a_wrong_number_of_classes_is_said(linear):
    (linear.folder / "names").write_text("a\nb\nc\n")
    (linear.folder / "x.png").write_bytes(png(28, 28, 7))
    wrong = linear("predict", "--weights", "a", "--classes", "names", "x.png", code=1)
    assert "has 10 classes, not 3" in wrong.err and "shape" not in wrong.err
    assert "has 10 classes, not 7" in linear("export", "--weights", "a", "--classes", 7, "--out", "x.onnx",
                                                     code=1).err


def test_stems(farthing):
    wrong = farthing("train", "--model", "vgg11", "--stem", "small", code=2)
    assert "vgg11 has no other stem; resnet18, resnet34" in wrong.err
    listed = [json.loads(line)["name"] for line in farthing("models", "--json").out.splitlines()]
    assert {"resnet18-small", "resnet20", "resnet110"} <= set(listed)


# ---- runs, folders, stores ----

def test_a_model_is_found_in_runs_and_folders(linear, tiny):
    (linear.folder / "one").mkdir()
    (linear.folder / "one" / "m.safetensors").write_bytes((linear.run / "best.safetensors").read_bytes())
    (linear.folder / "one" / "notes.txt").write_text("nothing")
    (linear.folder / "x.png").write_bytes(png(28, 28, 7))
    answers = [linear("predict", "--weights", place, "x.png").out for place in ("a", "runs/a", linear.run, "one")]
    assert len(set(answers)) == 1 and "x.png" in answers[0]
    assert "m.safetensors" in linear("evaluate", "one", "--data", tiny, "--threads", 1).out
    (linear.folder / "one" / "b.pth").write_bytes(b"")
    assert "one holds 2 model files, b.pth and m.safetensors among them" in \
        linear("predict", "--weights", "one", "x.png", code=1).err
    (linear.folder / "none").mkdir()
    assert "none is not a run and holds no model file" in linear("export", "--weights", "none", "--out", "x", code=1).err


def test_predict_takes_folders(linear):
    """Of the endings that a data set takes, too; what is in a file says its content."""
    for name in ("pictures/b/2.png", "pictures/a/1.PNG", "pictures/3.png", "pictures/c/5.jpe", "pictures/readme.txt",
                 "pictures/.x/4.png"):
        path = linear.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"text" if path.suffix == ".txt" else png(28, 28, 9))
    lines = linear("predict", "--weights", "a", "pictures", "--json").out.splitlines()
    assert [json.loads(line)["image"] for line in lines] == ["pictures/3.png", "pictures/a/1.PNG", "pictures/b/2.png",
                                                             "pictures/c/5.jpe"]
    (linear.folder / "empty").mkdir()
    assert "empty holds no pictures" in linear("predict", "--weights", "a", "empty", code=1).err


@pytest.fixture
def stored(linear, bucket):
    """The run's model in a bucket, as files and as a run that has ended."""
    model = (linear.run / "best.safetensors").read_bytes()
    bucket.write("files/m.safetensors", model)
    bucket.write("ended/run.json", (linear.run / "run.json").read_bytes())
    bucket.write("ended/events/000001.jsonl", (linear.run / "events.jsonl").read_bytes())
    bucket.write("ended/best.safetensors", model)
    return bucket


def test_models_in_a_store_are_fetched_once_and_verified(linear, stored, tiny, tmp_path):
    env = {**stored.environment, "FARTHING_CACHE": str(tmp_path / "cache")}
    (linear.folder / "x.png").write_bytes(png(28, 28, 7))
    here = linear("predict", "--weights", "a", "x.png").out
    first = linear("predict", "--weights", f"{stored.url}/files/m.safetensors", "x.png", env=env)
    assert first.out == here and f"fetching {stored.url}/files/m.safetensors" in first.err
    again = linear("predict", "--weights", f"{stored.url}/files/m.safetensors", "x.png", env=env)
    assert again.out == here and "fetching" not in again.err
    (copy,) = (tmp_path / "cache" / "models").glob("*-m.safetensors")
    damaged = bytearray(copy.read_bytes())
    damaged[-1] ^= 1
    copy.write_bytes(damaged)
    healed = linear("predict", "--weights", f"{stored.url}/files/m.safetensors", "x.png", env=env)
    assert healed.out == here and "fetching" in healed.err
    missing = linear("predict", "--weights", f"{stored.url}/files/n.safetensors", "x.png", env=env, code=1)
    assert f"there is no {stored.url}/files/n.safetensors" in missing.err


def test_runs_in_a_store(linear, stored, tiny, tmp_path):
    env = {**stored.environment, "FARTHING_CACHE": str(tmp_path / "cache")}
    here = linear("evaluate", "a", "--threads", 1, "--json").events[0]
    there = linear("evaluate", f"{stored.url}/ended", "--threads", 1, "--json", env=env).events[0]
    assert there["weights"] == f"{stored.url}/ended/best.safetensors"
    assert (there["accuracy"], there["loss"]) == (here["accuracy"], here["loss"])
    exported = linear("export", "--weights", f"{stored.url}/ended", "--out", "x.onnx", env=env)
    assert f"from {stored.url}/ended/best.safetensors" in exported.out
    listed = json.loads(linear("weights", f"{stored.url}/ended", "--json", env=env).out)
    assert listed["file"] == f"{stored.url}/ended/best.safetensors"

    # while it trains, the best so far is in best/
    model = (linear.run / "last.safetensors").read_bytes()
    stored.write("ended/best/step-000000000008-f000001.safetensors", model)
    stored.write("ended/best/step-000000000012-f000002.safetensors", model)
    stored.boto.delete_object(Bucket=stored.name, Key="ended/best.safetensors")
    running = linear("evaluate", f"{stored.url}/ended", "--threads", 1, env=env)
    assert "best/step-000000000012-f000002.safetensors" in running.out
    empty = linear("predict", "--weights", f"{stored.url}/nothing", "x.png", env=env, code=1)
    assert "nothing has no model yet" in empty.err


def test_runs_in_a_shared_folder(farthing, tiny):
    farthing("train", "--model", "linear", "--data", tiny, "--batch", 64, "--epochs", 1, "--threads", 1,
             "--checkpoints", "share/a", "--lease", "off", "--watch", "none")
    result = farthing("evaluate", "share/a", "--threads", 1)
    assert result.out.startswith("linear on ") and "share/a/best.safetensors" in result.out


# ---- weights in several files ----


@pytest.fixture
def shards(linear, tmp_path):
    """The model of the run as the hub has large ones: a file for each tensor, and an index."""
    folder, listed = tmp_path / "shards", {}
    folder.mkdir()
    for i, (name, (dtype, shape, data)) in enumerate(sorted(tensors(linear.run / "best.safetensors").items())):
        text = json.dumps({name: {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
        listed[name] = f"model-{i + 1:05d}-of-00002.safetensors"
        (folder / listed[name]).write_bytes(struct.pack("<Q", len(text)) + text + data)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": listed}))
    return index


def test_weights_in_several_files(linear, tiny, shards):
    arguments = ["--data", tiny, "--normalize", "none", "--json"]
    whole = json.loads(linear("evaluate", "--weights", without_metadata(
        linear.run / "best.safetensors", shards.parent.parent / "whole.safetensors"), *arguments).out)
    for place in (shards, shards.parent):
        result = json.loads(linear("evaluate", "--weights", place, *arguments).out)
        assert (result["loss"], result["accuracy"]) == (whole["loss"], whole["accuracy"])
        assert "read from 2 files" in linear("weights", place).out
    linear("train", "--weights", shards, "--data", tiny, "--steps", 1, "--name", f"of-{shards.parent.parent.name}")


def test_an_index_that_does_not_say_where_tensors_are(linear, shards):
    listed = json.loads(shards.read_text())["weight_map"]
    first, second = sorted(listed)

    def words(weight_map):
        shards.write_text(json.dumps({"weight_map": weight_map}))
        return linear("weights", shards, code=1).err

    assert f"no tensor '{second}x'" in words({**listed, second + "x": listed[second]})
    assert "gone.safetensors" in words({**listed, first: "gone.safetensors"})
    for outside in ("../whole.safetensors", "/etc/passwd", "..", "", 3):
        assert f"tensor '{first}' is in no file of the same folder" in words({first: outside})
    assert 'its "weight_map" lists no tensors' in words({})
    assert "neither safetensors nor" in words({**listed, first: shards.name})  # an index within itself
    (shards.parent / listed[second]).write_bytes((shards.parent / listed[first]).read_bytes())
    assert f"two tensors are called '{first}'" in words(listed)

"""Training on text: a tiny BERT on a made-up table, killed, resumed, moved, and by every strategy."""
import csv
import json
import os
import random
import shutil
import signal
import struct
from pathlib import Path

import pytest
from conftest import PATIENCE_S, Program, checkpoints, events_of, leader_of, needs_gloo, record, tensors, wait_for
from s3_server import free_port

WORDS = {"sport": "goal team match coach season player league score win cup".split(),
         "tech": "chip software phone internet server code data cloud laptop robot".split(),
         "": "the a of and to in on for with said new today week year big small report".split()}
TINY = "bert(layers=2,hidden=32,heads=2,intermediate=64)"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(word for topic in WORDS.values() for word in topic)]
RECIPE = ["--model", TINY, "--vocab-size", 80, "--max-length", 16, "--batch", 16, "--optimizer", "adamw", "--lr", 0.003,
          "--weight-decay", 0.01]


def text_of(draw, topics, words):
    return " ".join(draw.choice(WORDS["" if draw.random() < 0.5 else draw.choice(topics)]) for _ in range(words))


def write_table(path, count, row, header, seed):
    draw = random.Random(seed)
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(header)
        for _ in range(count):
            table.writerow(row(draw))


def write_set(folder, row, header=("text", "label")):
    folder.mkdir()
    write_table(folder / "train.csv", 320, row, header, 1)
    write_table(folder / "test.csv", 64, row, header, 2)
    return folder


def topic_row(draw):
    topic = draw.choice(["sport", "tech"])
    return text_of(draw, [topic], draw.randint(3, 20)), topic


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("text") / "topics", topic_row)


def metadata(path):
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size])["__metadata__"]


def train(farthing, data, *flags, name="run", **options):
    return farthing("train", "--data", data, *RECIPE, "--json", "--name", name, *flags, **options)


def test_a_run_has_its_tokenizer_and_so_have_its_models(farthing, topics):
    end = train(farthing, topics, "--epochs", 3).end
    assert end["accuracy"] > 0.8
    run = farthing.only_run()
    data = json.loads((run / "run.json").read_text())["data"]
    assert data["kind"] == "text" and data["vocabulary"] <= 80 and data["longest"] == 16 and "height" not in data
    tokenizer = json.loads((run / "tokenizer.json").read_text())
    assert (run / "vocab.txt").read_text().splitlines()[:2] == list(tokenizer["model"]["vocab"])[:2]
    assert json.loads((run / "config.json").read_text())["id2label"] == {"0": "sport", "1": "tech"}
    said = metadata(run / "best.safetensors")
    assert json.loads(said["tokenizer"]) == tokenizer and said["max_length"] == "16" and said["task"] == "classes"
    assert said["model"] == f"{TINY[:-1]},vocabulary={data['vocabulary']})" and "input" not in said
    result = farthing("evaluate", run / "last.safetensors", "--data", topics, "--json").events[-1]
    assert result["accuracy"] == pytest.approx(end["accuracy"]) and result["samples"] == 64
    assert "320 texts to train, 64 to validate" in farthing("report", run).out
    farthing("runs", "rm", "run")
    assert not run.exists()


@pytest.mark.parametrize("flags", [[], ["--by-length", "--accumulate", 2, "--clip", 1, "--layer-decay", 0.8,
                                        "--schedule", "linear", "--warmup", "10%"],
                                   ["--strategy", "hogwild", "--workers", 1]], ids=["plain", "all", "hogwild"])
def test_a_killed_run_ends_with_the_same_weights(farthing, topics, flags):
    arguments = ["--epochs", 8, "--checkpoint-every", 4, *flags]
    train(farthing, topics, *arguments, name="whole")
    process = farthing.start("train", "--data", topics, *RECIPE, "--name", "killed", *arguments)
    killed = farthing.folder / "runs" / "killed"
    wait_for(lambda: killed.exists() and checkpoints(killed), "a checkpoint")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    train(farthing, topics, "--resume", *arguments, name="killed")
    assert {event["event"] for event in record(killed)} >= {"start", "end"}
    assert tensors(killed / "last.safetensors") == tensors(farthing.folder / "runs" / "whole" / "last.safetensors")


def test_a_resumed_run_keeps_its_tokenizer(farthing, topics):
    vocabulary = farthing.folder / "vocab.txt"
    vocabulary.write_text("\n".join(TOKENS) + "\n")
    train(farthing, topics, "--vocab", vocabulary, "--steps", 4)
    vocabulary.write_text("\n".join(TOKENS[:20]) + "\n")
    end = train(farthing, topics, "--vocab", vocabulary, "--resume", "--steps", 60).end
    assert end["steps"] == 60 and end["accuracy"] > 0.8
    assert len((farthing.only_run() / "vocab.txt").read_text().splitlines()) == len(TOKENS)


def test_a_run_without_its_tokenizer(farthing, topics):
    """It is learned or read again only as long as nothing was learned with it."""
    vocabulary = farthing.folder / "vocab.txt"
    vocabulary.write_text("\n".join(TOKENS) + "\n")
    arguments = ["--vocab", vocabulary, "--steps", 2]
    train(farthing, topics, *arguments)
    run = farthing.only_run()
    (run / "tokenizer.json").unlink()
    assert "runs/run/tokenizer.json is missing" in train(farthing, topics, *arguments, "--resume", "--steps", 4, code=1).err
    # As if it had been killed right after run.json was written.
    for path in run.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "run.json":
            path.unlink()
    train(farthing, topics, *arguments, "--resume")
    assert (run / "vocab.txt").read_text().split() == TOKENS


def test_a_run_does_not_go_on_with_another_tokenizer(farthing, topics):
    train(farthing, topics, "--steps", 2)
    path = farthing.only_run() / "tokenizer.json"
    good = path.read_text()
    changed = json.loads(good)
    ids = changed["model"]["vocab"]
    one, other = list(ids)[10:12]
    ids[one], ids[other] = ids[other], ids[one]
    path.write_text(json.dumps(changed))
    result = train(farthing, topics, "--resume", "--steps", 4, code=1)
    assert "was started with another tokenizer" in result.err
    path.write_text(good)
    assert train(farthing, topics, "--resume", "--steps", 4).end["steps"] == 4


def test_another_machine_carries_a_run_on(farthing, topics):
    """The store has the tokenizer; what this machine's folder held is gone."""
    store = farthing.folder / "store"
    arguments = ["--checkpoints", store, "--lease", "off", "--checkpoint-every", 5]
    train(farthing, topics, *arguments, "--steps", 10)
    tokenizer = (farthing.only_run() / "tokenizer.json").read_bytes()
    assert (store / "tokenizer.json").read_bytes() == tokenizer
    shutil.rmtree(farthing.folder / "runs")
    train(farthing, topics, *arguments, "--steps", 20)
    assert (farthing.only_run() / "tokenizer.json").read_bytes() == tokenizer
    assert [event["step"] for event in record(farthing.only_run()) if event["event"] == "resume"] == [10]
    train(farthing, topics, "--steps", 20, name="whole")
    runs = farthing.folder / "runs"
    assert tensors(runs / "run" / "last.safetensors") == tensors(runs / "whole" / "last.safetensors")


@pytest.mark.parametrize("flags", [["--strategy", "hogwild", "--workers", 2],
                                   ["--strategy", "hogwild", "--processes", 2],
                                   ["--strategy", "parameter-server", "--workers", 2]],
                         ids=["threads", "processes", "parameter-server"])
def test_strategies(farthing, topics, flags):
    end = train(farthing, topics, "--epochs", 6, *flags).end
    assert end["accuracy"] > 0.75
    run = farthing.folder / "runs" / "run"
    assert metadata(run / "last.safetensors")["max_length"] == "16"
    assert json.loads((run / "run.json").read_text())["data"]["kind"] == "text"


def test_parts_of_batches_train_as_whole_ones(farthing, topics):
    """Dropout is on: each worker draws what the whole batch draws for its samples."""
    whole = train(farthing, topics, "--epochs", 2, name="whole").end
    farthing("launch", "--workers", 2, "--", "train", "--data", topics, *RECIPE, "--epochs", 2, "--name", "parts")
    parts = record(farthing.folder / "runs" / "parts")[-1]
    assert parts["event"] == "end" and parts["loss"] == pytest.approx(whole["loss"], rel=1e-3)


def test_a_server_keeps_its_tokenizer(farthing, topics):
    """Killed, and started again when --vocab has other tokens: of its run, or it is refused."""
    vocabulary, other = farthing.folder / "vocab.txt", TOKENS[:-2] + TOKENS[:-3:-1]
    command = ["serve", "parameters", "--data", topics, *RECIPE, "--vocab", vocabulary, "--epochs", 1, "--checkpoints",
               "state", "--port", 0, "--json"]
    for tokens in (TOKENS, other):
        vocabulary.write_text("\n".join(tokens) + "\n")
        server = farthing.start(*command)
        try:
            url = json.loads(server.stdout.readline())["url"]
            if tokens is other:
                worker = train(farthing, topics, "--vocab", vocabulary, "--strategy", "parameter-server", "--server", url,
                               name="worker", code=1)
                assert "give --vocab the tokenizer.json of the server's run" in worker.err
        finally:
            server.kill()
            server.communicate()
    (run,) = farthing.runs()
    assert (run / "vocab.txt").read_text().split() == TOKENS
    shutil.rmtree(run)
    assert "state holds a model for text for classes, tokenizer" in farthing(*command, code=1).err


@needs_gloo
def test_a_peer_with_another_tokenizer_is_refused(topics, tmp_path):
    """Files of one name and one number of tokens, on two machines."""
    (tmp_path / "token").write_text("a token that both nodes have")
    port = free_port()

    def node(name, tokens, *flags):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text("\n".join(tokens) + "\n")
        return Program(tmp_path / name).start(
            "launch", "--node", name, "--nodes", "1:2", "--workers", "1", "--rendezvous", f"127.0.0.1:{port}",
            "--token-file", tmp_path / "token", *flags, "--", "train", "--data", topics, *RECIPE, "--vocab", "vocab.txt",
            "--steps", 100000000, "--validate-every", 1000000, "--name", "run", "--watch", "none")

    first = node("a", TOKENS)
    second = None
    try:
        wait_for(lambda: (tmp_path / "a" / "runs" / "run" / "tokenizer.json").exists(), "the run", PATIENCE_S)
        second = node("b", TOKENS[:-2] + TOKENS[:-3:-1], "--host-rendezvous", "no")
        assert second.wait(timeout=PATIENCE_S) == 1
        assert "nodes have different data: sha256 of the tokenizer is" in second.stderr.read()
    finally:
        for process in filter(None, (second, first)):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)


def test_another_worker_keeps_the_run(farthing, topics, tmp_path):
    """The one that is left finds the run by its options as they were given, before data and tokenizer changed them."""
    store, local = tmp_path / "store", tmp_path / "runs" / "run" / "events.jsonl"
    process = farthing.start("launch", "--workers", "2", "--", "train", "--data", topics, *RECIPE, "--steps", 100000000,
                             "--validate-every", 1000000, "--name", "run", "--watch", "none", "--checkpoints", store,
                             "--lease", "60s")
    try:
        wait_for(lambda: any(event["event"] == "group" for event in events_of(local)), "a group", PATIENCE_S)
        os.kill(leader_of(events_of(local)), signal.SIGKILL)
        wait_for(lambda: any("-f000001" not in path.name for path in (store / "checkpoints").glob("*-f*.json")),
                 "its checkpoint", PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 75, process.stderr.read()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def number_row(draw):
    words = text_of(draw, ["sport", "tech"], draw.randint(3, 12))
    return words, sum(word in WORDS["sport"] for word in words.split()) / 4


def test_regression_has_no_accuracy(farthing, tmp_path):
    data = write_set(tmp_path / "numbers", number_row)
    result = train(farthing, data, "--task", "regression", "--epochs", 8)
    assert all("accuracy" not in key for event in result.events for key in event)
    losses = [event["train_loss"] for event in result.events if event["event"] == "epoch"]
    assert losses[-1] < losses[0] / 2
    run = farthing.only_run()
    assert metadata(run / "last.safetensors")["task"] == "regression"
    shown = farthing("evaluate", run / "last.safetensors", "--data", data).out
    assert "accuracy -, loss " in shown
    assert farthing("report", run).code == 0
    for flags in (["--until", "accuracy=0.9"], ["--best-by", "accuracy"]):
        refused = train(farthing, data, "--task", "regression", *flags, name="no", code=1)
        assert "a regression has no accuracy" in refused.err


def labels_row(draw):
    topics = [topic for topic in ("sport", "tech") if draw.random() < 0.6] or ["sport"]
    return text_of(draw, topics, draw.randint(8, 14)), ",".join(topics)


def test_multi_label(farthing, tmp_path):
    data = write_set(tmp_path / "labels", labels_row)
    end = train(farthing, data, "--task", "multi-label", "--epochs", 10).end
    assert end["accuracy"] > 0.7  # of samples all of whose labels are right; the most frequent set is 0.4 of them


def test_warm_up_in_percent(farthing, topics):
    train(farthing, topics, "--steps", 20, "--warmup", "50%", "--schedule", "linear")
    rates = {event["step"]: event["learning_rate"] for event in record(farthing.only_run()) if event["event"] == "step"}
    assert rates[20] == pytest.approx(0.003 / 10)
    assert "--warmup in percent needs to know the end" in train(
        farthing, topics, "--for", "10s", "--warmup", "5%", name="no", code=1).err
    assert "between 0% and 100%" in train(farthing, topics, "--warmup", "200%", name="no", code=2).err


@pytest.mark.parametrize("flags, message", [
    (["--model", "mnist-cnn"], "mnist-cnn is a model for images, and the data has text"),
    (["--model", "bert-tiny", "--data", "digits"], "bert-tiny is a model for text, and the data has images"),
    (["--max-length", 600], "--max-length 600 is more than the 512 tokens"),
    (["--no-decay", "encoder.*.bais"], 'matches "encoder.*.bais"'),
    (["--data", "digits", "--model", "mnist-cnn"], "--vocab-size is for text"),
])
def test_what_does_not_fit_is_refused(farthing, topics, flags, message):
    result = train(farthing, topics, "--steps", 1, *flags, code=1)
    assert message in result.err
    assert not farthing.runs()


def test_layer_decay_needs_layers_with_numbers(farthing):
    assert "--layer-decay" in farthing("train", "--model", "mnist-cnn", "--layer-decay", 0.9, "--steps", 1, code=1).err


def configuration(run):
    return json.loads((run / "run.json").read_text())["configuration"]


def test_the_optimizer_is_the_usual_one_of_the_model(farthing, topics):
    arguments = ["train", "--data", topics, "--model", TINY, "--batch", 16, "--max-length", 16, "--name", "run"]
    said = "no --optimizer given: adamw at a learning rate of 0.0005"
    assert said in farthing(*arguments, "--steps", 1).err
    run = farthing.only_run()
    assert (configuration(run)["optimizer"], configuration(run)["lr"]) == ("adamw", 0.0005)
    assert said not in farthing(*arguments, "--steps", 2, "--resume").err  # its configuration has it
    weights = ["--weights", run / "last.safetensors", "--steps", 1]
    tuned = ["train", "--data", topics, "--batch", 16, "--max-length", 16, "--name", "tuned"]
    assert "adamw at a learning rate of 5e-05" in farthing(*tuned, *weights).err
    assert said not in farthing(*arguments[:-1], "asked", "--steps", 1, "--optimizer", "sgd").err
    asked = configuration(farthing.folder / "runs/asked")
    assert (asked["optimizer"], asked["lr"]) == ("sgd", 0.01)


def test_without_a_model_text_is_for_a_bert(farthing, topics):
    arguments = ["train", "--data", topics, "--max-length", 8, "--batch", 4, "--vocab-size", 40, "--name", "run"]
    result = farthing(*arguments, "--steps", 1)
    assert "no --model given: training bert-mini, the default for text" in result.err
    assert (configuration(farthing.only_run())["model"], configuration(farthing.only_run())["optimizer"]) == (
        "bert-mini", "adamw")
    assert "no --model" not in farthing(*arguments, "--steps", 2, "--resume").err
    assert "--nesterov" in farthing(*arguments[:-1], "other", "--steps", 1, "--nesterov", code=1).err


def test_weights_of_another_vocabulary_are_refused(farthing, topics):
    train(farthing, topics, "--steps", 1)
    vocabulary = farthing.folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(200))]))
    arguments = ["train", "--data", topics, "--weights", farthing.only_run() / "last.safetensors", "--steps", 1]
    refused = farthing(*arguments, "--vocab", vocabulary, "--name", "other", code=1).err
    assert "the tokenizer has 205 tokens, but" in refused
    refused = farthing("evaluate", "--weights", "run", "--data", topics, "--vocab", vocabulary, code=1).err
    assert "the tokenizer has 205 tokens, but" in refused
    farthing(*arguments, "--name", "more")  # with the tokenizer that the file has
    runs = farthing.folder / "runs"
    assert (runs / "more" / "tokenizer.json").read_bytes() == (runs / "run" / "tokenizer.json").read_bytes()


def test_pairs_need_a_model_for_pairs(farthing, tmp_path):
    pairs = write_set(tmp_path / "pairs", lambda draw: (*topic_row(draw), text_of(draw, ["tech"], 3)),
                      ("text", "label", "other"))
    failed = farthing("train", "--data", pairs, "--pair-column", "other", "--vocab-size", 80, "--max-length", 16, "--model",
                      TINY.replace(")", ",types=1)"), code=1)
    assert "texts come in pairs" in failed.err and "types=2" in failed.err

"""Models for text as files: folders of the Hugging Face hub in and out, and layers that are computed again."""
import json
import random

import pytest

WORDS = {"sport": "goal team match coach season".split(), "tech": "chip software phone server code".split()}
TINY = "bert(layers=3,hidden=32,heads=2,intermediate=64,positions=32)"


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    draw = random.Random(1)
    path = tmp_path_factory.mktemp("text") / "topics.csv"
    rows = [(" ".join(draw.choices(WORDS[topic], k=draw.randint(2, 12))), topic) for topic in draw.choices(list(WORDS), k=160)]
    path.write_text("text,label\n" + "".join(f"{text},{topic}\n" for text, topic in rows))
    return path


@pytest.fixture
def trained(farthing, topics):
    def train(name, *flags, **options):
        return farthing("train", "--data", topics, "--model", TINY, "--vocab-size", 60, "--max-length", 16, "--batch", 16,
                        "--epochs", 2, "--optimizer", "adamw", "--lr", 0.003, "--threads", 1, "--name", name, *flags,
                        **options)
    return train


def test_layers_computed_again_change_nothing(trained, farthing):
    trained("kept", "--recompute", "none")
    trained("again", "--recompute", "layers")
    # --recompute auto does so where memory is short, and says so
    assert "layers are computed again for their gradients" in trained("auto", env={"FARTHING_MEMORY_MB": "1"}).err
    assert "again" not in trained("room", env={"FARTHING_MEMORY_MB": "4000"}).err
    models = {(farthing.folder / "runs" / name / "best.safetensors").read_bytes() for name in
              ("kept", "again", "auto", "room")}
    assert len(models) == 1


def test_a_folder_for_transformers(trained, farthing, topics):
    trained("a")
    said = farthing("export", "--weights", "a", "--to", "huggingface", "--out", "hub").out
    assert "for texts of up to 16 tokens and 2 classes" in said
    hub = farthing.folder / "hub"
    assert {path.name for path in hub.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json",
                                                     "tokenizer_config.json", "vocab.txt"}
    config = json.loads((hub / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"] and config["num_hidden_layers"] == 3
    assert config["id2label"] == {"0": "sport", "1": "tech"}
    # what farthing itself reads back, as from anybody else: without its own metadata
    data = (hub / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header["__metadata__"] = {"format": "pt"}
    header = json.dumps(header).encode()
    (hub / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size:])
    farthing("export", "--weights", "hub", "--to", "huggingface", "--out", "again")
    assert json.loads((farthing.folder / "again" / "config.json").read_text()) == config
    # its classes have the order that its config.json says, whatever that of the data would be
    (right,) = farthing("evaluate", "--weights", "hub", "--data", topics, "--json").events
    (hub / "config.json").write_text(json.dumps(config | {"id2label": {"0": "tech", "1": "sport"}}))
    (wrong,) = farthing("evaluate", "--weights", "hub", "--data", topics, "--json").events
    assert right["accuracy"] + wrong["accuracy"] == 1 and right["accuracy"] != wrong["accuracy"]
    # and trains on from
    result = farthing("train", "--data", topics, "--weights", "hub", "--steps", 1, "--batch", 16, "--max-length", 16)
    assert "bert(layers=3,hidden=32,heads=2,intermediate=64," in result.out


def test_an_encoder_gets_a_head(trained, farthing, topics):
    trained("a")
    farthing("export", "--weights", "a", "--to", "huggingface", "--out", "hub")
    path = farthing.folder / "hub" / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    entries = {name.replace("classifier.", "cls.predictions.").removeprefix("bert."): entry
               for name, entry in header.items() if name != "__metadata__"}
    header = json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size:])
    result = farthing("train", "--data", topics, "--weights", "hub", "--steps", 1, "--batch", 16, "--max-length", 16)
    assert "initialized, since the file lacks them: classifier" in result.err
    wrong = farthing("export", "--weights", "hub", "--to", "huggingface", "--out", "x", code=1)
    assert "classifier" in wrong.err and "it was not fine-tuned yet: farthing train --weights" in wrong.err


def test_images_have_no_place_in_transformers(farthing, tiny):
    farthing("train", "--data", tiny, "--model", "linear", "--steps", 1, "--name", "a")
    wrong = farthing("export", "--weights", "a", "--to", "huggingface", "--out", "x", code=1)
    assert "linear has no place in transformers" in wrong.err
    assert not (farthing.folder / "x").exists()
    wrong = farthing("export", "--weights", "a", "--to", "huggingface", "--out", "-", code=2)
    assert "writes a folder" in wrong.err and not (farthing.folder / "-").exists()

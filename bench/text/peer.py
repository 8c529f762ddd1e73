"""PyTorch's side of bench/text/run: training steps of transformers' BertForSequenceClassification on the same batches.

    peer.py MODEL PRECISION WAY THREADS SECONDS < BATCHES

A line of BATCHES is a JSON list of lengths (bench_text_step --show-batches). Each batch is padded to its longest sequence, as
transformers' collator does. A step is forward, loss, backward, clipping and AdamW. WAY is eager or sdpa (attention), with
"-compiled" behind it for torch.compile. Prints one JSON line: the mean time of a step, and the most memory that was resident.
"""
import contextlib
import json
import resource
import sys
import time

import torch
from transformers import BertConfig, BertForSequenceClassification

MODELS = {"bert-tiny": (2, 128, 2), "bert-mini": (4, 256, 4), "bert-small": (4, 512, 8), "bert-base": (12, 768, 12)}


def make_batch(lengths, vocabulary):
    longest = max(lengths)
    ids = torch.randint(vocabulary, (len(lengths), longest))
    mask = (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids),
            "labels": torch.randint(4, (len(lengths),))}


def main():
    name, precision, way, threads, seconds = sys.argv[1:]
    torch.manual_seed(1)
    torch.set_num_threads(int(threads))
    layers, hidden, heads = MODELS[name]
    config = BertConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                        intermediate_size=4 * hidden, num_labels=4)
    config._attn_implementation = way.split("-")[0]
    model = BertForSequenceClassification(config).train()
    call = torch.compile(model, dynamic=True) if way.endswith("-compiled") else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.01, fused=True)
    batches = [make_batch(json.loads(line), config.vocab_size) for line in sys.stdin]
    bf16 = precision == "bf16"

    def step(batch):
        with torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext():
            loss = call(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for batch in batches:
        step(batch)
    steps, begun = 0, time.perf_counter()
    while steps == 0 or steps % len(batches) or time.perf_counter() - begun < float(seconds):
        step(batches[steps % len(batches)])
        steps += 1
    step_ms = 1e3 * (time.perf_counter() - begun) / steps
    print(json.dumps({"peer": f"PyTorch {torch.__version__}", "way": way, "step_ms": step_ms,
                      "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


main()

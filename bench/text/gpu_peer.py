"""PyTorch's side of bench/text/gpu: bert-base for classification in one way, and its speed as one JSON line.

    gpu_peer.py {fixed,natural} {eager,default,reduce-overhead,max-autotune} SECONDS [LENGTHS_FILE]

A plain BERT of torch.nn layers with scaled_dot_product_attention; autocast to bf16, fused AdamW, dropout 0.1, tokens on the
device. fixed: batches of 64 sequences of 128 tokens, no mask. natural: lengths drawn from the file ("length count" a line),
each batch padded to its longest with a mask; compiled ways take any length (dynamic shapes), reduce-overhead pads all to 128.
0 seconds: compile and leave.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

BATCH, LONGEST, HIDDEN, HEADS, LAYERS, INNER, VOCABULARY, CLASSES, BATCHES = 64, 128, 768, 12, 12, 3072, 30522, 4, 64


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN, eps=1e-12), nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, x, mask):
        n, length, _ = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1)
        y = self.out(y.transpose(1, 2).reshape(n, length, HIDDEN))
        x = self.norm1(x + F.dropout(y, 0.1))
        return self.norm2(x + F.dropout(self.down(F.gelu(self.up(x))), 0.1))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(512, HIDDEN)
        self.types, self.norm = nn.Embedding(2, HIDDEN), nn.LayerNorm(HIDDEN, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.pooler, self.classifier = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, tokens, mask):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places) + self.types(torch.zeros_like(tokens))
        x = F.dropout(self.norm(x), 0.1)
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(F.dropout(torch.tanh(self.pooler(x[:, 0])), 0.1))


def make_batches(case, mode, file):
    """Tokens and masks; of one length there is one batch, as nothing depends on the tokens."""
    if case == "fixed":
        return [(torch.randint(0, VOCABULARY, (BATCH, LONGEST), device="cuda"), None)]
    rows = [tuple(map(int, line.split())) for line in open(file)]
    lengths = torch.tensor([length for length, _ in rows])
    counts = torch.tensor([float(count) for _, count in rows])
    made = []
    for _ in range(BATCHES):
        own = lengths[torch.multinomial(counts, BATCH, replacement=True)].cuda()
        padded = LONGEST if mode == "reduce-overhead" else int(own.max())
        mask = (torch.arange(padded, device="cuda")[None, :] < own[:, None])[:, None, None, :]
        made.append((torch.randint(0, VOCABULARY, (BATCH, padded), device="cuda"), mask))
    return made


def main():
    case, mode, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Bert().cuda().train()
    dynamic = case == "natural" and mode != "reduce-overhead"
    forward = model if mode == "eager" else torch.compile(model, mode=mode, dynamic=True if dynamic else None)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6, fused=True)
    batches = make_batches(case, mode, sys.argv[4] if len(sys.argv) > 4 else None)
    labels = torch.randint(0, CLASSES, (BATCH,), device="cuda")

    def step(number):
        tokens, mask = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(forward(tokens, mask), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for number in range(3):
        step(number).item()
    if seconds <= 0:
        return
    for number in range(max(10, len(batches))):
        loss = step(number)
    loss.item()
    steps, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds or steps % len(batches) != 0:
        loss = step(steps)
        steps += 1
        if steps % 16 == 0:
            loss.item()  # not too far ahead
    loss.item()
    each = (time.perf_counter() - begun) / steps
    print(json.dumps({"step_ms": 1e3 * each, "samples_per_s": BATCH / each, "peer": f"PyTorch {torch.__version__}"}), flush=True)


if __name__ == "__main__":
    main()

"""PyTorch's scaled_dot_product_attention, forward and backward: peer.py f32|bf16 HEADS SIZE LENGTH SEQUENCES DROPOUT THREADS
[causal]. Prints milliseconds of both, each the best of many runs."""
import sys
import time

import torch

precision, heads, size, length, sequences, dropout, threads = sys.argv[1:8]
causal = sys.argv[8:] == ["causal"]
heads, size, length, sequences, threads = map(int, (heads, size, length, sequences, threads))
torch.set_num_threads(threads)
dtype = torch.bfloat16 if precision == "bf16" else torch.float32
torch.manual_seed(1)
# As a model has them: parts of one product's result.
qkv = torch.randn(sequences, length, 3, heads, size, dtype=dtype, requires_grad=True)
gradient = torch.randn(sequences, heads, length, size, dtype=dtype)
best = [1e9, 1e9]
begin = time.perf_counter()
runs = 0
while runs < 3 or (runs < 200 and time.perf_counter() - begin < 1.5):
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    t0 = time.perf_counter()
    y = torch.nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=float(dropout), is_causal=causal)
    t1 = time.perf_counter()
    y.backward(gradient)
    t2 = time.perf_counter()
    best = [min(best[0], t1 - t0), min(best[1], t2 - t1)]
    runs += 1
print(f"{1e3 * best[0]:.4f} {1e3 * best[1]:.4f}")

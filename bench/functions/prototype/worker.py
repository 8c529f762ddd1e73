"""The worker of the prototype's design: PyTorch, pickles over HTTP; pulls, computes and pushes every INTERVAL batches.

    worker.py PORT SHARD SAMPLES BATCH INTERVAL

Prints "ready" when all is imported and read, and waits for a line; then "first" when its first gradient was taken,
and "done", and ends at another line or the end of its input."""
import http.client
import pickle
import sys

import torch
from model import Net, read_shard
from torch.nn import functional

port, shard, (samples, batch, interval) = int(sys.argv[1]), sys.argv[2], map(int, sys.argv[3:6])
torch.set_num_threads(1)
server = http.client.HTTPConnection("127.0.0.1", port, timeout=120)


def call(method, target, body=None):
    server.request(method, target, body)
    answer = server.getresponse()
    content = answer.read()
    assert answer.status == 200, (answer.status, content[:200])
    return content


model = Net()
images, labels = read_shard(shard)
print("ready", flush=True)
sys.stdin.readline()
group = interval * batch
for begin in range(0, samples, group):
    with torch.no_grad():
        for name, value in pickle.loads(call("GET", "/getParameter")).items():
            model.get_parameter(name).copy_(torch.from_numpy(value.copy()))
    model.zero_grad()
    end = min(begin + group, samples)
    for at in range(begin, end, batch):
        loss = functional.cross_entropy(model(images[at:at + batch]), labels[at:at + batch])
        (loss * (min(batch, end - at) / (end - begin))).backward()
    call("POST", "/putGradient", pickle.dumps({name: p.grad.numpy() for name, p in model.named_parameters()}))
    if begin == 0:
        print("first", flush=True)
print("done", flush=True)
sys.stdin.readline()  # until its processor time was looked at

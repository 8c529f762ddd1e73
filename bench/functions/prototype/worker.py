"""The worker of the prototype's design: PyTorch, pickles over HTTP; pulls, computes and pushes batch by batch.

    worker.py PORT SHARD SAMPLES BATCH

Prints "ready" when all is imported and read, and waits for a line; then "first" when its first gradient was taken,
and "done", and ends at another line or the end of its input."""
import http.client
import pickle
import sys

import torch
from model import Net, read_shard
from torch.nn import functional

port, shard, samples, batch = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
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
for begin in range(0, samples, batch):
    with torch.no_grad():
        for name, value in pickle.loads(call("GET", "/getParameter")).items():
            model.get_parameter(name).copy_(torch.from_numpy(value.copy()))
    model.zero_grad()
    functional.cross_entropy(model(images[begin:begin + batch]), labels[begin:begin + batch]).backward()
    call("POST", "/putGradient", pickle.dumps({name: p.grad.numpy() for name, p in model.named_parameters()}))
    if begin == 0:
        print("first", flush=True)
print("done", flush=True)
sys.stdin.readline()  # until its processor time was looked at

"""A PyTorch model that trains against farthing's parameter server. Needs torch, safetensors and requests.

    farthing serve parameters --model mnist-cnn --data-shape 1x28x28 --classes 10 --lr 0.05
    python examples/pytorch_worker.py http://127.0.0.1:29500 --steps 200

Any number of these, and of `farthing train --strategy parameter-server --server URL`, may work for one server."""
import argparse, hashlib, hmac, json, os, requests, secrets, time, torch
from safetensors.torch import load, save
from torch.nn import Conv2d, Linear, functional as F

class Net(torch.nn.Module):  # mnist-cnn, under its parameters' names
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.fc1, self.fc2 = Conv2d(1, 32, 3), Conv2d(32, 64, 3), Linear(9216, 128), Linear(128, 10)
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2).flatten(1)
        return self.fc2(F.dropout(F.relu(self.fc1(x)), 0.5, self.training))

def sign(method, target, body):
    """The header that proves who asks (src/http/signature.h), where the environment has a key."""
    if not (key := os.environ.get("FARTHING_ACCESS_KEY")):
        return {}
    digest, now, nonce = hashlib.sha256(body).hexdigest(), int(time.time()), secrets.token_hex(16)
    text = f"FTH1\n{method}\n{target}\n{digest}\n{now}\n{nonce}"
    mac = hmac.new(os.environ["FARTHING_SECRET_KEY"].encode(), text.encode(), "sha256").hexdigest()
    return {"Authorization": f"FTH1 key={key}, time={now}, nonce={nonce}, body={digest}, signature={mac}"}

def call(method, target, body=b""):
    for _ in range(8):  # a busy server says when to come again
        answer = session.request(method, args.server.rstrip("/") + target, data=body, headers=sign(method, target, body), timeout=90)
        if answer.status_code != 503:
            break
        time.sleep(float(answer.headers.get("Retry-After", 1)))
    return answer

def batches(size, seed):
    """Made-up digits, a bright bar per class: put your own data here."""
    torch.manual_seed(seed)
    while True:
        images, labels = 0.3 * torch.randn(size, 1, 28, 28), torch.randint(10, (size,))
        for image, label in zip(images, labels):
            image[0, 2 + 2 * label : 5 + 2 * label, 4:24] += 2
        yield images, labels

parser = argparse.ArgumentParser()
parser.add_argument("server")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--seed", type=int, default=1)
args, session, model = parser.parse_args(), requests.Session(), Net()
me = call("POST", "/registerWorker", b"{}").json()
for step, (images, labels) in zip(range(args.steps), batches(64, args.seed)):
    answer = call("GET", "/getParameter")
    model.load_state_dict(load(answer.content))
    loss = F.cross_entropy(model(images), labels)
    gradients = dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, list(model.parameters()))))
    metadata = dict(worker=me["worker"], sequence=me["sequence"] + 1 + step, version=answer.headers["X-Farthing-Version"],
                    samples=len(labels), loss=loss.item())
    answer = call("POST", "/putGradient", save(gradients, {k: str(v) for k, v in metadata.items()}))
    print(f"step {step + 1}: loss {loss.item():.4f}, {answer.status_code} {answer.json()}")
call("POST", "/unregisterWorker", json.dumps({"worker": me["worker"]}).encode())

"""A PyTorch model that trains against farthing's parameter server. Needs torch and safetensors.

    farthing serve parameters --model mnist-cnn --data-shape 1x28x28 --classes 10 --lr 0.05
    python examples/pytorch_worker.py http://127.0.0.1:29500 --steps 200

Any number of these, and of `farthing train --strategy parameter-server --server URL`, may work for one server."""
import argparse, hashlib, hmac, json, os, secrets, subprocess, time, torch, urllib.error, urllib.request
from safetensors.torch import load, save
from torch.nn import Conv2d, Dropout, Linear, functional as F

class Net(torch.nn.Module):  # mnist-cnn, layer for layer, under its parameters' names
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.fc1, self.fc2 = Conv2d(1, 32, 3), Conv2d(32, 64, 3), Linear(9216, 128), Linear(128, 10)
        self.dropout1, self.dropout2 = Dropout(0.25), Dropout(0.5)
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(self.dropout2(F.relu(self.fc1(self.dropout1(x.flatten(1))))))

def sign(method, target, body):
    """The header that proves who asks: the token of a server of yours on this machine, or a signature (src/http/signature.h)."""
    if not (key := os.environ.get("FARTHING_ACCESS_KEY")):
        found = subprocess.run([os.environ.get("FARTHING", "farthing"), "token", args.server], capture_output=True, text=True)
        return dict([found.stdout.strip().split(": ")]) if found.returncode == 0 else {}
    digest, now, nonce = hashlib.sha256(body).hexdigest(), int(time.time()), secrets.token_hex(16)
    text = f"FTH1\n{method}\n{target}\n{digest}\n{now}\n{nonce}"
    mac = hmac.new(os.environ["FARTHING_SECRET_KEY"].encode(), text.encode(), "sha256").hexdigest()
    return {"Authorization": f"FTH1 key={key}, time={now}, nonce={nonce}, body={digest}, signature={mac}"}

def call(method, target, body=None):
    """Code, headers and body of the answer. A busy server says when to come again."""
    for _ in range(8):
        request = urllib.request.Request(args.server.rstrip("/") + target, body, sign(method, target, body or b""), method=method)
        try:
            answer = urllib.request.urlopen(request, timeout=90)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        if answer.code != 503:
            break
        time.sleep(float(answer.headers.get("Retry-After", 1)))
    return answer.code, answer.headers, answer.read()

def batches(size, seed):
    """Made-up digits, a bright bar per class: put your own data here, normalized as me["normalization"] says."""
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
args, model = parser.parse_args(), Net()
me = json.loads(call("POST", "/registerWorker", b"{}")[2])
newest = target = "/getParameter?worker=" + me["worker"]
for step, (images, labels) in zip(range(args.steps), batches(64, args.seed)):
    while (pulled := call("GET", target))[0] == 304:  # the step that our last gradient is in is not made yet
        pass
    model.load_state_dict(load(pulled[2]))
    loss, version = F.cross_entropy(model(images), labels), pulled[1]["X-Farthing-Version"]
    gradients = dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, list(model.parameters()))))
    metadata = dict(worker=me["worker"], sequence=me["sequence"] + 1 + step, version=version, samples=len(labels), loss=loss.item())
    code, _, answer = call("POST", "/putGradient", save(gradients, {k: str(v) for k, v in metadata.items()}))
    target = f"{newest}&since={version}" if code == 201 else newest  # 201: stored; wait for the step. 409 stale: pull again
    print(f"step {step + 1}: loss {loss.item():.4f}, {code} {answer.decode()}")
call("POST", "/unregisterWorker", json.dumps({"worker": me["worker"]}).encode())

"""The parameter server of the prototype's design: Flask, pickles over HTTP, one lock. Prints its port.

    server.py"""
import pickle
import socket
import threading

import torch
from flask import Flask, Response, jsonify, request
from model import Net

torch.set_num_threads(1)
app, lock = Flask(__name__), threading.Lock()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
version = 0


@app.get("/getParameter")
def get_parameter():
    with lock:
        return Response(pickle.dumps({name: p.detach().numpy() for name, p in model.named_parameters()}),
                        mimetype="application/octet-stream")


@app.post("/putGradient")
def put_gradient():
    global version
    gradients = pickle.loads(request.get_data())
    with lock:
        for name, parameter in model.named_parameters():
            parameter.grad = torch.from_numpy(gradients[name])
        optimizer.step()
        version += 1
        return jsonify(code=200, version=version)


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
print(port, flush=True)
app.run("127.0.0.1", port, threaded=True)

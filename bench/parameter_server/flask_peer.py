"""The prototype's parameter server: Flask, pickles, one lock. Prints its port.

    flask_peer.py SHAPES.json    {"name": [dims], ...}"""
import json
import pickle
import socket
import sys
import threading

import numpy
from flask import Flask, Response, jsonify, request

app, lock = Flask(__name__), threading.Lock()
with open(sys.argv[1]) as file:
    parameters = {name: numpy.zeros(shape, numpy.float32) for name, shape in json.load(file).items()}
momentum = {name: numpy.zeros_like(value) for name, value in parameters.items()}
version = 0


@app.get("/getVersion")
def get_version():
    return jsonify(code=200, version=version)


@app.get("/getParameter")
def get_parameter():
    with lock:
        return Response(pickle.dumps(parameters), mimetype="application/octet-stream")


@app.post("/putGradient")
def put_gradient():
    global version
    gradients = pickle.loads(request.get_data())
    with lock:
        for name, gradient in gradients.items():
            momentum[name] *= 0.9
            momentum[name] += gradient
            parameters[name] -= 0.01 * momentum[name]
        version += 1
    return jsonify(code=200, version=version)


with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
print(port, flush=True)
app.run("127.0.0.1", port, threaded=True)

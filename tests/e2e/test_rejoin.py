"""Data-parallel training whose nodes are cut off from each other: three hosts, as network namespaces, whose links go down."""
import json
import os
import signal
import sys

import pytest
from conftest import FARTHING, PATIENCE_S, ROOT, needs_gloo, wait_for

sys.path.insert(0, str(ROOT / "bench" / "scaling"))
import hosts as hosts_module  # noqa: E402
from launched import Launch  # noqa: E402

RATE_BIT = 5e6  # so that training waits for the network instead of using the processors
pytestmark = [needs_gloo, pytest.mark.skipif(hosts_module.why_not() is not None,
                                             reason=f"no network namespaces: {hosts_module.why_not()}")]


@pytest.fixture
def hosts():
    with hosts_module.Hosts(3, RATE_BIT, gateway=True) as made:
        yield made


@pytest.fixture
def launch(hosts, tmp_path):
    """Starts training with a store, and ends it whatever happens."""
    launches = []

    def start(store, **environment):
        job = ["--model", "linear", "--data", "digits", "--batch", "60", "--threads", "1", "--steps", "100000000",
               "--validate-every", "1000000", "--checkpoints", store, "--checkpoint-every", "2s", "--name", "run",
               "--watch", "none"]
        launches.append(Launch(FARTHING, tmp_path, hosts, "2:4", job, environment))
        assert launches[0].wait_training(hosts, PATIENCE_S), launches[0].text()
        return launches[0]
    yield start
    for host in hosts:
        host.signal_all(signal.SIGKILL)
    for started in launches:
        for node in started.nodes:
            node.process.wait()


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    """A folder is reached by a node that is cut off from the others; a bucket is behind the same link."""
    if request.param == "folder":
        path = tmp_path / "store"
        return path, {}, lambda: json.loads((path / "lease.json").read_text())
    bucket = request.getfixturevalue("bucket")
    request.getfixturevalue("hosts")  # whose bridge it listens on
    forwarder = hosts_module.Forwarder(bucket.server.port)
    request.addfinalizer(forwarder.close)
    environment = bucket.server.environment(f"http://{hosts_module.GATEWAY}:{forwarder.port}")
    return f"{bucket.url}/run", environment, lambda: json.loads(bucket.read("run/lease.json"))


def wait_for_message(launch, node, text):
    wait_for(lambda: any(text in line for _, line in launch.nodes[node].since(0)), f'"{text}" on node{node + 1}', PATIENCE_S)


def stop(launch, *nodes):
    """As Ctrl-C does, and all of them save and end."""
    launch.nodes[nodes[0]].process.send_signal(signal.SIGINT)
    assert [launch.nodes[node].process.wait(PATIENCE_S) for node in nodes] == [75] * len(nodes), launch.text()


def test_a_follower_that_was_cut_off_does_not_take_the_run(launch, hosts, store):
    """It waits, without claiming the rendezvous or the lease, and comes back; the others train on all the time."""
    address, environment, read_lease = store
    training = launch(address, **environment)
    hosts[2].set_link(False)
    assert training.wait_training(hosts[:2], PATIENCE_S), training.text()
    wait_for_message(training, 2, "too few nodes: 1 node of at least 2: node3")
    assert not any("has the rendezvous now" in line for _, line in training.nodes[2].since(0)), training.text()
    hosts[2].set_link(True)
    assert training.wait_training(hosts, PATIENCE_S), training.text()
    lease = read_lease()
    assert (lease["fence"], lease["host"]) == (1, "node1")
    stop(training, 0, 1, 2)
    text = training.text()
    assert "on node3 (process" in text and "somebody" not in text


def test_the_node_that_saves_comes_back_as_a_follower(launch, hosts, store):
    """The node with the rendezvous and the lease is cut off: another one takes both over, and tells it so."""
    address, environment, read_lease = store
    training = launch(address, **environment)
    hosts[0].set_link(False)
    assert training.wait_training(hosts[1:], PATIENCE_S), training.text()
    wait_for(lambda: read_lease()["fence"] == 2, "another owner", PATIENCE_S)
    keeper = read_lease()["host"]
    assert keeper in ("node2", "node3")
    wait_for_message(training, 0, "too few nodes: 1 node of at least 2: node1")
    hosts[0].set_link(True)
    assert training.wait_training(hosts, PATIENCE_S), training.text()
    assert (read_lease()["fence"], read_lease()["host"]) == (2, keeper)
    stop(training, 1, 2, 0)


def test_nodes_that_were_apart_find_each_other(launch, hosts, tmp_path):
    """All links are cut, and the node with the rendezvous dies meanwhile: the other two wait, each by itself, until they reach
    each other."""
    training = launch(tmp_path / "store")
    for host in hosts:
        host.set_link(False)
    os.kill(training.nodes[0].process.pid, signal.SIGKILL)
    for node in (1, 2):
        wait_for_message(training, node, f"too few nodes: 1 node of at least 2: node{node + 1}")
    for host in hosts:
        host.set_link(True)
    assert training.wait_training(hosts[1:], PATIENCE_S), training.text()
    stop(training, 1, 2)

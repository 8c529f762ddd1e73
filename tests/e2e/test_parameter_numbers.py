"""Gradients that are finite and would still ruin the model: refused, counted against their worker, and never in the log."""
import numpy
import pytest
from conftest import wait_for
from test_parameter_server import ones, serve, sparse, weight_of  # noqa: F401: serve is a fixture

HUGE = numpy.float32(3e38)


def same(left, right):
    assert left.keys() == right.keys()
    return all(numpy.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("optimizer", [["--lr", "0.01", "--momentum", "0.9"], ["--optimizer", "adamw", "--lr", "0.001"]])
@pytest.mark.parametrize("model", [[], ["--model", "mnist-cnn", "--data-shape", "1x28x28"]])  # small and large bodies
def test_a_worker_cannot_poison_the_server(serve, optimizer, model):
    server = serve(*model, *optimizer, "--name", "run")
    client = server.client()
    before, _ = client.pull()
    for name in ("good", "bad"):
        assert client.register(name)["unfit"] == 0
    client.push("good", 1, 0, ones(before, 0.1), code=200)
    trained, _ = client.pull()
    half = {name: numpy.full(t.shape, 0x7f7f, numpy.uint16) for name, t in before.items()}
    for gradient in (ones(before, HUGE), ones(before, -HUGE), sparse(3, before, HUGE),
                     {name: (t, "BF16") for name, t in half.items()}):
        answer = client.push("bad", 1, 1, gradient, samples=64, code=409)
        assert answer["reason"] == "diverges" and "--clip-pushes" in answer["error"]
    gradient = ones(before)
    gradient[weight_of(before)].reshape(-1)[-1] = numpy.nan
    assert client.push("bad", 1, 1, gradient, code=400)["reason"] == "not_finite"
    after, version = client.pull()
    assert version == 1 and same(after, trained)

    health = client("GET", "/healthz").json
    assert health["status"] == "ok" and health["unfit"] == 5
    assert health["last_unfit"]["worker"] == "bad" and health["last_unfit"]["version"] == 1
    values = client.metrics()
    assert values['farthing_worker_unfit_total{worker="bad"}'] == 5
    assert 'farthing_worker_unfit_total{worker="good"}' not in values
    assert values['farthing_refused_total{reason="diverges"}'] == 4
    assert client.register("bad")["unfit"] == 5
    assert "worker bad: 1 of its gradients refused so far" in server.errors()

    client.push("good", 2, 1, ones(before, 0.1), code=200)  # the others go on
    client.push("bad", 1, 2, ones(before, 0.1), code=200)   # and so does it, once its numbers are fit
    server.stop()
    server.start()
    client = server.client()
    assert client.register("bad")["unfit"] == 5  # a checkpoint remembers
    client.push("good", 3, 3, ones(before, 0.1), code=200)
    trained, _ = client.pull()
    server.kill()
    server.start()
    after, version = server.client().pull()
    assert version == 4 and same(after, trained) and all(numpy.isfinite(t).all() for t in after.values())


def test_an_update_that_overflows_is_taken_back(serve):
    """The gradient is small; it is the optimizer's square of it, or a weight decay above 2, that overflows."""
    client = serve("--optimizer", "adamw", "--lr", "1e-16").client()
    before, _ = client.pull()
    client.register("w")
    client.push("w", 1, 0, ones(before), code=200)
    assert "not a finite number" in client.push("w", 2, 1, ones(before, 1e21), code=409)["error"]
    client.push("w", 2, 1, ones(before), code=200)
    assert all(numpy.isfinite(t).all() for t in client.pull()[0].values())

    client = serve("--lr", "1000", "--weight-decay", "1").client()
    client.register("w")
    for i in range(40):
        answer = client.push("w", i + 1, i, ones(before, 0.0))
        if answer["code"] != 200:
            break
    assert i > 8 and answer["reason"] == "diverges"
    after, version = client.pull()
    assert version == i and all(numpy.isfinite(t).all() for t in after.values())


def test_one_bad_gradient_does_not_spoil_the_step_of_the_others(serve):
    server = serve("--consistency", "sync:2", "--name", "run")
    client = server.client()
    before, _ = client.pull()
    for name in ("a", "b", "bad"):
        client.register(name)
    client.push("a", 1, 0, ones(before, 1.0), samples=3, code=201)
    assert client.push("bad", 1, 0, ones(before, HUGE), samples=2**31, code=409)["reason"] == "diverges"
    client.push("b", 1, 0, ones(before, 5.0), samples=1, code=200)
    after, _ = client.pull()
    for name in before:
        numpy.testing.assert_allclose(after[name], before[name] - 2, rtol=0, atol=1e-6)
    server.kill()
    server.start()
    assert same(server.client().pull()[0], after)


@pytest.mark.parametrize("consistency", ["sync", "sync:2"])
@pytest.mark.parametrize("bad", [HUGE, numpy.nan])
def test_nobody_waits_for_a_better_one(serve, consistency, bad):
    """The worker lives on, and keeps its lease; the step is made without it."""
    client = serve("--consistency", consistency).client()
    before, _ = client.pull()
    client.register("a")
    client.register("bad")
    client.push("a", 1, 0, ones(before, 3.0), code=201)
    assert client.push("bad", 1, 0, ones(before, bad))["code"] in (400, 409)
    wait_for(lambda: client.version() == 1, "the step")
    after, _ = client.pull()
    for name in before:
        numpy.testing.assert_allclose(after[name], before[name] - 3, rtol=0, atol=1e-6)
    assert client.push("bad", 1, 1, ones(before, bad))["code"] in (400, 409)  # first this time
    client.push("a", 2, 1, ones(before, 3.0), code=200)
    client.push("a", 3, 2, ones(before, 1.0), code=201)  # and a step of both
    client.push("bad", 1, 2, ones(before, 1.0), code=200)


def test_a_step_that_overflows_moves_on_without_an_update(serve):
    """Nobody's gradient is to blame, and nobody may wait forever."""
    server = serve("--consistency", "sync:2", "--lr", "1000", "--weight-decay", "1", "--name", "run")
    client = server.client()
    before, _ = client.pull()
    client.register("a")
    client.register("b")
    for i in range(40):
        client.push("a", i + 1, i, ones(before, 0.0), code=201)
        assert client.push("b", i + 1, i, ones(before, 0.0), code=200)["version"] == i + 1
    assert client.metrics()["farthing_void_steps_total"] > 0
    after, version = client.pull()
    assert version == 40 and all(numpy.isfinite(t).all() for t in after.values())
    assert "is skipped: a weight would no longer be a finite number" in server.errors()
    server.kill()
    server.start()
    again, version = server.client().pull()
    assert version == 40 and same(again, after)


@pytest.mark.parametrize("consistency", ["async", "sync:2"])
def test_pushes_are_clipped(serve, consistency):
    server = serve("--clip-pushes", "2", "--consistency", consistency, "--name", "run")
    client = server.client()
    before, _ = client.pull()
    size = sum(t.size for t in before.values())
    client.register("w")
    if consistency == "async":
        client.push("w", 1, 0, ones(before, HUGE), code=200)
        expected = 2 / numpy.sqrt(size)
    else:
        client.register("other")
        client.push("w", 1, 0, ones(before, HUGE), samples=3, code=201)
        client.push("other", 1, 0, ones(before, 0.01), samples=1, code=200)  # below it: as it is
        expected = (3 * 2 / numpy.sqrt(size) + 0.01) / 4
    after, _ = client.pull()
    for name in before:
        numpy.testing.assert_allclose(before[name] - after[name], expected, rtol=1e-3)
    client.push("w", 2, 1, sparse(0, before, 8.0))
    if consistency != "async":
        client.push("other", 2, 1, sparse(0, before, 8.0))
    second, version = client.pull()
    name = weight_of(before)
    numpy.testing.assert_allclose(after[name].flat[0] - second[name].flat[0], 2, rtol=1e-5)
    assert version == 2 and client.metrics()["farthing_clipped_total"] == (2 if consistency == "async" else 3)

    # What was logged is replayed as it was applied, whatever the option is by now; also from a later log.
    server.kill()
    server.arguments[server.arguments.index("--clip-pushes") + 1] = "0"
    server.start()
    client = server.client()
    assert same(client.pull()[0], second)
    client.push("w", 3, 2, sparse(0, before, 8.0))
    if consistency != "async":
        client.push("other", 3, 2, sparse(0, before, 8.0))
    third, _ = client.pull()
    numpy.testing.assert_allclose(second[name].flat[0] - third[name].flat[0], 8, rtol=1e-5)
    server.kill()
    server.arguments[server.arguments.index("--clip-pushes") + 1] = "2"
    server.start()
    client = server.client()
    assert same(client.pull()[0], third)
    client("POST", "/saveCheckpoint")
    wait_for(lambda: client.metrics()["farthing_checkpoint_version"] == 3, "the checkpoint")
    client.push("w", 4, 3, sparse(0, before, 8.0))
    if consistency != "async":
        client.push("other", 4, 3, sparse(0, before, 8.0))
    fourth, _ = client.pull()
    numpy.testing.assert_allclose(third[name].flat[0] - fourth[name].flat[0], 2, rtol=1e-5)
    server.kill()
    server.arguments[server.arguments.index("--clip-pushes") + 1] = "0"
    server.start()
    assert same(server.client().pull()[0], fourth)


def test_bounded_does_not_wait_for_what_was_refused(serve):
    client = serve("--consistency", "bounded:1", "--lease", "600s").client()
    before, _ = client.pull()
    client.register("a")
    client.register("bad")
    assert client.pull("?worker=bad")[1] == 0  # it computes for version 0: others may be one ahead, and no more
    client.push("a", 1, 0, ones(before), code=200)
    assert client.push("bad", 1, 0, ones(before, HUGE), code=409)["reason"] == "diverges"
    for i in range(1, 4):
        client.push("a", i + 1, i, ones(before), code=200)

"""az:// against a server written to the protocol's documentation (azure_server.py)."""
import random
import signal
import time
import urllib.request

import pytest
from azure_server import KEY, AzureServer, make_sas
from conftest import FARTHING, environment, wait_for, png
from fault_proxy import FaultProxy, Rule
from test_store import check_slashes


@pytest.fixture
def azure():
    with AzureServer() as server:
        yield server


@pytest.fixture
def store(farthing, azure):
    def run(*arguments, env=None, **options):
        return farthing("store", *arguments, env=azure.environment(AZURE_STORAGE_SAS_TOKEN=make_sas(), **(env or {})),
                        **options)
    run.folder = farthing.folder
    return run


def make_file(path, size, seed=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(size))
    return path


def test_objects_go_and_come_back(store, azure):
    small, empty = make_file(store.folder / "small ü&<.bin", 70_000), make_file(store.folder / "empty", 0)
    store("cp", small, empty, azure.url + "/a b/")
    assert azure.blobs["a b/small ü&<.bin"].content == small.read_bytes() and azure.blobs["a b/empty"].content == b""
    store("cp", azure.url + "/a b/small ü&<.bin", store.folder / "back", "--verify")
    assert (store.folder / "back").read_bytes() == small.read_bytes()
    assert "small ü&<.bin" in store("ls", azure.url + "/a b").out
    store("rm", azure.url + "/a b/empty")
    assert "a b/empty" not in azure.blobs
    assert "there is no object" in store("cat", azure.url + "/a b/empty", code=1).err


def test_lists_have_pages(store, azure):
    for number in range(17):
        make_file(store.folder / "many" / f"{number:02}" / "x", 10)
    store("cp", "-r", store.folder / "many", azure.url + "/m")
    names = store("ls", "-r", azure.url + "/m").out.split()
    assert names == [f"{number:02}/x" for number in range(17)]
    assert store("ls", azure.url).out.split() == ["m/"]
    store("rm", "-r", "--yes", azure.url + "/m")
    assert not azure.blobs


def test_slashes_count(store, azure):
    from azure_server import Blob
    check_slashes(store, azure.url, lambda name, content: azure.blobs.update({name: Blob(content, {})}), azure.blobs.keys,
                  store.folder)


def test_large_objects_go_in_blocks(store, azure):
    large = make_file(store.folder / "large", 45_000_000)
    store("cp", large, azure.url + "/large", "--verify")
    assert azure.blobs["large"].content == large.read_bytes()
    assert sum(comp == "block" for _, _, comp in azure.requests) == 6


def test_an_interrupted_upload_is_taken_up_again(store, azure):
    import subprocess
    large = make_file(store.folder / "large", 64 << 20)
    with FaultProxy(azure.server_address[1]) as proxy:
        proxy.rules = [Rule("hold", target="comp=block&", skip=3)]
        env = azure.environment(AZURE_STORAGE_SAS_TOKEN=make_sas(), FARTHING_AZURE_ENDPOINT=proxy.endpoint + "/testaccount")
        process = subprocess.Popen([FARTHING, "store", "cp", large, azure.url + "/large"], env=environment(**env),
                                   stdin=subprocess.DEVNULL)
        wait_for(lambda: len(azure.uncommitted.get("large", {})) == 3, "three blocks")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert "large" not in azure.blobs
    azure.requests.clear()
    store("cp", large, azure.url + "/large")
    assert azure.blobs["large"].content == large.read_bytes()
    assert sum(comp == "block" for _, _, comp in azure.requests) == 5


def test_a_key_makes_signatures_and_links(farthing, azure):
    env = azure.environment(AZURE_STORAGE_KEY=KEY)
    content = make_file(farthing.folder / "x", 1000)
    farthing("store", "cp", content, azure.url + "/p/x y", env=env)
    link = farthing("store", "presign", azure.url + "/p/x y", env=env).out.strip()
    assert urllib.request.urlopen(link).read() == content.read_bytes()
    assert KEY not in link
    put = farthing("store", "presign", azure.url + "/p/z", "--method", "put", env=env).out.strip()
    request = urllib.request.Request(put, data=b"new", method="PUT",
                                     headers={"x-ms-blob-type": "BlockBlob", "x-ms-version": "2020-12-06"})
    assert urllib.request.urlopen(request).status == 201 and azure.blobs["p/z"].content == b"new"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(link.replace("p/x%20y", "p/z"))
    brief = farthing("store", "presign", azure.url + "/p/z", "--expires", "1s", env=env).out.strip()
    time.sleep(2.1)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(brief)


def test_refusals_say_what_to_do_and_keep_secrets(farthing, azure):
    content = make_file(farthing.folder / "x", 1000)
    expired = make_sas(seconds=-10)
    for env, url, words in (
            (azure.environment(AZURE_STORAGE_SAS_TOKEN=expired), azure.url, "expired"),
            (azure.environment(AZURE_STORAGE_SAS_TOKEN="?" + make_sas("rl")), azure.url, "permissions"),
            (azure.environment(), azure.url, "AZURE_STORAGE_SAS_TOKEN"),
            (azure.environment(AZURE_STORAGE_SAS_TOKEN="nonsense"), azure.url, "no shared access signature"),
            (azure.environment(AZURE_STORAGE_KEY="no key!!"), azure.url, "base64"),
            (azure.environment(AZURE_STORAGE_SAS_TOKEN=make_sas(container="none")), "az://testaccount/none",
             "no such container"),
            (azure.environment(), "az:/", "az://account/container")):
        result = farthing("store", "cp", content, url + "/x", code=1, env=env)
        assert words in result.err and "sig=" not in result.err.replace('"sig="', ""), result.err
    result = farthing("store", "presign", azure.url + "/x", code=1,
                      env=azure.environment(AZURE_STORAGE_SAS_TOKEN=make_sas()))
    assert "AZURE_STORAGE_KEY" in result.err
    assert not azure.blobs


def test_a_signature_in_the_address_stays_out_of_messages(farthing, azure):
    content = make_file(farthing.folder / "x", 1000)
    farthing("store", "cp", content, azure.url + "/x", env=azure.environment(AZURE_STORAGE_KEY=KEY))
    assert farthing("store", "ls", azure.url + "?" + make_sas(), env=azure.environment()).out.split() == ["x"]
    result = farthing("store", "ls", azure.url + "?" + make_sas(seconds=-5), env=azure.environment(), code=1)
    assert "sig=" not in result.err and "AuthenticationFailed" in result.err


def test_bad_weather(store, azure):
    large = make_file(store.folder / "large", 40_000_000)
    with FaultProxy(azure.server_address[1]) as proxy:
        env = {"FARTHING_AZURE_ENDPOINT": proxy.endpoint + "/testaccount"}
        proxy.rules = [Rule("status", code=503, reason="ServerBusy", chance=0.3), Rule("lose_answer", chance=0.2),
                       Rule("cut_request", after=100_000, method="PUT", chance=0.2)]
        store("cp", large, azure.url + "/large", env=env)
        assert azure.blobs["large"].content == large.read_bytes() and proxy.count("") < proxy.count()
        proxy.rules = [Rule("cut_answer", after=1000, chance=0.3), Rule("flip", after=1000, chance=0.3)]
        store("cp", azure.url + "/large", store.folder / "back", env=env)
        assert (store.folder / "back").read_bytes() == large.read_bytes() and proxy.count("flip") > 0


def test_a_signature_in_the_address_is_told_nobody(farthing, azure, tiny):
    import subprocess
    signature = make_sas()
    process = subprocess.Popen(
        [FARTHING, "train", "--data", tiny, "--batch", "16", "--steps", "1000000", "--checkpoint-every", "10", "--watch", "none",
         "--checkpoints", azure.url + "/run?" + signature.lstrip("?")], cwd=farthing.folder, env=environment(**azure.environment()),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: any(name.startswith("run/checkpoints/") for name in list(azure.blobs)), "a checkpoint")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 75, err
    assert f"{azure.url}/run\n" in out and "without passwords and signatures" in out
    written = [out, err, *(file.read_bytes().decode("latin-1") for file in farthing.folder.rglob("*") if file.is_file()),
               *(blob.content.decode("latin-1") for blob in azure.blobs.values())]
    assert not any("sig=" in text for text in written)


def test_reading_a_run_tells_no_signature(farthing, azure, tiny):
    address, env = azure.url + "/run?" + make_sas().lstrip("?"), azure.environment()
    image = farthing.folder / "image.png"
    image.write_bytes(png(28, 28, 7))
    said = [farthing(*arguments, env=env) for arguments in (
        ["train", "--data", tiny, "--model", "linear", "--batch", 32, "--epochs", 1, "--watch", "none", "--checkpoints", address],
        ["report", address], ["report", address, "--json"], ["evaluate", address], ["evaluate", "--weights", address, "--data", tiny],
        ["predict", "--weights", address, image], ["export", "--weights", address, "--out", "model.onnx"])]
    assert not any("sig=" in result.out + result.err for result in said)
    assert not any(b"sig=" in file.read_bytes() for file in farthing.folder.rglob("*") if file.is_file())


def test_addresses_may_hold_a_signature(farthing, azure):
    signature = "?" + make_sas().lstrip("?")
    file = make_file(farthing.folder / "small", 1000)
    env = azure.environment()
    farthing("store", "cp", file, azure.url + "/a/small" + signature, env=env)
    assert azure.blobs["a/small"].content == file.read_bytes()
    assert farthing("store", "ls", azure.url + "/a" + signature, env=env).out.split() == ["small"]
    missing = farthing("store", "cat", azure.url + "/a/missing" + signature, env=env, code=1)
    assert "/a/missing" in missing.err and "sig=" not in missing.err


def test_a_rehearsal_with_a_signature(farthing, azure, tiny):
    result = farthing("rehearse", "--every", "1000s", "--interruptions", 1, "--no-verify", "--folder", "rehearsal", "--", "train",
                      "--data", tiny, "--batch", 16, "--steps", 20, "--checkpoints", azure.url + "/run?" + make_sas().lstrip("?"),
                      env=azure.environment())
    assert not azure.blobs, "what it stored is removed"
    written = [result.out, result.err,
               *(file.read_bytes().decode("latin-1") for file in farthing.folder.rglob("*") if file.is_file())]
    assert not any("sig=" in text for text in written)

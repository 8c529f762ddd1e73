"""How images are prepared: normalization and transforms, on every data set and in every command."""
import json
import struct
import zlib

import pytest
from conftest import SMALL, Program, png, tensors
from parameter_client import Client

QUICK = [*SMALL, "--batch", "32", "--lr", "0.05"]


def metadata(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size])["__metadata__"]


def without_metadata(path, to):
    """The same tensors as another program would have written them."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    del header["__metadata__"]
    text = json.dumps(header).encode().ljust(size)
    to.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])
    return to


def grey_png(side, value):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes(value(x, y) for x in range(side)) for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def image_tensor(path, side, value):
    values = struct.pack(f"<{side * side}f", *(value(x, y) for y in range(side) for x in range(side)))
    header = json.dumps({"images": {"dtype": "F32", "shape": [1, 1, side, side],
                                    "data_offsets": [0, len(values)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + values)
    return path


@pytest.fixture(scope="module")
def halves(tmp_path_factory, tiny):
    """A run whose images were normalized as none of the data sets is by itself."""
    program = Program(tmp_path_factory.mktemp("halves"))
    program.result = program("train", *QUICK, "--data", tiny, "--epochs", 1, "--normalize", "0.5/0.25", "--name", "run",
                             "--json")
    program.model = program.folder / "runs/run/best.safetensors"
    return program


# ---- normalization ----

def test_what_training_used_is_in_the_file_and_evaluate_uses_it(halves, tiny):
    assert json.loads(metadata(halves.model)["normalization"]) == {"mean": [0.5], "std": [0.25]}
    evaluate = ["evaluate", *SMALL, "--data", tiny, "--json", "--weights", halves.model]
    result = halves(*evaluate)
    assert result.events[0]["loss"] == pytest.approx(halves.result.end["loss"], rel=1e-6)
    assert "normalized" not in result.err
    assert halves(*evaluate, "--normalize", "0.5/0.25").err == result.err == ""
    other = halves(*evaluate, "--normalize", "mnist")
    assert other.events[0]["loss"] != result.events[0]["loss"]
    (line,) = other.err.splitlines()
    assert "trained with images normalized as 0.5/0.25; using mnist" in line


def test_what_is_assumed_is_said(halves, tiny):
    foreign = without_metadata(halves.model, halves.folder / "foreign.safetensors")
    evaluate = ["evaluate", *SMALL, "--data", tiny, "--json", "--weights", foreign]
    assumed, said = halves(*evaluate), halves(*evaluate, "--normalize", "0.5/0.25")
    (line,) = assumed.err.splitlines()
    assert "assuming mnist (0.1307/0.3081)" in line and "--normalize" in line
    assert said.err == ""
    assert said.events[0]["loss"] == pytest.approx(halves.result.end["loss"], rel=1e-6)
    assert assumed.events[0]["loss"] == halves(*evaluate, "--normalize", "mnist").events[0]["loss"]
    assert "normalize" not in halves(*evaluate, "--validation-transform", "normalize=0.5/0.25").err


@pytest.mark.parametrize("to", ["safetensors", "onnx"])
def test_export_writes_what_is_known_alone(halves, to):
    foreign = without_metadata(halves.model, halves.folder / "foreign.safetensors")
    out = halves.folder / f"out.{to}"
    export = ["export", *SMALL, "--size", 28, "--to", to, "--out", out, "--weights"]
    result = halves(*export, foreign)
    assert b"normalization" not in out.read_bytes()
    assert "--normalize" in result.err
    assert halves(*export, foreign, "--normalize", "0.5/0.25").err == ""
    assert b"normalization" in out.read_bytes()
    assert halves(*export, halves.model).err == ""
    assert b"0.25" in out.read_bytes()
    assert "trained with" in halves(*export, halves.model, "--normalize", "none").err


def test_predict_normalizes_as_the_file_or_the_flag_says(halves):
    def pixel(x, y):
        return (x * 7 + y * 3) % 256
    picture, foreign = halves.folder / "p.png", without_metadata(halves.model, halves.folder / "foreign.safetensors")
    picture.write_bytes(grey_png(28, pixel))

    def logits(weights, image, *more):
        result = halves("predict", *SMALL, "--size", 28, "--weights", weights, "--json", "--logits", image, *more)
        return result.events[0]["logits"], result.err
    expected = image_tensor(halves.folder / "a.safetensors", 28, lambda x, y: (pixel(x, y) / 255 - 0.5) / 0.25)
    usual = image_tensor(halves.folder / "b.safetensors", 28, lambda x, y: (pixel(x, y) / 255 - 0.1307) / 0.3081)
    right, silence = logits(foreign, expected)
    assert silence == ""  # tensors are not normalized
    # float32 sums over 784 pixels
    for weights, more, note in ((halves.model, [], ""), (foreign, ["--normalize", "0.5/0.25"], "")):
        got, err = logits(weights, picture, *more)
        assert got == pytest.approx(right, abs=2e-5) and err == note
    got, err = logits(foreign, picture)
    assert got == pytest.approx(logits(foreign, usual)[0], abs=2e-5)
    assert "assuming mnist" in err and len(err.splitlines()) == 1


def test_the_normalization_of_a_run_is_kept_when_it_goes_on(farthing, tiny):
    """One that is interrupted and goes on ends as one that is not."""
    whole = farthing("train", *QUICK, "--data", tiny, "--epochs", 2, "--normalize", "none", "--name", "a", "--json").end
    farthing("train", *QUICK, "--data", tiny, "--epochs", 1, "--normalize", "none", "--name", "b", "--json")
    parts = farthing("train", "--resume", "b", "--epochs", 2, "--json").end
    assert parts["loss"] == whole["loss"]


def test_training_goes_on_from_weights_with_their_normalization(halves, tiny):
    """And a run that goes on keeps it, with the file gone."""
    start = halves.folder / "start.safetensors"
    start.write_bytes(halves.model.read_bytes())
    flags = ["train", *QUICK, "--data", tiny, "--weights", start, "--json"]
    result = halves(*flags, "--epochs", 1, "--name", "kept")
    assert "normalizing images as 0.5/0.25" in result.err
    model = halves.folder / "runs/kept/last.safetensors"
    assert json.loads(metadata(model)["normalization"]) == {"mean": [0.5], "std": [0.25]}
    whole = halves(*flags, "--epochs", 2, "--name", "whole", "--normalize", "0.5/0.25").end
    start.unlink()
    assert halves("train", "--resume", "kept", "--epochs", 2, "--json").end["loss"] == whole["loss"]
    start.write_bytes(halves.model.read_bytes())
    other = halves(*flags, "--epochs", 1, "--name", "other", "--normalize", "mnist")
    assert json.loads(metadata(halves.folder / "runs/other/last.safetensors")["normalization"])["std"] == [0.3081]
    assert other.end["loss"] != result.end["loss"]
    foreign = without_metadata(halves.model, halves.folder / "foreign.safetensors")
    unknown = halves("train", *QUICK, "--data", tiny, "--weights", foreign, "--epochs", 1, "--json", "--name", "unknown")
    assert "assuming mnist (0.1307/0.3081)" in unknown.err


def test_a_local_server_and_its_workers_agree_with_the_weights(halves, tiny):
    halves("train", *QUICK, "--data", tiny, "--weights", halves.model, "--epochs", 1, "--strategy", "parameter-server",
           "--workers", 2, "--name", "together")
    known = metadata(halves.folder / "runs/together/last.safetensors")
    assert json.loads(known["normalization"]) == {"mean": [0.5], "std": [0.25]}


def test_runs_from_before_normalize_are_the_same_runs(farthing):
    """The identity of a configuration without it is what it was in version 0.1.0, and such a run is found by it."""
    flags = ["train", *SMALL, "--data", "digits", "--steps", 1, "--batch", 8]
    farthing(*flags, "--name", "a")
    path = farthing.folder / "runs/a/run.json"
    run = json.loads(path.read_text())
    assert run["identity"] == "442545838e4da9d6"
    del run["configuration"]["normalize"]  # as that version wrote it
    path.write_text(json.dumps(run))
    farthing(*flags, "--resume")
    assert farthing.only_run().name == "a"
    farthing("train", "--resume", "a")
    farthing(*flags, "--resume", "--normalize", "none")
    assert len(farthing.runs()) == 2


@pytest.mark.parametrize("flags, expected", [
    (["--normalize", "imagnet"], "expected imagenet, cifar, mnist, none or MEAN/STD"),
    (["--normalize", "0.5"], "MEAN/STD"),
    (["--normalize", "0.5/0"], "above 0"),
    (["--transform", "normalize=cifr"], "imagenet, cifar, mnist, none or MEAN/STD"),
    (["--augment", "flip", "--transform", "pad-crop=4"], "--augment flip and --transform"),
    (["--normalize", "0.5/0.5", "--transform", "flip,normalize=none"], "--normalize 0.5/0.5 and normalize=none in"),
    (["--normalize", "mnist", "--validation-transform", "normalize=none"], "in --validation-transform differ"),
])
def test_mistakes_are_wrong_usage(farthing, tiny, flags, expected):
    assert expected in farthing("train", *QUICK, "--data", tiny, *flags, code=2).err


def test_contradictions_are_refused(farthing, tiny):
    both = ["--transform", "normalize=mnist", "--validation-transform", "normalize=none"]
    err = farthing("train", *QUICK, "--data", tiny, *both, code=1).err
    assert "normalized as mnist by the transform for training, but as none by the transform for validation" in err
    err = farthing("train", *QUICK, "--data", tiny, "--normalize", "imagenet", code=1).err
    assert "imagenet is for 3 channels, but the images have 1" in err


def test_a_parameter_server_says_what_its_images_are_normalized_by(farthing, tiny):
    flags = ["serve", "parameters", *SMALL, "--lr", "0.1", "--data", tiny, "--normalize", "0.5/0.25", "--port", 0, "--json", "--unsigned"]
    server = farthing.start(*map(str, flags))
    try:
        about = json.loads(server.stdout.readline())
        answer = Client(about["port"])("POST", "/registerWorker", body=json.dumps({"worker": "w", "instance": "i"}))
        assert answer.json["normalization"] == {"mean": [0.5], "std": [0.25]}
        worker = ["train", "--strategy", "parameter-server", "--server", about["url"], *SMALL, "--data", tiny, "--batch",
                  32, "--steps", 3]
        err = farthing(*worker, code=None).err
        assert "expects images normalized as 0.5/0.25, but this worker uses mnist: give --normalize 0.5/0.25" in err
        farthing(*worker, "--normalize", "0.5/0.25")
    finally:
        server.terminate()
        server.wait(60)
    models = list(farthing.folder.glob("runs/*/last.safetensors"))
    assert models
    for model in models:
        assert json.loads(metadata(model)["normalization"]) == {"mean": [0.5], "std": [0.25]}


# ---- transforms of sets in memory ----

def test_another_size_is_what_the_model_is_for(farthing, tiny):
    flags = ["--data", tiny, "--json", *SMALL]
    end = farthing("train", *QUICK, *flags, "--epochs", 1, "--image-size", 20, "--name", "a").end
    model = farthing.folder / "runs/a/last.safetensors"
    known = metadata(model)
    assert known["input"] == "1x20x20" and known["transform"] == "resize=20x20"
    result = farthing("evaluate", *flags, "--weights", model)  # as the file says
    assert result.events[0]["loss"] == pytest.approx(end["loss"], rel=1e-6)
    again = farthing("evaluate", *flags, "--weights", model, "--validation-transform", "resize=20x20")
    assert again.events[0]["loss"] == result.events[0]["loss"]
    other = farthing("evaluate", *flags, "--weights", model, "--validation-transform", "resize=24")  # the middle of it
    assert other.events[0]["loss"] != result.events[0]["loss"]
    (farthing.folder / "p.png").write_bytes(grey_png(28, lambda x, y: x * y % 256))
    assert farthing("predict", "--weights", model, "p.png", "--json").events[0]["predictions"]
    farthing("export", "--weights", model, "--to", "safetensors", "--out", "e.safetensors")
    del known["step"]
    assert metadata(farthing.folder / "e.safetensors") == known


def test_the_transform_of_a_file_is_for_its_size_alone(farthing, tiny):
    """A size that is asked for is what predict, export and evaluate use; none of them crops to the old one first."""
    flags = ["--model", "resnet20", "--data", tiny, "--threads", 1]
    farthing("train", *flags, "--batch", 32, "--steps", 1, "--transform", "resize=12x12", "--validation-transform",
             "resize=20,centre-crop=12", "--name", "a")
    model = farthing.folder / "runs/a/last.safetensors"
    for size, transform in ((12, "resize=20,centre-crop=12"), (16, "resize=16x16")):
        farthing("export", "--weights", model, "--size", size, "--to", "safetensors", "--out", f"{size}.safetensors")
        known = metadata(farthing.folder / f"{size}.safetensors")
        assert known["input"] == f"1x{size}x{size}" and known["transform"] == transform
    (farthing.folder / "p.png").write_bytes(grey_png(28, lambda x, y: x * y % 256))
    predict = ["predict", "p.png", "--json", "--logits", "--threads", 1]
    assert (farthing(*predict, "--weights", model, "--size", 16).events[0]["logits"] ==
            farthing(*predict, "--weights", "16.safetensors").events[0]["logits"])
    evaluate = ["evaluate", "--json", "--threads", 1]
    exported = farthing(*evaluate, "--data", tiny, "--weights", "16.safetensors").events[0]["loss"]
    assert farthing(*evaluate, "--data", tiny, "--weights", model, "--image-size", 16).events[0]["loss"] == exported
    # of a run as well, whose transform for training is of the old size
    assert farthing(*evaluate, "runs/a", "--validation-transform", "resize=16x16").events[0]["loss"] == exported


def test_transforms_vary_training_alone_and_alike(farthing, tiny):
    flags = ["train", *QUICK, "--data", tiny, "--epochs", 1, "--json"]
    varied = ["--transform", "random-resized-crop=24,flip,colour-jitter=0.4", "--validation-transform",
              "resize=26,centre-crop=24"]
    one, four = (farthing(*flags, *varied, "--loader-threads", n, "--name", f"t{n}").end for n in (1, 4))
    assert one["loss"] == four["loss"]
    known = metadata(farthing.folder / "runs/t1/last.safetensors")
    assert known["input"] == "1x24x24" and known["transform"] == "resize=26,centre-crop=24"
    plain = farthing(*flags, "--name", "p").end
    flipped = farthing(*flags, "--transform", "flip", "--name", "f").end
    assert flipped["loss"] != plain["loss"]
    as_is = farthing(*flags, "--transform", "resize=28", "--name", "i").end
    assert as_is["loss"] == plain["loss"]
    farthing(*flags, "--transform", "resize=24", "--name", "r")  # the size that comes out, not its middle padded
    known = metadata(farthing.folder / "runs/r/last.safetensors")
    assert known["input"] == "1x24x24" and known["transform"] == "resize=24x24"


def test_a_shorter_side_alone_is_no_size_for_images_of_different_shapes(farthing):
    for kind in ("cat", "dog"):
        for i in range(4):
            image = farthing.folder / f"photos/{kind}/{i}.png"
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(png(30, 20, 9 * i) if i % 2 else png(20, 30, 9 * i))
    flags = ["train", "--model", "linear", "--data", "photos", "--steps", 1]
    for name in ("transform", "validation-transform"):
        refused = farthing(*flags, f"--{name}", "resize=16", code=1)
        assert "add centre-crop=16, or use resize=16x16" in refused.err
    farthing(*flags, "--transform", "resize=16,centre-crop=16", "--name", "c")
    assert metadata(farthing.folder / "runs/c/last.safetensors")["input"] == "3x16x16"
    farthing(*flags, "--transform", "resize=16", "--image-size", 12, "--name", "s")  # the middle of it
    assert metadata(farthing.folder / "runs/s/last.safetensors")["input"] == "3x12x12"


@pytest.mark.parametrize("workers", [["--strategy", "hogwild", "--workers", 2],
                                     ["--strategy", "hogwild", "--processes", 2],
                                     ["--strategy", "parameter-server", "--workers", 1]])
def test_workers_prepare_images_alike(farthing, tiny, workers):
    farthing("train", *QUICK, "--data", tiny, "--epochs", 1, "--image-size", 20, "--transform", "flip", "--normalize",
             "0.5/0.25", "--name", "a", *workers)
    known = metadata(farthing.folder / "runs/a/last.safetensors")
    assert known["input"] == "1x20x20" and json.loads(known["normalization"]) == {"mean": [0.5], "std": [0.25]}


def test_augment_is_not_for_image_files(farthing):
    for kind in "ab":
        for i in range(4):
            path = farthing.folder / f"set/{kind}/{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(grey_png(8, lambda x, y: 30 * i))
    err = farthing("train", *SMALL, "--data", "set", "--batch", 2, "--augment", "flip", code=None).err
    assert "--transform" in err and "--augment" in err


# ---- orientation ----

def exif(orientation):
    return b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x112, 3, 1, orientation, 0, 0)


def picture(width, height, value, orientation=None):
    """A PNG of value(x, y), with the orientation that a camera would write beside it."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + b"".join(bytes(value(x, y)) for x in range(width)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            (chunk(b"eXIf", exif(orientation)) if orientation else b"") + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def test_photos_taken_sideways_are_the_same_as_upright_ones(farthing):
    """In training, evaluation and predictions: the weights and numbers are equal, bit for bit."""
    upright, sideways = farthing.folder / "upright", farthing.folder / "sideways"
    for number in range(24):
        value = lambda x, y: (x * 9 % 256, y * 7 % 256, number * 10)
        for folder, data in ((upright, picture(20, 28, value)),
                             (sideways, picture(28, 20, lambda x, y: value(19 - y, x), 6))):
            place = folder / "ab"[number % 2]
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number:02d}.png").write_bytes(data)
    train = ["train", *SMALL, "--batch", 8, "--steps", 4, "--threads", 1]
    for folder in (upright, sideways):
        farthing(*train, "--data", folder, "--name", folder.name)
    models = [farthing.folder / "runs" / folder.name / "last.safetensors" for folder in (upright, sideways)]
    assert tensors(models[0]) == tensors(models[1])
    predict = lambda folder: farthing("predict", "--weights", models[0], "--json", folder / "a/00.png").events[0]["predictions"]
    assert predict(upright) == predict(sideways)
    losses = [farthing("evaluate", "--weights", models[0], *SMALL, "--data", folder, "--json").events[0]["loss"]
              for folder in (upright, sideways)]
    assert losses[0] == losses[1]


def test_too_many_bad_images_name_the_option(farthing):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    good = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress((b"\0" + b"\x80" * 8) * 8)) +
            chunk(b"IEND", b""))
    for label in "ab":
        (farthing.folder / "set" / label).mkdir(parents=True)
        for number in range(20):
            (farthing.folder / f"set/{label}/{number}.png").write_bytes(good if number > 1 else b"no picture")
    err = farthing("train", "--data", "set", "--model", "linear", "--image-size", 8, "--epochs", 1, "--batch", 8, code=1).err
    assert "cannot be read, more than the share of 0.001 allowed" in err and "--max-bad-images" in err

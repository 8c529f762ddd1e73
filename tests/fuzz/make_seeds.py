#!/usr/bin/env python3
"""Writes small inputs for every fuzz target, each a good one or close to it: make_seeds.py FOLDER.

A fuzzer takes hours to guess its way past a checksum, a Huffman table or a length field; from these it starts behind
them. Everything is made here, except the .pth and .pt2 files of tests/torch, which PyTorch wrote. FOLDER/<target>/<name> each;
tests/fuzz/replay.c runs them in `make test`, scripts/run-fuzz gives them to libFuzzer."""
import gzip
import io
import json
import lzma
import struct
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


# ---- pictures ----

def jpeg(width, height, sampling=((1, 1),), progressive=False, restart=0, adobe=None):
    """Blocks of one colour each: DC differences under the standard table, and an AC table of one code, the end."""
    dc_counts, dc_values = [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], range(12)
    ac_counts = [1] + [0] * 15
    codes, code, values = {}, 0, iter(dc_values)
    for length, count in enumerate(dc_counts, 1):
        for _ in range(count):
            codes[next(values)] = format(code, f"0{length}b")
            code += 1
        code <<= 1

    def segment(marker, body):
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    def bits_of(blocks):
        text = "".join(blocks)
        text += "1" * (-len(text) % 8)
        return int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0") if text else b""

    widest, tallest = max(h for h, v in sampling), max(v for h, v in sampling)
    across, down = -(-width // (8 * widest)), -(-height // (8 * tallest))
    scan, blocks, last = b"", [], [0] * len(sampling)
    for unit in range(across * down):
        if restart and unit and unit % restart == 0:
            scan += bits_of(blocks) + bytes([0xFF, 0xD0 + (unit // restart - 1) % 8])
            blocks, last = [], [0] * len(sampling)
        for component, (h, v) in enumerate(sampling):
            for block in range(h * v):
                value = (unit * 37 + component * 11 + block * 5) % 200 - 100
                change, last[component] = value - last[component], value
                size = abs(change).bit_length()
                blocks.append(codes[size])
                if size:
                    blocks.append(format(change if change > 0 else change + (1 << size) - 1, f"0{size}b"))
                if not progressive:
                    blocks.append("0")
    scan += bits_of(blocks)
    count = len(sampling)
    parts = [b"\xff\xd8", segment(0xDB, b"\0" + bytes([1] * 64))]
    if adobe is not None:
        parts.append(segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([adobe])))
    parts.append(segment(0xC2 if progressive else 0xC0, struct.pack(">BHHB", 8, height, width, count) + b"".join(
        bytes([number + 1, h << 4 | v, 0]) for number, (h, v) in enumerate(sampling))))
    parts.append(segment(0xC4, b"\0" + bytes(dc_counts) + bytes(dc_values)))
    parts.append(segment(0xC4, b"\x10" + bytes(ac_counts) + b"\0"))
    if restart:
        parts.append(segment(0xDD, struct.pack(">H", restart)))
    parts.append(segment(0xDA, bytes([count]) + b"".join(bytes([number + 1, 0]) for number in range(count)) +
                         (b"\0\0\0" if progressive else b"\0\x3f\0")) + scan)
    return b"".join(parts) + b"\xff\xd9"


def png(width, height, colour_type, depth=8, interlaced=False, extra=b""):
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    row_bytes = (width * channels * depth + 7) // 8
    rows = b"".join(bytes([y % 5]) + bytes((x * 7 + y * 13) % (4 if colour_type == 3 else 256)
                                           for x in range(row_bytes)) for y in range(height))
    palette = chunk(b"PLTE", bytes(range(12))) + chunk(b"tRNS", b"\x80") if colour_type == 3 else b""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0,
                                                              int(interlaced))) +
            palette + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def exif(orientation, order="<"):
    entries = [(0x10F, 2, 1, 0), (0x112, 3, 1, orientation if order == "<" else orientation << 16), (0x128, 3, 1, 0)]
    return ((b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, len(entries)) +
            b"".join(struct.pack(order + "HHII", *entry) for entry in entries) + struct.pack(order + "I", 0))


def with_exif(data, orientation, order="<"):
    body = b"Exif\0\0" + exif(orientation, order)
    return data[:2] + struct.pack(">BBH", 0xFF, 0xE1, len(body) + 2) + body + data[2:]


def make_exif():
    return {"little": exif(6), "big": exif(3, ">"), "jpeg": with_exif(jpeg(8, 8), 8), "none": jpeg(8, 8)}


def make_jpegs():
    files = {"grey": jpeg(8, 8), "colour": jpeg(16, 16, ((1, 1),) * 3), "subsampled": jpeg(40, 24, ((2, 2), (1, 1), (1, 1))),
             "progressive": jpeg(24, 16, ((1, 1),) * 3, progressive=True), "restarts": jpeg(40, 8, restart=2),
             "cmyk": jpeg(16, 8, ((1, 1),) * 4, adobe=0), "ycck": jpeg(16, 8, ((1, 1),) * 4, adobe=2),
             "turned": with_exif(jpeg(40, 24, ((2, 2), (1, 1), (1, 1))), 6), "mirrored": with_exif(jpeg(24, 16), 7, ">")}
    # The first two bytes choose size, smoothing and part: whole, and a part at half the size.
    return {f"{name}-{choice:02x}": bytes([choice, 0x37]) + data for name, data in files.items() for choice in (3, 0x7E)}


def make_pngs():
    files = {"grey": png(6, 5, 0), "bits": png(9, 3, 0, 1), "deep": png(4, 4, 2, 16), "colour": png(20, 18, 2),
             "palette": png(5, 5, 3), "grey-alpha": png(4, 6, 4), "alpha": png(7, 4, 6), "interlaced": png(1, 1, 2, 8, True)}
    return {name: b"\x05" + data for name, data in files.items()}


# ---- data sets ----

def make_idx():
    images = struct.pack(">IIII", 0x803, 3, 4, 4) + bytes(range(48))
    labels = struct.pack(">II", 0x801, 3) + bytes([1, 2, 9])
    return {"images": images, "labels": labels, "images.gz": gzip.compress(images, mtime=0),
            "labels.gz": gzip.compress(labels, mtime=0), "two.gz": gzip.compress(images[:20], mtime=0) +
            gzip.compress(images[20:], mtime=0), "images.xz": lzma.compress(images), "empty": labels[:4] + bytes(4)}


def make_cifar():
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    return {"record": b"\0" + bytes([3]) + bytes(i % 251 for i in range(3072)), "repeated": b"\0\2\0",
            "names": b"\1" + "\n".join(names).encode() + b"\n", "names-dos": b"\1" + "\r\n".join(names).encode() + b"\r\n\r\n"}


def tar(form, compression="", long_name=False):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:" + compression, format=form) as archive:
        for name in ("train/cat/1.png", "train/dog/2.jpg", "val/cat/3.PNG", "val/dog/" + "x" * (150 if long_name else 1) + ".jpeg"):
            entry = tarfile.TarInfo("./" + name)
            data = png(2, 2, 2) if name.lower().endswith("png") else jpeg(8, 8)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        entry = tarfile.TarInfo("train/link.png")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    return buffer.getvalue()


def make_archives():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a/1.png", "b/2.png"):
            archive.writestr(zipfile.ZipInfo(name), png(2, 2, 0), zipfile.ZIP_DEFLATED)
    return {"ustar.tar": tar(tarfile.USTAR_FORMAT), "gnu.tar": tar(tarfile.GNU_FORMAT, long_name=True),
            "pax.tar": tar(tarfile.PAX_FORMAT, long_name=True), "tar.gz": gzip.compress(tar(tarfile.USTAR_FORMAT), mtime=0),
            "tar.xz": tar(tarfile.USTAR_FORMAT, "xz"), "tar.bz2": tar(tarfile.USTAR_FORMAT, "bz2"), "zip": buffer.getvalue()}


def pack(files, kind):
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    else:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0) if kind == "tar.gz" else buffer.getvalue()


def make_archive_sets():
    idx = make_idx()
    mnist = {"dataset_dl/__main__.py": b"exit()", "d/MNIST/raw/train-images-idx3-ubyte": idx["images"],
             "d/MNIST/raw/train-labels-idx1-ubyte": idx["labels"]}
    packed = {"train-labels-idx1-ubyte.gz": idx["labels.gz"], "train-images-idx3-ubyte.xz": idx["images.xz"]}
    record = bytes([3]) + bytes(i % 251 for i in range(3072))
    cifar = {"data_batch_1.bin": record * 2, "batches.meta.txt": b"a\nb\nc\nd\n", "data_batch_2.bin.gz": gzip.compress(record, mtime=0)}
    sets = {"mnist": mnist, "packed": packed, "cifar": cifar}
    archives = {f"{name}.{kind}": pack(files, kind) for name, files in sets.items() for kind in ("tar", "tar.gz", "zip")}
    return {**archives, "single.bin": record, "images.tar": tar(tarfile.USTAR_FORMAT)}


def make_shard_manifests():
    shards = [{"name": f"part-000{i}.tar.gz", "samples": 4, "size_bytes": 100 + i, "sha256": f"{i}" * 64} for i in (1, 2)]
    whole = {"format": 1, "dataset": "mnist", "classes": 2, "class_names": ["a", "\u00fc"], "channels": 3, "height": 28, "width": 20,
             "normalization": {"mean": [0.1, 0.5, 1], "std": [0.3081, 1, 1e-3]}, "samples": 8, "seed": 7, "shards": shards}
    grey = {**whole, "channels": 1, "normalization": {"mean": [0], "std": [1]}, "later": {"x": [None]}}
    return {"colour": json.dumps(whole).encode(), "grey": json.dumps(grey, indent=1).encode(), "empty": b"{}"}


# ---- tensors ----

def make_index_files():
    return {"csv": b"\1path,label,split\na/1.jpg,cat,train\n\"b, \"\"c\"\".png\",3,val\r\n# no row\n", "plain": b"\1a.jpg,0\nb.jpg,1\n",
            "lines": b'\0{"path": "a/1.jpg", "label": "cat", "split": "train"}\n\n{"path": "b.png", "label": 3, "split": "val"}\n'}


def make_text_tables():
    return {"csv": b'\0text,label\n"a, ""b""\nc",x\r\nd,y\n', "agnews": b'\x20"2","a","b"\n"1","c","d"\n', "tsv": b'\x41text\tlabel\na "b\tc\n',
            "lines": b'\2{"text": "a\\u0000", "label": [1, 2.5, true], "x": {}}\n\n{"label": null, "text": "b"}\n',
            "semicolons": b"\x80\xef\xbb\xbfa;b\rc;d\r"}


def safetensors(tensors, metadata=None, padding=0):
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode() + b" " * padding
    return struct.pack("<Q", len(text)) + text + data


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def make_safetensors():
    kinds = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
    return {"one": safetensors({"a": ("F32", [2, 1], floats(1, -2))}),
            "kinds": safetensors({kind: (kind, [2], bytes(2 * size)) for kind, size in kinds.items()}, {"format": "pt"}),
            "empty": safetensors({}), "padded": safetensors({"x": ("U8", [0, 3], b""), "y": ("F32", [], floats(3))}, None, 7)}


def make_gradients():
    """The model of fuzz_gradient.c: fc.weight (4, 6) and fc.bias (4)."""
    facts = {"worker": "w", "sequence": "1", "version": "0", "samples": "8", "loss": "0.5", "correct": "3"}
    weight, bias = ("F32", [4, 6], floats(*range(24))), ("F32", [4], floats(1, 2, 3, 4))
    small = {"fc.weight": ("F16", [4, 6], bytes(48)), "fc.bias": ("BF16", [4], bytes(8))}
    few = {"fc.weight.indices": ("U32", [2], struct.pack("<2I", 3, 20)), "fc.weight.values": ("F32", [2], floats(1, 2)),
           "fc.bias": bias}
    files = {"dense": b"\0" + safetensors({"fc.weight": weight, "fc.bias": bias}, facts),
             "small": b"\0" + safetensors(small, facts), "few": b"\0" + safetensors(few, facts),
             "not-finite": b"\0" + safetensors({"fc.weight": weight, "fc.bias": ("F32", [4], floats(1, 2, float("inf"), 4))}, facts),
             "changed": b"\1\x40\0}\x80\0\"", "cut": b"\1\xff\xff\xc0", "local": b"\2" + b"123 5 4096"}
    span = {"shard": "run/part-0001.tar.gz", "epoch": "2", "from": "16", "to": "24"}
    files["of-a-shard"] = b"\0" + safetensors({"fc.weight": weight, "fc.bias": bias}, {**facts, **span})
    files["signed"] = b"\3FTH1 key=alice, time=1700000000, nonce=0123456789abcdef, body=" + b"0" * 64 + b", signature=" + b"1" * 64
    return files


def make_payloads():
    """Entries of the batch cache: a byte for the kind, as src/batches/item.h counts them, and the payload."""
    facts = {"label": "3", "name": "a/b.jpg"}
    return {"encoded": b"\0" + safetensors({"file": ("U8", [5], b"bytes")}, facts, padding=7),
            "decoded": b"\1" + safetensors({"pixels": ("U8", [2, 2, 3], bytes(12))}, facts),
            "planes": b"\1" + safetensors({"planes": ("U8", [1, 2, 2], bytes(4))}, facts),
            "error": b"\1" + safetensors({}, {**facts, "error": "not a JPEG file"}),
            "batch": b"\2" + safetensors({"labels": ("I64", [2], bytes(16)), "images": ("F32", [2, 1, 1, 2], floats(1, 2, 3, 4)),
                                          "bad": ("U8", [18], b'[[4,"a.png","bad"]]'[:18])}, {"number": "12", "epoch": "1"}, padding=5)}


def make_pth():
    files = {}
    for path in sorted((TESTS / "torch/pth").glob("*.pth")):
        data = path.read_bytes()
        if len(data) < 4096:
            files[path.stem] = b"\0" + data
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                pickle = next((name for name in archive.namelist() if name.endswith("data.pkl")), None)
                if pickle:
                    files[path.stem + "-pickle"] = b"\1" + archive.read(pickle)
    legacy = (TESTS / "torch/pth/legacy-protocol4.pth").read_bytes()
    start = 0
    for _ in range(3):  # after the magic number, the protocol and the facts about the machine
        start = legacy.index(b".\x80", start) + 1
    files["legacy-rest"] = b"\2" + legacy[start:]
    return files


# ---- texts ----

def make_exported():
    """The first byte says what the rest is; see fuzz_exported.c."""
    seeds = {path.stem: b"\0" + path.read_bytes() for path in sorted((TESTS / "torch/exported").glob("*.pt2"))}

    def size(number):
        return {"as_int": number} if isinstance(number, int) else {"as_expr": {"expr_str": number}}

    def meta(dtype, *sizes):
        return {"dtype": dtype, "sizes": [size(number) for number in sizes], "requires_grad": dtype == 7}

    def tensor(name):
        return {"as_tensor": {"name": name}}

    symbol = "Symbol('s77', positive=True, integer=True)"
    arguments = [{"as_none": True}, tensor("x"), {"as_tensors": [{"name": "x"}, {"name": "p"}]}, {"as_int": 3},
                 {"as_optional_tensors": [{"as_none": True}, tensor("x")]}, {"as_sym_int": {"as_name": "n"}}, {"as_ints": [1, -1]},
                 {"as_sym_ints": [{"as_name": "n"}, {"as_int": 3}]}, {"as_float": "-Infinity"}, {"as_floats": [0.5, "NaN"]},
                 {"as_bool": True}, {"as_bools": [True, False]}, {"as_string": "none"}, {"as_scalar_type": 7},
                 {"as_device": {"type": "cpu", "index": None}}, {"as_optional_tensor": tensor("x")}]
    nodes = [{"target": "torch.ops.aten.sym_size.int", "inputs": [], "outputs": [{"as_sym_int": {"as_name": "n"}}]},
             {"target": "torch.ops.aten.add_.Tensor", "inputs": [{"name": "self", "arg": tensor("c")}], "outputs": [tensor("t")]},
             {"target": "torch.ops.aten.all.default", "outputs": [{"as_tensors": [{"name": "y"}, {"name": "z"}]}, {"as_none": True}],
              "inputs": [{"name": f"a{i}", "arg": argument, "kind": 1} for i, argument in enumerate(arguments)],
              "metadata": {"stack_trace": 'File "/me/net.py", line 3, in forward\n    y = x\n  File "/site-packages/torch/a.py", line 4, in b\n',
                           "nn_module_stack": "L__self__,,a.Net;L__self__b,L['self'].b,a.B"}}]
    specs = [{"parameter": {"arg": {"name": "p"}, "parameter_name": "w"}}, {"parameter": {"arg": {"name": "q"}, "parameter_name": "v"}},
             {"buffer": {"arg": {"name": "c"}, "buffer_name": "w", "persistent": True}}, {"user_input": {"arg": tensor("x")}}]
    values = {"p": meta(7, 2, 3), "q": meta(7, 2, 3), "c": meta(7, 2, 3), "x": meta(7, symbol, "s27", 4), "t": meta(7, 2, 3),
              "y": meta(7, f"Mul(Integer(12), {symbol})", "12*s77*s27", "FloorDiv(Mul(Integer(4), s27), Integer(2))"), "z": meta(5)}
    program = {"schema_version": {"major": 8, "minor": 20}, "verifiers": ["TRAINING"], "torch_version": "2.15.0", "graph_module": {
        "signature": {"input_specs": specs, "output_specs": [{"user_output": {"arg": tensor("y")}}]},
        "graph": {"nodes": nodes, "tensor_values": values, "sym_int_values": {"n": size(symbol)}}}}
    seeds["program"] = b"\1" + json.dumps(program).encode()
    seeds["python-words"] = b"\1" + json.dumps(program).replace('"-Infinity"', "-Infinity").encode()

    def raw(strides, offset=0):
        return {"path_name": "weight_0", "is_param": True, "use_pickle": False,
                "tensor_meta": {**meta(7, 2, 3), "strides": [size(n) for n in strides], "storage_offset": size(offset), "layout": 7}}

    seeds["weights"] = b"\2" + json.dumps({"config": {"w": raw((3, 1)), "v": raw((1, 2)), "u": raw((1, 2), 10)}}).encode()
    constant = {"tensor_constant": {"arg": {"name": "k"}, "tensor_constant_name": "k"}}
    specs[1]["parameter"]["same_as"] = "p"
    specs.append(constant)
    values["k"] = meta(5, 1)
    whole = json.loads((TESTS / "torch/exported/constants.json").read_text())["program"]
    seeds["constants"] = b"\3" + json.dumps(whole, separators=(",", ":")).encode()
    seeds["text"] = b"\3" + json.dumps(dict(program, data={"k": "AQAAAAAAAAA="})).encode()
    return seeds


def make_manifests():
    state = {"batches": 12, "epoch": {"loss": 0.25, "samples": 64}, "elapsed_s": 1.5}
    tensors = {"file": "step-000000000012.safetensors", "bytes": 1234, "sha256": "ab" * 32}
    return {"plain": json.dumps({"format": 1, "step": 12, "tensors": tensors, "state": state}, indent=1).encode(),
            "fence": json.dumps({"format": 1, "step": 12, "fence": 3, "tensors": tensors, "state": state}).encode()}


def make_records():
    def lines(*events):
        return "".join(json.dumps(event) + "\n" for event in events).encode()

    start = {"event": "start", "time": 1000, "process_s": 1, "host": "a", "price_usd_per_hour": 3.6}
    step = {"event": "step", "time": 1010, "step": 10, "epoch": 0.5, "loss": 1.5, "accuracy": 0.5, "learning_rate": 0.1,
            "samples_per_s": 100, "elapsed_s": 9, "samples": 640, "compute_s": 8}
    epoch = {"event": "epoch", "time": 1020, "epoch": 1, "step": 20, "train_loss": 1, "validation_loss": 0.9,
             "validation_accuracy": 0.7, "seconds": 19, "elapsed_s": 19}
    best = {"event": "best", "time": 1020, "step": 20, "epoch": 1, "validation_loss": 0.9, "file": "best.safetensors"}
    checkpoint = {"event": "checkpoint", "time": 1021, "step": 20, "seconds": 0.1, "stall_s": 0.01, "bytes": 9, "file": "c"}
    notice = {"event": "notice", "time": 1022, "source": "aws", "message": "m", "seconds_given": 120, "seconds_used": 2,
              "step": 21, "saved_step": 21, "steps_lost": 0, "fitted": True}
    resume = dict(start, event="resume", time=1100, step=15, epoch=0.75, elapsed_s=15, previous_seen_s=1030)
    end = {"event": "end", "time": 1200, "accuracy": 0.9, "loss": 0.5, "epochs": 2, "steps": 40, "seconds": 60, "reason": "epochs"}
    return {"finished": lines(start, step, epoch, best, checkpoint, end), "resumed": lines(start, step, epoch, notice, resume, step),
            "error": lines(start, step, {"event": "error", "time": 1011, "step": 11, "status": "I/O", "message": "x"}),
            "torn": lines(start, step) + b'{"event":"st', "empty": b""}


def make_xml():
    listing = ('<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b'
               '</Name><IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken><Contents><Key>a &lt;'
               '&#252;&#x1F600;</Key><Size>12</Size><ETag>&quot;0f&quot;</ETag></Contents><CommonPrefixes><Prefix>x/</Prefix>'
               '</CommonPrefixes></ListBucketResult>')
    return {"listing": listing.encode(), "error": b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>",
            "upload": b"<InitiateMultipartUploadResult><UploadId>u-1</UploadId></InitiateMultipartUploadResult>",
            "odd": b"<!-- c --><a b='&gt;'><![CDATA[<x>]]><c/></a>"}


def make_yaml():
    return {"all": b"model: mnist-cnn\nepochs: 12\nlr: 1.5e-3\njson: true\noptimizer: adamw\nfor-long: 2h\nresume: abc\n",
            "quoted": b"---\n\"model\": 'it''s'\nlr: .5 # comment\nresume:\n...\n", "under_score": b"for_long: 90s\n", "empty": b""}


def make_prices():
    return {"rows": b"- {cloud: aws, instance: g4dn.xlarge, region: us-east-1, market: spot, usd_per_hour: 0.16, date: 2026-01-31}\n"
                    b"- cloud: gcp\n  instance: a2-highgpu-1g\n  usd_per_hour: 3.67\n", "none": b"[]\n"}


def make_texts():
    return {"plain": b"The quick brown fox, unaffable as ever, jumps [SEP] over [[MASK] the lazy dog.",
            "accents": "NA\u00cfVE cafe\u0301 Vi\u1ec7t \u0130stanbul \u212b \uac01 a\u302e\u1dfb\u0323".encode(), "chinese": "\u4e2d\u56fd\uf900x\U00020000".encode(),
            "odd": b"a\0b\xffc\xf0\x9f\xed\xa0\x80\xc2\xad\xe2\x80\x8b\r\n\x0b\x7f", "long": b"a" * 101 + b" " + b"b" * 100}


def make_tokenizers():
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "un", "##aff", "##able", "naive", "\u4e2d", ",", "a", "##z"]
    added = [{"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for number, token in enumerate(vocabulary[:5])]

    def special(name, segment):
        return {"SpecialToken": {"id": name, "type_id": segment}}

    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    template = {"type": "TemplateProcessing", "single": [special("[CLS]", 0), first, special("[SEP]", 0)],
                "pair": [special("[CLS]", 0), first, special("[SEP]", 0), second, special("[SEP]", 1)], "special_tokens": {}}
    whole = {"version": "1.0", "added_tokens": added, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": template,
             "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
             "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                       "vocab": {token: number for number, token in enumerate(vocabulary)}}}
    other = dict(whole, normalizer=None, padding={"pad_token": "[PAD]"}, added_tokens=[*added, dict(added[0], id=20, content="z[")],
                 post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]})
    return {"whole": json.dumps(whole).encode(), "other": json.dumps(other).encode()}


def main():
    folder = Path(sys.argv[1])
    seeds = {"archive": make_archives(), "archive_set": make_archive_sets(), "shard_manifest": make_shard_manifests(), "cifar": make_cifar(), "exif": make_exif(), "exported": make_exported(), "gradient": make_gradients(), "idx": make_idx(), "index_file": make_index_files(),
             "tar_scan": {name: data for name, data in make_archives().items() if data[257:262] == b"ustar"}, "jpeg": make_jpegs(),
             "manifest": make_manifests(), "payload": make_payloads(), "png": make_pngs(), "prices": make_prices(), "pth": make_pth(), "record": make_records(),
             "text_table": make_text_tables(), "xml": make_xml(), "safetensors": make_safetensors(), "yaml": make_yaml(), "tokenizer": make_texts(), "tokenizer_json": make_tokenizers()}
    missing = {path.stem.removeprefix("fuzz_") for path in (TESTS / "fuzz").glob("fuzz_*.c")} - set(seeds)
    if missing:
        sys.exit("no seeds for " + ", ".join(sorted(missing)))
    for target, files in seeds.items():
        place = folder / f"fuzz_{target}"
        place.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (place / name).write_bytes(data)


if __name__ == "__main__":
    main()

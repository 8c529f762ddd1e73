"""bench/engine/run --device cpu: farthing against the best of PyTorch's ways, in one run.

In a round every build of farthing and every way of PyTorch is measured once, in turns. Ways that took much longer than the
best of the first round are left out of the others. A figure is the median over rounds of a round's median step; the ratio is that
of PyTorch's fastest way to ours, and its range is that of the rounds, each with its own fastest way.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROCESSOR = pathlib.Path("/proc/cpuinfo").read_text()
CASES = {  # name: (model, batch, channels, size, classes)
    "mnist-cnn b64": ("mnist-cnn", 64, 1, 28, 10),
    "cifar-cnn b4": ("cifar-cnn", 4, 3, 32, 10),
    "cifar-cnn b64": ("cifar-cnn", 64, 3, 32, 10),
    "resnet18 64x64 b64": ("resnet18", 64, 3, 64, 200),
    "resnet50 224 b16": ("resnet50", 16, 3, 224, 1000),
    "vgg19 224 b8": ("vgg19", 8, 3, 224, 20),
}
EXPORTED = {}  # the file of a model that is not built in (bench/networks)
BARS = {  # (precision, level): PyTorch's time over ours that is wanted, per case
    ("f32", "avx512"): {"mnist-cnn b64": 3.4, "cifar-cnn b4": 5.0, "cifar-cnn b64": 2.4, "resnet18 64x64 b64": 1.8,
                        "resnet50 224 b16": 1.9, "vgg19 224 b8": 2.9},
    ("f32", "avx2"): {"mnist-cnn b64": 2.6, "cifar-cnn b4": 5.0, "cifar-cnn b64": 1.8, "resnet18 64x64 b64": 1.6,
                      "resnet50 224 b16": 1.4, "vgg19 224 b8": 2.2},
    ("bf16", "avx512"): {"resnet18 64x64 b64": 1.5, "resnet50 224 b16": 1.7},
}
WAYS = {
    "f32": ["eager", "eager, fused", "channels last", "channels last, fused"],
    "bf16": ["channels last", "channels last, fused"],
}
SLOWER = 1.4  # ways this much slower than the best of the first round are not measured again

# What holds both programs to a level. oneDNN has levels of its own for bf16; "native" leaves everything to the programs.
LEVELS = {
    "native": {},
    "avx512": {"FARTHING_MAX_ISA": "avx512", "ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "avx2": {"FARTHING_MAX_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}
ONEDNN_LEVELS = {("avx512", "f32"): "AVX512_CORE", ("avx512", "bf16"): "AVX512_CORE_BF16", ("avx2", "f32"): "AVX2",
                 ("avx2", "bf16"): "AVX2"}


def environment(arguments, precision):
    held = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), **LEVELS[arguments.isa])
    if arguments.isa != "native":
        held["ONEDNN_MAX_CPU_ISA"] = ONEDNN_LEVELS[arguments.isa, precision]
    return held


def machine_level():
    """The level whose bars hold for --isa native."""
    return "avx512" if "avx512bw" in PROCESSOR else "avx2" if "avx2" in PROCESSOR else "baseline"


class Ours:
    def __init__(self, program, arguments, precision):
        self.program, self.arguments, self.precision = program, arguments, precision
        self.device = "farthing"

    def run(self, case, **more):
        """What `farthing bench` says: its answer, and its standard error stream."""
        model, batch, channels, size, classes = CASES[case]
        sizes = ["--channels", channels, "--height", size, "--width", size, "--classes", classes]
        if model in EXPORTED:
            model, sizes = EXPORTED[model], []
        command = [self.program, "bench", "--model", model, "--batch", batch, *sizes, "--threads", self.arguments.threads,
                   "--seconds", self.arguments.seconds, "--precision", self.precision]
        reply = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600,
                               env=dict(environment(self.arguments, self.precision), **more))
        if reply.returncode != 0:
            sys.exit(f"{self.program} bench failed: {reply.stderr.strip()}")
        return json.loads(reply.stdout), reply.stderr

    def step_ms(self, case):
        answer, _ = self.run(case)
        self.device = answer.get("device", self.program)
        return answer["step_ms"]

    def name(self):
        return f"farthing {self.precision} ({self.device})"


class Peer:
    """PyTorch in a process of its own that answers one question at a time."""

    def __init__(self, arguments):
        self.arguments, self.precision = arguments, arguments.precision
        self.environment = environment(arguments, self.precision)
        self.title, self.process = "PyTorch", None

    def start(self):
        self.process = subprocess.Popen([self.arguments.python, str(HERE / "peer.py"), str(self.arguments.threads)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment)

    def ask(self, question):
        if not self.process:
            self.start()
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def step_ms(self, case, way):
        model, batch = CASES[case][:2]
        question = {"model": model, "batch": batch, "seconds": self.arguments.seconds, "way": way, "precision": self.precision}
        line = self.ask(question)
        # A virtual machine may announce AMX and hide the half of it that oneDNN needs.
        if not line and "amx_tile" in PROCESSOR and "ONEDNN_MAX_CPU_ISA" not in self.environment:
            print("PyTorch failed; trying without AMX", file=sys.stderr, flush=True)
            self.process.wait()
            self.environment["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
            self.start()
            line = self.ask(question)
        if not line:
            sys.exit("the PyTorch side ended; does --python name a Python with torch and torchvision?")
        reply = json.loads(line)
        self.title = f"{reply['peer']} {self.precision} ({reply['level']})"
        return reply["step_ms"]

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def measure(case, ours, peer, ways, rounds):
    """The times of every side, one per round: ({index of ours: [ms]}, {way: [ms]})."""
    mine, theirs = {i: [] for i in range(len(ours))}, {way: [] for way in ways}
    for number in range(rounds):
        for i, side in enumerate(ours):
            mine[i].append(side.step_ms(case))
        for way in theirs:
            theirs[way].append(peer.step_ms(case, way))
        if number == 0 and theirs:
            best = min(times[0] for times in theirs.values())
            slow = {way: times for way, times in theirs.items() if times[0] > SLOWER * best}
            theirs = {way: times for way, times in theirs.items() if way not in slow}
            for way, times in slow.items():
                print(f"{case}: PyTorch {way} {times[0]:.3f} ms, left out", file=sys.stderr, flush=True)
    return mine, theirs


def compare(mine, theirs, bar):
    """(our ms, their ms, ratio, least and largest of the rounds, whether the bar is met)."""
    best_of_round = [min(times) for times in zip(*theirs)]
    ratios = [them / us for us, them in zip(mine, best_of_round)]
    us, them = statistics.median(mine), min(statistics.median(times) for times in theirs)
    return us, them, them / us, min(ratios), max(ratios), None if bar is None else them / us >= bar


def write_row(case, name, them_name, result, bar):
    us, them, ratio, low, high, met = result
    wanted = "–" if bar is None else f"{bar}× ({'met' if met else 'missed'})"
    print(f"| {case} | {name} | {us:.3f} | {them_name} | {them:.3f} | {ratio:.2f}× | {low:.2f}–{high:.2f} | {wanted} |", flush=True)


def main(arguments):
    cases = arguments.cases or list(CASES)
    unknown = [c for c in cases if c not in CASES]
    if unknown:
        sys.exit(f"no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    level = machine_level() if arguments.isa == "native" else arguments.isa
    bars = BARS.get((arguments.precision, level), {})
    ways = arguments.ways.split("; ") if arguments.ways else WAYS[arguments.precision]
    ours = [Ours(program, arguments, arguments.precision) for program in arguments.farthing]
    if arguments.precision == "bf16":  # a network that is faster in f32 should say so
        ours.append(Ours(arguments.farthing[0], arguments, "f32"))
    peer = Peer(arguments)
    print(f"{arguments.threads} threads, {arguments.isa}, rounds: {arguments.rounds} of {arguments.seconds} s, load {os.getloadavg()[0]:.1f}\n")
    print("| case | farthing | ms a step | against | ms a step | ratio | range | wanted |\n" + "| --- " * 8 + "|")
    for case in cases:
        mine, theirs = measure(case, ours, peer, [] if arguments.no_peer else ways, arguments.rounds)
        for way, times in theirs.items():
            print(f"{case}: PyTorch {way} {statistics.median(times):.3f} ms ({min(times):.3f}–{max(times):.3f})", file=sys.stderr, flush=True)
        for i, side in enumerate(ours):
            if theirs and side.precision == arguments.precision:
                best = min(theirs, key=lambda way: statistics.median(theirs[way]))
                write_row(case, side.name(), f"{peer.title}, {best}", compare(mine[i], theirs.values(), bars.get(case)), bars.get(case))
            elif i > 0:  # our own first side against our others
                write_row(case, ours[0].name(), side.name(), compare(mine[0], [mine[i]], None), None)
    peer.close()

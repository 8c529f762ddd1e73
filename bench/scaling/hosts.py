"""Hosts for studies: network namespaces on a bridge, each behind a link of a given rate and delay.

A host's link is a veth pair. Both directions are shaped by tc's token bucket (tbf), and delayed by netem where the kernel has it;
all hosts reach each other through one bridge, as machines do through a switch. Names carry the process that made them, so that what a
killed study left behind is found and removed by the next one. Needs root.
"""
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

PREFIX = "fthscale"
# Of the range for benchmarks (RFC 2544), which no real network has; of each process its own, so that two can work at once.
NETWORK = f"198.{18 + (os.getpid() >> 8 & 1)}.{os.getpid() & 255}"
GATEWAY = f"{NETWORK}.254"
MOST_HOSTS = 250


def run(*words, check=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def why_not():
    """Why hosts cannot be made here; None: they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        name = f"{PREFIX}{os.getpid()}probe"
        run("ip", "netns", "add", name)
        try:
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "100mbit", "burst", "64kb", "limit", "64kb")
        finally:
            run("ip", "netns", "del", name, check=False)
    except (OSError, RuntimeError) as error:
        return str(error)
    return None


def end_all(name):
    """Kills every process in a namespace."""
    for number in run("ip", "netns", "pids", name, check=False).split():
        try:
            os.kill(int(number), signal.SIGKILL)
        except ProcessLookupError:
            pass


def is_alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def remove_leftovers():
    """Namespaces and bridges whose maker is gone, with the processes in them."""
    names = [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip()]
    links = re.findall(rf"^\d+: ({PREFIX}\d+b)[:@]", run("ip", "-o", "link", "show", "type", "bridge"), re.M)
    for name in names + links:
        found = re.match(rf"{PREFIX}(\d+)(n\d+|probe|b)$", name)
        if not found or is_alive(int(found.group(1))):
            continue
        if name in links:
            run("ip", "link", "del", name, check=False)
        else:
            end_all(name)
            run("ip", "netns", "del", name, check=False)


def end_once(number, _):
    """A second signal does not disturb the cleaning up after the first."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


class Host:
    """One namespace. Its processes end with it."""

    def __init__(self, hosts, index):
        self.index = index
        self.name = f"{PREFIX}{os.getpid()}n{index}"
        self.outside = Host.link_name(index)
        self.address = f"{NETWORK}.{index + 1}"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.outside, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", self.outside, "master", hosts.bridge, "up")
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.name, "link", "set", "eth0", "up")
        self._shape(["-n", self.name], "eth0", hosts)
        self._shape([], self.outside, hosts)

    @staticmethod
    def link_name(index):
        return f"{PREFIX[:5]}{os.getpid()}h{index}"[:15]

    @staticmethod
    def _shape(where, device, hosts):
        if hosts.rate_bit:
            # A burst of a millisecond; a buffer of 10 ms, as switches have them, unless said otherwise.
            burst = max(int(hosts.rate_bit / 8 / 1000), 64 * 1024)
            run("tc", *where, "qdisc", "add", "dev", device, "root", "handle", "1:", "tbf", "rate", f"{int(hosts.rate_bit)}bit",
                "burst", burst, "limit", hosts.buffer_bytes or max(int(hosts.rate_bit / 8 / 100), 256 * 1024))
        if hosts.delay_s:
            parent = ["parent", "1:1", "handle", "10:"] if hosts.rate_bit else ["root"]
            run("tc", *where, "qdisc", "add", "dev", device, *parent, "netem", "delay", f"{hosts.delay_s / 2 * 1e6:.0f}us")

    def start(self, command, **options):
        return subprocess.Popen(["ip", "netns", "exec", self.name, *map(str, command)], **options)

    def pids(self):
        return [int(number) for number in run("ip", "netns", "pids", self.name, check=False).split()]

    def signal_all(self, number):
        for process in self.pids():
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def set_link(self, up):
        run("ip", "link", "set", self.outside, "up" if up else "down")

    def set_fast(self):
        """Its link has no limits any more."""
        for where, device in ((["-n", self.name], "eth0"), ([], self.outside)):
            run("tc", *where, "qdisc", "del", "dev", device, "root", check=False)

    def set_route(self, other, up):
        """Whether what this host sends to the other one gets there."""
        run("ip", "-n", self.name, "route", "del" if up else "add", "blackhole", f"{other.address}/32")

    def remove(self):
        end_all(self.name)
        run("ip", "netns", "del", self.name, check=False)  # and the veth pair with it


class Hosts:
    """A context: the hosts are there inside it, and nothing of them is left behind it. `gateway`: this machine has an address on
    the bridge, GATEWAY, for a store that is reached over the hosts' links."""

    def __init__(self, count, rate_bit=None, delay_s=None, buffer_bytes=None, gateway=False):
        if count > MOST_HOSTS:
            raise ValueError(f"at most {MOST_HOSTS} hosts")
        self.count, self.rate_bit, self.delay_s, self.buffer_bytes = count, rate_bit, delay_s, buffer_bytes
        self.bridge, self.gateway = f"{PREFIX}{os.getpid()}b", gateway
        self.hosts = []

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C, so that __exit__ is reached
            signal.signal(number, end_once)
        remove_leftovers()
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            if self.gateway:
                run("ip", "addr", "add", f"{GATEWAY}/24", "dev", self.bridge)
            run("ip", "link", "set", self.bridge, "up")
            for index in range(self.count):
                self.hosts.append(Host(self, index))
        except BaseException:
            self.__exit__()
            raise
        return self.hosts

    def __exit__(self, *_):
        for index in range(self.count):
            name = f"{PREFIX}{os.getpid()}n{index}"
            end_all(name)
            run("ip", "link", "del", Host.link_name(index), check=False)  # now: it would go a moment after the namespace
            run("ip", "netns", "del", name, check=False)
        run("ip", "link", "del", self.bridge, check=False)


class Forwarder:
    """Passes connections to GATEWAY on to a port of this machine's loopback interface, until it is closed."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server((GATEWAY, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


def has_netem():
    name = f"{PREFIX}{os.getpid()}probe"
    run("ip", "netns", "add", name)
    try:
        run("tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except RuntimeError:
        return False
    finally:
        run("ip", "netns", "del", name, check=False)
    return True


def measure_round_trip(a, b):
    """Seconds, the median of some pings."""
    text = run("ip", "netns", "exec", a.name, "ping", "-q", "-c", 20, "-i", 0.01, b.address, check=False)
    found = re.search(r"= [\d.]+/([\d.]+)/", text)
    return float(found.group(1)) / 1e3 if found else None


class Output:
    """Lines of a process, each with the moment at which it came."""

    def __init__(self, process):
        self.process, self.lines = process, []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._read, args=(stream,), daemon=True)
                         for stream in (process.stdout, process.stderr) if stream]
        for thread in self._threads:
            thread.start()

    def _read(self, stream):
        for line in stream:
            with self._lock:
                self.lines.append((time.monotonic(), line.rstrip("\n")))

    def since(self, moment):
        with self._lock:
            return [(at, line) for at, line in self.lines if at >= moment]

    def text(self):
        return "\n".join(line for _, line in self.since(0))

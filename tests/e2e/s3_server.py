#!/usr/bin/python3
"""A real S3 server for tests and measurements: Ceph's gateway with one monitor and one storage daemon in memory.

    with S3Server() as server:                  # from Python: server.endpoint, server.environment(), server.client()
    tests/e2e/s3_server.py run -- COMMAND ...   # runs a command with AWS_* set and the bucket "test" made
    tests/e2e/s3_server.py start                # prints "export AWS_..." lines, then serves until it is stopped

Everything lives in a temporary folder and on free ports of the loopback interface; it starts within a few seconds, as root
or as anyone, without systemd, and ends with the process that started it. Debian's radosgw, ceph-mon and ceph-osd are
needed; where they are missing or cannot run, Unavailable says why."""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

PROGRAMS = ("ceph-authtool", "monmaptool", "ceph-mon", "ceph-osd", "ceph", "radosgw", "radosgw-admin")
ACCESS_KEY, SECRET_KEY = "testkey", "testsecret"
REGION = "us-east-1"
START_S = 60  # generous: a loaded machine with two cores
TRIES = 3     # a port found free may be taken by someone else a moment later

# Debian's Ceph is built without tcmalloc: each buffer of 4 MiB would be given back to the kernel and come back as fresh, zeroed
# pages, a fifth of the processor time of an upload.
ALLOCATOR = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=34359738368"

CONFIGURATION = """[global]
fsid={fsid}
mon_host=v2:127.0.0.1:{mon_port}/0
public_addr=127.0.0.1
cluster_addr=127.0.0.1
ms_bind_msgr1=false
keyring={folder}/keyring
mon_data={folder}/mon
osd_data={folder}/osd
rgw_data={folder}
run_dir={folder}
crash_dir={folder}
admin_socket=
log_file={folder}/$name.log
mon_cluster_log_file={folder}/cluster.log
mon_data_avail_crit=1
mon_allow_pool_size_one=true
paxos_propose_interval=0.01
paxos_min_wait=0.01
objecter_tick_interval=0.5
osd_pool_default_size=1
osd_pool_default_pg_num=1
osd_objectstore=memstore
osd_client_watch_timeout=2
memstore_device_bytes={memory_bytes}
rgw_dns_name=localhost
rgw_gc_obj_min_wait=2
rgw_gc_processor_period=2
rgw_gc_processor_max_time=2
rgw_frontends=beast endpoint=127.0.0.1:{port} tcp_nodelay=1
"""


class Unavailable(Exception):
    """The server cannot be run here; the message says why."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end_with_parent():
    """In a child before it becomes a program: the kernel ends it with the thread that started it."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the starter, which stops the daemons in order


class S3Server:
    def __init__(self, memory_bytes=4 << 30):
        self.memory_bytes = memory_bytes  # what may be stored, not what is taken
        self.folder = None
        self.daemons = {}

    # ---- starting and stopping ----

    def start(self):
        missing = [name for name in PROGRAMS if not shutil.which(name)]
        if missing:
            raise Unavailable(f"no {', '.join(missing)}: apt-get install radosgw ceph-mon ceph-osd")
        for attempt in range(TRIES):
            try:
                self._start_once()
                return self
            except (subprocess.SubprocessError, OSError, TimeoutError) as error:
                what = f"{error}\n{self._logs()}"
                self.stop()
        raise Unavailable(f"Ceph's S3 gateway did not start in {TRIES} tries: {what}")

    def _start_once(self):
        self.folder = Path(tempfile.mkdtemp(prefix="farthing-s3-"))
        self.port, mon_port = free_port(), free_port()
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        for name in ("mon", "osd"):
            (self.folder / name).mkdir()
        (self.folder / "ceph.conf").write_text(CONFIGURATION.format(
            fsid=fsid, mon_port=mon_port, port=self.port, folder=self.folder, memory_bytes=self.memory_bytes))
        self.deadline = time.monotonic() + START_S
        keyring = self.folder / "keyring"
        everything = ["--cap", "mon", "allow *", "--cap", "osd", "allow *"]
        self._run("ceph-authtool", keyring, "--gen-key", "-n", "mon.", "-C", "--cap", "mon", "allow *")
        self._run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", *everything)
        self._run("ceph-authtool", keyring, "--gen-key", "-n", "osd.0", "--cap", "mon", "allow profile osd",
                  "--cap", "osd", "allow *")
        self._run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{mon_port}]",
                  self.folder / "monmap")
        self._run("ceph-mon", "-i", "a", "--mkfs", "--monmap", self.folder / "monmap")
        self._spawn("mon", "ceph-mon", "-f", "-i", "a")
        self._run("ceph", "osd", "new", osd)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self._spawn("osd", "ceph-osd", "-f", "-i", "0")
        self._run("radosgw-admin", "user", "create", "--uid=test", "--display-name=test",
                  f"--access-key={ACCESS_KEY}", f"--secret={SECRET_KEY}")
        self.start_gateway()

    def start_gateway(self):
        """Also after kill_gateway(): what was stored is still there."""
        self.deadline = time.monotonic() + START_S
        self._spawn("gateway", "radosgw", "-f", "-n", "client.admin")
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self.daemons["gateway"].poll() is not None:
                    raise OSError("radosgw ended")
                if time.monotonic() > self.deadline:
                    raise TimeoutError("radosgw does not listen")
                time.sleep(0.05)

    def kill_gateway(self):
        gateway = self.daemons.pop("gateway")
        gateway.kill()
        gateway.wait()

    def pause_gateway(self):
        self.daemons["gateway"].send_signal(signal.SIGSTOP)

    def resume_gateway(self):
        self.daemons["gateway"].send_signal(signal.SIGCONT)

    def stop(self):
        """One after the other: the gateway and the storage daemon wait for a monitor that is gone."""
        for name in ("gateway", "osd", "mon"):
            daemon = self.daemons.pop(name, None)
            if daemon:
                daemon.send_signal(signal.SIGCONT)
                daemon.terminate()
                try:
                    daemon.wait(3)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def _environment(self):
        return {"GLIBC_TUNABLES": ALLOCATOR, **os.environ, "CEPH_CONF": str(self.folder / "ceph.conf"), "LC_ALL": "C.UTF-8"}

    def _run(self, *command):
        done = subprocess.run([*map(str, command)], env=self._environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=max(1, self.deadline - time.monotonic()))
        if done.returncode != 0:
            raise OSError(f"{command[0]} failed: {done.stdout.strip()[-500:]}")

    def _spawn(self, name, *command):
        with open(self.folder / f"{name}.output", "ab") as output:
            # Debian 13's looks for its modules in "lib/...", from wherever it is.
            self.daemons[name] = subprocess.Popen(command, env=self._environment(), cwd="/", stdin=subprocess.DEVNULL,
                                                  stdout=output, stderr=output, preexec_fn=end_with_parent)

    def _logs(self):
        if not self.folder:
            return ""
        outputs = sorted(self.folder.glob("*.output"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-500:]}" for path in outputs)

    # ---- using it ----

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def environment(self, endpoint=None):
        """What a client takes from its environment; nothing from the files of who runs the tests."""
        return {"AWS_ENDPOINT_URL": endpoint or self.endpoint, "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION,
                "AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                "AWS_CONFIG_FILE": "/dev/null"}

    def processor_seconds(self):
        """That the daemons have used so far."""
        ticks = 0
        for daemon in self.daemons.values():
            fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(") ")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # utime and stime
        return ticks / os.sysconf("SC_CLK_TCK")

    def client(self, **options):
        """boto3's client of this server."""
        import boto3
        from botocore.config import Config
        return boto3.client("s3", endpoint_url=self.endpoint, aws_access_key_id=ACCESS_KEY,
                            aws_secret_access_key=SECRET_KEY, region_name=REGION,
                            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}, **options))

    def create_bucket(self, name=None):
        name = name or f"bucket-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name


def main(arguments):
    def end(*_):
        raise SystemExit(0)

    if arguments[:1] not in (["start"], ["run"]):
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, end)
    try:
        with S3Server() as server:
            server.create_bucket("test")
            if arguments[0] == "run":
                command = [each for each in arguments[1:2] if each != "--"] + arguments[2:]
                return subprocess.run(command, env={**os.environ, **server.environment()}).returncode
            for name, value in server.environment().items():
                print(f"export {name}={value}")
            print("# ready", flush=True)
            while True:
                signal.pause()
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

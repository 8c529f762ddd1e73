"""`farthing launch`, and data-parallel training under launchers that people already have."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from conftest import FARTHING, PATIENCE_S, Result, environment, needs_gloo, record, stop, wait_for
from s3_server import free_port

JOB = ["train", "--model", "linear", "--data", "digits", "--batch", "64", "--seed", "5"]
SHORT = [*JOB, "--steps", "30", "--json"]
ENDLESS = [*JOB, "--steps", "100000000", "--validate-every", "1000000", "--json"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process by itself comes to."""
    done = subprocess.run([FARTHING, *SHORT], cwd=tmp_path_factory.mktemp("alone"), capture_output=True, text=True,
                          timeout=PATIENCE_S, env=environment(), stdin=subprocess.DEVNULL, check=True)
    return Result(0, done.stdout, done.stderr).end


def assert_same(result, alone, workers):
    """The same samples in every step: losses differ as sums in another order do (f32, 30 steps), no more."""
    end = result.end
    assert end["steps"] == alone["steps"]
    assert end["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    groups = [event for event in result.events if event["event"] == "group"]
    assert groups[-1]["workers"] == workers if workers > 1 or groups else True


def processes_of(folder):
    """Processes of this program that work in `folder`: nobody else's."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd") == str(folder) and \
               os.readlink(entry / "exe") == str(FARTHING):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def clean(tmp_path):
    """After the test nothing of it is left running."""
    yield
    wait_for(lambda: not processes_of(tmp_path), "the end of all processes", 30)


def next_event(process, name):
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == name:
            return event
    raise AssertionError(f"no event {name}: {process.stderr.read()}")


def wait_for_steps(run, more=1):
    """Until there are `more` step events than now."""
    def count():
        return sum(event["event"] == "step" for event in record(run))
    target = count() + more
    wait_for(lambda: count() >= target, "training", PATIENCE_S)


# ---- one machine ----

@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_come_to_the_same_loss(farthing, alone, workers, clean):
    result = farthing("launch", "--workers", workers, "--", *SHORT)
    assert_same(result, alone, workers)
    assert len(farthing.runs()) == 1


def test_fewer_validation_images_than_a_batch(farthing, clean):
    """4,000 of them, which three workers cannot share out evenly."""
    assert farthing("launch", "--workers", 3, "--", *SHORT, "--batch", 12000, "--steps", 1).end["steps"] == 1


def test_progress_is_that_of_one_worker(farthing):
    out = farthing("launch", "--workers", 3, "--", *JOB, "--steps", "30").out
    assert out.count("training linear") == out.count("trained linear") == 1
    assert "3 worker processes" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_saves_and_resumes(farthing, number, clean):
    process = farthing.start("launch", "--workers", 2, "--", *ENDLESS)
    next_event(process, "step")
    result = stop(process, number)
    assert result.code == 75, result.err
    saved = [event for event in record(farthing.only_run()) if event["event"] == "checkpoint"][-1]["step"]
    again = farthing("launch", "--workers", 1, "--", *JOB, "--json", "--resume", farthing.only_run().name, "--steps",
                     saved + 5)
    assert again.end["steps"] == saved + 5


@pytest.mark.parametrize("over_ssh", [False, True])
def test_the_command_that_carries_on(farthing, ssh, over_ssh, clean):
    """What is printed after a stop is the launch, not the training of one worker."""
    launch = hosts(ssh, "a", free_port()) if over_ssh else ["launch", "--workers", "2"]
    process = farthing.start(*launch, "--", *ENDLESS)
    next_event(process, "step")
    result = stop(process)
    (line,) = [line for line in result.err.splitlines() if line.endswith(" --resume")]
    assert f"{FARTHING} {' '.join(map(str, launch))} -- train" in line, result.err


def test_a_killed_worker_comes_back(farthing, clean):
    process = farthing.start("launch", "--workers", 2, "--", *ENDLESS)
    group = next_event(process, "group")
    run = farthing.only_run()
    wait_for_steps(run)
    os.kill(group["members"][1]["process"], signal.SIGKILL)

    def groups():
        return [event for event in record(run) if event["event"] == "group"]
    wait_for(lambda: len(groups()) >= 2 and groups()[-1]["workers"] == 2, "a group with the new worker", PATIENCE_S)
    wait_for_steps(run)
    result = stop(process)
    assert result.code == 75, result.err
    assert re.search(r"worker [01] on \S+ was lost \(signal 9.*started again", result.err)


def test_a_worker_that_is_not_started_again(farthing, clean):
    """The others continue, also without the one that kept the run."""
    process = farthing.start("launch", "--workers", 3, "--restarts", 0, "--", *ENDLESS)
    group = next_event(process, "group")
    run = farthing.only_run()
    wait_for_steps(run)
    os.kill(group["members"][0]["process"], signal.SIGKILL)
    wait_for(lambda: any(event["event"] == "resume" for event in record(run)), "another that keeps the run", PATIENCE_S)
    wait_for_steps(run)
    result = stop(process)
    assert result.code == 75, result.err
    assert "and is given up" in result.err
    events = record(run)
    assert [event for event in events if event["event"] == "group"][-1]["workers"] == 2
    assert [event for event in events if event["event"] == "checkpoint"][-1]["step"] == events[-1]["step"]


def test_workers_end_with_their_agent(farthing, tmp_path, clean):
    process = farthing.start("launch", "--workers", 2, "--", *ENDLESS)
    next_event(process, "step")
    assert len(processes_of(tmp_path)) == 3
    process.kill()
    process.communicate(timeout=PATIENCE_S)


def test_a_worker_that_fails_ends_the_launch(farthing, clean):
    result = farthing("launch", "--workers", 2, "--", "train", "--data", "/nowhere", code=1)
    assert re.search(r"worker [01] on \S+ failed: .*/nowhere", result.err.splitlines()[-1])


def test_a_dry_run_starts_nothing(farthing):
    result = farthing("launch", "--workers", 2, "--", *JOB, "--dry-run")
    assert re.search('^strategy: "?data-parallel', result.out, re.M)
    assert not farthing.runs()


@pytest.mark.parametrize("arguments, message", [
    (["--", "evaluate"], "missing the training after --"),
    ([], "missing the training after --"),
    (["--", "train", "--strategy", "hogwild"], "not hogwild"),
    (["--", "train", "--batch", "0"], "batch"),
    (["--nodes", "2:4", "--", "train"], "--rendezvous"),
    (["--nodes", "4:2", "--", "train"], "MIN:MAX"),
    (["--rendezvous", "a:1", "--", "train"], "--nodes"),
    (["--rendezvous", "a", "--nodes", "2", "--", "train"], "HOST:PORT"),
    (["--hosts", "a,b", "--node", "a", "--", "train"], "--hosts"),
])
def test_wrong_usage(farthing, arguments, message):
    result = farthing("launch", *arguments, code=2)
    assert message in result.err.splitlines()[0]


# ---- several nodes ----

@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    path.write_text("a secret\n")
    return path


class Nodes:
    """Agents of several nodes, all on this machine."""

    def __init__(self, farthing, key, job, nodes="2"):
        self.farthing, self.job, self.port = farthing, job, free_port()
        self.flags = ["--nodes", nodes, "--rendezvous", f"127.0.0.1:{self.port}", "--token-file", key, "--wait", "20s"]

    def start(self, name, *more):
        return self.farthing.start("launch", *self.flags, "--node", name, *more, "--", *self.job)


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    return Result(process.returncode, out, err)


@needs_gloo
def test_two_nodes_come_to_the_same_loss(farthing, key, alone, clean):
    nodes = Nodes(farthing, key, SHORT)
    a = nodes.start("a")
    b = nodes.start("b")
    results = [finish(a), finish(b)]
    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    trained = [result for result in results if result.out]
    assert len(trained) == 1  # where rank 0 is
    assert_same(trained[0], alone, 2)


@needs_gloo
def test_a_node_that_is_lost_and_one_that_comes(farthing, key, clean):
    """Kill -9 of an agent takes its workers with it; the other node trains on, and takes in a new one."""
    nodes = Nodes(farthing, key, ENDLESS, nodes="1:2")
    a = nodes.start("a")
    assert next_event(a, "group")["nodes"] == 1
    run = farthing.only_run()

    def sizes():
        return [event["nodes"] for event in record(run) if event["event"] == "group"]
    b = nodes.start("b")
    wait_for(lambda: sizes()[-1] == 2, "a group with both nodes", PATIENCE_S)
    b.kill()
    b.communicate(timeout=PATIENCE_S)
    wait_for(lambda: sizes()[-1] == 1, "a group without the lost node", PATIENCE_S)
    c = nodes.start("c")
    wait_for(lambda: sizes()[-1] == 2, "a group with the new node", PATIENCE_S)
    a.send_signal(signal.SIGINT)  # a person's stop is for the whole run
    assert finish(a).code == 75
    assert finish(c).code == 75


@needs_gloo
def test_a_lost_rendezvous_comes_back(farthing, key, tmp_path, clean):
    """The node that has it is lost; the other one keeps its state until the same command runs there again."""
    nodes = Nodes(farthing, key, ENDLESS, nodes="1:2")
    a = nodes.start("a")
    next_event(a, "group")
    run = farthing.only_run()

    def groups():
        return [event for event in record(run) if event["event"] == "group"]
    b = nodes.start("b")
    wait_for(lambda: groups()[-1]["nodes"] == 2, "a group with both nodes", PATIENCE_S)
    wait_for_steps(run)
    a.kill()
    a.communicate(timeout=PATIENCE_S)
    before = max(event["step"] for event in record(run) if event["event"] == "step")
    a = nodes.start("a")
    wait_for(lambda: groups()[-1]["nodes"] == 2 and groups()[-1].get("step", 0) >= before, "a group again", PATIENCE_S)
    wait_for_steps(run)
    b.send_signal(signal.SIGINT)
    assert finish(b).code == 75
    assert finish(a).code == 75
    steps = [event["step"] for event in record(run) if event["event"] == "step"]
    assert steps == sorted(steps)  # nothing was done again


@needs_gloo
@pytest.mark.parametrize("leaver", ["a", "b"])
def test_a_notice_takes_one_node_out(farthing, key, tmp_path, leaver, clean):
    """The other one trains on. The agent of a, which has the rendezvous, stays for it without workers."""
    notice = tmp_path / "notice"
    nodes = Nodes(farthing, key, ENDLESS, nodes="1:2")

    def start(name):
        nodes.job = [*ENDLESS, "--watch", f"file:{notice}" if name == leaver else "none"]
        return nodes.start(name)
    agents = {"a": start("a")}
    next_event(agents["a"], "group")
    run = farthing.only_run()
    agents["b"] = start("b")

    def groups():
        return [event for event in record(run) if event["event"] == "group"]
    wait_for(lambda: groups()[-1]["nodes"] == 2, "a group with both nodes", PATIENCE_S)
    notice.write_text("120")
    wait_for(lambda: groups()[-1]["nodes"] == 1, "a group without the node", PATIENCE_S)
    if leaver == "b":
        assert finish(agents["b"]).code == 75
    wait_for_steps(run)
    assert stop(agents["b" if leaver == "a" else "a"]).code == 75
    if leaver == "a":
        assert finish(agents["a"]).code == 75


# ---- bad surroundings ----

def test_the_port_is_taken(farthing, key):
    """By something that is no rendezvous and never answers."""
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        result = farthing("launch", "--nodes", "2", "--rendezvous", f"127.0.0.1:{port}", "--token-file", key, "--wait",
                          "2s", "--", *SHORT, code=1)
        assert str(port) in result.err


def test_the_rendezvous_does_not_resolve(farthing, key):
    result = farthing("launch", "--nodes", "2", "--rendezvous", "no-such-host.invalid:29400", "--token-file", key,
                      "--wait", "20s", "--", *SHORT, code=1)
    assert "no-such-host.invalid" in result.err


def test_there_is_no_rendezvous(farthing, key):
    result = farthing("launch", "--nodes", "2", "--host-rendezvous", "no", "--rendezvous", f"127.0.0.1:{free_port()}",
                      "--token-file", key, "--wait", "1s", "--", *SHORT, code=1)
    assert "127.0.0.1" in result.err


@pytest.mark.parametrize("flags, message", [(["--name", "other"], "other"), (["--token-file", "wrong"], "token")])
def test_a_node_of_another_launch(farthing, key, tmp_path, flags, message, clean):
    (tmp_path / "wrong").write_text("another secret")
    nodes = Nodes(farthing, key, ENDLESS, nodes="1:2")
    a = nodes.start("a")
    next_event(a, "group")
    result = finish(nodes.start("b", *flags))
    assert result.code == 1 and message in result.err and "127.0.0.1" in result.err
    assert stop(a).code == 75


def test_a_missing_token_file(farthing):
    assert "nowhere" in farthing("launch", "--token-file", "nowhere", "--", *SHORT, code=1).err


# ---- over ssh ----

@pytest.fixture
def ssh(tmp_path):
    """A stand-in for ssh that runs the command here, and notes how it was called."""
    script = tmp_path / "ssh"
    script.write_text("#!/bin/sh\n"
                      f'echo "$@" >> {tmp_path}/ssh.log\n'
                      'while [ $# -gt 0 ]; do case $1 in -o) shift 2;; -T) shift;; *) break;; esac; done\n'
                      '[ "$1" = -- ] && shift\n'
                      'host=$1; shift\n'
                      '[ "$host" = nowhere ] && { echo "ssh: could not resolve nowhere" >&2; exit 255; }\n'
                      'exec sh -c "$*"\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def real_ssh(tmp_path):
    """OpenSSH: a server on this machine that stands for hosts a and b, and a client that knows them."""
    programs = {name: shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
                for name in ("ssh", "sshd", "ssh-keygen")}
    missing = [name for name, path in programs.items() if not path]
    if missing:
        pytest.skip(f"no {missing[0]}: apt-get install openssh-client openssh-server")
    folder, port = tmp_path / "openssh", free_port()
    folder.mkdir(mode=0o700)
    for name in ("host", "client"):
        subprocess.run([programs["ssh-keygen"], "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "sshd_config").write_text(f"""Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/client.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
""")
    (folder / "config").write_text(f"""Host a b
    HostName 127.0.0.1
    Port {port}
    IdentityFile {folder}/client
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile {folder}/known
    LogLevel ERROR
""")
    script = folder / "ssh"
    script.write_text(f'#!/bin/sh\nexec {programs["ssh"]} -F {folder}/config "$@"\n')
    script.chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd keeps what it allows no rights
    server = subprocess.Popen([programs["sshd"], "-D", "-e", "-f", folder / "sshd_config"], stdin=subprocess.DEVNULL,
                              stderr=open(folder / "sshd.txt", "w"))
    try:
        deadline = time.monotonic() + 20
        while subprocess.run([script, "-o", "BatchMode=yes", "a", "true"], capture_output=True,
                             stdin=subprocess.DEVNULL).returncode:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"sshd does not let us in here: {(folder / 'sshd.txt').read_text()[-500:]}")
            time.sleep(0.1)
        yield script
    finally:
        server.terminate()
        server.wait(20)


@needs_gloo
def test_hosts_over_openssh(farthing, real_ssh, clean):
    """The agents behind a real ssh stop and save when the launcher is gone."""
    process = farthing.start(*hosts(real_ssh, "a,b", free_port()), "--", *ENDLESS)
    next_event(process, "step")
    stop(process, signal.SIGKILL)
    run = farthing.only_run()
    wait_for(lambda: record(run)[-1]["event"] == "interrupted", "a run that was stopped and saved", PATIENCE_S)


def hosts(ssh, names, port):
    return ["launch", "--ssh", ssh, "--hosts", names, "--rendezvous", f"127.0.0.1:{port}"]


@needs_gloo
def test_hosts_come_to_the_same_loss(farthing, ssh, alone, tmp_path, clean):
    result = farthing(*hosts(ssh, "a,b", free_port()), "--workers", 1, "--", *SHORT)
    assert_same(result, alone, 2)
    log = (tmp_path / "ssh.log").read_text()
    assert log.count("BatchMode=yes") == 2
    assert "token" not in log and not re.search("[0-9a-f]{64}", log)  # it goes through standard input


@needs_gloo
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_hosts_end_with_the_launcher(farthing, ssh, end, clean):
    process = farthing.start(*hosts(ssh, "a,b", free_port()), "--", *ENDLESS)
    next_event(process, "step")
    result = stop(process, end)
    assert result.code == (75 if end == signal.SIGINT else -signal.SIGKILL), result.err
    run = farthing.only_run()
    wait_for(lambda: record(run)[-1]["event"] == "interrupted", "a run that was stopped and saved", PATIENCE_S)


def test_a_host_that_cannot_be_reached(farthing, ssh, clean):
    result = farthing(*hosts(ssh, "a,nowhere", free_port()), "--", *ENDLESS, code=1)
    last = result.err.splitlines()[-1]
    assert "cannot reach host nowhere" in last and "could not resolve" in last
    assert "[nowhere] ssh: could not resolve nowhere" in result.err


def test_a_host_without_the_program(farthing, ssh, clean):
    result = farthing(*hosts(ssh, "a", free_port()), "--program", "/nowhere/farthing", "--", *SHORT, code=1)
    assert "host a cannot run /nowhere/farthing" in result.err.splitlines()[-1]


def test_a_failure_on_a_host_is_named(farthing, ssh, clean):
    result = farthing(*hosts(ssh, "a,b", free_port()), "--", "train", "--data", "/nowhere", code=1)
    assert re.search(r"host [ab] failed: .*/nowhere", result.err.splitlines()[-1])


# ---- launchers that people already have ----

def run_under(command, folder, **variables):
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S,
                          env=environment(**variables), stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return Result(0, "".join(line + "\n" for line in done.stdout.splitlines() if line.startswith("{")), done.stderr)


WORKER = [FARTHING, *SHORT, "--strategy", "data-parallel"]


def test_torchrun(tmp_path, alone, clean):
    python = os.environ.get("FARTHING_TORCH_PYTHON")
    torchrun = Path(python).parent / "torchrun" if python else shutil.which("torchrun")
    if not torchrun or not Path(torchrun).exists():
        pytest.skip("no torchrun: name a Python that has PyTorch in FARTHING_TORCH_PYTHON")
    command = [torchrun, "--no_python", "--standalone", "--nproc_per_node", "2"]
    probe = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=150)
    if probe.returncode != 0:  # that of PyTorch 1.13 does with Python 3.11, Debian 12's
        pytest.skip(f"torchrun cannot start `true`: {probe.stderr.strip().splitlines()[-1]}")
    result = run_under([*command, *WORKER], tmp_path)
    assert_same(result, alone, 2)


def test_open_mpi(tmp_path, alone, clean):
    if not shutil.which("mpirun.openmpi"):
        pytest.skip("no Open MPI: apt-get install openmpi-bin")
    result = run_under(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", 2, *WORKER], tmp_path,
                       OMPI_MCA_rmaps_base_oversubscribe="1")
    assert_same(result, alone, 2)


def test_mpich(tmp_path, alone, clean):
    if not shutil.which("mpiexec.mpich"):
        pytest.skip("no MPICH: apt-get install mpich")
    result = run_under(["mpiexec.mpich", "-n", 2, *WORKER], tmp_path, FARTHING_PORT=str(free_port()))
    assert_same(result, alone, 2)


def step_daemons(folder):
    """Those of Slurm's processes for steps that have the cluster's folder open: this cluster's."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().startswith("slurmstepd") and \
               any(os.readlink(link).startswith(str(folder)) for link in (entry / "fd").iterdir()):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def slurm(tmp_path):
    """A Slurm cluster of this machine alone: munged, slurmctld and slurmd, with everything under the test's folder."""
    programs = {name: shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
                for name in ("munged", "slurmctld", "slurmd", "srun", "sinfo")}
    missing = [name for name, path in programs.items() if not path]
    if missing:
        pytest.skip(f"no {missing[0]}: apt-get install slurmd slurmctld slurm-client munge")
    if os.geteuid() != 0:
        pytest.skip("only root can start slurmd")
    folder = tmp_path / "slurm"
    for name in ("state", "spool", "log"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().split(".")[0]
    key, munge = folder / "munge.key", folder / "munge.socket"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    (folder / "slurm.conf").write_text(f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.txt
SlurmdLogFile={folder}/log/slurmd.txt
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
""")
    variables = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    started = []

    def start(*command):
        log = open(folder / "log" / f"{Path(command[0]).name}.out", "w")
        started.append(subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                        env=variables))

    def state():
        return subprocess.run([programs["sinfo"], "-h", "-o", "%T"], capture_output=True, text=True,
                              env=variables).stdout.strip()
    try:
        start(programs["munged"], "--foreground", "--force", f"--key-file={key}", f"--socket={munge}",
              f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munged.seed", f"--log-file={folder}/log/munged.txt")
        wait_for(munge.exists, "munged's socket", 20)
        start(programs["slurmctld"], "-D", "-i")
        start(programs["slurmd"], "-D")
        deadline = time.monotonic() + 40
        while state() not in ("idle", "mixed") and time.monotonic() < deadline and \
                all(each.poll() is None for each in started):
            time.sleep(0.1)
        if state() not in ("idle", "mixed"):
            logs = "".join(path.read_text()[-800:] for path in sorted((folder / "log").iterdir()))
            pytest.skip(f"Slurm does not start here: {logs}")
        yield [programs["srun"]], variables["SLURM_CONF"]
        wait_for(lambda: state() == "idle" and not step_daemons(folder), "the end of Slurm's step", 30)
    finally:
        for process in step_daemons(folder):
            os.kill(process, signal.SIGKILL)
        for each in reversed(started):
            each.terminate()
        for each in started:
            try:
                each.wait(20)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()


def test_srun(slurm, tmp_path, alone, clean):
    srun, configuration = slurm
    result = run_under([*srun, "-n", 2, *WORKER], tmp_path, SLURM_CONF=configuration)
    assert_same(result, alone, 2)

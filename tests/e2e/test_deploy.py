"""The files in deploy/: each is read by its own tool where that is here, and checked for what a run relies on."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import FARTHING, ROOT

DEPLOY = ROOT / "deploy"
yaml = pytest.importorskip("yaml", reason="python3-yaml is not installed")


# ---- Docker ----

def instructions():
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    lines = [line.strip() for line in text.splitlines()]
    return [line.split(None, 1) for line in lines if line and not line.startswith("#")]


def test_dockerfile_is_multi_stage():
    lines = instructions()
    stages = [index for index, (word, _) in enumerate(lines) if word == "FROM"]
    assert len(stages) == 2 and lines[stages[0]][1] == "debian:13-slim AS build"
    last = lines[stages[1]:]
    assert last[0][1] == "debian:13-slim"
    copies = [rest for word, rest in last if word == "COPY"]
    assert copies == ["--from=build /build/packages /tmp/packages",
                      "--from=build /build/farthing /usr/local/bin/farthing",
                      "--from=build /build/farthing_gloo.so /usr/local/lib/farthing/",
                      "--from=build /build/farthing-function /build/farthing-bootstrap /usr/local/libexec/farthing/"]
    assert any(word == "USER" and rest not in ("0", "root") for word, rest in last)
    known = {"FROM", "RUN", "COPY", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in lines} <= known


def test_dockerfile_has_the_libraries():
    """The second stage installs what scripts/library-packages names: the package of each library the program is linked with."""
    if not shutil.which("dpkg-query") or not shutil.which("readelf"):
        pytest.skip("this is not Debian: packages cannot be asked")
    runs = [rest for word, rest in instructions() if word == "RUN"]
    assert "/source/scripts/library-packages /build/farthing /build/farthing_gloo.so >/build/packages" in runs
    assert re.search(r"xargs apt-get install .* </tmp/packages", runs[-1])
    named = subprocess.run([ROOT / "scripts" / "library-packages", FARTHING], capture_output=True, text=True, check=True)
    packages = named.stdout.split()
    needed = subprocess.run(["readelf", "-d", FARTHING], capture_output=True, text=True, check=True).stdout
    files = subprocess.run(["dpkg-query", "-L", *packages], capture_output=True, text=True, check=True).stdout
    provided = {line.rsplit("/", 1)[-1] for line in files.splitlines()}
    libraries = set(re.findall(r"NEEDED.*\[(.*?)\]", needed))
    assert len(libraries) > 5
    assert libraries <= provided


def test_docker_gets_all_the_sources():
    """What is built from is what .dockerignore lets through."""
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    text = "".join(path.read_text() for path in [ROOT / "CMakeLists.txt", *sorted((ROOT / "cmake").glob("*.cmake"))])
    used = set(re.findall(r"(?:add_subdirectory\(|DEPENDS |EXCLUDE_FROM_ALL |GLOB \w+ CONFIGURE_DEPENDS |_SOURCE_DIR}/)(\w+)", text))
    folders = {name for name in used if (ROOT / name).is_dir()}
    assert {"tests", "cmake", "share", "src", "include"} <= folders
    assert folders | {"scripts"} <= set(allowed)  # scripts/install-dependencies is its first step


# ---- Kubernetes ----

def test_kubernetes_job():
    (job,) = yaml.safe_load_all((DEPLOY / "kubernetes-job.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"  # a pod failure policy is refused otherwise
    rules = spec["podFailurePolicy"]["rules"]
    by_code = {code: rule["action"] for rule in rules for code in rule.get("onExitCodes", {}).get("values", [])}
    assert by_code == {75: "Ignore", 2: "FailJob"}
    for rule in rules:
        if "onExitCodes" in rule:
            assert rule["onExitCodes"]["containerName"] == container["name"]
            assert 0 not in rule["onExitCodes"]["values"]
    assert any(condition["type"] == "DisruptionTarget" for rule in rules
               for condition in rule.get("onPodConditions", []))
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert all(isinstance(value, str) for value in environment.values())
    assert 0 < float(environment["FARTHING_GRACE_S"]) < pod["terminationGracePeriodSeconds"]
    assert "secretRef" in container["envFrom"][0]
    assert not any("SECRET" in name or "KEY" in name for name in environment)  # secrets are in a secret
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    arguments = " ".join(container["args"])
    assert set(re.findall(r"\$\((\w+)\)", arguments)) <= set(environment)
    assert container["args"][0] == "train" and "--checkpoints=s3://" in arguments


@pytest.mark.parametrize("name", ["kubernetes-job.yaml", "kubernetes-indexed-job.yaml"])
def test_kubernetes_job_by_its_own_models(name):
    """Through the Kubernetes client's classes and back: a field that they do not know would be lost on the way."""
    python = python_with("kubernetes")
    program = ("import sys, yaml, kubernetes.client as k\n"
               "api = k.ApiClient()\n"
               "for item in yaml.safe_load_all(open(sys.argv[1])):\n"
               "    read = api._ApiClient__deserialize(item, 'V1' + item['kind'])\n"  # its public form wants an HTTP answer
               "    again = api.sanitize_for_serialization(read)\n"
               "    assert again == item, again\n"
               "print('same')\n")
    done = subprocess.run([python, "-c", program, DEPLOY / name], capture_output=True, text=True)
    assert done.stdout.strip() == "same", done.stderr


def variables_of(container):
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert all(isinstance(value, str) for value in environment.values())
    assert not any("TOKEN" in name or "SECRET" in name for name in environment)  # secrets are in a secret
    assert {"farthing-store", "farthing-group"} == {each["secretRef"]["name"] for each in container["envFrom"]}
    return environment


def test_kubernetes_indexed_job():
    service, job = yaml.safe_load_all((DEPLOY / "kubernetes-indexed-job.yaml").read_text())
    assert service["kind"] == "Service" and service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    assert pod["subdomain"] == service["metadata"]["name"]
    (container,) = pod["containers"]
    variables = variables_of(container)
    assert variables["FARTHING_NODES"] == f"1:{spec['completions']}"
    assert variables["FARTHING_SERVICE"] == service["metadata"]["name"]
    assert 0 < float(variables["FARTHING_GRACE_S"]) < pod["terminationGracePeriodSeconds"]
    assert container["args"][:2] == ["train", "--strategy=data-parallel"]
    by_code = {code: rule["action"] for rule in spec["podFailurePolicy"]["rules"]
               for code in rule.get("onExitCodes", {}).get("values", [])}
    assert by_code == {75: "Ignore", 2: "FailJob"}
    assert container["ports"] == [{"name": "rendezvous", "containerPort": 29400}]  # what launcher.c expects


def test_pytorchjob():
    (job,) = yaml.safe_load_all((DEPLOY / "pytorchjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"} and replicas["Master"]["replicas"] == 1
    for each in replicas.values():
        pod = each["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == "pytorch"  # the operator sets its variables in that one alone
        variables = variables_of(container)
        assert 0 < float(variables["FARTHING_GRACE_S"]) < pod["terminationGracePeriodSeconds"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["rendezvous"] == int(variables["FARTHING_PORT"]) != ports["pytorchjob-port"]
        assert container["args"][:2] == ["train", "--strategy=data-parallel"]
    assert replicas["Master"]["template"] == replicas["Worker"]["template"]


# ---- torchrun, mpirun ----

def called_with(tmp_path, script, program, *arguments, **variables):
    """The arguments that a script gives to the launcher, which is a stand-in here."""
    stand_in = tmp_path / program
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    done = subprocess.run(["/bin/bash", DEPLOY / script, *arguments], capture_output=True, text=True,
                          env={"PATH": f"{tmp_path}:/usr/bin:/bin", **variables})
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("script", ["torchrun.sh", "mpirun.sh", "slurm-data-parallel.sbatch"])
def test_scripts_by_shellcheck(script):
    if not shutil.which("shellcheck"):
        pytest.skip("there is no shellcheck here")
    subprocess.run(["shellcheck", DEPLOY / script], check=True)


def test_torchrun_script(tmp_path):
    code, words, _ = called_with(tmp_path, "torchrun.sh", "torchrun", "run.yaml", "--lr", "0.1")
    assert code == 0 and "--standalone" in words and "--no-python" in words
    assert words[words.index("farthing"):] == ["farthing", "train", "--strategy", "data-parallel", "run.yaml", "--lr",
                                               "0.1", "--resume"]
    code, words, _ = called_with(tmp_path, "torchrun.sh", "torchrun", "run.yaml", NNODES="2", HOST="node1",
                                 FARTHING_TOKEN_FILE="key")
    assert code == 0 and "--nnodes=2" in words and "--rdzv-endpoint=node1:29500" in words
    code, _, err = called_with(tmp_path, "torchrun.sh", "torchrun", "run.yaml", NNODES="2", HOST="node1")
    assert code != 0 and "FARTHING_TOKEN_FILE" in err


def test_mpirun_script(tmp_path):
    code, words, _ = called_with(tmp_path, "mpirun.sh", "mpirun", "run.yaml", PROCESSES="4")
    assert code == 0 and words[words.index("-n") + 1] == "4" and "-x" not in words
    code, words, _ = called_with(tmp_path, "mpirun.sh", "mpirun", "run.yaml", HOSTS="node1:2,node2:2")
    assert code == 0 and words[words.index("-x") + 1] == "FARTHING_RENDEZVOUS=node1:29400"
    assert words[-5:] == ["farthing", "train", "--strategy", "data-parallel", "run.yaml"]


# ---- SkyPilot ----

def python_with(module, package=None):
    """An interpreter that has `module`: this one, or what $FARTHING_DEPLOY_PYTHON names."""
    for python in filter(None, (os.environ.get("FARTHING_DEPLOY_PYTHON"), sys.executable)):
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return python
    pytest.skip(f"no Python with {module}: pip install {package or module}, and name that Python in FARTHING_DEPLOY_PYTHON")


def test_skypilot_reads_its_file(tmp_path):
    python = python_with("sky", "skypilot")
    program = ("import sys, sky\n"
               "task = sky.Task.from_yaml(sys.argv[1])\n"
               "resources = list(task.resources)\n"
               "assert task.name == 'farthing' and resources and all(r.use_spot for r in resources)\n"
               "assert all(r.job_recovery['recover_on_exit_codes'] == [75] for r in resources)\n"
               "assert '--checkpoints' in task.run\n"
               "print('read')\n")
    done = subprocess.run([python, "-c", program, DEPLOY / "skypilot.yaml"], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "HOME": str(tmp_path)}, timeout=120)
    assert done.stdout.strip().endswith("read"), done.stderr


def test_skypilot_fields():
    task = yaml.safe_load((DEPLOY / "skypilot.yaml").read_text())
    assert task["resources"]["use_spot"] and task["resources"]["job_recovery"]["recover_on_exit_codes"] == [75]
    assert all(value is None for value in task["secrets"].values())
    for name in re.findall(r"\$(\w+)", task["run"]):
        assert name in task["envs"]


# ---- Slurm ----

@pytest.fixture
def slurm(tmp_path):
    """The script with stand-ins for Slurm's two programs and for the training, which note how they were called."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    programs = {
        # Slurm's srun passes signals on to its tasks and ends as they do.
        "srun": "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\n\"$@\" &\ntask=$!\ngot=yes\n"
                "trap 'got=yes; kill -USR1 $task' USR1\n"
                "while [ $got = yes ]; do got=no; wait $task; code=$?; done\nexit $code\n",
        "scontrol": "#!/bin/bash\necho \"$@\" >> scontrol.log\n",
        "farthing": "#!/bin/bash\necho \"$@\" > farthing.log\necho \"${FARTHING_TOKEN-}\" >> token.log\n"
                    "if [ -n \"${CODE-}\" ]; then exit $CODE; fi\n"
                    "trap 'exit 75' USR1\nfor i in $(seq 300); do sleep 0.1; done\nexit 1\n",
    }
    for name, text in programs.items():
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)

    def start(script="slurm.sbatch", **environment):
        return subprocess.Popen(["/bin/bash", DEPLOY / script, "run.yaml", "--epochs", "3"], cwd=tmp_path,
                                stdout=subprocess.PIPE, text=True,
                                env={"PATH": f"{bin_folder}:/usr/bin:/bin", "SLURM_JOB_ID": "17",
                                     "SLURM_CPUS_PER_TASK": "2", **environment})
    return start


def test_slurm_script(slurm, tmp_path):
    text = (DEPLOY / "slurm.sbatch").read_text()
    for line in ("--requeue", "--signal=B:USR1@90", "--open-mode=append"):
        assert f"#SBATCH {line}" in text
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", DEPLOY / "slurm.sbatch"], check=True)
    for code, requeued in ((0, False), (1, False), (75, True)):
        process = slurm(CODE=str(code))
        process.communicate(timeout=60)
        assert (tmp_path / "scontrol.log").exists() == requeued
        assert process.returncode == (0 if requeued else code)
    assert (tmp_path / "scontrol.log").read_text() == "requeue 17\n"
    arguments = (tmp_path / "farthing.log").read_text().split()
    assert arguments[:4] == ["train", "run.yaml", "--epochs", "3"]
    assert arguments[arguments.index("--checkpoints") + 1].endswith("checkpoints-17")


def test_slurm_script_passes_the_signal_on(slurm, tmp_path):
    process = slurm()
    deadline = time.monotonic() + 60
    while not (tmp_path / "farthing.log").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)  # until the stand-in has set its trap
    process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(timeout=60)
    assert "ended with 75" in out
    assert (tmp_path / "scontrol.log").read_text() == "requeue 17\n"


def test_slurm_script_for_several_nodes(slurm, tmp_path):
    script = "slurm-data-parallel.sbatch"
    text = (DEPLOY / script).read_text()
    for line in ("--requeue", "--no-kill", "--signal=B:USR1@90", "--ntasks-per-node=1"):
        assert f"#SBATCH {line}" in text
    for code, requeued in ((0, False), (1, False), (75, True)):
        process = slurm(script, CODE=str(code))
        process.communicate(timeout=60)
        assert (tmp_path / "scontrol.log").exists() == requeued
        assert process.returncode == (0 if requeued else code)
    arguments = (tmp_path / "farthing.log").read_text().split()
    assert arguments[:6] == ["train", "--strategy", "data-parallel", "run.yaml", "--epochs", "3"]
    tokens = (tmp_path / "token.log").read_text().split()
    assert len(set(tokens)) == 3 and all(re.fullmatch("[0-9a-f]{64}", token) for token in tokens)


# ---- systemd ----

def test_systemd_unit(tmp_path):
    text = (DEPLOY / "farthing.service").read_text()
    assert "\nRestartForceExitStatus=75\n" in text and "\nSuccessExitStatus=75\n" in text
    assert "\nKillSignal=SIGTERM\n" in text
    grace = re.search(r"^Environment=FARTHING_GRACE_S=(\d+)$", text, re.M)
    stop = re.search(r"^TimeoutStopSec=(\d+)$", text, re.M)
    assert int(grace[1]) < int(stop[1])
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "farthing.service"
    unit.write_text(text.replace("/usr/local/bin/farthing", str(FARTHING)))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr

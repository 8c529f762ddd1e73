"""A data-parallel training on several hosts (hosts.py): `farthing launch` on each, and what it does as seen from outside."""
import json
import os
import secrets
import subprocess
import time
import urllib.request

from hosts import Output

PORT = 29500


class Launch:
    """Starts an agent with one worker on every host; the first has the rendezvous. Nodes are called node1, node2, ..."""

    def __init__(self, farthing, folder, hosts, nodes, job, environment):
        self.farthing, self.folder, self.hosts, self.nodes_option, self.job = farthing, folder, hosts, nodes, job
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "FARTHING_ASCII": "1", **environment}
        self.token = secrets.token_hex(16)
        (folder / "key").write_text(self.token + "\n")
        (folder / "key").chmod(0o600)
        self.nodes = [self._start(host) for host in hosts]

    def _start(self, host):
        command = [self.farthing, "launch", "--nodes", self.nodes_option, "--rendezvous", f"{self.hosts[0].address}:{PORT}",
                   "--token-file", self.folder / "key", "--node", f"node{host.index + 1}", "--wait", "60s", "--", "train",
                   "--strategy", "data-parallel", *self.job, "--runs", self.folder / f"runs-{host.index}"]
        return Output(host.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment))

    @staticmethod
    def names(hosts):
        return sorted(f"node{host.index + 1}" for host in hosts)

    def members_at(self, host):
        """What a rendezvous on this host says of its newest group; None: there is none within reach."""
        request = urllib.request.Request(f"http://{host.address}:{PORT}/members", headers={"Authorization": f"Bearer {self.token}"})
        try:
            with urllib.request.urlopen(request, timeout=0.3) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def progress(self):
        """Of the newest live group its generation, the names of its nodes and its step; None: there is none within reach."""
        found = [each for each in map(self.members_at, self.hosts) if each and each["live"]]
        if not found:
            return None
        group = max(found, key=lambda each: each["generation"])
        members = [each for each in group["members"] if each["rank"] >= 0]
        return group["generation"], sorted(each["node"] for each in members), max((each["step"] for each in members), default=0)

    def wait_training(self, hosts, seconds):
        """Until these nodes, and no others, have made an update together from now on. Gives how long that took, up to a second more
        than it did, as members report their step once a second; None: it took longer than `seconds`."""
        began, first = time.monotonic(), None
        while time.monotonic() - began < seconds:
            now = self.progress()
            if now and now[1] == self.names(hosts):
                if first and first[0] == now[0] and now[2] > first[2] > 0:
                    return time.monotonic() - began
                if not first or first[0] != now[0] or first[2] <= 0:
                    first = now
            time.sleep(0.05)
        return None

    def ended(self):
        """A line for each agent that has ended."""
        return [f"node{i + 1}'s agent ended with {node.process.poll()}" for i, node in enumerate(self.nodes) if node.process.poll() is not None]

    def text(self):
        """All that the nodes said, in order."""
        moments = sorted((at, f"node{i + 1} {line}") for i, node in enumerate(self.nodes) for at, line in node.since(0))
        return "".join(f"{at:.3f} {line}\n" for at, line in moments)

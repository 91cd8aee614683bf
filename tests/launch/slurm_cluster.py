"""A Slurm cluster of several nodes on one machine: slurmctld here, and a slurmd for each node in namespaces of its own,
so that every node has an address, a host name and processes of its own. Needs root and Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "unshare")
OWN = os.getpid() % 250
"""Number of this process's clusters, so that two runs of the tests do not meet."""
NETWORK = f"10.213.{OWN}"
BRIDGE = f"sweeps{OWN}"
CONF = """
ClusterName=sweeps
SlurmctldHost={host}({network}.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={port}
SlurmdPort={node_port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=5,sched_interval=5,batch_sched_delay=1
MpiDefault=none
ReturnToService=0
KillWait=10
MinJobAge=3600
SlurmdTimeout=60
MailProg={folder}/mail
SlurmdParameters=config_overrides
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP GraceTime=120
PartitionName=urgent Nodes=ALL PriorityTier=9 MaxTime=INFINITE State=UP
"""
NODE = """
hostname {name}
ip link set lo up
until ip link set eth0 up 2> /dev/null; do sleep 0.1; done
ip address add {address}/24 dev eth0
ip route add default via {gateway}
slurmd -D -N {name} -f {conf} &
wait
"""


def missing() -> str | None:
    """Reason why no cluster can be made here."""
    if lacking := [each for each in PROGRAMS if shutil.which(each) is None]:
        return f"needs {', '.join(lacking)}: make test-slurm installs them"
    if os.geteuid() != 0:
        return "needs root, for networks of nodes"
    return None


class SlurmCluster:
    """A running cluster; ``close`` ends all that it has started."""

    def __init__(self, folder: Path, names: Sequence[str], cpus: int = 2) -> None:
        self.folder, self.names = folder, list(names)
        self._processes: list[subprocess.Popen[bytes]] = []
        for each in ("state", *(f"spool-{name}" for name in names)):
            (folder / each).mkdir()
        self._bridge()
        host = os.uname().nodename
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={NETWORK}.{index + 11} CPUs={cpus} State=UNKNOWN"
            for index, name in enumerate(names)
        )
        self.conf = folder / "slurm.conf"
        self.conf.write_text(
            CONF.format(host=host, network=NETWORK, folder=folder, nodes=nodes, port=16000 + OWN, node_port=16500 + OWN)
        )
        (folder / "mail").write_text(f'#!/bin/sh\necho "$@" >> {folder}/mails\n')
        (folder / "mail").chmod(0o755)
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        try:
            self._start_munge()
            self._start("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])
            for index, name in enumerate(names):
                self._start_node(name, f"{NETWORK}.{index + 11}")
            self.wait(lambda: self.ask("sinfo", "-h", "-o", "%D %T") == f"{len(names)} idle", 60, "idle nodes")
        except BaseException:
            self.close()
            raise

    def ask(self, *command: str) -> str:
        """Output of one of Slurm's programs."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).strip()

    def job(self, number: str) -> dict[str, str]:
        """Fields of a job, as `scontrol show job` has them."""
        words = self.ask("scontrol", "show", "job", number, "--oneliner").split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, is_so: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + within_s
        while not is_so():
            logs = {file.name: file.read_text()[-1500:] for file in self.folder.glob("*.log")}
            assert time.monotonic() < deadline, f"no {what} within {within_s} s: {self.ask('squeue')} {logs}"
            time.sleep(0.5)

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()  # with a node's, all processes in its namespace
            process.wait()
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)
        self._processes.append(process)
        return process

    def _bridge(self) -> None:
        subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)  # of a killed run
        for command in (
            ["ip", "link", "add", BRIDGE, "type", "bridge"],
            ["ip", "address", "add", f"{NETWORK}.1/24", "dev", BRIDGE],
            ["ip", "link", "set", BRIDGE, "up"],
        ):
            subprocess.run(command, check=True, capture_output=True)

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = {name: f"{self.folder}/munge.{name}" for name in ("socket", "pid", "log", "seed")}
        options = [f"--{name}-file={files[name]}" for name in ("pid", "log", "seed")]
        command = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={files['socket']}", *options]
        self._start("munged", command)
        self.wait(Path(files["socket"]).exists, 20, "munge")

    def _start_node(self, name: str, address: str) -> None:
        script = NODE.format(name=name, address=address, gateway=f"{NETWORK}.1", conf=self.conf)
        apart = ["unshare", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        process = self._start(name, [*apart, "bash", "-c", script])
        inside = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        self.wait(lambda: bool(inside.read_text().split()), 10, f"process of {name}")
        pid = inside.read_text().split()[0]
        outer = f"{BRIDGE}-{name}"
        for command in (
            ["ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", pid],
            ["ip", "link", "set", outer, "master", BRIDGE],
            ["ip", "link", "set", outer, "up"],
        ):
            subprocess.run(command, check=True, capture_output=True)

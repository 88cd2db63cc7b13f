"""Small real clusters on one machine: hosts in network namespaces, joined by bridges over shaped links.

    with Namespaces(racks=[2, 2], uplink_mbit=50) as cluster:
        cluster.run(["orrery", "run", "plan"])

Every host has a namespace, a host name, an address and (where asked) a processor quota of its own; what crosses its
port is shaped to its rate in both directions by `tc tbf`. Switches live in one more namespace, from which jobs are
launched: so nothing of a cluster is seen outside it, several can stand at once, and all of it goes when the namespaces
go. Needs root, iproute2 and a kernel with veth, bridge and tbf; `why_not()` says what is missing.
"""
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

CPU_GROUPS = (pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup"))
PERIOD_US = 20_000
MTU = 1500
HEAD = "10.77.255.1"  # where mpirun runs
SKIP = 77
STOLEN = 0.02  # of the processors: more than this and what was measured is not of this machine


def call(*command, check=True, quiet=False):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if check and result.returncode != 0:
        raise RuntimeError(f"{shlex.join(map(str, command))}: {result.stderr.strip()}")
    return result


def why_not():
    """None where clusters can be made here, else the reason."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "mpirun.openmpi"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    try:
        with Namespaces(racks=[1]):
            return None
    except (RuntimeError, OSError) as error:
        return f"namespaces, bridges or shaping are not permitted: {error}"


def skip_unless_possible():
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIP)


class Disturbed(RuntimeError):
    """The machine did not do what a test rests on: nothing of what is tested is in what was measured."""


def stolen_s():
    """How long each processor of this machine was given to others by the machine under it, since it was started."""
    with open("/proc/stat") as file:
        lines = file.read().splitlines()[1:1 + os.cpu_count()]
    return [int(line.split()[8]) / os.sysconf("SC_CLK_TCK") for line in lines]


class Watched:
    """What was stolen of all processors from its making on."""

    def __init__(self):
        self.began, self.before_s = time.monotonic(), stolen_s()

    def share(self):
        return (sum(stolen_s()) - sum(self.before_s)) / (time.monotonic() - self.began) / os.cpu_count()

    def disturbed(self):
        return self.share() > STOLEN

    def __str__(self):
        return f"{100 * self.share():.0f}% of the processors were stolen meanwhile"


def wait_for_calm(seconds=3, limit=60):
    """Until nothing was stolen for some seconds."""
    calm, begin = 0, time.monotonic()
    while calm < seconds and time.monotonic() - begin < limit:
        watched = Watched()
        time.sleep(1)
        calm = 0 if watched.disturbed() else calm + 1


def main():
    """A suite of tests none of which may be skipped in silence."""
    skip_unless_possible()
    result = unittest.main(verbosity=2, exit=False).result
    sys.exit(1 if not result.wasSuccessful() else SKIP if result.skipped else 0)


def cpu_group_root():
    """The controller's folder and the name of its quota file; None where quotas cannot be set."""
    if (CPU_GROUPS[0] / "cpu.cfs_quota_us").exists() or (CPU_GROUPS[0] / "cpu.cfs_period_us").exists():
        return CPU_GROUPS[0], 1
    root = CPU_GROUPS[1]
    control = root / "cgroup.controllers"
    if control.exists() and "cpu" in control.read_text().split():
        return root, 2
    return None


class CpuGroup:
    """A cgroup that holds its processes to a fraction of one core. Ahead of what else this machine does: a quota is what
    they may have at most, and without that they get what others leave (a fifth of it, beside a build on two cores)."""

    def __init__(self, name, fraction):
        found = cpu_group_root()
        if found is None:
            raise RuntimeError("no cpu cgroup controller")
        root, version = found
        self.path = root / name
        self.version = version
        if version == 2:
            subtree = root / "cgroup.subtree_control"
            if "cpu" not in subtree.read_text().split():
                subtree.write_text("+cpu")
        self.path.mkdir()
        if version == 1:
            (self.path / "cpu.shares").write_text("200000")  # of 1024
            (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        else:
            (self.path / "cpu.weight").write_text("10000")  # of 100
        self.limit(fraction)
        self.processes = self.path / "cgroup.procs"

    def limit(self, fraction):
        """From now on; None: as much as there is. The kernel takes quotas away by ticks (4 ms): of one that is shorter
        than that in a period a process gets too much, then nothing for a while."""
        quota = None if fraction is None else max(1000, round(PERIOD_US * fraction))
        if self.version == 1:
            (self.path / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))
        else:
            (self.path / "cpu.max").write_text(f"{'max' if quota is None else quota} {PERIOD_US}")

    def remove(self):
        for _ in range(100):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)


class Host:
    def __init__(self, name, address, namespace, switch_port):
        self.name = name
        self.address = address
        self.namespace = namespace
        self.switch_port = switch_port  # the bridge's end of its link
        self.rate_mbit = 0
        self.group = None


class Namespaces:
    """`racks`: hosts on each switch. One rack: a star. Several: their switches meet in a spine, each over an uplink of
    `uplink_mbit` in each direction. `port_mbit`: of hosts by index, where it differs from `mbit`. `cpu`: the fraction
    of a core that each host may use (None: all); `cpu_of`: of hosts by index, where it differs."""

    made = 0

    def __init__(self, racks, mbit=100, uplink_mbit=None, port_mbit=None, cpu=None, cpu_of=None):
        Namespaces.made += 1
        self.prefix = f"orr{os.getpid()}x{Namespaces.made}"
        self.switch = f"{self.prefix}sw"
        self.racks = racks
        self.mbit = mbit
        self.uplink_mbit = uplink_mbit
        self.port_mbit = port_mbit or {}
        self.cpu = cpu
        self.cpu_of = cpu_of or {}
        self.hosts = []
        self.folder = None

    # ---- Making and unmaking ----

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    @staticmethod
    def sweep():
        """Takes away what a test left behind that was itself killed."""
        for line in call("ip", "netns", "list", check=False).stdout.splitlines():
            name = line.split()[0]
            owner = re.match(r"orr(\d+)x\d+", name)
            if owner and not os.path.exists(f"/proc/{owner.group(1)}"):
                Namespaces.kill_all(name)
                call("ip", "netns", "del", name, check=False)

    def make(self):
        self.sweep()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.prefix}-"))
        call("ip", "netns", "add", self.switch)
        self.in_switch("ip", "link", "set", "lo", "up")
        several = len(self.racks) > 1
        top = "spine" if several else "rack0"
        for bridge in ([top] if several else []) + [f"rack{r}" for r in range(len(self.racks))]:
            # No spanning tree, and no learning pause: a port forwards at once.
            self.in_switch("ip", "link", "add", bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0")
            self.in_switch("ip", "link", "set", bridge, "up")
        if several:
            for rack in range(len(self.racks)):
                up, down = f"up{rack}", f"down{rack}"
                self.in_switch("ip", "link", "add", up, "type", "veth", "peer", "name", down)
                self.in_switch("ip", "link", "set", up, "master", f"rack{rack}", "up")
                self.in_switch("ip", "link", "set", down, "master", "spine", "up")
                self.shape(self.switch, up, self.uplink_mbit)
                self.shape(self.switch, down, self.uplink_mbit)
        for rack, count in enumerate(self.racks):
            for _ in range(count):
                self.add_host(f"rack{rack}")
        # Where mpirun runs.
        self.in_switch("ip", "addr", "add", f"{HEAD}/16", "dev", top)
        names = "".join(f"{host.address} {host.name}\n" for host in self.hosts)
        self.hosts_file = self.folder / "hosts"
        self.hosts_file.write_text(f"127.0.0.1 localhost\n{HEAD} head\n{names}")
        self.agent = self.folder / "agent.sh"
        # Called as `agent HOST COMMAND…` by mpirun, as it would call ssh.
        cases = "".join(
            f"  {host.name}) namespace={host.namespace} group={host.group.processes if host.group else '/dev/null'} ;;\n"
            for host in self.hosts)
        self.agent.write_text(
            "#!/bin/sh\nhost=$1; shift\ncase $host in\n" + cases +
            "  *) echo \"no host $host\" >&2; exit 255 ;;\nesac\n"
            "echo $$ > $group\n"
            "exec nsenter --net=/run/netns/$namespace unshare --uts --mount sh -c "
            f"'hostname \"$0\"; mount --bind {self.hosts_file} /etc/hosts; exec sh -c \"$*\"' \"$host\" \"$@\"\n")
        self.agent.chmod(0o755)

    def add_host(self, bridge):
        index = len(self.hosts)
        host = Host(f"host{index}", f"10.77.0.{index + 1}", f"{self.prefix}h{index}", f"port{index}")
        self.hosts.append(host)
        call("ip", "netns", "add", host.namespace)
        self.in_switch("ip", "link", "add", host.switch_port, "type", "veth", "peer", "name", "eth0", "netns",
                       host.namespace)
        self.in_switch("ip", "link", "set", host.switch_port, "master", bridge, "up")
        for words in (["link", "set", "lo", "up"], ["link", "set", "eth0", "up"],
                      ["addr", "add", f"{host.address}/16", "dev", "eth0"]):
            call("ip", "-n", host.namespace, *words)
        # Debian's congestion control, whatever the machine's is.
        call("ip", "netns", "exec", host.namespace, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=cubic",
             check=False)
        self.set_rate(index, self.port_mbit.get(index, self.mbit))
        fraction = self.cpu_of.get(index, self.cpu)
        if fraction is not None:
            host.group = CpuGroup(host.namespace, fraction)

    def remove(self):
        """Ends every process of the cluster and takes away what was made. Never throws."""
        namespaces = [host.namespace for host in self.hosts] + [self.switch]
        for namespace in namespaces:
            self.kill_all(namespace)
        for namespace in namespaces:
            call("ip", "netns", "del", namespace, check=False)
        for host in self.hosts:
            if host.group:
                host.group.remove()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def kill_all(namespace):
        for process in call("ip", "netns", "pids", namespace, check=False).stdout.split():
            try:
                os.kill(int(process), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                pass

    # ---- Links ----

    def in_switch(self, *words):
        return call("ip", "netns", "exec", self.switch, *words)

    @staticmethod
    def shape(namespace, interface, mbit):
        # A bucket of two full frames: what leaves at once is less than any message that matters. The queue holds
        # 200 ms, more than TCP keeps in flight here: a switch with deep buffers, which loses nothing.
        call("ip", "netns", "exec", namespace, "tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate",
             f"{mbit}mbit", "burst", 2 * MTU + 100, "latency", "200ms")

    def set_rate(self, index, mbit):
        host = self.hosts[index]
        host.rate_mbit = mbit
        self.shape(host.namespace, "eth0", mbit)
        self.shape(self.switch, host.switch_port, mbit)

    def cut(self, index, down=True):
        host = self.hosts[index]
        self.in_switch("ip", "link", "set", host.switch_port, "down" if down else "up")
        if down:
            return
        # A port that is up again carries nothing for up to a second, and the neighbours have given each other up. `ip` fails where
        # those who are asked for come back as fast as they are flushed: whether the host is reached is what counts.
        for namespace in (self.switch, host.namespace):
            call("ip", "-n", namespace, "neigh", "flush", "all", check=False)
        until = time.monotonic() + 10
        while not self.reaches_head(host):
            if time.monotonic() > until:
                raise Disturbed(f"{host.name} does not reach the others again")

    @staticmethod
    def reaches_head(host):
        """Whether what it sends comes to where mpirun runs: nobody listens there, so that it is refused."""
        dialled = call("nsenter", f"--net=/run/netns/{host.namespace}", sys.executable, "-c",
                       f"import socket; socket.create_connection(('{HEAD}', 9), timeout=0.2)", check=False)
        return "ConnectionRefusedError" in dialled.stderr

    def kill_host(self, index):
        """What a power cut does: every process of the host is gone, and nothing says goodbye."""
        self.cut(index)
        self.kill_all(self.hosts[index].namespace)

    # ---- Jobs ----

    def environment(self):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("OMPI_", "PMI", "SLURM_"))}
        environment.update(OMPI_MCA_plm="rsh", OMPI_MCA_plm_rsh_agent=str(self.agent), OMPI_MCA_btl="tcp,self,vader",
                           OMPI_MCA_orte_keep_fqdn_hostnames="1",
                           OMPI_MCA_oob_tcp_if_include="10.77.0.0/16", OMPI_MCA_btl_tcp_if_include="10.77.0.0/16")
        # MPICH's; UCX would find out that the hosts share a memory.
        environment.update(HYDRA_LAUNCHER="rsh", HYDRA_LAUNCHER_EXEC=str(self.agent), UCX_TLS="tcp,self")
        return environment

    def command(self, command):
        """The command line that runs `command` where jobs are launched from."""
        return ["nsenter", f"--net=/run/netns/{self.switch}", "unshare", "--uts", "--mount", "sh", "-c",
                f"hostname head; mount --bind {self.hosts_file} /etc/hosts; exec \"$@\"", "sh", *map(str, command)]

    def start(self, command, **options):
        options.setdefault("env", self.environment())
        return subprocess.Popen(self.command(command), text=True, stdin=subprocess.DEVNULL, **options)

    def run(self, command, timeout=120, **options):
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        try:
            out, error = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            for host in self.hosts:
                self.kill_all(host.namespace)
            self.kill_all(self.switch)
            out, error = process.communicate()
            raise RuntimeError(f"{shlex.join(map(str, command))}: not done after {timeout} s\n{out}{error}")
        return subprocess.CompletedProcess(command, process.returncode, out, error)

    # ---- Description ----

    def description(self, name="namespaces", communication=""):
        """The cluster file, as a person would write it: hosts, ports, switches; no measured figure."""
        several = len(self.racks) > 1
        hosts = ", ".join(f'"{host.name}"' for host in self.hosts)
        lines = [f'name: "{name}"',
                 'source: "tests/cluster/namespaces.py: hosts in network namespaces"',
                 "groups {",
                 f"  count: {len(self.hosts)}",
                 "  node {",
                 '    name: "namespace"',
                 '    device: "generic-cpu"',
                 "    devices: 1",
                 "    intra { kind: SHARED_MEMORY bandwidth_bytes_per_s: 5e9 latency_s: 1e-6 }",
                 f"    nic {{ count: 1 bandwidth_bytes_per_s: {self.mbit * 1e6 / 8:.6g} }}",
                 f"    hosts: [{hosts}]",
                 "  }",
                 "}"]
        if several:
            per_rack = self.racks[0]
            oversubscription = per_rack * self.mbit / self.uplink_mbit
            lines.append(f"fabric {{ kind: FAT_TREE transport: TCP nodes_per_leaf: {per_rack} "
                         f"oversubscription: {oversubscription:.6g} }}")
        else:
            lines.append("fabric { kind: STAR transport: TCP }")
        lines.append('communication { library: "mpi" ' + communication + "}")
        lines.append(f"shared_cores: {len(os.sched_getaffinity(0))}")
        for index, mbit in sorted(self.port_mbit.items()):
            lines.append(f'overrides {{ node: {index} target: "nic" speed: {mbit / self.mbit:.6g} }}')
        for index, fraction in sorted(self.cpu_of.items()):
            lines.append(f'overrides {{ node: {index} target: "node" speed: {fraction:.6g} }}')
        return "\n".join(lines) + "\n"

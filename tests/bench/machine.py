"""What the figures were taken with: the machine and the versions of everything that matters."""

import os
import platform
import re
import subprocess

from support.server import ROOT, Server


def _first_line(*command):
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    return output.partition("\n")[0]


def _field(path, name):
    with open(path) as file:
        match = re.search(rf"^{name}\s*:\s*(.*)$", file.read(), re.MULTILINE)
    return match[1] if match else "unknown"


def stolen_seconds():
    """What the hypervisor has taken from all cores so far; 0 on a machine of our own."""
    with open("/proc/stat") as file:
        fields = file.readline().split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def _server_versions():
    server = Server()
    try:
        client = server.start().client()
        info = client.info("server")
        name = next((name for name in ("valkey", "redict") if f"{name}_version" in info), "redis")
        return {
            "server": f"{name} {info[name + '_version']}",
            "allocator": client.info("memory")["mem_allocator"],
            "dlock": client.info("dlock")["dlock_version"],
        }
    finally:
        server.destroy()


def describe():
    return {
        "machine": {
            "processor": _field("/proc/cpuinfo", "model name"),
            "cores": len(os.sched_getaffinity(0)),
            "memory": _field("/proc/meminfo", "MemTotal"),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "versions": {
            **_server_versions(),
            "commit": _first_line("git", "describe", "--always", "--dirty"),
            "compiler": _first_line(os.environ.get("CC", "cc"), "--version"),
            "valgrind": _first_line("valgrind", "--version"),
        },
    }

"""scripts/Containerfile: the configuration of its server. The image itself is built by hand."""

import re
import shlex

from support.commands import Lock
from support.server import ROOT

IMAGE = (ROOT / "scripts/Containerfile").read_text()


def test_the_labels_name_the_version():
    version = re.search(r"^VERSION := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1]
    assert f'org.opencontainers.image.version="{version}"' in IMAGE


def settings():
    """The lines that are appended to the configuration."""
    words = re.search(r"printf '%s\\n' ((?:.|\\\n)*?) *\\?\n +>>/etc/", IMAGE)[1]
    return dict(line.split(" ", 1) for line in shlex.split(words.replace("\\\n", " ")))


def test_a_server_that_is_killed_remembers_its_locks(start_server):
    found = settings()
    assert found.pop("dir") == "/data"
    for name in "daemonize", "logfile", "bind", "protected-mode":  # of the container
        del found[name]
    server = start_server(*(word for name, value in found.items() for word in (f"--{name}", value)))
    fence = Lock(server.observer, "lock").acquire("alice", 600_000)
    server.kill()
    server.start(server.port)
    info = Lock(server.client(), "lock").info()
    assert (info["token"], info["fence"]) == (b"alice", fence)
    assert server.client().config_get("appendfsync")["appendfsync"] == "always"

"""Where scripts/get-redismodule-h looks for the source of Redis, by the mirrors that apt has."""

import http.server
import os
import signal
import subprocess
import threading

import pytest

from support.server import ROOT, wait_until

ARCHIVE = "r/redis/redis_7.0.15.orig.tar.gz"


class Mirror(http.server.BaseHTTPRequestHandler):
    """Has nothing, and remembers what it was asked for."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *_):
        pass


@pytest.fixture
def mirror():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get_header(folder, mirror, *paths):
    """With an apt that has only these mirrors."""
    sources = folder / "sources.list"
    sources.write_text("".join(
        f"deb [trusted=yes] http://127.0.0.1:{mirror.server_port}/{path} stable main\n"
        for path in paths))
    config = folder / "apt.conf"
    config.write_text(f'Dir::Etc::sourcelist "{sources}";\nDir::Etc::sourceparts "/dev/null";\n'
                      'Acquire::http::Proxy "DIRECT";\n')
    return subprocess.run([ROOT / "scripts/get-redismodule-h", folder / "include"], text=True,
                          env={**os.environ, "APT_CONFIG": str(config)}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


@pytest.mark.parametrize("path, pools", [
    ("debian", ["main"]),
    ("debian-security", ["updates/main"]),
    ("ubuntu", ["universe"]),
    ("ubuntu-ports", ["universe"]),
    ("a/mirror", ["main", "universe", "updates/main"]),
])
def test_each_kind_of_mirror_is_asked_in_its_pool(tmp_path, mirror, path, pools):
    result = get_header(tmp_path, mirror, path)
    assert mirror.asked == [f"/{path}/pool/{pool}/{ARCHIVE}" for pool in pools]
    assert result.returncode == 1
    assert "no configured mirror of Debian or Ubuntu has redis_7.0.15" in result.stdout
    assert "REDISMODULE_H=" in result.stdout


def test_an_interrupt_leaves_nothing(tmp_path):
    """Not even what was made for the download."""
    apt, temporary = tmp_path / "bin/apt-get", tmp_path / "temporary"
    apt.parent.mkdir()
    temporary.mkdir()
    apt.write_text("#!/bin/sh\n: >\"$0.called\"\nexec sleep 600\n")
    apt.chmod(0o755)
    getting = subprocess.Popen(
        [ROOT / "scripts/get-redismodule-h", tmp_path / "include"], start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary), "PATH": f"{apt.parent}:{os.environ['PATH']}"})
    wait_until((apt.parent / "apt-get.called").exists, "apt")
    os.killpg(getting.pid, signal.SIGTERM)
    assert getting.wait() == 130
    assert not list(temporary.iterdir())


def test_every_mirror_is_asked(tmp_path, mirror):
    get_header(tmp_path, mirror, "ubuntu", "debian")
    assert {path.split("/")[1] for path in mirror.asked} == {"ubuntu", "debian"}

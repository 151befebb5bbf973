"""What the README and the other pages show can be done as they show it."""

import os
import re
import subprocess
import sys
import threading

import pytest

from support.docs import checker
from support.server import ROOT, cli, free_port, wait_until
from support.tool import BUILD

README = (ROOT / "README.md").read_text()
PORT = "7379"  # of make try, and of everything in the pages
PATIENT = "io_timeout_ms=20000&connect_timeout_ms=20000"  # a slow machine is no silent server


def block(page, language):
    """The first code block of that language."""
    return re.search(rf"^```{language}\n(.*?)^```", page, re.M | re.S)[1]


def shown_session(page=README, title="In redis-cli"):
    """What is typed in redis-cli, each with its answer."""
    shown = checker.section(page, title)
    return re.findall(rf"^ {{4,6}}127.0.0.1:{PORT}> (.*)\n {{4,6}}(.*)$", shown, re.M)


def release_soon(server):
    """By the holder, as soon as somebody waits."""
    looker, holder = server.client(), server.client()

    def release():
        wait_until(lambda: looker.info("dlock")["dlock_waiters"] == 1, "a waiter")
        holder.execute_command("DLOCK.RELEASE", "stock:1000", "web1:5f0c9a1e")

    thread = threading.Thread(target=release)
    thread.start()
    return thread


def said(server, typed):
    """What redis-cli answers, without the digits of a fence."""
    shown = subprocess.run([cli(), "--no-raw", "-p", str(server.port), *typed.split()],
                           stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.sub(r"\d{16}", "FENCE", shown.strip())


def test_the_session_in_redis_cli(server):
    session = shown_session()
    assert len(session) == 3
    for typed, answer in session:
        releaser = release_soon(server) if "WAIT" in typed else None
        shown = said(server, typed)
        if releaser:
            releaser.join()
        assert shown == re.sub(r"\d{16}", "FENCE", answer)


def test_the_guarded_write_of_a_late_holder(server):
    (typed, answer), = shown_session(title="The pause that no lock survives")
    assert said(server, typed) == answer
    assert server.observer.dbsize() == 0


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 180


def test_the_session_with_shared_holders(server):
    page = (ROOT / "module/README.md").read_text()
    session = shown_session(page, "Shared holders: read/write locks and semaphores")
    assert len(session) == 7
    for typed, answer in session:
        assert said(server, typed) == re.sub(r"\d{16}", "FENCE", answer)


def test_the_program_in_c_says_why_it_has_no_lock(start_server, tmp_path):
    server = start_server()
    source = block(README, "c")
    assert len(source.splitlines()) <= 15 and PORT in source
    (tmp_path / "first.c").write_text(source.replace(PORT, f"{server.port}?{PATIENT}"))
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "first",
                    tmp_path / "first.c", f"-I{ROOT}/client/include", BUILD / "libdlock.a",
                    "-lssl", "-lcrypto", "-pthread"], check=True)
    said = subprocess.run([tmp_path / "first"], stdout=subprocess.PIPE, text=True, check=True)
    assert re.fullmatch(r"held, fence [1-9]\d+\n", said.stdout)
    assert server.observer.dbsize() == 0
    server.stop()
    alone = subprocess.run([tmp_path / "first"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
    assert alone.returncode == 1
    assert alone.stderr.startswith("DLOCK_UNREACHABLE: ") and "refused" in alone.stderr


def test_the_lines_for_a_shell(server, tmp_path):
    lines = re.findall(r"^ {4}(dlock run .*)$", checker.section(README, "From a shell"), re.M)
    assert len(lines) == 2
    for name in "report", "deploy.sh":
        (tmp_path / name).write_text('#!/bin/sh\necho "$0 $DLOCK_FENCE"\n')
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(tmp_path),
           "DLOCK_URL": f"redis://127.0.0.1:{server.port}?{PATIENT}"}
    for line in lines:
        said = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=env, stdout=subprocess.PIPE,
                              text=True, check=True).stdout
        assert re.fullmatch(r"\./(report|deploy\.sh) [1-9]\d+\n", said)


def test_the_program_in_python(server):
    source = block(README, "python")
    done = subprocess.run([sys.executable, "-c", source.replace(PORT, str(server.port))],
                          env={**os.environ, "PYTHONPATH": str(ROOT / "client/python")},
                          stdout=subprocess.PIPE, text=True, check=True)
    assert re.fullmatch(r"held, fence [1-9]\d+\n", done.stdout)
    assert server.observer.dbsize() == 0


def test_the_lines_of_python(server):
    source = block((ROOT / "module/LANGUAGES.md").read_text(), "python")
    written = []
    names = {"write_report": written.append}
    exec("import redis, secrets\n" + source.replace(PORT, str(server.port)), names)
    assert written and written[0] > 0
    assert server.observer.dbsize() == 0


# -- make demo and make try


def test_the_demo_ends_well_wherever_it_is_started():
    subprocess.run(["./demo"], cwd=ROOT / "scripts", check=True, stdout=subprocess.DEVNULL,
                   timeout=300)


@pytest.fixture
def typed():
    """typed(commands): what make try prints, its exit code, and whether it has left a server."""

    def run(commands, port):
        done = subprocess.run([ROOT / "scripts/with-server", port, "redis-cli", "-p", port],
                              input=commands, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_server_to_type_into_is_gone_afterwards(typed):
    port = str(free_port())
    code, said, _ = typed("DLOCK.ACQUIRE stock:1000 web1:5f0c9a1e PX 30000\nCONFIG GET dir\n", port)
    fence, _, folder, *_ = said.splitlines()
    assert code == 0 and int(fence) > 0
    assert not os.path.exists(folder)
    assert subprocess.run([cli(), "-p", port, "PING"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode != 0


def test_a_port_that_is_taken_is_told(typed, server):
    code, _, complaints = typed("PING\n", str(server.port))
    assert code != 0 and "Address already in use" in complaints
    assert complaints.endswith("choose another one, as in make try PORT=7380\n")

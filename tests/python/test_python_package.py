"""client/python as a package: what pip builds and installs, and what its pages say."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import dlock
from support.server import ROOT

SOURCE = ROOT / "client/python"
OFFLINE = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built offline from a copy, as a build leaves files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(SOURCE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder,
                    "--no-build-isolation", folder / "source"], check=True, env=OFFLINE)
    [made] = folder.glob("*.whl")
    return made


def test_the_version_is_that_of_the_makefile():
    [version] = re.findall(r"^VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.M)
    assert dlock.__version__ == version


def test_a_wheel_has_the_package_with_its_types_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    there = {f"dlock/{path.name}" for path in (SOURCE / "dlock").iterdir() if path.is_file()}
    assert names == there and "dlock/py.typed" in names
    metadata = zipfile.ZipFile(wheel).read(f"dlock-{dlock.__version__}.dist-info/METADATA").decode()
    needed = re.findall("^Requires-Dist: (.*)$", metadata, re.M)
    assert [re.sub("[ ()]", "", each) for each in needed] == ["redis>=4.3.4"]


def test_an_installed_package_takes_a_lock(wheel, tmp_path, server):
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path,
                    wheel], check=True, env=OFFLINE)
    program = f"""
import dlock
assert dlock.__file__.startswith({str(tmp_path)!r}), dlock.__file__
with dlock.Client("redis://127.0.0.1:{server.port}") as client, client.lock("lock") as lock:
    print(lock.guarded("INCR", "count"))
"""
    run = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE,
                         text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert run.stdout == "1\n"


def test_a_program_that_ends_in_the_middle_leaves_no_lock(server):
    program = f"""
import dlock
dlock.Client("redis://127.0.0.1:{server.port}").lock("lock").acquire()
"""
    subprocess.run([sys.executable, "-c", program], check=True,
                   env={**os.environ, "PYTHONPATH": str(SOURCE)})
    assert server.observer.dbsize() == 0


def test_transfers_in_both_directions_keep_the_sum(server):
    program = SOURCE.parent / "examples/transfer.py"
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    url = f"redis://127.0.0.1:{server.port}"
    processes = [subprocess.Popen([sys.executable, program, url, "bank", *pair, str(amount), "20"],
                                  env=env, stdout=subprocess.PIPE, text=True)
                 for amount, pair in enumerate([("alice", "bob"), ("bob", "alice")], 1)]
    assert [each.communicate()[0] for each in processes] == ["20 transfers\n"] * 2
    read = server.observer.get
    balances = [read(f"{{bank}}balance:{owner}") for owner in ("alice", "bob")]
    assert balances == [b"20", b"-20"] and server.observer.dbsize() == 2


def test_every_public_function_has_annotations():
    for path in (SOURCE / "dlock").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                is_typed = node.returns is not None or node.name == "__init__"
                given = [a for a in node.args.args if a.arg not in ("self", "cls")]
                assert is_typed and all(a.annotation for a in given), f"{path.name}: {node.name}"


@pytest.mark.parametrize("form", ["threads", "asyncio"])
def test_the_page_runs(form, server):
    """The blocks of the page, at our server."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (SOURCE / "README.md").read_text(), re.M | re.S)
    block = blocks[form == "asyncio"].replace("localhost:7379", f"127.0.0.1:{server.port}")
    if form == "asyncio":
        inner = "".join(f"    {line}\n" for line in block.splitlines())
        block = f"import asyncio, dlock\nasync def main():\n{inner}asyncio.run(main())\n"
    told, names = [], {"write_report": lambda fence: told.append(fence)}
    exec(block, names)
    if form == "threads":
        names["client"].close()
    assert server.observer.get("order:1000:state") == b"paid"
    assert told if form == "threads" else not told

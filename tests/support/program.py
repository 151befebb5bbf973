"""Python programs in processes of their own, which use the library as the tests do."""

import os
import subprocess
import sys

from support.server import ROOT


def start_python(text, *arguments, env=None, **more):
    """The process, with pipes for what it reads and says."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", text, *map(str, arguments)], text=True,
                            env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), **(env or {})},
                            **{**pipes, **more})


def run_python(text, *arguments, timeout=300, **more):
    """What it says."""
    process = start_python(text, *arguments, **more)
    out, complaints = process.communicate(timeout=timeout)
    assert process.returncode == 0, f"{process.returncode}: {complaints}"
    return out

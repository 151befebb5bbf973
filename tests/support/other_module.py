"""A module of somebody else. See other_module.c."""

import pathlib
import subprocess

from support.server import ROOT

SOURCE = pathlib.Path(__file__).with_suffix(".c")


def build(folder):
    """The module to load."""
    library = pathlib.Path(folder) / "other_module.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", f"-I{ROOT}/build/include", "-o", library,
                    SOURCE], check=True)
    return library

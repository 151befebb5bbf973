"""What "make install" makes, and how a program finds it."""

import os
import shlex
import subprocess

from support.server import ROOT

STRICT = ["-Wall", "-Wextra", "-Werror"]


def make(*words):
    """What called us must not decide what is made, or where."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "SANITIZE", "TLS", "PREFIX",
                           "DESTDIR")}
    return subprocess.run(["make", "-s", *words], cwd=ROOT, env=env, check=True)


def output(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, text=True,
                          stdout=subprocess.PIPE, **more).stdout


def pkg_config(prefix, *words):
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    return shlex.split(output("pkg-config", *words, env=env))

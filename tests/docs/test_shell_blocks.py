"""Every shell block of the pages runs in a fresh copy of the tree; those that install dlock, twice.

A block is a shell block if its first line begins with one of COMMANDS. The commands are the real
ones, except for what needs root, a network, systemd or many minutes: FAKES has a stand-in for each,
and says what the stand-in checks instead. make install goes to a folder of the test.
"""

import os
import re
import shutil
import subprocess

import pytest

from support.docs import checker
from support.server import ROOT, cli, free_port
from support.tool import BUILD

COMMANDS = ("apt-get", "cc", "dlock", "dlock-module", "make", "redis-cli", "scripts/python",
            "scripts/run-tests", "sudo", "systemctl")
PAGES = ["README.md", "CONTRIBUTING.md", "client/README.md", "module/OPERATIONS.md",
         "tests/README.md", "tests/bench/README.md", "tests/fuzz/README.md",
         "tests/model/README.md",
         "tests/torture/README.md"]
FAKES = {
    "sudo": 'exec "$@"',
    # No network: packages must be known to scripts/bootstrap, or be files.
    "apt-get": """
        case $1 in update) exit ;; install | purge) shift ;; *) exit 1 ;; esac
        for word; do
            case $word in
            -y | --reinstall | dlock-module) ;;
            ./*) [ -e "$word" ] ;;
            *) grep -qE "need .*$word" scripts/bootstrap ;;
            esac
        done""",
    "systemctl": '[ "$1" = restart ] && { [ "$2" = redis-server ] || [ "$2" = valkey-server ]; }',
    "ldconfig": "",
    "dlock-module": 'exec sh "$WORK/dlock-module.sh" "$@" "$WORK/redis.conf"',
    "redis-cli": """
        case $1 in
        -*) exec "$CLI" "$@" ;;
        *) said=$("$CLI" -e -p "$PORT" "$@") && printf '%s\\n' "$said" ;;
        esac""",
    "dlock": 'case $1 in top) set -- "$@" -r 1 ;; esac; exec "$BUILD/dlock" "$@"',
    # Targets that take minutes, or need results of these, are only read: make -n.
    "make": """
        case " $* " in
        " test-build ") exec /usr/bin/make "$@" ;;
        *CFLAGS=* | *SANITIZE=* | *" test"* | *" bench"* | *" plots "* | *" fuzz "* | \\
            *" torture"* | *" model "* | *" lint "* | *" format "* | *" check-figures "*)
            exec /usr/bin/make -n "$@" >/dev/null ;;
        *" deb "*)
            /usr/bin/make -n "$@" >/dev/null && mkdir -p build/deb
            exec touch build/deb/dlock-module_0_amd64.deb ;;
        *" try "*) echo PING | exec /usr/bin/make "$@" "PORT=$FREE_PORT" ;;
        *" install "*) exec /usr/bin/make -s "$@" "PREFIX=$PREFIX" ;;
        *) exec /usr/bin/make "$@" ;;
        esac""",
}
# Run with these, a test is only looked for and a scenario only known.
MORE = [(r"^(scripts/python -m pytest\b.*)", r"\1 --collect-only"),
        (r"^(scripts/python tests/bench/bench.py\b.*)", r"\1 --list"),
        (r"^(scripts/python tests/(?:fuzz|model|torture)/\w+.py\b.*)", r"\1 --help"),
        (r"redis://127.0.0.1:7379", "$DLOCK_URL"),
        (r"/path/to/redis-server", "$REDIS_SERVER_PATH")]


def blocks_of(page):
    """The indented blocks, each as its lines without the indent."""
    page = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    for block in re.findall(r"(?<=\n\n)(?: {4}.*\n)+", page):
        yield [line[4:] for line in block.splitlines()]


def is_shell(block):
    first = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", block[0]).split()[0]
    return first in COMMANDS


def shell_blocks(name):
    return [block for block in blocks_of((ROOT / name).read_text()) if is_shell(block)]


def rewritten(line):
    line = re.sub(r"\s+#.*", "", line)
    for pattern, replacement in MORE:
        line = re.sub(pattern, replacement, line)
    return line


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with the tree as it is, and what is built; make finds nothing to build again."""
    work = tmp_path_factory.mktemp("work")
    shutil.copytree(ROOT, work / "dlock", ignore=shutil.ignore_patterns("build", ".*"))
    (work / "dlock/build").mkdir()
    for name in os.listdir(ROOT / "build"):
        if name in ("bin", "client", "include", "module", "tests"):
            shutil.copytree(ROOT / "build" / name, work / "dlock/build" / name, symlinks=True)
        elif (ROOT / "build" / name).is_file():
            shutil.copy2(ROOT / "build" / name, work / "dlock/build", follow_symlinks=False)
    (work / "fakes").mkdir()
    for name, script in FAKES.items():
        (work / "fakes" / name).write_text(f"#!/bin/sh\nset -eu\n{script}\n")
        (work / "fakes" / name).chmod(0o755)
    return work


def prepare(work):
    """What the reader of a page has already."""
    program = re.search(r"^```c\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[1]
    for name in "first.c", "program.c":
        (work / "dlock" / name).write_text(program)
    for name in "report", "deploy.sh":
        (work / "dlock" / name).write_text("#!/bin/sh\n")
        (work / "dlock" / name).chmod(0o755)
    tool = (ROOT / "scripts/debian/dlock-module.sh").read_text()
    (work / "dlock-module.sh").write_text(tool.replace(
        "module=/usr/lib/redis/modules/dlock.so", f"module='{BUILD}/dlock.so'"))
    (work / "redis.conf").write_text("port 0\n")


def environment(work, server):
    wanted = {name: value for name, value in os.environ.items()
              if not name.startswith(("DLOCK_", "MAKE", "MFLAGS", "SANITIZE", "CFLAGS"))}
    prefix = work / "prefix"
    return {**wanted, "PATH": f"{work}/fakes:{os.environ['PATH']}", "WORK": str(work),
            "HOME": str(work), "CLI": shutil.which(cli()), "PORT": str(server.port),
            "BUILD": str(BUILD), "FREE_PORT": str(free_port()), "PREFIX": str(prefix),
            "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "DLOCK_SYSTEM_CONFIG": "",
            "DLOCK_URL": f"redis://127.0.0.1:{server.port}",
            "REDIS_SERVER_PATH": server_program()}


def server_program():
    """Not scripts/redis-server, which runs what REDIS_SERVER names."""
    installed = os.environ.get("REDIS_SERVER") or shutil.which("redis-server")
    return str(ROOT / (installed or "build/bin/redis-server"))


@pytest.mark.limit(300, "builds and installs all of it")
@pytest.mark.parametrize("page", PAGES)
def test_the_shell_blocks_of_a_page(work, server, client, page):
    prepare(work)
    env = environment(work, server)
    blocks = shell_blocks(page)
    assert blocks
    try:
        for block in blocks:
            script = "\n".join(map(rewritten, block))
            for _ in range(2 if re.search("make install|reinstall", script) else 1):
                done = subprocess.run(["sh", "-eux", "-c", script], cwd=work / "dlock", env=env,
                                      text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, timeout=300)
                assert done.returncode == 0, f"{page}:\n{script}\n{done.stdout[-3000:]}"
    finally:
        client.config_set("dlock.drain", "no")


def test_every_page_with_a_shell_block_is_tried():
    with_blocks = {str(path.relative_to(ROOT)) for path in checker.read_pages()
                   if shell_blocks(path.relative_to(ROOT))}
    assert with_blocks == set(PAGES)


def test_the_stand_ins_notice_what_is_wrong(work, server):
    env = environment(work, server)
    for line in ("sudo apt-get install no-such-package", "sudo systemctl restart nothing",
                 "make bench no-such-target", "redis-cli DLOCK.NOTHING", "dlock-module frobnicate",
                 "scripts/python -m pytest -c tests/pytest.ini tests/no_such_test.py"):
        done = subprocess.run(["sh", "-eu", "-c", rewritten(line)], cwd=work / "dlock", env=env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert done.returncode != 0, line

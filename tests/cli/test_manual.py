"""What is installed with the tool says what the tool does."""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from support.commands import Lock
from support.docs import checker
from support.installed import make
from support.server import ROOT, free_port
from support.terminal import Terminal
from support.tool import TOOL

COMMANDS = ["run", "acquire", "extend", "release", "wait", "info", "watch", "list", "session",
            "top", "metrics", "bench"]
FILES = {"bin/dlock", "share/man/man1/dlock.1", "share/man/man7/dlock.7",
         "share/bash-completion/completions/dlock",
         "share/zsh/site-functions/_dlock", "share/fish/vendor_completions.d/dlock.fish"}
MANUAL = (ROOT / "client/cli/dlock.1").read_text()


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a prefix")
    make("install-cli", f"PREFIX={folder}")
    return folder


def test_install_and_uninstall(prefix, tmp_path):
    assert files_in(prefix) == FILES
    version = subprocess.run([prefix / "bin/dlock", "--version"], stdout=subprocess.PIPE, text=True)
    number = version.stdout.split()[1]
    assert f'"dlock {number}"' in (prefix / "share/man/man1/dlock.1").read_text()
    make("install-cli", f"PREFIX={tmp_path}")
    make("uninstall", f"PREFIX={tmp_path}")
    assert files_in(tmp_path) == set()


def test_every_exit_code_is_in_the_manual():
    codes = re.findall(r"EXIT_CODE_\w+ = (\d+)", (ROOT / "client/cli/complain.h").read_text())
    assert len(codes) > 10
    for code in codes:
        assert re.search(rf"\b{code}\b", MANUAL), code


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_the_manual_can_be_read(prefix):
    page = prefix / "share/man/man1/dlock.1"
    done = subprocess.run(["groff", "-man", "-Tutf8", "-P-cbou", "-ww", page], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and "THE COMMAND AND ITS LOCK" in done.stdout
    assert done.stderr == ""


def test_no_words_of_the_manual_run_together():
    """Macros of two fonts print their arguments without blanks between them."""
    for line in re.findall(r"^\.(?:BR|RB|BI|IB|IR|RI) (.*)$", MANUAL, re.M):
        words = [word.replace("\\-", "-") for word in shlex.split(line.replace("\\", "\\\\"))]
        for first, second in zip(words, words[1:]):
            assert not re.fullmatch(r"[\w*][\w+~%-]", first[-1:] + second[:1]), line
            assert not re.match(r"[.,;:]\Z", first), line


# -- examples and pages ----------------------------------------------------------------------------


def run_as_cron_does(prefix, tool, line, variables=""):
    """The command of a line of a crontab, with the variables of that table."""
    command = re.fullmatch(r"(?:\S+ +){5}(.*)", line)[1]
    program = prefix / "job"
    program.write_text("#!/bin/sh\ntouch \"$0.$DLOCK_NAME\"\n")
    program.chmod(0o755)
    command = re.sub(r"/usr/local/bin/(report|nightly)$", f"'{program}'", command)
    env = {"HOME": tool.env["HOME"], "DLOCK_SYSTEM_CONFIG": "", "PATH": "/usr/bin:/bin",
           "DLOCK_URL": tool.env["DLOCK_URL"], "SHELL": "/bin/sh",
           **dict(each.split("=", 1) for each in variables.split())}
    subprocess.run(["/bin/sh", "-c", command], env=env, check=True)
    return {path.name for path in prefix.glob("job.*")}


def test_the_crontabs_of_the_manual_work(tool, tmp_path):
    make("install-cli", f"PREFIX={tmp_path}")
    page = (tmp_path / "share/man/man1/dlock.1").read_text().replace("\\-", "-")
    lines = re.findall(r"^0 3 \* \* \* .*$", page, re.M)
    assert len(lines) == 2
    for line in lines:
        ran = run_as_cron_does(tmp_path, tool, line)
    assert ran == {"job.nightly-report", "job.nightly"}


def test_the_crontab_of_the_page_works(tool, tmp_path):
    page = (ROOT / "client/cli/README.md").read_text()
    path, line = re.search(r"^    (PATH=\S+)\n    (0 3 .*)$", page, re.M).groups()
    assert path.startswith("PATH=/usr/local/bin:"), "where make install puts the tool"
    make("install-cli", f"PREFIX={tmp_path}")
    path = path.replace("/usr/local", str(tmp_path))
    assert run_as_cron_does(tmp_path, tool, line, path) == {"job.nightly"}


UNITS = [path for path in (ROOT / "module/examples").iterdir()
         if path.suffix in (".service", ".socket", ".timer")]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_units_are_right(prefix, tmp_path):
    """Those of the examples and those of the page, but for the folder of the tool."""
    page = (ROOT / "client/cli/README.md").read_text()
    texts = {path.name: path.read_text() for path in UNITS}
    for name in "nightly.service", "nightly.timer":
        block = re.search(rf"    # /etc/systemd/system/{name}\n((?:    .+\n)+)", page)[1]
        texts[name] = re.sub(r"^    ", "", block, flags=re.M)
    assert len(texts) == 6
    (tmp_path / "bin").symlink_to(prefix / "bin")
    for name, text in texts.items():
        (tmp_path / name).write_text(text.replace("/usr/local", str(tmp_path)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name
                                                                     in texts)],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    mine = [line for line in done.stdout.splitlines() if str(tmp_path) in line or "dlock" in line
            or "nightly" in line]
    assert mine == []


def test_links_of_installed_pages(tmp_path):
    make("install-doc", f"PREFIX={tmp_path}")
    assert checker.check_installed(tmp_path) == []
    (tmp_path / "share/doc/dlock/client/examples/quick_start.c").unlink()
    [wrong] = checker.check_installed(tmp_path)
    assert wrong.endswith("client/README.md: there is no examples/quick_start.c")


def test_debhelper_compresses_nothing_that_a_page_links_to(tmp_path):
    """It compresses files of 4 KB and more, unless their paths have one of these words in them."""
    rules = (ROOT / "scripts/debian/rules").read_text()
    spared = re.findall(r"-X(\S+)", re.search(r"\tdh_compress (.*)", rules)[1])
    make("install-doc", f"PREFIX={tmp_path}")
    large = ["/" + str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")
             if path.is_file() and path.stat().st_size >= 4096]
    assert large and [path for path in large if not any(word in path for word in spared)] == []


def test_installed_units_start_the_installed_tool(tmp_path):
    make("install-doc", f"PREFIX={tmp_path}")
    units = list(tmp_path.rglob("*.service"))
    assert len(units) == 2
    for unit in units:
        assert f"\nExecStart={tmp_path}/bin/dlock metrics --" in unit.read_text()


# -- completion ------------------------------------------------------------------------------------


PACKAGE = pathlib.Path("/usr/share/bash-completion/bash_completion")


def patient(prefix):
    """PATH with a tool that is more patient than completion, which gives up after 300 ms."""
    folder = prefix.with_name("patient")
    folder.mkdir(exist_ok=True)
    script = folder / "dlock"
    script.write_text(f"""#!/bin/sh
for word; do shift; [ "$word" != 300ms ] || word=20s; set -- "$@" "$word"; done
exec '{TOOL}' "$@"
""")
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def type_in_bash(prefix, keys, env=None, before=":"):
    """The line after these keys. bash completes only at a terminal. before: its first command."""
    env = {**(env or os.environ), "TERM": "dumb", "PS1": "$ ",
           "PATH": patient(prefix)}
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], env, rows=50, columns=1000)
    try:
        terminal.type(f"{before}; source '{prefix}/share/bash-completion/completions/dlock'; "
                      "echo rea''dy\n")
        start = terminal.wait_for("$ ", after=terminal.wait_for("ready\r\n"))
        terminal.type(keys + "<end>")
        end = terminal.wait_for("<end>", after=start)
        return terminal.shown[start:end - len("<end>")].replace("\a", "")
    finally:
        terminal.close()


def complete(prefix, *words, env=None):
    """What bash offers behind these words: Meta-* inserts all that <tab> would show."""
    line = type_in_bash(prefix, " ".join(words) + "\x1b*", env)
    return set(line.split()[len(words) - 1:])


def complete_in_fish(prefix, *words, env=None):
    script = (f"set PATH {patient(prefix).partition(':')[0]} $PATH; "
              f"source '{prefix}/share/fish/vendor_completions.d/dlock.fish'; "
              f"complete -C '{' '.join(words)}'")
    done = subprocess.run(["fish", "--no-config", "-c", script], stdout=subprocess.PIPE, text=True,
                          check=True, env=env)
    return {line.split("\t")[0] for line in done.stdout.splitlines()}


@contextlib.contextmanager
def open_zsh(prefix, env):
    """zsh completes only at a terminal. The result is the terminal, and where its text begins."""
    env = {**env, "TERM": "xterm", "ZDOTDIR": "/no/such/folder", "PS1": "zsh> ",
           "PATH": patient(prefix)}
    terminal = Terminal(["zsh", "-f", "-i"], env, rows=200, columns=60)
    try:
        terminal.type(f"fpath=('{prefix}/share/zsh/site-functions' $fpath); "
                      "autoload -U compinit; compinit -u -D; echo rea''dy\n")
        ready = terminal.wait_for("ready\r\n", timeout=60)
        yield terminal, terminal.wait_for("zsh> ", after=ready)
    finally:
        terminal.close()


def check_zsh(prefix, words, expected, env):
    """These words and tabs show what is expected."""
    with open_zsh(prefix, env) as (terminal, before):
        terminal.type(f"{words}\t\t")
        for text in expected:
            terminal.wait_for(text, after=before)


def type_in_zsh(prefix, words, env):
    """What a tab behind these words shows."""
    with open_zsh(prefix, env) as (terminal, before):
        terminal.type(f"{words}\t<end>")
        end = terminal.wait_for("<end>", after=before)
        return terminal.shown[before:end]


SHELLS = [complete,
          pytest.param(complete_in_fish, marks=pytest.mark.skipif(
              shutil.which("fish") is None, reason="no fish"))]


@pytest.mark.parametrize("offers", SHELLS)
def test_lock_names_are_completed(prefix, offers, tool, client):
    for name in "nightly-report", "nightly-backup", "deploy":
        Lock(client, name).acquire("alice")
    for command in "run", "info", "release":
        assert offers(prefix, "dlock", command, "night", env=tool.env) == {"nightly-report",
                                                                           "nightly-backup"}
    tool.env["DLOCK_URL"] = f"redis://127.0.0.1:{free_port()}"
    assert not {"deploy"} & offers(prefix, "dlock", "info", "dep", env=tool.env)


@pytest.mark.parametrize("offers", SHELLS)
def test_lock_names_are_offered_only_at_the_place_of_a_name(prefix, offers, tool, client):
    Lock(client, "nightly").acquire("alice")

    def is_offered(*words):
        return "nightly" in offers(prefix, "dlock", *words, "n", env=tool.env)

    for line in "release", "extend --lease 5m", "info --json", "run -qw 5s", "run -w5s -n", \
            "run --wait=5s", "extend -jl 5s":
        assert is_offered(*line.split()), line
    for line in "release nightly", "extend --lease 5m nightly", "info --io-timeout", \
            "info nightly", "extend nightly --json", "run -w", "run -qw", "run nightly":
        assert not is_offered(*line.split()), line


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_completion_of_zsh(prefix, tool, client):
    for name in "nightly-report", "nightly-backup":
        Lock(client, name).acquire("alice")
    check_zsh(prefix, "dlock ", COMMANDS, tool.env)
    check_zsh(prefix, "dlock run --", ["--wait", "--lease", "--session"], tool.env)
    check_zsh(prefix, "dlock info n", ["nightly-backup", "nightly-report"], tool.env)
    check_zsh(prefix, "dlock run -qw 5s n", ["nightly-backup", "nightly-report"], tool.env)
    assert "nightly-<end>" in type_in_zsh(prefix, "dlock extend -l 5s n", tool.env)
    for words in "dlock extend lock n", "dlock extend --lease n":
        assert "nightly-" not in type_in_zsh(prefix, words, tool.env)
    check_zsh(prefix, "dlock top --sort ", ["waiters", "age", "ttl", "name"], tool.env)


@pytest.mark.parametrize("offers", SHELLS)
def test_commands_options_and_values_are_completed(prefix, offers):
    assert set(COMMANDS) <= offers(prefix, "dlock", "")
    assert offers(prefix, "dlock", "re") == {"release"}
    assert {"--wait", "--lease", "--session"} <= offers(prefix, "dlock", "run", "--")
    assert offers(prefix, "dlock", "list", "--wa") == {"--waiters"}
    assert offers(prefix, "dlock", "top", "--sort", "a") == {"age"}
    assert "true" in offers(prefix, "dlock", "run", "lock", "--", "tru")


@pytest.mark.parametrize("before", [
    ":", pytest.param(f"source {PACKAGE}", marks=pytest.mark.skipif(
        not PACKAGE.exists(), reason="no bash-completion"))], ids=["plain", "package"])
def test_bash_completes_names_and_urls_with_colons(prefix, make_tool, server, client, before):
    """bash splits words at colons, and replaces only the part behind the last one."""
    for name in "deploy:web:eu", "deploy:db", "nightly", "a=b":
        Lock(client, name).acquire("alice")
    url, env = f"redis://127.0.0.1:{server.port}", make_tool().env

    def check(line, added):
        line = f"dlock info {line}"
        assert type_in_bash(prefix, line + "\t", env, before) == line + added

    check(f"-u {url} nigh", "tly ")
    check(f"--url={url} nigh", "tly ")
    check(f"-u{url} nigh", "tly ")
    check(f"--url '{url}?lease_ms=5000&renew=yes' deploy:w", "eb:eu ")
    env["DLOCK_URL"] = url
    check("nigh", "tly ")
    check("dep", "loy:")
    check("deploy:d", "b ")
    check("deploy:web:", "eu ")
    check('"deploy:d', 'b" ')
    check("a=", "b ")


def test_bash_completes_the_value_behind_an_equals_sign(prefix):
    assert type_in_bash(prefix, "dlock top --sort=ag\t") == "dlock top --sort=age "

"""dlock-module enables and disables the module in configuration files. With packaged servers it is
tried by scripts/test-deb."""

import os
import pathlib
import subprocess
import tempfile

import pytest

from support.server import MODULE, ROOT

SOURCE = (ROOT / "scripts/debian/dlock-module.sh").read_text()
PACKAGED = "module=/usr/lib/redis/modules/dlock.so\n"


@pytest.fixture
def tool(tmp_path):
    """tool(action): the exit status and what it printed, for config of this folder."""
    assert PACKAGED in SOURCE
    script = tmp_path / "dlock-module"
    script.write_text(SOURCE.replace(PACKAGED, f"module='{MODULE}'\n"))

    def run(*words):
        done = subprocess.run(["sh", script, *words, tmp_path / "redis.conf"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    return run


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "redis.conf"
    path.write_text("port 1\n")
    path.chmod(0o640)
    return path


@pytest.fixture
def tool_of_a_user(tool):
    """As tool(), for the servers of this machine, by a user who may not look into their folder."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        servers = pathlib.Path(folder, "etc/redis")
        servers.mkdir(parents=True)
        (servers / "redis.conf").write_text(f"loadmodule {MODULE}\n")
        servers.chmod(0o000)
        script = SOURCE.replace("/etc/", f"{folder}/etc/")
        user = [] if os.getuid() else ["setpriv", "--reuid=65534", "--clear-groups"]
        yield lambda *words: subprocess.run(
            [*user, "sh", "-s", "--", *words], input=script, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd="/")
        servers.chmod(0o700)


@pytest.mark.parametrize("action", ["enable", "disable", "status"])
def test_a_user_who_cannot_look_is_not_told_that_nothing_is_there(tool_of_a_user, action):
    done = tool_of_a_user(action)
    assert done.returncode == 1 and "cannot be read; are you root?" in done.stdout
    assert tool_of_a_user("--help").returncode == 0


def loads(config):
    return [line for line in config.read_text().splitlines() if line.startswith("loadmodule")]


def test_enabled_twice_it_is_loaded_once(tool, config):
    assert tool("status")[0] == 1
    assert [tool("enable")[0] for _ in range(2)] == [0, 0]
    assert config.read_text() == f"port 1\nloadmodule {MODULE}\n"
    assert tool("status")[0] == 0
    assert os.stat(config).st_mode & 0o777 == 0o640


@pytest.mark.parametrize("line", ["loadmodule /opt/dlock.so",
                                  '  LoadModule "/opt/dlock.so" max-waiters 7'])
def test_a_module_that_is_loaded_by_hand_is_left_alone(tool, config, line):
    config.write_text(f"{line}\n")
    assert tool("enable") == (0, f"{config}: enabled already\n")
    assert config.read_text() == f"{line}\n"


def test_another_module_of_a_similar_name_is_another_module(tool, config):
    config.write_text("loadmodule /opt/mydlock.so\n# loadmodule /opt/dlock.so\n")
    tool("enable")
    assert loads(config) == ["loadmodule /opt/mydlock.so", f"loadmodule {MODULE}"]


def test_a_line_in_an_included_file_counts(tool, config, tmp_path):
    included = tmp_path / "more.conf"
    included.write_text("loadmodule /opt/dlock.so\n")
    config.write_text(f'include "{tmp_path}/mo*.conf"\n')
    assert "enabled already" in tool("enable")[1]
    assert str(included) in tool("status")[1]
    assert tool("disable")[0] == 0
    assert loads(included) == []


def test_a_file_that_includes_itself_does_not_keep_the_tool_busy(tool, config):
    config.write_text(f"include {config}\n")
    assert tool("enable")[0] == 0
    assert len(loads(config)) == 1
    assert tool("disable")[0] == 0
    assert loads(config) == []


def test_disable_keeps_the_settings_for_another_time(tool, config):
    whole = "loadmodule /opt/dlock.so max-lease 5000\nport 1\ndlock.max-waiters 7\n"
    config.write_text(whole + "dlock.drain yes\n")
    code, out = tool("disable")
    assert code == 0 and "CONFIG SET dlock.drain yes" in out and "SAVE" in out
    assert [line for line in config.read_text().splitlines() if line[0] != "#"] == ["port 1"]
    assert tool("disable") == (0, "no configuration loads the module\n")
    tool("enable")
    assert config.read_text() == whole


def test_a_link_stays_a_link(tool, config, tmp_path):
    target = tmp_path / "elsewhere"
    config.rename(target)
    config.symlink_to(target)
    tool("enable")
    assert config.is_symlink() and len(loads(target)) == 1


def test_a_file_that_is_not_there_is_named(tool, config):
    config.unlink()
    code, out = tool("enable")
    assert code == 1 and str(config) in out

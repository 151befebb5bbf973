"""dlock run: a command while a lock is held."""

import signal
import subprocess
import time

import pytest

from support.commands import Lock, served
from support.server import stopped, wait_until
from support.tool import PATIENTLY, TOOL, is_alive, keeper_of, kill, wait_for_end
from support.waiting import outlive_the_lease, wait_for_extensions, wait_for_waiters

BUSY, USAGE, UNREACHABLE, PROTOCOL, REFUSED, LOST = 1, 64, 69, 76, 77, 79


def is_free(client, name="lock"):
    return not client.exists(name)


# -- the command and its end -----------------------------------------------------------------------


def test_the_exit_code_is_that_of_the_command(tool, client):
    for code in (0, 1, 7, 255):
        assert tool.run("run", "lock", "--", "sh", "-c", f"exit {code}") == (code, "", "")
    assert is_free(client)


def test_a_command_that_dies_of_a_signal(tool):
    assert tool.run("run", "lock", "sh", "-c", "kill -9 $$")[0] == 128 + signal.SIGKILL


def test_the_command_knows_name_token_and_fence(tool, lock):
    script = 'echo "$DLOCK_NAME $DLOCK_TOKEN $DLOCK_FENCE"; read line; echo "$line"'
    process = tool.start("run", "--lease", "60s", "lock", "--", "sh", "-c", script,
                         stdin=subprocess.PIPE)
    name, token, fence = process.stdout.readline().split()
    assert name == "lock"
    info = lock.info()
    assert (info["token"].decode(), info["fence"]) == (token, int(fence))
    assert info["lease"] == 60_000
    assert process.communicate("from stdin\n") == ("from stdin\n", "")
    assert lock.info() is None


def test_its_options_are_its_own(tool):
    assert tool.run("run", "lock", "echo", "-n", "--wait", "x") == (0, "--wait x", "")
    assert tool.run("run", "lock", "--", "echo", "--", "x") == (0, "-- x\n", "")


def test_several_names_are_locked_in_one_step(tool, client):
    script = 'echo "$DLOCK_NAME"; read line'
    process = tool.start("run", "a", "b", "c", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "a b c\n"
    holders = [Lock(client, name).info() for name in "abc"]
    assert len({(info["token"], info["fence"]) for info in holders}) == 1
    code, _, complaints = tool.run("run", "-n", "-v", "d", "c", "--", "true")
    assert code == BUSY and "d c: held by" in complaints
    assert is_free(client, "d")
    assert process.communicate("\n") == ("", "") and process.returncode == 0
    assert [is_free(client, name) for name in "abc"] == [True] * 3


def test_several_names_are_kept_for_a_while(tool, client):
    assert tool.run("run", "--at-least", "1h", "a", "b", "--", "true") == (0, "", "")
    assert [Lock(client, name).info()["ttl"] > 3_000_000 for name in "ab"] == [True] * 2


def test_the_command_ends_when_one_of_several_names_is_lost(tool, client):
    process = tool.start("run", "a", "b", "--", "sh", "-c", "echo begun; exec sleep 100")
    assert process.stdout.readline() == "begun\n"
    client.delete("b")
    assert "a b: the lock is lost" in process.communicate()[1]
    assert process.returncode == LOST and is_free(client, "a")


def test_names_without_a_command(tool, client):
    assert tool.run("run", "a", "b", "--")[0] == USAGE
    code, _, complaints = tool.run("run", "a", "a", "--", "true")
    assert code == USAGE and "the same name is given twice" in complaints


def test_it_has_a_process_group_of_its_own(tool):
    code, out, _ = tool.run("run", "lock", "sh", "-c", "echo $$ $(ps -o pgid= -p $$)")
    pid, group = out.split()
    assert code == 0 and pid == group


def test_a_command_that_does_not_exist_or_cannot_be_run(tool, client):
    code, _, complaints = tool.run("run", "lock", "no-such-command")
    assert code == 127 and "no-such-command: No such file" in complaints
    assert tool.run("run", "lock", "/etc/passwd")[0] == 126
    assert is_free(client)


def test_signals_are_those_of_the_caller(tool):
    """What was ignored stays so (nohup), and nothing else is blocked or ignored."""
    script = "grep -E 'SigBlk|SigIgn' /proc/self/status"
    plain = subprocess.run(["sh", "-c", f"trap '' HUP; {script}"], stdout=subprocess.PIPE,
                           text=True)
    process = tool.run("run", "lock", "sh", "-c", script,
                       preexec_fn=lambda: (signal.signal(signal.SIGHUP, signal.SIG_IGN),
                                           signal.signal(signal.SIGPIPE, signal.SIG_DFL)))
    ours = process[1]
    assert ours.split()[1] == plain.stdout.split()[1]
    assert int(ours.split()[3], 16) & 1, "SIGHUP is ignored still"
    assert not int(ours.split()[3], 16) & (1 << 14), "SIGTERM is not"


def test_without_stdin_stdout_and_stderr(tool):
    for closed in "<&-", "<&- >&- 2>&-", ">&-":
        words = ["sh", "-c", f"exec {TOOL} run lock -- sh -c 'exit 7' {closed}"]
        assert subprocess.run(words, env=tool.env, timeout=300).returncode == 7


def test_a_run_costs_three_commands(make_tool, start_server):
    server = start_server()  # not shared: runs of other tests may send their last command late
    tool = make_tool(server)
    assert tool.run("run", "lock", "--", "true") == (0, "", "")
    calls = {name: each["calls"] for name, each in server.observer.info("commandstats").items()
             if name.startswith("cmdstat_dlock.")}
    for name in "info", "session", "watch", "unwatch":  # a lock that is held for a while is watched
        calls.pop(f"cmdstat_dlock.{name}", None)
    assert calls == {f"cmdstat_dlock.{name}": 1 for name in ("acquire", "extend", "release")}


# -- exclusion -------------------------------------------------------------------------------------


def test_runs_exclude_each_other(tool, tmp_path):
    """mkdir fails if it is there already."""
    script = f"mkdir {tmp_path}/only && sleep 0.02 && rmdir {tmp_path}/only"
    runs = [tool.start("run", "lock", "--", "sh", "-c", script) for _ in range(12)]
    assert [run.wait(60) for run in runs] == [0] * len(runs)


def test_held_by_another(tool, lock, client):
    lock.acquire("another", 60_000)
    assert tool.run("run", "-n", "lock", "true") == (BUSY, "", "")
    start = time.monotonic()
    assert tool.run("run", "-q", "--wait", "0.3", "lock", "true") == (BUSY, "", "")
    assert time.monotonic() - start >= 0.3
    assert tool.run("run", "-n", "-E", "42", "lock", "true")[0] == 42
    waiting = tool.start("run", "lock", "echo", "at last")
    wait_for_waiters(client, 1)
    lock.release("another")
    assert waiting.communicate() == ("at last\n", "")


@pytest.mark.parametrize("command", [["run", "lock", "true"], ["acquire", "lock"],
                                     ["wait", "lock"]], ids=lambda words: words[0])
@pytest.mark.parametrize("options, limit", [
    ([], "for up to 10m00"), (["-w", "90s"], "for up to 1m30"),
    (["-w", "forever"], "without a limit")])
def test_a_wait_has_a_limit_by_default(tool, lock, command, options, limit):
    lock.acquire("another", 600_000)
    process = tool.start(command[0], "-v", *options, *command[1:])
    assert process.stderr.readline().startswith(f"dlock: lock: waiting {limit}: held by another ")
    process.terminate()


def test_it_is_renewed_as_long_as_the_command_runs(tool, server, lock):
    process = tool.start("run", *PATIENTLY, "--lease", "8s", "lock", "sh", "-c", "read a",
                         stdin=subprocess.PIPE)
    first = wait_until(lock.info, "the lock")
    outlive_the_lease(server, 8)
    assert lock.info()["fence"] == first["fence"]
    assert process.communicate("end\n") == ("", "") and process.returncode == 0


def test_a_grace_of_half_the_lease_does_not_end_the_command(tool, client):
    """Whatever the lease in the URL is: the library's sessions last as long as that."""
    runs, url = [], tool.env["DLOCK_URL"]
    for lease_ms in 8000, 12_000:
        for options in [], ["--session"]:
            runs.append(tool.start(
                "run", *PATIENTLY, "--lease", "12s", "--grace", "6s", *options,
                f"lock {len(runs)}", "--", "sh", "-c", "echo begun; read a", stdin=subprocess.PIPE,
                env={**tool.env, "DLOCK_URL": f"{url}?lease_ms={lease_ms}"}))
    assert [run.stdout.readline() for run in runs] == ["begun\n"] * len(runs)
    enough = served(client, "extend") + 2 * len(runs)  # of each one every quarter of the lease
    wait_until(lambda: any(run.poll() is not None for run in runs)
               or served(client, "extend") >= enough, "extensions for half of the lease")
    for run in runs:
        assert run.communicate("end\n") == ("", "") and run.returncode == 0


@pytest.mark.parametrize("lease", ["10s", "30s"])
def test_the_command_may_extend_its_lock(tool, lock, lease):
    """10s is what the library takes as a lease where nothing is said."""
    script = f'{TOOL} extend --lease 9m "$DLOCK_NAME" "$DLOCK_TOKEN" && echo extended; read a'
    process = tool.start("run", "--lease", lease, "lock", "--", "sh", "-c", script,
                         stdin=subprocess.PIPE)
    assert process.stdout.readline() == "extended\n", process.stderr.read()
    assert lock.info()["lease"] == 540_000
    assert process.communicate("end\n") == ("", "") and process.returncode == 0


def test_a_prefix_and_a_session(tool, client):
    process, _ = tool.start_group("--prefix", "jobs:", "--session", name="nightly")
    assert Lock(client, "jobs:nightly").info()["session"] > 0
    process.terminate()
    assert process.wait(50) == 128 + signal.SIGTERM
    assert is_free(client, "jobs:nightly")


def test_replicas_that_are_not_there(tool, client):
    code, _, complaints = tool.run("run", "-n", "--io-timeout", "3s", "--min-replicas", 1, "lock",
                                   "true")
    assert code == 75 and "replicas" in complaints
    assert is_free(client)


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    [], ["lock"], ["lock", "--"], ["--wait", "soon", "lock", "true"], ["--no-such", "lock", "true"],
    ["--lease", "5ms", "lock", "true"], ["--url", "http://x", "lock", "true"]])
def test_usage(tool, words):
    code, out, complaints = tool.run("run", *words)
    assert (code, out) == (USAGE, "") and complaints.startswith("dlock: ")


def test_nobody_answers_whatever_the_wait(nobody):
    for options in ["-n"], ["--wait", "300ms"]:
        code, out, complaints = nobody.run("run", *options, "lock", "echo", "never")
        assert (code, out) == (UNREACHABLE, "") and "127.0.0.1" in complaints


def test_a_server_without_the_module(make_tool, start_server):
    server = start_server(module=None)
    code, out, complaints = make_tool(server).run("run", "lock", "true")
    assert (code, out) == (PROTOCOL, "") and "dlock: lock: " in complaints


def test_a_wrong_password_is_refused_and_not_shown(make_tool, server, client):
    client.config_set("requirepass", "right-1234")
    tool = make_tool(f"redis://:wrong-5678@127.0.0.1:{server.port}")
    code, out, complaints = tool.run("run", "lock", "true")
    assert (code, out) == (REFUSED, "") and "5678" not in complaints
    assert "dlock: lock: the user or the password is wrong (" in complaints
    tool.env["DLOCK_URL"] = f"redis://127.0.0.1:{server.port}"
    code, out, complaints = tool.run("run", "lock", "true")
    assert (code, out) == (REFUSED, "") and "wants a password, see --password-file (" in complaints


# -- signals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_goes_to_the_whole_group(tool, client, number):
    process = tool.start("run", "lock", "--", "sh", "-c", "echo begun; exec sleep 100")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    assert process.wait(50) == 128 + number
    assert is_free(client)


def test_sigterm_ends_grandchildren_too(tool, client):
    process, pids = tool.start_group()
    process.terminate()
    assert process.wait(50) == 128 + signal.SIGTERM
    assert not any(map(is_alive, pids)) and is_free(client)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT,
                                    signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_ends_the_wait(tool, lock, client, number):
    lock.acquire("another", 60_000)
    process = tool.start("run", "lock", "true")
    wait_for_waiters(client, 1)
    process.send_signal(number)
    assert process.wait(50) == 128 + number
    wait_for_waiters(client, 0)


def test_what_the_command_leaves_behind_ends_before_the_lock(tool, client):
    """Also if it does not want to."""
    script = "trap '' TERM; sleep 100 & echo $!"
    code, out, _ = tool.run("run", "--lease", "60s", "--grace", "200ms", "lock", "sh", "-c", script,
                            stdout=subprocess.PIPE)
    assert code == 0 and not is_alive(int(out))
    assert is_free(client)


# -- the lock is lost ------------------------------------------------------------------------------


def test_somebody_deletes_the_lock(tool, client):
    process, pids = tool.start_group("--lease", "60s", ignores_term=True)
    client.delete("lock")
    assert process.wait(50) == LOST
    assert not any(map(is_alive, pids))
    assert "the lock is lost: the server says" in process.stderr.read()


def test_complaints_that_nobody_reads(tool, client):
    process, pids = tool.start_group("--lease", "60s", ignores_term=True)
    process.stderr.close()
    client.delete("lock")
    assert process.wait(50) == LOST
    assert not any(map(is_alive, pids))
    process.stderr = None


def test_a_session_that_the_server_has_ended(tool, client, lock):
    process, pids = tool.start_group("--session", ignores_term=True)
    client.execute_command("CLIENT", "KILL", "ID", lock.info()["session"])
    assert process.wait(50) == LOST
    assert not any(map(is_alive, pids))


def test_the_lock_ended_unnoticed_before_the_command_did(tool, server, client):
    """The server tells of the loss at once only if the user may have a session."""
    client.execute_command("ACL", "SETUSER", "untold", "on", "nopass", "~*", "+@all",
                           "-dlock.session", "-dlock.info")
    tool.env["DLOCK_URL"] = f"redis://untold:any@127.0.0.1:{server.port}"
    process = tool.start("run", "lock", "--", "sh", "-c", "echo begun; read a",
                         stdin=subprocess.PIPE)
    assert process.stdout.readline() == "begun\n"
    client.delete("lock")
    _, complaints = process.communicate("end\n", timeout=300)
    assert process.returncode == LOST
    assert "before the command did" in complaints


def test_the_command_may_clean_up_when_the_server_is_gone(tool, server, tmp_path):
    script = f"""trap 'echo told >{tmp_path}/note; exit 0' TERM
        echo begun; while :; do sleep 0.05; done"""
    process = tool.start("run", *PATIENTLY, "--lease", "6s", "--grace", "3s", "lock", "sh", "-c",
                         script)
    assert process.stdout.readline() == "begun\n"
    server.kill()
    assert process.wait(50) == LOST
    assert (tmp_path / "note").read_text() == "told\n"
    assert "the lock is lost" in process.stderr.read()


def test_a_server_that_comes_back_in_time_is_not_noticed(tool, server):
    process = tool.start("run", *PATIENTLY, "--lease", "10s", "--io-timeout", "200ms", "lock",
                         "sh", "-c", "echo begun; read a", stdin=subprocess.PIPE)
    assert process.stdout.readline() == "begun\n", process.stderr.read()
    with stopped(server):
        time.sleep(3)  # a renewal is due after 2.5 s
    wait_for_extensions(server.observer, 1)
    assert process.communicate("end\n", timeout=300) == ("", "") and process.returncode == 0


# -- one of the two processes ends or stops --------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--session"]])
def test_kill_9_of_the_runner(tool, client, options):
    """The keeper ends the group, then gives the lock back, with a session or without."""
    process, pids = tool.start_group("--lease", "60s", *options, ignores_term=True)
    process.kill()
    wait_for_end(pids)
    wait_until(lambda: is_free(client), "that the lock is free")


def test_kill_9_of_the_keeper(tool, client):
    process, pids = tool.start_group("--lease", "60s", "--session", ignores_term=True)
    kill(keeper_of(process.pid))
    assert process.wait(50) == LOST
    assert not any(map(is_alive, pids))
    wait_until(lambda: is_free(client), "that the session has ended")


def test_kill_9_of_both(tool, client):
    """Then the command dies with its parent; what it has started cannot be helped, see dlock(1)."""
    process, pids = tool.start_group("--lease", "60s", "--session")
    both = keeper_of(process.pid), process.pid
    kill(*both, number=signal.SIGSTOP)  # so that none can act on the end of the other
    kill(*both)
    wait_for_end(pids[:1])
    wait_until(lambda: is_free(client), "that the session has ended")
    kill(pids[1])


def test_kill_9_while_it_waits(tool, lock, client):
    lock.acquire("another", 60_000)
    process = tool.start("run", "lock", "true")
    wait_for_waiters(client, 1)
    process.kill()
    wait_for_waiters(client, 0)


def test_one_of_them_is_stopped_and_the_server_gone(tool, server):
    """The runner of one command, and the keeper of another."""
    runs = [tool.start_group("--lease", "4s", name=name, ignores_term=True) for name in "ab"]
    keepers = [keeper_of(process.pid) for process, _ in runs]
    server.kill()
    kill(runs[0][0].pid, keepers[1], number=signal.SIGSTOP)
    for _, pids in runs:
        wait_for_end(pids)
    for (process, _), keeper in zip(runs, keepers):
        kill(process.pid, keeper, number=signal.SIGCONT)
        assert process.wait(50) == LOST


def test_a_stopped_runner_does_not_cost_the_lock(tool, server, lock):
    process, pids = tool.start_group("--lease", "8s")
    before = lock.info()
    kill(process.pid, number=signal.SIGSTOP)
    outlive_the_lease(server, 8)
    assert lock.info()["fence"] == before["fence"] and all(map(is_alive, pids))
    kill(process.pid, number=signal.SIGCONT)
    process.terminate()
    assert process.wait(50) == 128 + signal.SIGTERM

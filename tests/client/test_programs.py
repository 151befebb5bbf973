"""The library under stress, without memory, in scopes, and beside handlers, signals and children,
in C programs of their own. All are run again under AddressSanitizer and ThreadSanitizer, see
scripts/run-tests."""

import os
import re
import signal
import subprocess

import pytest

from support.commands import stats
from support.fake_server import SILENCE, granting
from support.server import ROOT, wait_until
from support.waiting import assert_nobody_waits, wait_for_waiters

BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")
SECONDS = os.environ.get("DLOCK_STRESS_SECONDS", 5)
PATIENT = "?io_timeout_ms=20000&connect_timeout_ms=20000"  # a slow machine is no silent server
NEEDS_MALLOC = pytest.mark.skipif("sanitize" in str(BUILD),
                                  reason="a sanitizer has an allocator of its own")


def run(program, *arguments, **env):
    done = subprocess.run([BUILD / "tests/client" / program, *map(str, arguments)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, env={**os.environ, **env})
    assert done.returncode == 0, done.stdout
    return done.stdout


def facts_of(program):
    return re.findall(r"^FACT\((\w+)\)", (ROOT / f"tests/client/{program}.c").read_text(), re.M)


def url_of(server):
    return f"redis://127.0.0.1:{server.port}"


# -- stress ---------------------------------------------------------------------------------------


def stress(servers, urls, *modes, **env):
    print(run("stress", ",".join(urls), SECONDS, *modes, **env))
    for server in servers:
        # The last claims that were canceled may be on their way; leases are longer than this.
        wait_until(lambda: server.observer.dbsize() == 0, "all locks given back", timeout=20)
        assert_nobody_waits(server.observer)
        assert stats(server.observer)["holders"] == 0


@pytest.mark.parametrize("count, modes", [
    (1, ""), (1, "hot"), (1, "shared"), (1, "shared hot"), (3, ""), (3, "hot"), (3, "shared")])
def test_many_threads_on_one_client(lend, count, modes):
    stress(lend(count), map(url_of, lend(count)), *modes.split())


def test_many_threads_on_one_client_over_tls(tls_server, authority):
    stress([tls_server], [tls_server.url], "calm", SSL_CERT_FILE=authority.ca)


def test_many_threads_whose_locks_are_renewed(server):
    print(run("renewing", url_of(server) + PATIENT, 16, 60))
    wait_until(lambda: server.observer.dbsize() == 0, "all locks given back")


def test_many_threads_whose_renewals_are_not_answered(fake_server):
    """A renewal that is under way meets the release."""
    server = fake_server(granting(EXTEND=SILENCE))
    print(run("unanswered", server.url, 4, 40))
    assert len(server.asked("DLOCK.EXTEND")) > 40


# -- memory ---------------------------------------------------------------------------------------


@NEEDS_MALLOC
@pytest.mark.parametrize("count", [1, 3])
def test_every_nth_allocation_fails(lend, count):
    print(run("failing_memory", *map(url_of, lend(count))))


@NEEDS_MALLOC
def test_every_nth_allocation_fails_in_plain_redis(start_server):
    print(run("failing_memory", url_of(start_server(module=None)) + "?module=none"))


@pytest.mark.long("OpenSSL allocates thousands of times")
@NEEDS_MALLOC
def test_every_nth_allocation_fails_over_tls(tls_server, authority):
    print(run("failing_memory", tls_server.url, SSL_CERT_FILE=authority.ca))


@NEEDS_MALLOC
def test_many_names_need_no_more_memory_than_the_first():
    print(run("names", 200_000))


# -- facts ----------------------------------------------------------------------------------------

SIGNALS = ["a_signal_comes_during_the_wait", "a_signal_has_come_before_the_wait"]
CHILD = "a_child_has_a_client_of_its_own_and_leaves_the_parents_alone"


@pytest.mark.parametrize("fact", [fact for fact in facts_of("lives") if fact not in SIGNALS])
def test_a_life(server, fact):
    run("lives", url_of(server) + PATIENT, fact)
    assert server.observer.dbsize() == 0


def test_a_child_has_a_client_of_its_own_over_tls_too(tls_server, authority):
    run("lives", tls_server.url + PATIENT, CHILD, SSL_CERT_FILE=authority.ca)
    assert tls_server.observer.dbsize() == 0


@pytest.mark.parametrize("fact", facts_of("waiting_store"))
def test_a_store_that_waits(fact):
    run("waiting_store", fact)


@pytest.mark.parametrize("program, fact", [
    (program, fact) for program in ("scopes", "reentry") for fact in facts_of(program)])
def test_a_scope_gives_the_lock_back_and_the_body_is_told(server, program, fact):
    assert run(program, url_of(server), fact) == ""
    assert server.observer.dbsize() == 0


# -- signals --------------------------------------------------------------------------------------


@pytest.fixture(params=["server", "spin"])
def waiting(request, server, client):
    """waiting(fact): a program that waits for the lock, which is held by somebody else."""
    client.execute_command("DLOCK.ACQUIRE", "lock", "somebody", "PX", 600_000)
    started, url = [], f"{url_of(server)}{PATIENT}&wait_mode={request.param}"

    def start(fact):
        started.append(subprocess.Popen(
            [BUILD / "tests/client/lives", url, fact],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for_attempts(client):
    """The program asks for the lock by now, and its handlers are there. In the queue it is not
    counted as a call."""
    wait_until(lambda: client.info("dlock")["dlock_waiters"] == 1 or
               client.info("commandstats")["cmdstat_dlock.acquire"]["calls"] > 1, "an attempt")


def outcome(process):
    out, _ = process.communicate(timeout=300)
    return process.returncode, out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_handler_may_cancel_the_wait(waiting, client, number):
    process = waiting(SIGNALS[0])
    wait_for_attempts(client)
    process.send_signal(number)
    assert outcome(process) == (0, "DLOCK_CANCELED\n")
    wait_for_waiters(client, 0)
    assert client.execute_command("DLOCK.RELEASE", "lock", "somebody") == 1


def test_a_signal_before_the_wait_cancels_it_too(waiting):
    assert outcome(waiting(SIGNALS[1])) == (0, "DLOCK_CANCELED\n")


def test_a_signal_that_means_nothing_leaves_the_wait_alone(waiting, client):
    process = waiting(SIGNALS[0])
    wait_for_attempts(client)
    for _ in range(200):
        process.send_signal(signal.SIGUSR1)
    assert process.poll() is None
    client.execute_command("DLOCK.RELEASE", "lock", "somebody")
    assert outcome(process) == (0, "DLOCK_OK\n")

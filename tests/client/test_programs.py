"""The library under stress, without memory, and in processes with signals and children, in C
programs of their own."""

import os
import signal
import subprocess

import pytest

from support.fake_server import SILENCE
from support.server import ROOT, wait_until
from support.waiting import wait_for_waiters

BUILD = ROOT / os.environ.get("DLOCK_BUILD", "build")


def run(program, *arguments, timeout=300, **env):
    done = subprocess.run([BUILD / "tests/client" / program, *map(str, arguments)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=timeout, env={**os.environ, **env})
    assert done.returncode == 0, done.stdout
    return done.stdout


PATIENT = "?io_timeout_ms=20000&connect_timeout_ms=20000"  # a slow machine is no silent server


def url_of(server):
    return f"redis://127.0.0.1:{server.port}"


@pytest.mark.parametrize("mode", [[], ["hot"]])
def test_many_threads_on_one_client(server, mode):
    """Run again under AddressSanitizer and ThreadSanitizer, see scripts/run-tests."""
    print(run("stress", url_of(server), os.environ.get("DLOCK_STRESS_SECONDS", 5), *mode))
    # The last claims that were canceled may be on their way still; leases are longer than this.
    wait_until(lambda: server.observer.dbsize() == 0, "all locks given back", timeout=20)
    assert server.observer.info("dlock")["dlock_waiters"] == 0


@pytest.mark.parametrize("mode", [[], ["hot"]])
def test_readers_writers_and_permits_on_one_client(server, mode):
    """Run again under the sanitizers too."""
    print(run("shared", url_of(server), os.environ.get("DLOCK_STRESS_SECONDS", 5), *mode))
    wait_until(lambda: server.observer.dbsize() == 0, "all locks given back", timeout=20)
    assert server.observer.info("dlock")["dlock_holders"] == 0
    assert server.observer.info("dlock")["dlock_waiters"] == 0


def test_readers_and_writers_on_one_client_of_several_servers(start_server):
    servers = [start_server() for _ in range(3)]
    urls = ",".join(url_of(server) for server in servers)
    print(run("shared", urls, os.environ.get("DLOCK_STRESS_SECONDS", 5)))
    wait_until(lambda: all(server.observer.dbsize() == 0 for server in servers),
               "all locks given back", timeout=20)


def test_many_threads_whose_locks_are_renewed(server):
    """Run again under the sanitizers too."""
    print(run("renewing", url_of(server) + PATIENT, 16, 60))
    wait_until(lambda: server.client().dbsize() == 0, "all locks given back")


def test_many_threads_whose_renewals_are_not_answered(fake_server):
    """Run again under the sanitizers too: a renewal that is under way meets the release."""
    def answer(words):
        if words[0] == b"DLOCK.EXTEND":
            return SILENCE
        return b":5\r\n" if words[0] == b"DLOCK.ACQUIRE" else b":1\r\n"

    server = fake_server(answer)
    print(run("unanswered", server.url, 4, 40))
    assert len(server.asked("DLOCK.EXTEND")) > 40


def test_many_threads_on_one_client_over_tls(tls_server, authority):
    seconds = os.environ.get("DLOCK_STRESS_SECONDS", 5)
    print(run("stress", tls_server.url, seconds, "calm", SSL_CERT_FILE=authority.ca))
    wait_until(lambda: tls_server.client().dbsize() == 0, "all locks given back", timeout=20)
    assert tls_server.client().info("dlock")["dlock_waiters"] == 0


@pytest.mark.parametrize("mode", [[], ["hot"]])
def test_many_threads_on_one_client_of_several_servers(start_server, mode):
    servers = [start_server() for _ in range(3)]
    urls = ",".join(url_of(server) for server in servers)
    print(run("stress", urls, os.environ.get("DLOCK_STRESS_SECONDS", 5), *mode))
    wait_until(lambda: all(server.observer.dbsize() == 0 for server in servers),
               "all locks given back", timeout=20)


@pytest.mark.skipif("sanitize" in str(BUILD), reason="a sanitizer has an allocator of its own")
def test_every_nth_allocation_fails(server):
    print(run("failing_memory", url_of(server)))


@pytest.mark.skipif("sanitize" in str(BUILD), reason="a sanitizer has an allocator of its own")
def test_every_nth_allocation_fails_in_plain_redis(start_server):
    server = start_server(module=None)
    print(run("failing_memory", url_of(server) + "?module=none"))


@pytest.mark.long("OpenSSL allocates thousands of times")
@pytest.mark.skipif("sanitize" in str(BUILD), reason="a sanitizer has an allocator of its own")
def test_every_nth_allocation_fails_over_tls(tls_server, authority):
    print(run("failing_memory", tls_server.url, SSL_CERT_FILE=authority.ca))


@pytest.mark.skipif("sanitize" in str(BUILD), reason="a sanitizer has an allocator of its own")
def test_every_nth_allocation_fails_with_several_servers(start_server):
    print(run("failing_memory", *[url_of(start_server()) for _ in range(3)]))


@pytest.mark.parametrize("fact", ["locks_work_until_they_are_freed",
                                  "both_are_freed_by_the_function_that_is_told"])
def test_a_client_may_be_freed_before_its_locks(server, fact):
    """Run again under the sanitizers too."""
    run("late_locks", url_of(server) + PATIENT, fact)
    assert server.observer.dbsize() == 0


def test_a_lock_that_a_handler_grants_is_not_lost_since_the_service_does_not_know_it(server):
    run("answered", url_of(server) + PATIENT)


@pytest.mark.parametrize("name", [[], ["hot"]])
@pytest.mark.parametrize("answer", ["refused", "taken"])
def test_a_handler_that_answers_a_release_keeps_the_lock_from_nobody(server, answer, name):
    """Run again under the sanitizers too."""
    run("answered_release", url_of(server) + PATIENT, answer, *name)


@pytest.mark.skipif("sanitize" in str(BUILD), reason="a sanitizer has an allocator of its own")
def test_many_names_need_no_more_memory_than_the_first():
    print(run("names", 200_000))


@pytest.mark.parametrize("fact", [
    "waiters_are_served_in_their_order",
    "a_crowd_keeps_no_other_name_busy",
    "a_canceled_wait_ends_in_the_store",
    "a_wait_ends_at_its_deadline",
    "without_a_wait_the_store_is_asked_once",
])
def test_a_store_that_waits(fact):
    """Run again under the sanitizers too."""
    run("waiting_store", fact)


def test_a_child_has_a_client_of_its_own_and_leaves_the_parents_alone(server):
    run("fork", url_of(server))
    assert server.client().dbsize() == 0


def test_a_child_has_a_client_of_its_own_over_tls_too(tls_server, authority):
    run("fork", tls_server.url, SSL_CERT_FILE=authority.ca)
    assert tls_server.client().dbsize() == 0


@pytest.fixture(params=["server", "spin"])
def waiting(request, server, client):
    """waiting(when): a program that waits for the lock, which is held by somebody else."""
    client.execute_command("DLOCK.ACQUIRE", "lock", "somebody", "PX", 600_000)
    started = []

    def start(when):
        started.append(subprocess.Popen(
            [BUILD / "tests/client/cancel_by_signal", url_of(server), request.param, when],
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
    process = waiting("later")
    wait_for_attempts(client)
    process.send_signal(number)
    assert outcome(process) == (0, "DLOCK_CANCELED\n")
    wait_for_waiters(client, 0)
    assert client.execute_command("DLOCK.RELEASE", "lock", "somebody") == 1


def test_a_signal_before_the_wait_cancels_it_too(waiting):
    assert outcome(waiting("now")) == (0, "DLOCK_CANCELED\n")


def test_a_signal_that_means_nothing_leaves_the_wait_alone(waiting, client):
    process = waiting("later")
    wait_for_attempts(client)
    for _ in range(200):
        process.send_signal(signal.SIGUSR1)
    assert process.poll() is None
    client.execute_command("DLOCK.RELEASE", "lock", "somebody")
    assert outcome(process) == (0, "DLOCK_OK\n")

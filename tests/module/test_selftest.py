"""dlock as another module meets it: the cases of tests/selftest, run inside a live server."""

import re

import pytest
import redis
from support.server import MODULE, ROOT, Server, running
from support.stream import ReplicationStream

SOURCE = ROOT / "tests/selftest/selftest.c"
CASES = re.findall(r'^    {"(\w+)", {$', SOURCE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def selftest_server():
    server = Server()
    server.add_module(MODULE.parent / "dlock_selftest.so")
    with running(server):
        yield server


@pytest.fixture
def run(selftest_server):
    """run(case) is what the command answers."""
    client = selftest_server.client()
    return lambda *case: client.execute_command("DLOCK.SELFTEST", *case)


@pytest.mark.parametrize("case", CASES)
def test_selftest(run, case):
    assert run(case) == b"PASS"


def test_every_case_is_run(run):
    assert [name.decode() for name in run()] == CASES


def test_a_failing_case_is_reported_with_its_first_wrong_step(run):
    with pytest.raises(redis.ResponseError) as failure:
        run("a_failing_case_is_reported")
    assert str(failure.value) == "step 2, DLOCK.RELEASE lock you: :0, not :1"


def test_an_unknown_case_is_an_error(run):
    with pytest.raises(redis.ResponseError, match="no such case"):
        run("no_such_case")


def test_only_a_call_that_asks_for_it_is_replicated(selftest_server, run):
    stream = ReplicationStream(selftest_server)
    try:
        run("each_grant_has_a_higher_fence")
        run("an_extension_never_shortens")
        assert stream.take() == []

        run("a_call_is_replicated_when_the_caller_wants_it")
        words = [command[0].lower() for command in stream.take()]
        assert words == [b"multi", b"dlock.apply", b"dlock.release", b"exec"]
    finally:
        stream.close()

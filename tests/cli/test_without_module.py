"""The tool at a server without the module: ?module=none."""

import json

import pytest

BUSY, USAGE = 1, 64


@pytest.fixture
def server(start_server):
    return start_server(module=None)


@pytest.fixture
def tool(make_tool, server):
    return make_tool(f"redis://127.0.0.1:{server.port}?module=none")


def test_a_command_runs_under_the_lock(tool, server):
    code, out, complaints = tool.run("run", "job", "--", "sh", "-c", "echo ran")
    assert (code, out, complaints) == (0, "ran\n", "")
    assert server.observer.dbsize() == 0


def test_a_command_gets_no_fence(tool):
    """0 would look like one, and pass where the largest fence so far counts."""
    tool.env["DLOCK_FENCE"] = "7"
    script = 'echo "${DLOCK_FENCE-none}" "$DLOCK_URL"'
    assert tool.run("run", "job", "--", "sh", "-c", script)[1] == f"none {tool.env['DLOCK_URL']}\n"


def test_a_command_does_not_run_without_it(tool, server):
    server.observer.set("job", "somebody")
    code, out, _ = tool.run("run", "--wait", "0", "job", "--", "echo", "ran")
    assert (code, out) == (BUSY, "")


def test_acquire_extend_info_and_release(tool, server):
    code, out, complaints = tool.run("acquire", "--lease", "1m", "job")
    assert (code, complaints) == (0, "")
    token = out.strip()
    assert server.observer.get("job") == token.encode()
    assert tool.run("extend", "--lease", "2m", "job", token)[0] == 0
    info = json.loads(tool.run("info", "job", "--json")[1])
    assert (info["token"], info["kind"], info["fence"]) == (token, "string", 0)
    assert info["ttl_ms"] > 60_000
    assert tool.run("release", "job", "stranger")[0] == BUSY
    assert tool.run("release", "job", token)[0] == 0
    assert tool.run("info", "job")[1] == "free\n"


def test_release_by_force(tool, server):
    assert tool.run("acquire", "job")[0] == 0
    assert tool.run("release", "--force", "--yes", "job")[0] == 0
    assert server.observer.dbsize() == 0


def test_bench_measures_what_there_is(tool, server):
    code, out, complaints = tool.run("bench", "-d", "100ms", "-t", "2", "--json")
    assert (code, complaints) == (0, "")
    assert [each["scenario"] for each in json.loads(out)] == ["pair", "spin"]
    code, out, complaints = tool.run("bench", "-d", "100ms", "-t", "2")
    assert (code, complaints) == (0, "")
    assert "many want it, spin" in out and "server wait" not in out
    assert server.observer.dbsize() == 0


@pytest.mark.parametrize("words, why", [
    (["list"], "other strings"), (["metrics"], "statistics"), (["session"], "statistics"),
    (["run", "--shared", "job", "--", "true"], "shared locks"),
    (["run", "--slots", "2", "job", "--", "true"], "shared locks")])
def test_what_only_the_module_has_is_refused_in_words(tool, words, why):
    code, _, complaints = tool.run(*words)
    assert code == USAGE
    assert "module" in complaints and why in complaints

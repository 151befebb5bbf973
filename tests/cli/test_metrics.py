"""dlock metrics: what Prometheus, node_exporter and promtool read."""

import json
import os
import re
import select
import shutil
import socket
import stat
import subprocess
import time

import pytest

from support.commands import Lock, stats
from support.server import ROOT, free_port
from support.tool import TOOL
from support.waiting import queue_up

EXAMPLES = ROOT / "module/examples"
UNREACHABLE, REFUSED, CONFIG = 69, 77, 78
SAMPLE = re.compile(r'^(\w+)(?:\{((?:\w+="(?:\\.|[^"\\])*",?)*)\})? (\S+)$')
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def read(text, sample, **labels):
    """The sample of that name and labels, or None."""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found, words, value = SAMPLE.match(line).groups()
        got = dict(re.findall(r'(\w+)="((?:\\.|[^"\\])*)"', words or ""))
        got.pop("server", None)
        if found == sample and got == labels:
            return float(value)
    return None


def metrics(tool, *options):
    code, out, complaints = tool.run("metrics", *options)
    assert (code, complaints) == (0, "")
    return out


@pytest.fixture
def server(start_server):
    """One that has counted nothing so far."""
    return start_server()


@pytest.fixture
def busy(server, client):
    """A lock that two wait for, one that nobody waits for, and one that was handed over."""
    Lock(client, "hot").acquire("alice", 600_000)
    Lock(client, "cold").acquire("bob", 600_000)
    Lock(client, "past").acquire("carol", 600_000)
    [waiting] = queue_up(server, ["dave"], key="past")
    Lock(client, "past").release("carol")
    assert waiting.answer()
    Lock(client, "past").release("dave")
    return queue_up(server, ["erin", "frank"], key="hot")


def test_counters_and_gauges_are_those_of_info(tool, client, busy):
    text, info = metrics(tool), stats(client)
    assert text.endswith("\n# EOF\n")
    assert read(text, "dlock_up") == 1
    for name, field in [("dlock_locks", "held"), ("dlock_waiters", "waiters"),
                        ("dlock_grants_total", "granted"), ("dlock_releases_total", "released"),
                        ("dlock_handovers_total", "handed_over"),
                        ("dlock_contentions_total", "contended")]:
        assert read(text, name) == info[field] > 0, name
    for name in "dlock_expirations_total", "dlock_forced_total", "dlock_evictable":
        assert read(text, name) == 0


@pytest.mark.parametrize("kind, count", [("wait", 1), ("hold", 2)])
def test_histograms_have_buckets_sum_and_count(tool, client, busy, kind, count):
    text, info = metrics(tool), stats(client)
    name = f"dlock_{kind}_seconds"
    buckets = [(float(bound), int(value)) for bound, value in re.findall(
        rf'^{name}_bucket{{server="[^"]*",le="([^"]+)"}} (\d+)$', text, re.M)]
    bounds, counts = zip(*buckets)
    assert bounds[0] == 0.000064 and bounds[-1] == float("inf") and len(bounds) == 31
    assert list(bounds) == sorted(bounds) and list(counts) == sorted(counts)
    assert counts[-1] == read(text, f"{name}_count") == count
    total = read(text, f"{name}_sum")
    assert total == pytest.approx(info[f"{kind}_sum_us"] / 1e6) and total > 0
    for bound, below in buckets:
        assert below == sum(many for us, many in info[f"{kind}_us"].items() if us <= bound * 1e6)


def test_the_busiest_locks_are_named(tool, busy):
    text = metrics(tool)
    assert read(text, "dlock_lock_waiters", name="hot") == 2
    assert read(text, "dlock_lock_waiters", name="cold") == 0
    assert 0 <= read(text, "dlock_lock_held_seconds", name="hot") < 60
    text = metrics(tool, "--busiest", "1")
    assert read(text, "dlock_lock_waiters", name="hot") == 2
    assert read(text, "dlock_lock_waiters", name="cold") is None
    assert "dlock_lock_" not in metrics(tool, "--busiest", "0")


def test_names_of_any_bytes(tool, client):
    names = [b'a"b', b"a\\b", b"a\nb", b"a\\x0ab", b"a\xffb", b"a\0b", b"a\0c",
             "ä".encode()]
    for name in names:
        Lock(client, name).acquire("alice")
    shown = re.findall(r'^dlock_lock_waiters\{name="(.*)"\} 0$', metrics(tool), re.M)
    assert len(set(shown)) == len(names) and "ä" in shown and r'a\"b' in shown


def test_a_service_that_cannot_be_read(make_tool, server, client, nobody):
    code, out, complaints = nobody.run("metrics")
    assert code == UNREACHABLE and complaints and read(out, "dlock_up") == 0
    assert out.endswith("# EOF\n") and "dlock_locks" not in out
    client.execute_command("ACL", "SETUSER", "eyes", "on", ">x", "+info")
    tool = make_tool(f"redis://eyes:x@127.0.0.1:{server.port}")
    assert tool.run("metrics")[0] == REFUSED
    assert read(metrics(tool, "--busiest", "0"), "dlock_up") == 1


def test_the_rules_that_are_missing_are_named(make_tool, server, client):
    client.execute_command("ACL", "SETUSER", "blind", "on", ">x")
    tool = make_tool(f"redis://blind:x@127.0.0.1:{server.port}")
    code, _, complaints = tool.run("metrics")
    assert code == REFUSED and "needs the ACL rules +scan +dlock.info +info %R~* (" in complaints
    code, _, complaints = tool.run("metrics", "--busiest", "0")
    assert code == REFUSED and "needs the ACL rules +info (" in complaints


def test_one_of_several_servers_cannot_be_read(several):
    tool, servers = several
    servers[1].kill()
    text = metrics(tool)
    up = dict(re.findall(r'^dlock_server_up\{server="(.*)"\} (\d)$', text, re.M))
    assert up == {f"127.0.0.1:{each.port}": "0" if each is servers[1] else "1" for each in servers}
    assert read(text, "dlock_up") == 1 and text.count("\ndlock_locks{") == 2


# -- other readers ---------------------------------------------------------------------------------


def promtool(*words, text=None):
    done = subprocess.run(["promtool", *words], input=text, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None,
                                    reason="no promtool: it is in Debian's package prometheus")


@needs_promtool
def test_promtool_accepts_the_metrics(tool, busy):
    promtool("check", "metrics", text=metrics(tool, "--format", "prometheus"))


@needs_promtool
def test_promtool_accepts_the_rules():
    promtool("check", "rules", EXAMPLES / "dlock.rules.yml")


def test_openmetrics_by_the_parser_of_its_authors(tool, busy):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser",
                                 reason="no python3-prometheus-client")
    families = {each.name: each for each in
                parser.text_string_to_metric_families(metrics(tool))}
    assert families["dlock_grants"].type == "counter"
    assert families["dlock_wait_seconds"].type == "histogram"


def test_rules_and_dashboard_use_metrics_that_there_are(tool, busy):
    text = metrics(tool)
    dashboard = json.loads((EXAMPLES / "dlock-grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += re.findall(r"expr: (.*)", (EXAMPLES / "dlock.rules.yml").read_text())
    assert len(expressions) > 15
    there = set(re.findall(r"^(dlock_\w+)", text, re.M))
    for expression in expressions:
        told = set(re.findall(r"\bdlock_[a-z_]+\b", expression))
        assert told <= there, expression


def test_the_script_for_redis_exporter(client, busy):
    reply = client.eval((EXAMPLES / "redis_exporter.lua").read_text(), 0)
    values = dict(zip(reply[::2], reply[1::2]))
    assert values[b"dlock_waiters"] == b"2" and values[b"dlock_granted"] == b"4"
    assert all(value.isdigit() for value in values.values()) and b"dlock_wait_us" not in values


# -- a file for node_exporter ----------------------------------------------------------------------


def test_a_file_is_replaced_in_one_step(tool, busy, tmp_path):
    path = tmp_path / "dlock.prom"
    path.write_text("old")
    old = os.open(path, os.O_RDONLY)
    assert tool.run("metrics", "--output", path) == (0, "", "")
    assert os.read(old, 100) == b"old", "who reads the old file reads it to its end"
    os.close(old)
    text = path.read_text()
    assert read(text, "dlock_waiters") == 2 and "# EOF" not in text
    assert "# TYPE dlock_grants_total counter\n" in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["dlock.prom"]


def test_a_file_tells_that_the_service_is_away(nobody, tmp_path):
    path = tmp_path / "dlock.prom"
    assert nobody.run("metrics", "-o", path)[0] == UNREACHABLE
    assert read(path.read_text(), "dlock_up") == 0


def test_a_file_that_cannot_be_written(tool, tmp_path):
    code, _, complaints = tool.run("metrics", "-o", tmp_path / "none/dlock.prom")
    assert code == 70 and "No such file" in complaints
    assert tool.run("metrics", "--format", "csv")[0] == 64
    assert tool.run("metrics", "--http", "-o", tmp_path / "x")[0] == 64


# -- one scrape per connection ---------------------------------------------------------------------


def scrape(tool, request, *options, expected=0):
    """As systemd does with Accept=yes: the connection is stdin and stdout."""
    ours, theirs = socket.socketpair()
    process = tool.start("metrics", "--http", *options, stdin=theirs, stdout=theirs)
    theirs.close()
    ours.sendall(request)
    reply = b""
    while chunk := ours.recv(65536):
        reply += chunk
    ours.close()
    assert process.wait(50) == expected, process.stderr.read()
    head, _, body = reply.decode().partition("\r\n\r\n")
    assert f"Content-Length: {len(body.encode())}" in head
    return head, body


def test_http(tool, busy):
    head, body = scrape(tool, b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: text/plain\r\n\r\n")
    assert head.startswith("HTTP/1.0 200 OK\r\n") and "text/plain; version=0.0.4" in head
    assert read(body, "dlock_waiters") == 2 and "# EOF" not in body
    head, body = scrape(tool, b"GET /metrics?x=1 HTTP/1.1\r\nAccept: application/openmetrics-text;"
                              b"version=1.0.0,text/plain;q=0.5\r\n\r\n")
    assert OPENMETRICS_TYPE in head and body.endswith("# EOF\n")


@pytest.mark.parametrize("request_head, status", [
    (b"POST /metrics HTTP/1.1\r\n\r\n", "405"), (b"GET / HTTP/1.1\r\n\r\n", "404"),
    (b"GET /metricsx HTTP/1.1\r\n\r\n", "404"), (b"x" * 16_383, "400")],
    ids=["post", "/", "x", "long"])
def test_http_that_is_refused(tool, request_head, status):
    head, body = scrape(tool, request_head)
    assert head.startswith(f"HTTP/1.0 {status} ") and body == ""


@pytest.mark.parametrize("accept, is_openmetrics", [
    ("application/openmetrics-text;q=0", False),
    ("application/openmetrics-text; version=1.0.0; q=0.000, text/plain", False),
    ("text/plain, application/openmetrics-text;q=0.5", False),
    ("application/openmetrics-text;q=0.1", True),
    ("text/plain;q=0.3,Application/OpenMetrics-Text;version=1.0.0;q=0.5,*/*;q=0.1", True),
    ("application/openmetrics-textual", False), ("*/*", False)])
def test_http_sends_a_format_that_is_accepted(tool, accept, is_openmetrics):
    head, body = scrape(tool, b"GET /metrics?application/openmetrics-text HTTP/1.1\r\nHost: h\r\n"
                              b"accept: " + accept.encode() + b"\r\n\r\n")
    assert (OPENMETRICS_TYPE in head) == body.endswith("# EOF\n") == is_openmetrics


def test_http_has_one_deadline_for_the_request(tool):
    """A client that sends a byte now and then does not keep the process for ever."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        tool.start("metrics", "--http", stdin=theirs, stdout=theirs)
        deadline = time.monotonic() + 50
        while not select.select([ours], [], [], 0.2)[0]:
            assert time.monotonic() < deadline, "no reply"
            ours.sendall(b"x")
        assert ours.recv(100).startswith(b"HTTP/1.0 408 Request Timeout\r\n")


def test_http_does_not_wait_for_ever_for_a_client_that_does_not_read(tool):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        ours.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        process = tool.start("metrics", "--http", stdin=theirs, stdout=theirs)
        assert process.wait(50) == 70


def test_http_reads_the_request_before_the_service(tool, server, client):
    before = client.info("stats")["total_connections_received"]
    assert scrape(tool, b"GET / HTTP/1.1\r\n\r\n")[0].startswith("HTTP/1.0 404 ")
    assert client.info("stats")["total_connections_received"] == before


@pytest.mark.parametrize("config, options, code", [
    ("colour = red\n", [], CONFIG), ("password_file = /no/such/file\n", [], CONFIG),
    ("", ["--url", "http://h"], 64), ("", ["--format", "csv"], 64)],
    ids=["key", "password", "url", "format"])
def test_http_with_a_mistake_in_the_configuration(tool, tmp_path, config, options, code):
    (tmp_path / "config").write_text(config)
    tool.env["DLOCK_SYSTEM_CONFIG"] = str(tmp_path / "config")
    head, body = scrape(tool, b"GET /metrics HTTP/1.1\r\n\r\n", *options, expected=code)
    assert head.startswith("HTTP/1.0 500 Internal Server Error\r\n") and "text/plain" in head
    assert body.startswith("dlock: the metrics cannot be read") and body.count("\n") == 1


def test_the_unit_has_the_configuration_as_a_credential(tool, tmp_path):
    """Its user cannot read a file with a password. The default is for machines without the file."""
    unit = (EXAMPLES / "dlock-metrics@.service").read_text()
    assert "\nDynamicUser=yes\n" in unit
    credential, path = re.search(r"^LoadCredential=(\w+):(.*)$", unit, re.M).groups()
    default = re.search(rf"^SetCredential={credential}:(.+)$", unit, re.M)[1]
    assert path == "/etc/dlock/config"
    variable, value = re.search(r"^Environment=(\w+)=(.*)$", unit, re.M).groups()
    tool.env[variable] = value.replace("%d", str(tmp_path))
    (tmp_path / credential).write_text(default)
    assert read(metrics(tool), "dlock_up") == 1
    (tmp_path / credential).write_text(f"url = {tool.env.pop('DLOCK_URL')}\n")
    assert read(metrics(tool), "dlock_up") == 1


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None,
                    reason="no systemd-socket-activate")
def test_socket_activation(tool, busy):
    port = free_port()
    process = subprocess.Popen(["systemd-socket-activate", "--accept", "--inetd", "-l",
                                f"127.0.0.1:{port}", *(f"-E{name}" for name in tool.env), TOOL,
                                "metrics", "--http"], env=tool.env, stderr=subprocess.PIPE)
    try:
        line = b""
        while b"Listening" not in line:
            line = process.stderr.readline()
            assert line, "it has ended"
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), timeout=50) as connection:
                connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                with connection.makefile() as reply:
                    assert read(reply.read().partition("\n\n")[2], "dlock_waiters") == 2
    finally:
        process.terminate()
        process.communicate()

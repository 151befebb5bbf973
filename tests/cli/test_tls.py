"""The tool over TLS, and how long it may take to connect."""

import json
import socket
import subprocess
import threading

import pytest

from support.tls import serving
from support.tool import TOOL

USAGE, UNREACHABLE, NO_RESOURCES, REFUSED = 64, 69, 71, 77
EXTEND = ["--", "sh", "-c", f'{TOOL} extend --lease 9m "$DLOCK_NAME" "$DLOCK_TOKEN"']


@pytest.fixture
def tool(make_tool, tls_server):
    return make_tool(tls_server.url)


def use_locks(tool, *options):
    code, token, complaints = tool.run("acquire", *options, "lock")
    assert (code, complaints) == (0, "")
    token = token.strip()
    assert json.loads(tool.run("info", *options, "--json", "lock")[1])["token"] == token
    assert tool.run("list", *options, "--names") == (0, "lock\n", "")
    assert tool.run("run", *options, "-n", "lock", "--", "true")[0] == 1
    assert tool.run("extend", *options, "lock", token) == (0, "", "")
    assert tool.run("release", *options, "lock", token) == (0, "", "")
    assert tool.run("wait", *options, "lock") == (0, "", "")
    assert tool.run("run", *options, "lock", "--", "echo", "run") == (0, "run\n", "")
    code, out, complaints = tool.run("metrics", *options)
    assert (code, complaints) == (0, "") and "\ndlock_up 1\n" in out


def test_an_authority_on_the_command_line_in_the_url_and_in_a_file(tool, tls_server, authority):
    use_locks(tool, "--tls-ca-file", authority.ca)
    tool.env["DLOCK_URL"] = f"{tls_server.url}?tls_ca_file={authority.ca}"
    use_locks(tool)
    folder = tool.home / ".config/dlock"
    folder.mkdir(parents=True)
    (folder / "config").write_text(f"url = {tls_server.url}\ntls_ca_file = {authority.ca}\n")
    del tool.env["DLOCK_URL"]
    use_locks(tool)


def test_the_command_finds_its_lock(tool, tls_server, authority):
    del tool.env["DLOCK_URL"]
    options = ["-u", tls_server.url, "--tls-ca-file", authority.ca]
    assert tool.run("run", *options, "lock", *EXTEND) == (0, "", "")


@pytest.mark.parametrize("words", [
    ["acquire", "lock"], ["run", "lock", "--", "echo", "run"], ["list"], ["info", "lock"],
    ["release", "lock", "t"], ["wait", "lock"], ["bench"], ["top"], ["watch", "lock"]],
    ids=lambda words: words[0])
def test_a_server_that_is_not_trusted(tool, words):
    code, out, complaints = tool.run(*words)
    assert (code, out) == (REFUSED, "") and "certificate" in complaints
    assert complaints.startswith("dlock: ") and complaints.count("\n") == 1


def test_a_certificate_of_the_client(make_tool, start_tls_server, authority):
    ours = authority.issue("tool", "DNS:tool")
    tool = make_tool(start_tls_server("--tls-auth-clients", "yes").url)
    trusting = ["--tls-ca-file", authority.ca]
    assert tool.run("acquire", "-n", *trusting, "lock")[0] != 0
    use_locks(tool, *trusting, "--tls-cert-file", ours.cert, "--tls-key-file", ours.key)


@pytest.mark.parametrize("function", ["SSL_CTX_new", "SSL_new"])
def test_no_memory_for_openssl(tool, authority, tmp_path, function):
    shim = tmp_path / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, "-x", "c", "-"], check=True, text=True,
                   input=f"void *{function}(void) {{ return 0; }}")
    tool.env.update(LD_PRELOAD=str(shim), ASAN_OPTIONS="verify_asan_link_order=0")
    code, out, complaints = tool.run("acquire", "-n", "--tls-ca-file", authority.ca, "lock")
    assert (code, out) == (NO_RESOURCES, "") and "no memory" in complaints


@pytest.mark.parametrize("option", ["--tls-ca-file", "--tls-cert-file", "--tls-key-file"])
def test_files_that_are_not_there_are_named(tool, option):
    code, _, complaints = tool.run("run", option, "/no/such.pem", "lock", "--", "true")
    assert code == USAGE and complaints.startswith("dlock: ")
    assert option[2:].replace("-", "_") in complaints or "/no/such.pem" in complaints


@pytest.mark.parametrize("words", [["acquire", "-n", "lock"], ["run", "lock", "--", "true"],
                                   ["list"], ["info", "lock"]], ids=lambda words: words[0])
def test_a_url_without_tls_gets_a_hint(make_tool, tls_server, words):
    tool = make_tool(f"redis://127.0.0.1:{tls_server.tls_port}")
    code, out, complaints = tool.run(*words)
    assert code in (UNREACHABLE, 75) and out == ""
    assert ": the server expects TLS: use rediss:// (" in complaints


@pytest.mark.parametrize("words", [["acquire", "-n", "lock"], ["run", "lock", "--", "true"],
                                   ["list"], ["info", "lock"]], ids=lambda words: words[0])
def test_a_url_with_tls_at_a_port_without_gets_a_hint(make_tool, server, words):
    tool = make_tool(f"rediss://127.0.0.1:{server.port}")
    code, out, complaints = tool.run(words[0], "--connect-timeout", "200ms", *words[1:])
    assert (code, out) == (UNREACHABLE, "")
    assert ": the server does not speak TLS at this port: use redis:// (" in complaints


def test_what_is_sent_without_tls_to_find_that_out_tells_nothing(make_tool, fake_server):
    asked = []
    server = fake_server(lambda words: asked.append(words) or b"*-1\r\n")
    make_tool(f"rediss://worker:secret-1@127.0.0.1:{server.port}").run(
        "info", "--connect-timeout", "200ms", "--prefix", "secret-2:", "secret-3")
    assert asked and b"secret" not in b" ".join(word for words in asked for word in words)


def test_the_hint_is_for_ports_with_tls(make_tool):
    with serving(lambda connection: None) as port:  # closes each connection
        complaints = make_tool(f"redis://127.0.0.1:{port}").run("info", "lock")[2]
    assert "could not be reached" in complaints and "rediss" not in complaints


# -- how long it may take to connect ---------------------------------------------------------------


@pytest.fixture
def deaf_port():
    """A port whose queue of connections is full: the next one is never accepted."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port, queued = listener.getsockname()[1], []
        while True:
            queued.append(socket.socket())
            queued[-1].settimeout(0.3)
            try:
                queued[-1].connect(("127.0.0.1", port))
            except TimeoutError:
                break
        yield port
        for each in queued:
            each.close()


@pytest.fixture
def silent_port():
    """A port that accepts connections, and says nothing."""
    is_over = threading.Event()
    threads = []

    def serve(connection):
        thread = threading.Thread(target=lambda kept: is_over.wait(), args=[connection.dup()])
        thread.start()
        threads.append(thread)

    with serving(serve) as port:
        yield port
        is_over.set()
        for thread in threads:
            thread.join()


def check_connect_timeout(make_tool, url):
    """The hasty one gives up while the patient one, which began before, still tries."""
    tool = make_tool(url)
    words = ["info", "--io-timeout", "1ms", "lock"]
    patient = tool.start(*words, "--connect-timeout", "100s")
    code, out, complaints = tool.run(*words, "--connect-timeout", "1500ms")
    assert (code, out) == (UNREACHABLE, "") and "127.0.0.1" in complaints
    assert patient.poll() is None
    patient.terminate()


def test_a_connection_that_does_not_come(make_tool, deaf_port):
    check_connect_timeout(make_tool, f"redis://127.0.0.1:{deaf_port}")


def test_a_handshake_that_does_not_come(make_tool, silent_port, authority):
    url = f"rediss://127.0.0.1:{silent_port}?tls_ca_file={authority.ca}"
    check_connect_timeout(make_tool, url)


@pytest.mark.parametrize("time", ["2d", "50d"])  # the second is longer than 32 bits have room for
@pytest.mark.parametrize("which", ["connect", "io"])
def test_a_timeout_has_a_limit(tool, which, time):
    code, _, complaints = tool.run("info", f"--{which}-timeout", time, "lock")
    assert (code, complaints) == (USAGE, f"dlock: {which}_timeout_ms: not 1 to 86400000\n")


def test_a_connect_timeout_is_a_time(tool):
    code, _, complaints = tool.run("info", "--connect-timeout", "soon", "lock")
    assert code == USAGE and "--connect-timeout needs a time" in complaints

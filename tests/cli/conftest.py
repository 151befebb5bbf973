"""Fixtures of the tool's tests."""

import pytest

from support.server import free_port
from support.terminal import Terminal
from support.tool import Tool


@pytest.fixture
def server(lend):
    return lend(1)[0]


@pytest.fixture
def make_tool(tmp_path_factory, lend, start_server):
    """make_tool(servers or URLs): a tool that ends with the test, before its servers."""
    made = []

    def make(*where):
        urls = [each if isinstance(each, str) else f"redis://127.0.0.1:{each.port}"
                for each in where]
        made.append(Tool(tmp_path_factory.mktemp("home"), " ".join(urls) or None))
        return made[-1]

    yield make
    for tool in made:
        tool.close()


@pytest.fixture
def tool(make_tool, server):
    return make_tool(server)


@pytest.fixture
def several(make_tool, start_server):
    """A tool for three servers, and these."""
    servers = [start_server() for _ in range(3)]
    return make_tool(*servers), servers


@pytest.fixture
def nobody(make_tool):
    """A tool whose server is not there."""
    return make_tool(f"redis://127.0.0.1:{free_port()}")


@pytest.fixture
def open_terminal(tool):
    """open_terminal(words): see support/terminal.py."""
    opened = []

    def start(*words, **more):
        opened.append(Terminal(words, {**tool.env, "TERM": "xterm", "PS1": "$ "}, **more))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()

"""Fixtures of the tool's tests."""

import pytest

from support.terminal import Terminal
from support.tool import Tool


@pytest.fixture
def server(lend):
    return lend(1)[0]


@pytest.fixture
def make_tool(tmp_path_factory, lend, start_server):
    """make_tool(url): a tool that ends with the test, before its servers."""
    made = []

    def make(url=None):
        made.append(Tool(tmp_path_factory.mktemp("home"), url))
        return made[-1]

    yield make
    for tool in made:
        tool.close()


@pytest.fixture
def tool(make_tool, server):
    return make_tool(f"redis://127.0.0.1:{server.port}")


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

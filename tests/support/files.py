"""The files from which a server restarts, and how each of them is written."""

import pytest

from support.server import wait_until

AOF = ("--appendonly", "yes", "--appendfsync", "always")


def write_aof(server, *commands):
    """The last file of a server that has stopped: these commands, and nothing else."""
    file = next((server.dir / "appendonlydir").glob("*.incr.aof"))
    file.write_text("".join(
        f"*{len(words)}\r\n" + "".join(f"${len(str(word))}\r\n{word}\r\n" for word in words)
        for words in commands))


def by_rdb(client):
    client.save()


def by_aof(client):
    """Each command is in it already."""


def by_rewritten_aof(client):
    client.bgrewriteaof()
    wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"]
               and not client.info("persistence")["aof_rewrite_scheduled"], "AOF rewrite")


FILES = pytest.mark.parametrize("options, prepare", [
    ((), by_rdb), (AOF, by_aof), ((*AOF, "--aof-use-rdb-preamble", "no"), by_rewritten_aof),
], ids=["rdb", "aof", "rewritten aof"])

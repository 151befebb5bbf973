"""The replication stream as a replica sees it, command by command, and what replicas have."""

import socket

from support.server import wait_until

# What comes now and then by itself: the clock of fences among it.
HOUSEKEEPING = (b"PING", b"SELECT", b"REPLCONF", b"DLOCK.CLOCK")


def digest(client):
    """Of all data: the same on servers that have the same."""
    return client.execute_command("DEBUG", "DIGEST")


def in_sync(master, replica):
    """Wait until the replica has everything the master wrote."""
    wait_until(lambda: master.info("replication")["master_repl_offset"]
               == replica.info("replication")["master_repl_offset"], "replica to catch up")


class ReplicationStream:
    """Attach to a master. between() is what it propagated for the body of a with statement."""

    MARK = b"dlock-test-mark"

    def __init__(self, server):
        self.server = server
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        self.reader = self.socket.makefile("rb")
        self.socket.sendall(b"SYNC\r\n")
        self._skip_snapshot()

    def _skip_snapshot(self):
        line = b"\n"
        while line == b"\n":  # the master says "\n" while it forks
            line = self.reader.readline()
        assert line.startswith(b"$"), line
        self.reader.read(int(line[1:]))

    def _next(self):
        header = self.reader.readline()
        assert header.startswith(b"*"), header
        words = []
        for _ in range(int(header[1:])):
            length = int(self.reader.readline()[1:])
            words.append(self.reader.read(length))
            self.reader.read(2)
        return words

    def take(self):
        """Every command propagated up to now, without the housekeeping."""
        self.server.client().set(self.MARK, 1)
        commands = []
        while True:
            command = self._next()
            if command[:2] == [b"SET", self.MARK]:
                return commands
            if command[0].upper() not in HOUSEKEEPING:
                commands.append(command)

    def close(self):
        self.reader.close()
        self.socket.close()

"""What happens in one turn of the event loop of a server, where no timer runs in between."""


def in_one_turn(client, *commands):
    """All within one turn."""
    pipe = client.pipeline(transaction=True)
    for words in commands:
        pipe.execute_command(*words)
    return pipe.execute()


def lease_of(lease_ms):
    """What makes the lease of "me" so short, to be called in the turn in which it matters."""
    return ("DLOCK.EXTEND", "lock", "me", "PX", lease_ms)


class Bare:
    """A connection on which we read every line ourselves."""

    def __init__(self, server):
        self.socket = server.socket()
        self.reader = self.socket.makefile("rb")

    def send(self, *lines):
        self.socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def read(self, lines=1):
        return [self.reader.readline().strip() for _ in range(lines)]

    def close(self):
        self.reader.close()
        self.socket.close()

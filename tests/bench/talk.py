"""One bare connection that sends prepared requests and reads replies of one line each."""

import ways


class Talk:
    def __init__(self, server):
        self.socket = server.socket()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, portion, reply_count):
        """Send one portion, wait for so many answers, and see that none is a refusal."""
        self.socket.sendall(portion)
        self.receive(reply_count)

    def receive(self, reply_count):
        received = b""
        while received.count(b"\r\n") < reply_count:
            more = self.socket.recv(1 << 20)
            if not more:
                raise AssertionError("the server closed the connection")
            received += more
        ways.check(received.split(b"\r\n")[:-1])

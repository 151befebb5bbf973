"""Certificates for tests, made by the openssl command, and servers that want them.

    authority = Authority(folder)                 a CA, in authority.ca
    authority.issue("server", "IP:127.0.0.1")     a certificate and its key, signed by it
    tls_options(authority, certificate, port)     for a Redis that speaks TLS on that port, too
    serving(function)                             a server that does anything else
"""

import contextlib
import pathlib
import socket
import ssl
import subprocess
import threading
import typing

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
PAST, LONG_PAST, FUTURE = "20200101000000Z", "20190101000000Z", "20490101000000Z"
CONFIG = """
[ca]
default_ca = ours
[ours]
database = {folder}/issued
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = names
unique_subject = no
[names]
commonName = supplied
[leaf]
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
{extension}
"""


class Certificate(typing.NamedTuple):
    cert: str
    key: str


def openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


class Authority:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.ca, self.key = str(self.folder / "ca.pem"), str(self.folder / "ca.key")
        (self.folder / "issued").touch()
        openssl("req", "-x509", *KEY, "-nodes", "-days", 3650, "-subj", "/CN=a CA for tests",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign",  # Python 3.13 insists on it
                "-keyout", self.key, "-out", self.ca)

    def issue(self, name, addresses, until=FUTURE):
        """addresses: as in subjectAltName; until: when it expires."""
        made = Certificate(str(self.folder / f"{name}.pem"), str(self.folder / f"{name}.key"))
        config, request = self.folder / f"{name}.cnf", self.folder / f"{name}.csr"
        config.write_text(CONFIG.format(folder=self.folder,
                                        extension=f"subjectAltName = {addresses}"))
        openssl("req", "-new", *KEY, "-nodes", "-subj", f"/CN={name}", "-keyout", made.key,
                "-out", request)
        openssl("ca", "-batch", "-notext", "-config", config, "-extensions", "leaf",
                "-cert", self.ca, "-keyfile", self.key, "-startdate", LONG_PAST,
                "-enddate", until, "-in", request, "-out", made.cert)
        return made


def tls_options(authority, certificate, port, *more):
    return ["--tls-port", port, "--tls-ca-cert-file", authority.ca, "--tls-auth-clients", "no",
            "--tls-cert-file", certificate.cert, "--tls-key-file", certificate.key, *more]


def context_of(certificate):
    """For servers in Python."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    return context


@contextlib.contextmanager
def serving(serve):
    """The port of a server that does this with each connection and closes it then."""
    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)

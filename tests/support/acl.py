"""The ACL rules that client/OPERATIONS.md names, in the table of the section "In production"."""

import re

from support.server import ROOT

PAGE = (ROOT / "client/OPERATIONS.md").read_text()


def rules_for(what):
    row = re.search(rf"^\| {re.escape(what)} \| `([^`]*)`", PAGE, re.M)
    return row[1].replace("\\|", "|").split()


LOCKS = rules_for("locks")


def set_user(server, rules, keys="~lock:*"):
    """The user "app", with the password "x", may do just that."""
    server.observer.execute_command("ACL", "SETUSER", "app", "reset", "on", ">x", keys, *rules)

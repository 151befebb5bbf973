# SPDX-License-Identifier: BSD-3-Clause
"""How connections are made, from what a client of redis-py knows: its class and its arguments.

Its own connections are not used. Ours have timeouts, whatever those of the client are, and no
request is repeated behind our back."""

from __future__ import annotations

from typing import Any, NamedTuple


class Route(NamedTuple):
    """To one server. address: None for the only one."""
    address: tuple[str, int] | None
    connection_class: Any
    options: dict[str, Any]

    def connect(self, timeout: float, **more: Any) -> Any:
        """A connection of redis-py that is not yet open."""
        options = {**self.options, "socket_timeout": timeout, "health_check_interval": 0,
                   "retry_on_timeout": False, "retry_on_error": [], **more}
        if "path" not in options:  # else it is a unix socket, which has no such timeout
            options["socket_connect_timeout"] = timeout
        return self.connection_class(**options)

    def to(self, host: str, port: int) -> Route:
        """To another server of the cluster; an empty host is the same host."""
        host = host or self.options["host"]
        return Route((host, port), self.connection_class,
                     {**self.options, "host": host, "port": port})


def route_of(pool: Any) -> Route:
    """pool: of a client, or a node of an asynchronous cluster, which has the same attributes."""
    return Route(None, pool.connection_class, pool.connection_kwargs)

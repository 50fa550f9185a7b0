"""Checks of the headers Host, Origin and Sec-Fetch-Site, which keep pages of other sites from using a service through
the browser of somebody who can reach it."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from functools import lru_cache

from xmtc.server.request_errors import RequestError
from xmtc.server.settings import ANY_HOST, LOCAL_HOSTS, Settings

HOST_PATTERN = re.compile(
    r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?))(?::[0-9]{1,5})?", re.I
)
UNIQUE_HEADERS = (
    b"host",
    b"authorization",
    b"origin",
    b"content-length",
    b"content-type",
)  # headers that occur at most once
OWN_SITES = (b"same-origin", b"none")  # Sec-Fetch-Site of the service's own page, and of an address that a person typed


def parse_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by name. Raise Refused if one that must be unique occurs twice."""
    found = dict(headers)
    if len(found) < len(headers):
        names = [name for name, _ in headers]
        for name in UNIQUE_HEADERS:
            if names.count(name) > 1:
                raise RequestError(400, f"Found two headers {name.decode().title()}, expected one.")
    return found


@lru_cache(maxsize=256)
def parse_host(header: bytes) -> str | None:
    """Return the host of a Host header in lower case and without the port, or None if it is no valid one."""
    found = HOST_PATTERN.fullmatch(header.decode("latin-1"))
    if found is None:
        return None
    name = (found["v6"] or found["name"]).lower()
    return name if found["v6"] is None or is_address(name) else None


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostCheck:
    """Check of the hosts and sites that a service answers to.

    A page of another site can point a name of its own to this machine (DNS rebinding), so names have to be known. An IP
    address needs no check on a service that other machines may use, because no such page has one as its host.
    """

    def __init__(self, settings: Settings) -> None:
        machine = socket.gethostname()
        own = () if settings.is_local else (settings.host, machine, machine.partition(".")[0])
        self.names = frozenset(name.lower().strip("[]") for name in (*settings.hosts, *LOCAL_HOSTS, *own))
        self.allows_addresses = not settings.is_local
        self.allows_all = ANY_HOST in settings.hosts
        self.origins = frozenset(origin.rstrip("/").lower().encode() for origin in settings.origins)

    def check(self, headers: dict[bytes, bytes], http_version: str) -> None:
        """Raise Refused unless the request names a host of this service and comes from no other site."""
        host = headers.get(b"host")
        if host is not None:
            self.check_host(host)
        elif http_version != "1.0":  # in which the header does not exist; a browser always sends it
            raise RequestError(400, "Found no header Host, expected one.")
        self.check_site(headers)

    def check_host(self, header: bytes) -> None:
        host = parse_host(header)
        if host is None:
            raise RequestError(
                400, "The header Host is not valid; expected a host name or address, and perhaps a port."
            )
        if self.allows_all or host in self.names or (self.allows_addresses and is_address(host)):
            return
        raise RequestError(
            421, "This service does not answer under that host name; `xmtc serve --allow-host NAME` adds a name."
        )

    def check_site(self, headers: dict[bytes, bytes]) -> None:
        """Raise Refused if a page of another site sent the request, unless `--cors` allows that site."""
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if site in OWN_SITES or b"*" in self.origins:
            return
        if origin is None:
            is_foreign = site is not None and headers.get(b"sec-fetch-mode") != b"navigate"
        else:
            is_own = origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower() != b""
            is_foreign = not is_own and origin.lower() not in self.origins
        if is_foreign:
            raise RequestError(
                403, "Pages of other sites may not use this service; `xmtc serve --cors ORIGIN` allows a site."
            )

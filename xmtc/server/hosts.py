"""Checks of the headers Host, Origin and Sec-Fetch-Site against cross-site requests and DNS rebinding."""

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
UNIQUE_HEADERS = (b"host", b"authorization", b"origin", b"content-length", b"content-type")  # at most once per request
OWN_SITES = (b"same-origin", b"none")  # Sec-Fetch-Site of the service's own page, and of a URL typed by the user


def parse_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by name. Raise RequestError if a header of UNIQUE_HEADERS occurs twice."""
    by_name = dict(headers)
    if len(by_name) < len(headers):
        names = [name for name, _ in headers]
        for name in UNIQUE_HEADERS:
            if names.count(name) > 1:
                raise RequestError(400, f"Duplicate header {name.decode().title()}; send it once.")
    return by_name


@lru_cache(maxsize=256)
def parse_host(header: bytes) -> str | None:
    """Return the host of a Host header in lower case and without the port, or None if it is invalid."""
    match = HOST_PATTERN.fullmatch(header.decode("latin-1"))
    if match is None:
        return None
    name = (match["v6"] or match["name"]).lower()
    return name if match["v6"] is None or is_address(name) else None


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostCheck:
    """Check of the host name and the origin of a request.

    Host names must be known, because another site can resolve its own name to this machine (DNS rebinding). That attack
    needs a name, so a service that other machines may use accepts any IP address as host.
    """

    def __init__(self, settings: Settings) -> None:
        machine = socket.gethostname()
        own_names = () if settings.is_local else (settings.host, machine, machine.partition(".")[0])
        self.names = frozenset(name.lower().strip("[]") for name in (*settings.hosts, *LOCAL_HOSTS, *own_names))
        self.allows_addresses = not settings.is_local
        self.allows_all = ANY_HOST in settings.hosts
        self.origins = frozenset(origin.rstrip("/").lower().encode() for origin in settings.origins)

    def check(self, headers: dict[bytes, bytes], http_version: str) -> None:
        """Raise RequestError if the host is unknown or the request comes from another site."""
        host = headers.get(b"host")
        if host is not None:
            self.check_host(host)
        elif http_version != "1.0":  # HTTP/1.0 has no Host header; browsers always send it
            raise RequestError(400, "The Host header is missing.")
        self.check_site(headers)

    def check_host(self, header: bytes) -> None:
        host = parse_host(header)
        if host is None:
            raise RequestError(400, "Invalid Host header; expected a host name or IP address with an optional port.")
        if self.allows_all or host in self.names or (self.allows_addresses and is_address(host)):
            return
        raise RequestError(421, "This host name is not allowed; `xmtc serve --allow-host NAME` allows it.")

    def check_site(self, headers: dict[bytes, bytes]) -> None:
        """Raise RequestError if a page of another site sent the request, unless `--cors` allows that site."""
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if site in OWN_SITES or b"*" in self.origins:
            return
        if origin is None:
            is_foreign = site is not None and headers.get(b"sec-fetch-mode") != b"navigate"
        else:
            is_own = origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower() != b""
            is_foreign = not is_own and origin.lower() not in self.origins
        if is_foreign:
            raise RequestError(403, "Cross-site requests are not allowed; `xmtc serve --cors ORIGIN` allows a site.")

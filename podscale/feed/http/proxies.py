"""The proxy that the environment names for a URL, found as Go's programs find it.

``HTTPS_PROXY`` or ``HTTP_PROXY`` by the scheme of the URL, and ``NO_PROXY``; capitals come
first (``golang.org/x/net/http/httpproxy``). What runs beside us is never asked through one.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from yarl import URL

from podscale.core.showable import shown_url
from podscale.feed.options import PrometheusOptions

_PORTS = {"http": "80", "https": "443"}


def proxy_of(options: PrometheusOptions, environ: Mapping[str, str]) -> URL | None:
    """Return the proxy between us and Prometheus; ``None``: none. Raises as ``proxy_for``.

    Upstream's transport with a CA file of its own knows no proxy.
    """
    return None if options.ca_file is not None else proxy_for(options.url, environ)


def proxy_for(url: str, environ: Mapping[str, str]) -> URL | None:
    """Return the proxy for an http or https URL, with its user and password; ``None``: none.

    Raises ValueError for a proxy that cannot be used; its text holds no password.
    """
    parts = urlsplit(url)
    variable = f"{parts.scheme.upper()}_PROXY"
    named = _either(environ, variable)
    if not named or parts.hostname is None:
        return None
    port = str(parts.port or _PORTS[parts.scheme])
    if not _is_proxied(parts.hostname.lower(), port, _either(environ, "NO_PROXY")):
        return None
    try:
        proxy = URL(named if "://" in named else f"http://{named}")
    except (ValueError, IndexError):  # the latter is yarl's word for brackets and no host
        raise ValueError(
            f"{variable} is not the URL of a proxy; write one like http://proxy.example:3128, or "
            f"{parts.hostname} in NO_PROXY"
        ) from None
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise ValueError(
            f"{variable}={shown_url(named)}: only http and https proxies can be used; "
            f"name one, or {parts.hostname} in NO_PROXY"
        )
    return proxy


def _either(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _is_proxied(host: str, port: str, exceptions: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    written = (each.strip().lower() for each in exceptions.split(","))
    return not any(_is_met(each, host, port, address) for each in written if each)


def _is_met(
    exception: str, host: str, port: str, address: IPv4Address | IPv6Address | None
) -> bool:
    """Whether one entry of ``NO_PROXY`` is about the host."""
    if exception == "*":
        return True
    if "/" in exception:
        try:
            return address is not None and address in ip_network(exception, strict=False)
        except ValueError:
            return False
    named, its_port = _split(exception)
    if its_port and its_port != port:
        return False
    if (its_address := _address(named)) is not None:
        return its_address == address
    domain = named.removeprefix("*")
    if domain.startswith("."):
        return host.endswith(domain)
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _split(text: str) -> tuple[str, str]:
    """Return host and port of an entry; an IPv6 address without brackets has no port."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, ""


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None

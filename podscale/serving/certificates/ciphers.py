"""What a listener offers in TLS, from Go's names for versions and cipher suites.

Follows k8s.io/component-base ``cli/flag/ciphersuites_flag.go``, which takes every suite of
Go's crypto/tls, the insecure ones too, and TLS 1.0. What OpenSSL does not have here is left
out with a warning: the rest of the list serves.
"""

import ssl
from collections.abc import Mapping, Sequence
from functools import cache

from msgspec import Struct

# Nothing below TLS 1.2: every client of Kubernetes speaks it, and OpenSSL refuses the older
# ones at its default security level.
_VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1_2,
    "VersionTLS11": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_RAISED = ("VersionTLS10", "VersionTLS11")
_CIPHERS: Mapping[str, str] = {  # Go's names, which are IANA's, and OpenSSL's
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}
# In Go's list too; they are on in every TLS 1.3 connection, there as here.
_TLS13 = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)


class TlsOffer(Struct, frozen=True):
    """What connections can agree on."""

    minimum: ssl.TLSVersion
    ciphers: str = ""  # OpenSSL's list for TLS 1.2; "": its own choice
    warnings: tuple[str, ...] = ()


def offer(minimum: str = "", names: Sequence[str] = ()) -> TlsOffer | str:
    """Return what Go's names mean here, or why they cannot be served."""
    if minimum not in _VERSIONS:
        return f"unknown TLS version {minimum}; use VersionTLS12 or VersionTLS13"
    unknown = [name for name in names if name not in _CIPHERS and name not in _TLS13]
    if unknown:
        return f"Cipher suite {unknown[0]} not supported or doesn't exist; known are: " + ", ".join(
            sorted({*_CIPHERS, *_TLS13})
        )
    version = _VERSIONS[minimum]
    warnings = []
    if minimum in _RAISED:
        warnings.append(f"{minimum} is not served: TLS 1.2 is the least that is")
    left_out = [name for name in names if name in _CIPHERS and not _has(_CIPHERS[name])]
    if left_out:
        warnings.append(f"cipher suites left out, OpenSSL has none here: {', '.join(left_out)}")
    kept = dict.fromkeys(
        _CIPHERS[name] for name in names if name in _CIPHERS and _has(_CIPHERS[name])
    )
    if names and not kept and version < ssl.TLSVersion.TLSv1_3:
        if _TLS13.isdisjoint(names):
            return f"no cipher suite is left: OpenSSL has none of {', '.join(left_out)} here"
        version = ssl.TLSVersion.TLSv1_3  # as in Go, TLS 1.2 finds nothing to agree on
    return TlsOffer(version, ":".join(kept), tuple(warnings))


@cache
def _has(cipher: str) -> bool:
    # One by one: of a list, OpenSSL drops silently what it does not know.
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(cipher)
    except ssl.SSLError:
        return False
    return True

"""Random requests, as clients write them and as nobody should."""

from random import Random

_METHODS = (*("GET",) * 12, *("HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") * 3, "TRACE",
            "PROPFIND", "get", "CONNECT")  # fmt: skip
_PREFIXES = ("apis", "apis", "apis", "apis", "apis", "api", "api", "Apis", "", "healthz", "metrics",
             "openapi", "apis.", "api2")  # fmt: skip
_GROUPS = (
    "custom.metrics.k8s.io",
    "external.metrics.k8s.io",
    "metrics.k8s.io",
    "apps",
    "",
    "watch",
)
_VERSIONS = ("v1beta1", "v1beta2", "v1", "", "proxy", "namespaces")
_WORDS = (
    "namespaces", "namespaces", "namespaces", "Namespaces", "namespace", "watch", "proxy", "a", "b",
    "pods", "nodes", "metrics", "status", "finalize", "*", "web-0", "http_requests", "", ".", "..",
    "a:b", "a b", "a/b", "a%b", "a?b", "a#b", "a+b", "ä", "a;b", "a,b=c", "watch ", "NAMESPACES",
)  # fmt: skip
_KEYS = ("watch", "fieldSelector", "fieldSelector", "labelSelector", "limit", "timeoutSeconds",
         "resourceVersion", "continue", "Watch", "field Selector", "allowWatchBookmarks",
         "sendInitialEvents", "resourceVersionMatch", "")  # fmt: skip
_VALUES = (
    "", "true", "false", "0", "1", "FALSE", "no", "a", "-5", "+7", "1_0", "0x1", "1e3", " 5",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "00000000000000000000001",
    "metadata.name=web", "metadata.name==web", "metadata.name!=web", "metadata.name=",
    "metadata.name=a,metadata.name=b", "metadata.name=b,metadata.namespace=a", "a=b", "a", "a=b=c",
    "metadata.name =web", "metadata.name=we\\,b", "metadata.name=we\\b", "metadata.name=web\\",
    "metadata.name=a/b", "metadata.name=a%b", "metadata.name=..", "metadata.name=.", ",",
    "metadata.name=web,,x=y", "x=y,metadata.name=web", "a in (b,c)", "a in (", "!a", "a>5", "é=ü",
    "metadata", "metadata.name=web#x", "metadata.name=we;b",
)  # fmt: skip


def request(random: Random) -> tuple[str, str]:
    """Draw a method and a target; each character of the target is a byte."""
    words = [random.choice(_PREFIXES)]
    if words[0] != "api":
        words.append(random.choice(_GROUPS))
    words.append(random.choice(_VERSIONS))
    words = words[: random.choice((1, 2, 3, 9, 9, 9, 9, 9, 9))]
    words += random.choices(_WORDS, k=random.randrange(8))
    target = "".join(f"/{_escaped(random, word, '/?#%')}" for word in words)
    target += random.choice(("", "", "", "/", "//"))
    if random.random() < 0.1:
        target = "/" + target
    if random.random() < 0.5:
        target += "?" + random.choice("&&&&&&;").join(
            _escaped(random, key, "&=%") + random.choice(("=", "=", "=", "")) +
            _escaped(random, random.choice(_VALUES), "&%")
            for key in random.choices(_KEYS, k=random.randrange(4))
        )  # fmt: skip
    if random.random() < 0.03:
        at = random.randrange(1, len(target) + 1)
        target = target[:at] + random.choice(("%", "%2", "%g1", "\xff", "%ff", "%00")) + target[at:]
    return random.choice(_METHODS), target


def _escaped(random: Random, text: str, reserved: str) -> str:
    share = random.choice((0.0, 0.0, 0.0, 0.2, 1.0))
    return "".join(
        f"%{byte:02x}"
        if byte not in range(0x21, 0x7F) or chr(byte) in reserved or random.random() < share
        else chr(byte)
        for byte in text.encode()
    )

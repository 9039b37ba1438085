"""Minimal CRDs of the kinds of cert-manager and of the Prometheus Operator that we deploy.

Written for the tests: the fields we use with the types those projects document, nothing
else, so that kubectl's strict validation finds a field that is misspelt.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}


def fields(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


def many(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def crd(group: str, version: str, kind: str, spec: Schema) -> dict[str, Any]:
    """Return a namespaced CRD whose ``spec`` has this schema."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


_ISSUER = fields(selfSigned=fields(), ca=fields("secretName", secretName=TEXT))
_CERTIFICATE = fields(
    "secretName",
    "issuerRef",
    secretName=TEXT,
    issuerRef=fields("name", name=TEXT, kind=TEXT, group=TEXT),
    isCA=FLAG,
    commonName=TEXT,
    dnsNames=many(TEXT),
    duration=TEXT,
    renewBefore=TEXT,
    privateKey=fields(
        algorithm={"type": "string", "enum": ["RSA", "ECDSA", "Ed25519"]},
        size=NUMBER,
        rotationPolicy={"type": "string", "enum": ["Never", "Always"]},
    ),
)
_RULE = fields(
    "expr",
    alert=TEXT,
    record=TEXT,
    expr={"x-kubernetes-int-or-string": True},
    labels=TEXTS,
    annotations=TEXTS,
    **{"for": {"type": "string", "pattern": "^(0|(([0-9]+)y)?(([0-9]+)d)?(([0-9]+)h)?"
               "(([0-9]+)m)?(([0-9]+)s)?)$"}},
)  # fmt: skip
_RULES = fields(groups=many(fields("name", name=TEXT, interval=TEXT, rules=many(_RULE))))
_KEY = fields("key", name=TEXT, key=TEXT, optional=FLAG)
_ENDPOINT = fields(
    port=TEXT,
    path=TEXT,
    scheme={"type": "string", "enum": ["http", "https"]},
    interval=TEXT,
    relabelings=many(fields(targetLabel=TEXT, replacement=TEXT)),
    bearerTokenFile=TEXT,
    tlsConfig=fields(serverName=TEXT, insecureSkipVerify=FLAG, ca=fields(secret=_KEY)),
)
_MONITOR = fields(
    "endpoints",
    "selector",
    jobLabel=TEXT,
    selector=fields(matchLabels=TEXTS),
    namespaceSelector=fields(any=FLAG, matchNames=many(TEXT)),
    endpoints=many(_ENDPOINT),
)
_PODS = fields(
    "podMetricsEndpoints",
    "selector",
    selector=fields(
        matchLabels=TEXTS,
        matchExpressions=many(
            fields("key", "operator", key=TEXT, operator=TEXT, values=many(TEXT))
        ),
    ),
    podMetricsEndpoints=many(fields(port=TEXT, interval=TEXT)),
)
CRDS = (
    crd("cert-manager.io", "v1", "Issuer", _ISSUER),
    crd("cert-manager.io", "v1", "Certificate", _CERTIFICATE),
    crd("monitoring.coreos.com", "v1", "PrometheusRule", _RULES),
    crd("monitoring.coreos.com", "v1", "ServiceMonitor", _MONITOR),
    crd("monitoring.coreos.com", "v1", "PodMonitor", _PODS),
)

"""KEDA goes on behind us: what to apply so that both answer ``external.metrics.k8s.io``.

Read is the APIService as KEDA's installation has it, or as an adoption has left it: it tells
where KEDA's adapter is and which CA is its own.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping

import yaml

from adapter.backends.backends_file import LABEL
from podscale.core.json_decoder import decode_json
from podscale.core.settings import ADOPTED_FROM
from podscale.migrate.documents import Object, name_of, text_at
from podscale.migrate.outcome import MigrationOutcome, Remark

API_SERVICE = "v1beta1.external.metrics.k8s.io"
READ_IT = f"kubectl get apiservice {API_SERVICE} -o yaml | podscale migrate keda --side-by-side -"
_MARK = ADOPTED_FROM.replace(".", r"\.")
GIVE_BACK = (
    f'kubectl patch apiservice {API_SERVICE} --type=merge -p "$(kubectl get apiservice '
    f"{API_SERVICE} -o jsonpath='{{.metadata.annotations.{_MARK}}}')\""
)
ADOPT_AGAIN = f"kubectl annotate apiservice {API_SERVICE} {ADOPTED_FROM}-"

_NAMESPACE, _READER, _TOKENS = "podscale", "podscale-external-reader", "podscale-external-tokens"
_RBAC = "rbac.authorization.k8s.io"
_BACKENDS = json.dumps({"data": {"backends.yaml": "services: true\n"}}, separators=(",", ":"))
_ARGUMENTS = ("--external-backends=/etc/podscale/backends.yaml", "--adopt")


def side_by_side(document: Object) -> MigrationOutcome:
    """Return what ``document``, an APIService, comes to; anything else is lost."""
    about = f"{text_at(document, 'kind')} {'/'.join(filter(None, name_of(document)))}".strip()
    if text_at(document, "kind") != "APIService" or name_of(document)[1] != API_SERVICE:
        why = f"side by side only the APIService {API_SERVICE} is read: {READ_IT}"
        return MigrationOutcome(lost=[Remark(about, why)])
    adopted = text_at(document, "metadata", "annotations", ADOPTED_FROM)
    try:
        keda = decode_json(adopted) if adopted else document
    except ValueError:
        keda = {}
    namespace, name = (text_at(keda, "spec", "service", key) for key in ("namespace", "name"))
    ca = _pem(text_at(keda, "spec", "caBundle"))
    if not (namespace and name and ca):
        why = (
            "it has no spec.service with a caBundle, so whom to trust as KEDA is not known: give "
            "KEDA's adapter a certificate and put its CA there"
        )
        return MigrationOutcome(read=[about], refused=[Remark(about, why)])
    return MigrationOutcome(
        read=[about],
        manifests=[*_reader(), _service(namespace, name, ca)],
        flags=[*_ARGUMENTS],
        differs=[
            Remark(
                "KEDA's operator",
                "with --enable-cert-rotation=true it writes its own CA into the APIService, ours "
                "included, and nobody is answered then: the first step keeps it from that",
            ),
            Remark("KEDA's CA", "is in the Service below; print this anew when it is replaced"),
        ],
        steps=[
            _patched("keda-operator", namespace, "--enable-apiservice-patching=false"),
            "apply the manifests below (--only manifests prints nothing else)",
            f"kubectl patch configmap podscale-rules -n {_NAMESPACE} --type=merge -p '{_BACKENDS}'",
            f"{_patched('podscale-adapter', _NAMESPACE, *_ARGUMENTS)}: ready, it adopts",
            "podscale doctor: whether KEDA is listed, and what is shadowed",
        ],
        back=[
            f"{GIVE_BACK}: KEDA answers again from this write on, and podscale leaves it alone",
            f"{ADOPT_AGAIN}: podscale adopts it anew, while --adopt is among its arguments",
        ],
    )


def _reader() -> list[Mapping[str, object]]:
    """Return the account that asks KEDA, which may read and nothing else, and who may be it."""
    read = {"apiGroups": ["external.metrics.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]}
    tokens = {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "resourceNames": [_READER],
        "verbs": ["create"],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": _READER, "namespace": _NAMESPACE}}  # fmt: skip
    return [
        account,
        *_role_and_binding("Cluster", {"name": _READER}, read, _READER),
        *_role_and_binding(
            "", {"name": _TOKENS, "namespace": _NAMESPACE}, tokens, "podscale-adapter"
        ),
    ]


def _role_and_binding(scope: str, metadata: Object, rule: Object, account: str) -> Iterator[Object]:
    """Yield a Role and its binding to an account of ours; ``scope`` is "Cluster" or ""."""
    role = {"apiGroup": _RBAC, "kind": f"{scope}Role", "name": metadata["name"]}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": _NAMESPACE}
    for kind, more in (
        ("Role", {"rules": [rule]}),
        ("RoleBinding", {"roleRef": role, "subjects": [subject]}),
    ):
        yield {"apiVersion": f"{_RBAC}/v1", "kind": f"{scope}{kind}", "metadata": metadata, **more}


def _service(namespace: str, name: str, ca: str) -> Mapping[str, object]:
    """Return the Service by which KEDA is a backend (docs/external-backends.md)."""
    entry = {
        "serviceAccount": f"{_NAMESPACE}/{_READER}",
        "selectorLabel": "scaledobject.keda.sh/name",
        "metrics": ["s0-*"],
        "caBundle": ca,
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "keda",
            "namespace": _NAMESPACE,
            "labels": {LABEL: "true"},
            "annotations": {LABEL: yaml.safe_dump(entry, sort_keys=False)},
        },
        "spec": {"type": "ExternalName", "externalName": f"{name}.{namespace}.svc"},
    }


def _pem(bundle: str) -> str:
    try:
        return base64.b64decode(bundle, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _patched(deployment: str, namespace: str, *arguments: str) -> str:
    """Return the command that adds arguments to a Deployment's first container."""
    path = "/spec/template/spec/containers/0/args/-"
    patch = [{"op": "add", "path": path, "value": each} for each in arguments]
    text = json.dumps(patch, separators=(",", ":"))
    return f"kubectl patch deployment {deployment} -n {namespace} --type=json -p '{text}'"

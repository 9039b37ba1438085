"""Random rules and questions for prometheus-adapter's packages, right and a little wrong."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.cluster.template_draws import Templates
from tests.cluster.yaml_draws import Files

Json = Any
Draw = Callable[[Random], Json]

_SERIES = (
    "http_requests_total",
    "container_cpu_usage_seconds_total",
    "kube_pod_info",
    "a:b:rate5m",
    "s",
)


def _template(random: Random) -> str:
    if random.random() < 0.1:
        return "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    return Templates(random).text()


def _selector(random: Random) -> str:
    parts = (
        "a=b", "a==b", "a!=b", "a in (y,x)", "a in (x)", "a notin (y, x)", "a notin (z)", "a",
        "!a", "namespace=other", "pod=p", "x.io/y=1.2_3-4", "b>5", "b<5", "c in (,x)", "a=",
        "app in (a.b)",
    )  # fmt: skip
    return ",".join(random.sample(parts, random.choice((0, 0, 1, 2, 3))))


def _rule(random: Random, **given: Json) -> Json:
    return {"seriesQuery": "s", "metricsQuery": "<<.Series>>", **given}


def custom(random: Random) -> Json:
    """Draw a template and the objects it is asked about."""
    return {
        "kind": "custom",
        "rule": _rule(
            random, metricsQuery=_template(random), resources={"template": "<<.Resource>>"}
        ),
        "series": random.choice(_SERIES),
        "resource": random.choice(("pods", "namespaces", "nodes", "deployments.apps", "services")),
        "namespace": random.choice(("", "shop", "shop")),
        "names": random.choice((["a"], ["a", "b"], ["a.b", "c+d", "e"], ["*"], [])),
        "extra": random.choice(([], ["container"])),
        "selector": _selector(random),
    }


def external(random: Random) -> Json:
    """Draw a template of an external rule."""
    resources: Json = {"template": "<<.Resource>>"}
    if random.random() < 0.4:
        resources["namespaced"] = random.random() < 0.5
    return {
        "kind": "external",
        "rule": _rule(random, metricsQuery=_template(random), resources=resources),
        "series": random.choice(_SERIES),
        "namespace": random.choice(("", "shop")),
        "selector": _selector(random),
    }


_PATTERNS = (
    "", "^(.*)_total$", "^container_(.*)_seconds_total$", "(.*)", "^(.+)_(.+)$",
    "(?P<n>.*)_total", "_total$", "^http", "(?i)HTTP_(.*)", "(", "(?=x)", "a|b", "^(?:http)_(.*)",
    r"\d+", r"([a-z]+)_([a-z]+)", "(.*)(_total)?", "[[:alpha:]]+", r"\pL+", "(?U)(.*)_", "^$",
)  # fmt: skip
_AS = (
    "", "$1", "${1}_per_second", "$0", "$n", "${n}x", "$1_x", "$2", "x$$y", "$", "${", "${1",
    "fixed", "$1$2", "$10",
)  # fmt: skip


def name(random: Random) -> Json:
    """Draw filters and a naming, and the series they meet."""
    filters = [
        {random.choice(("is", "isNot")): random.choice(_PATTERNS)}
        for _ in range(random.choice((0, 0, 1, 2)))
    ]
    if random.random() < 0.05:
        filters.append({"is": "a", "isNot": "b"})
    return {
        "kind": "name",
        "rule": _rule(
            random,
            seriesFilters=filters,
            name={"matches": random.choice(_PATTERNS), "as": random.choice(_AS)},
            resources={"template": "<<.Resource>>"},
        ),
        "series": random.choice((*_SERIES, "", "a_total", "HTTP_x", "line\n")),
    }


_LABELS = (
    "namespace", "pod", "Pod", "pods", "node", "deployment", "kube_pod", "kube_namespace",
    "kube__pod", "kube_apps_deployment", "kube_networking_k8s_io_ingress", "instance", "job",
    "service", "container", "kube_x", "k8s_pod_name", "ns", "ingress", "brand", "cheese_io_brand",
    "Namespace",
)  # fmt: skip
_LABEL_TEMPLATES = (
    "", "<<.Resource>>", "kube_<<.Resource>>", "kube_<<.Group>>_<<.Resource>>",
    "k8s_<<.Resource>>_name", "<<if .Group>><<.Group>>_<<end>><<.Resource>>", "<<.Group>>", "x",
    "kube.<<.Resource>>", "<<.Resource", "<<.Resource>>(", "<<.Nope>>",
    "<<.Resource>><<.Resource>>", "<<printf \"%s\" .Resource>>", "<<- .Resource ->>",
    "(kube_)?<<.Resource>>",
)  # fmt: skip
_RESOURCES = (
    "pods", "pod", "Pod", "namespaces", "nodes", "deployments", "ingress", "service", "brands",
    "jobs", "nope", "", "persistentvolumes",
)  # fmt: skip
_GROUPS = (
    "", "", "apps", "networking.k8s.io", "networking", "batch", "cheese.io", "nope", "extensions",
)  # fmt: skip


def _overrides(random: Random) -> Json:
    labels_ = random.sample(("ns", "po", "kube_pod", "namespace", "x"), random.choice((0, 0, 1, 2)))
    # Of two labels for one resource upstream asks for either, as a map has it.
    resources = random.sample(_RESOURCES, len(labels_))
    return {
        label: {"resource": resource, "group": random.choice(_GROUPS)}
        for label, resource in zip(labels_, resources, strict=True)
    }


def labels(random: Random) -> Json:
    """Draw what the label names of a series are read as."""
    template = random.choice(_LABEL_TEMPLATES)
    return {
        "kind": "labels",
        "rule": _rule(random, resources={"template": template, "overrides": _overrides(random)}),
        "labels": random.sample(_LABELS, random.randrange(6)),
    }


def label(random: Random) -> Json:
    """Draw which label names the objects of a resource."""
    template = random.choice(_LABEL_TEMPLATES)
    resource, group = random.choice(_RESOURCES), random.choice(_GROUPS)
    return {
        "kind": "label",
        "rule": _rule(random, resources={"template": template, "overrides": _overrides(random)}),
        "resource": f"{resource}.{group}" if group else resource,
    }


def file(random: Random) -> Json:
    """Draw a rules file."""
    return {"kind": "file", "text": Files(random).text()}


_TOKENS = (
    "a", "b", "x.io/a", "in", "notin", "=", "==", "!=", "!", ",", "(", ")", ">", "<", " ", "1",
    "-1", "a.b_c-d", "-a", "", "A/b/c", "x" * 64, "\t", "é", "9" * 20,
)  # fmt: skip


def selector(random: Random) -> Json:
    """Draw a selector's text, right or not, and labels that it may meet."""
    if random.random() < 0.5:
        text = "".join(random.choices(_TOKENS, k=random.randrange(1, 7)))
    else:
        text = random.choice((",", " , ")).join(_requirement(random) for _ in range(3))
    return {
        "kind": "selector",
        "selector": text,
        "labels": [
            f"{key}={random.choice(('', 'x', 'y', '5', '6'))}"
            for key in "ab"
            if random.random() < 0.7
        ],
    }


def _requirement(random: Random) -> str:
    key = random.choice(("a", "b", "x.io/c", " a ", "in"))
    values = ",".join(
        random.choice(("x", "y", "", " x ", "5", "in")) for _ in range(random.randrange(3))
    )
    return random.choice(
        (key, f"!{key}", f"{key}=x", f"{key} == y", f"{key}!=x", f"{key} in ({values})",
         f"{key} notin ({values})", f"{key}>5", f"{key}<6", f"{key}=", f"! {key}", f"{key} in(x)")
    )  # fmt: skip


def quantity(random: Random) -> Json:
    """Draw a quantity's text, up to exa."""
    number = random.choice(
        ("", "0", "00", "1", "5", "7", "12", "100", "1024", "999", "1500", "123456789")
    )
    point = random.choice(
        ("", "", "", ".", ".5", ".0", ".125", ".001", ".0001", ".000000001", ".9999999999")
    )
    suffix = random.choice(
        ("", "", "m", "u", "n", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "e3", "E3", "e-3",
         "E", "e", "e+2", "K", "mi", " ", "e-12", "ki")
    )  # fmt: skip
    sign = random.choice(("", "", "-", "+"))
    return {"kind": "quantity", "text": sign + number + point + suffix}


DRAWS: Mapping[str, Draw] = {
    "custom": custom,
    "external": external,
    "name": name,
    "labels": labels,
    "label": label,
    "file": file,
    "selector": selector,
    "quantity": quantity,
}

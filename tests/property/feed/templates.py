"""Random metricsQuery templates and the data that tells their widenings apart.

``<M>`` stands for `.LabelMatchers`, ``<namespace>`` and ``<pod>`` for the request's values.
Expressions lean towards the provable; every construct of coalescing.md 1.4 occurs.
"""

import random

NAMESPACES = ("n1", "n2", "n3")
PODS = ("p0", "p1", "p2", "p3")
LABELS = ("namespace", "pod", "job", "instance", "code")
END_S = 1_700_000_000
STEP_S = 15
SPAN_S = 900


def openmetrics(seed):
    """Series with equal pod names across namespaces, absent labels, resets, NaN, early ends."""
    source = random.Random(seed)
    lines = []

    def series(name, labels, value, until=END_S):
        text = ",".join(f'{label}="{of}"' for label, of in labels.items() if of)
        times = range(END_S - SPAN_S, until + 1, STEP_S)
        lines.extend(f"{name}{{{text}}} {value(time_s)} {time_s}" for time_s in times)

    for name in ("a", "b", "c"):
        for namespace in (*NAMESPACES, "other", ""):
            for pod in (*PODS, ""):
                if source.random() < 0.2:
                    continue
                for instance in ("i1", "i2")[: 1 if name != "c" else source.choice((1, 2))]:
                    kind = source.random()
                    base = source.choice((0, 1, 2.5, 7))
                    labels = {
                        "namespace": namespace,
                        "pod": pod,
                        "job": source.choice(("j1", "j2")),
                        "instance": instance,
                    }
                    # One is silent for ten minutes, one ended within the look-back.
                    until = END_S - (600 if kind < 0.08 else 120 if kind < 0.15 else 0)
                    if kind > 0.93:
                        series(name, labels, lambda _: "NaN", until)
                    else:
                        series(name, labels, lambda t, base=base: base + (t // STEP_S) % 5, until)
    for namespace in (*NAMESPACES, ""):
        for pod in PODS:
            for code in ("200", "500"):
                rate, reset = source.choice((1, 3)), source.choice((0, 300))
                series(
                    "r_total",
                    {"namespace": namespace, "pod": pod, "code": code, "job": "j1"},
                    lambda t, rate=rate, reset=reset: rate * ((t - reset) % 700),
                )
            total = source.choice((3, 8))
            for place, bound in enumerate(("0.1", "1", "+Inf")):
                series(
                    "h_bucket",
                    {"namespace": namespace, "pod": pod, "le": bound},
                    lambda t, n=total * (place + 1): n * (t - END_S + SPAN_S),
                )
    for job in ("j1", "j2"):
        series("cap", {"job": job}, constant(2 if job == "j1" else 5))
    for namespace in (*NAMESPACES, "other"):
        series("quota", {"namespace": namespace}, constant(len(namespace)))
    for pod in PODS:
        series("weight", {"pod": pod}, constant(int(pod[1]) + 1))
    return "\n".join([*lines, "# EOF\n"])


def constant(value):
    return lambda _: value


class Templates:
    """An endless source of expressions for one API."""

    def __init__(self, source, api):
        self.source, self.api = source, api

    def __call__(self):
        """Return a template; one in ten has a default at its root."""
        text = self.vector(self.source.choice((0, 1, 1, 2, 2, 3)))
        if self.source.random() < 0.1:
            text = f"{text} or {self.source.choice(('', 'on() '))}vector({self.pick('0', '1.5')})"
        return text

    def pick(self, *options):
        return self.source.choice(options)

    def labels(self, most=3):
        if self.source.random() < 0.5:
            keys = ["namespace", "pod"] if self.api == "custom" else ["namespace"]
            return ",".join([*keys, *self.source.sample(("job", "instance", "code"), 1)])
        return ",".join(self.source.sample(LABELS, self.source.randint(0, most)))

    def matchers(self):
        kind = self.source.random()
        if kind < 0.72:
            found = "<M>"
        elif kind < 0.82:
            found = 'namespace="<namespace>"'
        elif kind < 0.87 and self.api == "custom":
            found = 'pod=~"<pod>"'
        elif kind < 0.9:
            found = self.pick('namespace="n1"', 'pod="p1"', 'job="j1"')
        else:
            return ""
        return found + self.pick("", "", "", ',job="j1"', ',namespace!="n3"', ',pod=~"p[012]"')

    def selector(self, name=None):
        name = name or self.pick("a", "a", "b", "c", "r_total", "quota", "cap", "weight")
        braces = "" if name in ("cap", "weight", "quota") and self.source.random() < 0.7 else None
        inner = self.matchers() if braces is None else ""
        moved = self.pick(*[""] * 12, " offset 1m", " @ end()")
        return f"{name}{{{inner}}}", moved

    def instant(self):
        return "".join(self.selector())

    def ranged(self):
        text, moved = self.selector(self.pick("a", "b", "c", "r_total", "r_total"))
        return f"{text}[{self.pick('1m', '2m', '5m')}]{moved}"

    def vector(self, depth):
        if depth == 0:
            return self.pick(self.instant, self.instant, self.over_range)()
        kind = self.source.random()
        if kind < 0.3:
            return self.aggregation(depth)
        if kind < 0.62:
            return self.matching(depth)
        if kind < 0.72:
            op = self.pick("*", "+", "-", "/", ">", "> bool", "^", "%")
            pair = [self.vector(depth - 1), self.pick("2", "0.5", "-1", "100")]
            self.source.shuffle(pair)
            return f"({pair[0]} {op} {pair[1]})"
        if kind < 0.8:
            return self.relabelled(depth)
        if kind < 0.86:
            function = self.pick("max_over_time", "sum_over_time", "last_over_time", "rate")
            return f"{function}(({self.vector(depth - 1)})[{self.pick('2m:30s', '3m:1m')}])"
        if kind < 0.91:
            return self.quantile()
        if kind < 0.95:
            function = self.pick("abs", "ceil", "sqrt", "round", "sgn", "timestamp", "-", "minute")
            return f"{function}({self.vector(depth - 1)})"
        return self.rejected(depth)

    def over_range(self):
        kind = self.pick("rate", "increase", "delta", "changes", "avg_over_time", "max_over_time")
        if self.source.random() < 0.1:
            return self.pick(
                f"quantile_over_time(0.5, {self.ranged()})",
                f"predict_linear({self.ranged()}, 60)",
                f"clamp_max({self.instant()}, 3)",
            )
        return f"{kind}({self.ranged()})"

    def aggregation(self, depth):
        op = self.pick("sum", "sum", "avg", "min", "max", "count", "group", "stddev", "quantile")
        clause = self.pick("by", "by", "by", "without")
        grouping = (
            self.labels()
            if clause == "by"
            else ",".join(
                self.source.sample(
                    ("job", "instance", "code", "namespace", "pod"), self.pick(0, 1, 2)
                )
            )
        )
        inner = self.vector(depth - 1)
        if self.source.random() < 0.06:
            return f'count_values {clause} ({grouping}) ("{self.pick("v", "pod")}", {inner})'
        if op == "quantile":
            inner = f"0.5, {inner}"
        if clause == "by" and self.source.random() < 0.15:
            return f"{op}({inner})"
        return f"{op} {clause} ({grouping}) ({inner})"

    def matching(self, depth):
        op = self.pick("*", "/", "+", "-", ">", "== bool", "and", "or", "unless", "and", "atan2")
        clause = self.pick("", "", "on", "on", "ignoring")
        modifier = f" {clause}({self.labels()})" if clause else ""
        if clause and op not in ("and", "or", "unless") and self.source.random() < 0.5:
            included = self.pick("", "", "job", "pod", "namespace")
            modifier += f" group_{self.pick('left', 'right')}({included})"
        left, right = self.vector(depth - 1), self.vector(self.source.randint(0, depth - 1))
        if self.source.random() < 0.4:  # operands that do match, more often
            grouping = self.labels()
            left, right = (f"sum by ({grouping}) ({side})" for side in (left, right))
        return f"({left} {op}{modifier} {right})"

    def relabelled(self, depth):
        target = self.pick("x", "x", "job", "pod", "namespace")
        source = self.pick("job", "instance", "namespace", "pod")
        inner = self.vector(depth - 1)
        if self.source.random() < 0.3:
            return f'label_join({inner}, "{target}", "-", "{source}", "job")'
        return f'label_replace({inner}, "{target}", "$1", "{source}", "(.*)")'

    def quantile(self):
        text, moved = self.selector("h_bucket")
        inner = f"rate({text}[5m]{moved})"
        if self.source.random() < 0.5:
            inner = f"sum by ({self.pick('le,namespace,pod', 'le,pod', 'le')}) ({inner})"
        return f"histogram_quantile(0.9, {inner})"

    def rejected(self, depth):
        inner = self.vector(depth - 1)
        return self.pick(
            f"topk(1, {inner})",
            f"sort({inner})",
            f"({inner} * scalar({inner}))",
            f"absent({inner})",
            f'({inner} + on(pod) group_left label_value_of{{x="<pod>"}})',
        )

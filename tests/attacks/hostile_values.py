"""Values as nobody writes them who means well: drawn at random, and still such as are accepted."""

import json
import math
import string
from random import Random
from typing import Any

from podscale.core.settings import HPA_SETTINGS
from tests.attacks.test_written_texts import HOSTILE
from tests.kit.nested import managed
from vpa.model.estimation.annotations import ANNOTATIONS

LONGEST_TEXT = 100_000
MOST_BYTES = 250_000  # of all annotations of one object; the API server takes 256 KiB
DEEPEST = 9_000  # levels; the API server takes 9,995
KEYS = (
    *HPA_SETTINGS, *sorted(ANNOTATIONS), "podscale.io/anchor", "podscale.io/admission",
    "vpa.podscale.io/disruption-windows", "vpa.podscale.io/max-disruptions-per-day",
    "vpa.podscale.io/make-room", "vpa.podscale.io/disruptions", "vpa.podscale.io/infeasible",
    "vpa.podscale.io/open-windows", "vpaUpdates", "vpaObservedContainers",
    "vpaCpuStartupBoost/app", "offending_containers", "offending_containers_usage",
    "starved_resource", "autoscaling.alpha.kubernetes.io/metrics",
    "autoscaling.alpha.kubernetes.io/behavior", "controller.kubernetes.io/pod-deletion-cost",
    "cluster-autoscaler.kubernetes.io/safe-to-evict", "kubectl.kubernetes.io/restartedAt",
)  # fmt: skip
_WORDS = (
    "1", "0", "-1", "1s", "5m", "24h", "3.5", "90%", "true", "false", "hold", "last:1h", "max",
    "min", "auto", "cpu", "memory", "app", "Mon-Fri 08:00-17:00 Europe/Berlin", "1Gi", "100m",
    '[{"start":"*/1 * * * *","end":"*/2 * * * *","minReplicas":2}]', '{"queue_depth":"hold"}',
    "2026-11-21T14:00:00Z", "existing",
)  # fmt: skip
_ALPHABETS = (
    string.ascii_lowercase,
    string.printable,
    "\U0001f600é\x00\u2028",
    "0123456789",
    "([{",
)
_TIMES = (
    "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "2038-01-19T03:14:08Z",
    "2262-04-12T00:00:00Z", "9999-12-31T23:59:59Z", "2026-11-21T14:00:00+14:00",
)  # fmt: skip
# No amount between: what fits onto a node must leave room for others.
TINY = ("0", "1n", "1u", "1m", "0.001", "1e-3", "10m", "1.000000001m")
LARGE = ("1e9", "1Ti")
HUGE = ("1e9", "9223372036854775807", "8E", "7Ei", "1e18", "1e30", "9" * 40)


class Hostile(Random):
    """A source of such values; the same seed draws the same."""

    def count(self, most: int) -> int:
        """Return a number from 1 to ``most``, any order of magnitude as likely as another."""
        return round(math.exp(self.uniform(0.0, math.log(most))))

    def number(self, least: int = 0, most: int = 2**31 - 1) -> int:
        drawn = (least, least + 1, most, most - 1, least - 1 + self.count(most))
        return min(self.choice(drawn), most)

    def moment(self) -> str:
        return self.choice(_TIMES)

    def text(self, longest: int = LONGEST_TEXT) -> str:
        kind = self.random()
        if kind < 0.4:
            return self.choice(_WORDS)[:longest]
        if kind < 0.7:
            return self.choice(tuple(HOSTILE.values()))[:longest]
        alphabet = self.choice(_ALPHABETS)
        return "".join(self.choices(alphabet, k=4)) * (self.count(longest) // 4)

    def word(self, longest: int = 63) -> str:
        """Return what may stand in a name or a label."""
        return "".join(self.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=self.count(longest)))

    def key(self) -> str:
        prefix = ".".join(self.word(60) for _ in range(self.count(4)))
        return self.choice((self.word(), f"{prefix}/{self.word()}"))

    def labels(self, most: int = 500) -> dict[str, str]:
        return {self.key(): self.choice(("", self.word())) for _ in range(self.count(most))}

    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = {}
        left = self.count(MOST_BYTES)
        for _ in range(self.count(200)):
            key = self.choice((self.choice(KEYS), self.key()))
            value = self.text(left)
            left -= len(key) + len(value.encode(errors="replace"))
            if left <= 0:
                break
            found[key] = value
        return found

    def selector(self, **matched: str) -> dict[str, Any]:
        """Return a label selector that selects what has the labels ``matched``."""
        expressions = [
            {"key": self.key(), "operator": "NotIn",
             "values": [self.word() for _ in range(self.count(100))]}
            for _ in range(self.count(20))
        ]  # fmt: skip
        return {"matchLabels": matched, "matchExpressions": expressions}

    def metadata(self, api_version: str, **labels: str) -> dict[str, Any]:
        """Return all but name and namespace."""
        made: dict[str, Any] = {}
        if self.random() < 0.6:
            made["annotations"] = self.annotations()
        if self.random() < 0.3:
            labels = self.labels() | labels
        if self.random() < 0.3:
            made["managedFields"] = managed(
                self.count(DEEPEST), self.word(), apiVersion=api_version, fieldsType="FieldsV1",
                time=self.moment(),
            )  # fmt: skip
        if self.random() < 0.2:
            made["ownerReferences"] = [
                {"apiVersion": self.choice(("apps/v1", "v1", f"{self.word()}.io/v1")),
                 "kind": self.choice(("Node", "ReplicaSet", "Job", self.text(10_000) or "x")),
                 "name": self.text(10_000) or "x", "uid": self.word(), "controller": number == 0}
                for number in range(self.count(50))
            ]  # fmt: skip
        return {**made, "labels": labels}


def encoded(made: Any) -> bytes:
    """Return the JSON; a lone surrogate is written as its escape."""
    return json.dumps(made).encode()

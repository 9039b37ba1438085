"""A ScaledObject as a HorizontalPodAutoscaler, external rules and annotations.

KEDA does three things here: it makes an HPA, answers its external metrics, and switches
between zero and one. The first two carry over; the third is told.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from hpa.decide.api.options import read_options
from hpa.decide.api.schedules import MOST_SCHEDULES
from podscale.core import quantity
from podscale.migrate.documents import (
    Object,
    at,
    is_true_at,
    list_at,
    map_at,
    name_of,
    text_at,
)
from podscale.migrate.keda import triggers
from podscale.migrate.keda.connection import Authentications, credentials
from podscale.migrate.keda.triggers import Converted
from podscale.migrate.outcome import Comparable, ComparedMetric, MigrationOutcome, Remark

PAUSED = "autoscaling.keda.sh/paused"
_PREFIX = "autoscaling.keda.sh/"
_RESTORE = "advanced.restoreToOriginalReplicaCount"
_KEDA_1 = " (deploymentName is of KEDA 1: write name, and apiVersion keda.sh/v1alpha1)"
_FORMULA = re.compile(r"[A-Za-z0-9_\s+*/().-]+")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIRECTIONS = (("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp"))
_SIZES = (("minReplicaCount",), ("maxReplicaCount",), ("fallback", "replicas"))


def scaled_object(manifest: Object, authentications: Authentications) -> MigrationOutcome:
    """Return what a ScaledObject becomes; ``authentications`` by namespace and name.

    ClusterTriggerAuthentications have the namespace "".
    """
    return _Conversion(manifest, authentications).outcome()


def scaled_job(manifest: Object) -> MigrationOutcome:
    """Return that a ScaledJob stays with KEDA."""
    about = f"ScaledJob {'/'.join(filter(None, name_of(manifest)))}"
    return MigrationOutcome(
        read=[about],
        lost=[Remark(about, "jobs are started by KEDA, not scaled: leave it there")],
    )


class _Conversion:
    def __init__(self, manifest: Object, authentications: Authentications) -> None:
        self._spec = map_at(manifest, "spec")
        self._annotations = map_at(manifest, "metadata", "annotations")
        self._namespace, self._name = name_of(manifest)
        self._authentications = authentications
        self._about = f"ScaledObject {'/'.join(filter(None, (self._namespace, self._name)))}"
        self._lost: list[Remark] = []
        self._differs: list[Remark] = []
        self._flags: list[str] = []
        self._schedules: list[Mapping[str, object]] = []

    def outcome(self) -> MigrationOutcome:
        unfit = [*self._unfit()]
        if unfit:
            return MigrationOutcome(read=[self._about], refused=unfit)
        converted = self._triggers()
        modifiers = map_at(self._spec, "advanced", "scalingModifiers")
        if text_at(modifiers, "formula"):
            converted = self._composed(converted, modifiers)
        schedules = [each.schedule for each in converted if each.schedule is not None]
        self._schedules = schedules[:MOST_SCHEDULES]
        if len(schedules) > MOST_SCHEDULES:
            text = (
                f"{len(schedules)} cron triggers: only the first {MOST_SCHEDULES} are carried over"
            )
            self._lost.append(Remark(f"{self._about}: triggers", text))
        if self._schedules and all(each.metric is None for each in converted):
            converted.append(triggers.constant(triggers.slug(self._namespace, self._name, "one")))
        without = sum(each.metric is None and each.schedule is None for each in converted)
        metrics = [each.metric for each in converted if each.metric is not None]
        if without and metrics:
            self._differ(
                "triggers",
                f"the HPA below lacks {without} of them (see above): it may ask for less than KEDA "
                "did. Raise minReplicas, or keep the ScaledObject until they are replaced",
            )
        rules = [each.rule for each in converted if each.rule is not None]
        self._sizes()
        if not metrics:
            self._lose("", "no trigger could be carried over, so no HPA is written")
            return MigrationOutcome(read=[self._about], lost=self._lost, differs=self._differs)
        hpa = self._hpa(metrics, [each for each in converted if each.name])
        where = f" -n {self._namespace}" if self._namespace else ""
        name = text_at(hpa, "metadata", "name")
        return MigrationOutcome(
            read=[self._about],
            manifests=[hpa],
            rules={"externalRules": rules} if rules else {},
            flags=self._flags,
            lost=self._lost,
            differs=self._differs,
            steps=[
                "add the rules below to the rules file and check them: podscale doctor -f FILE",
                (
                    f"kubectl annotate --overwrite scaledobject {self._name}{where} {PAUSED}=true  "
                    "# KEDA removes its HPA and keeps the size"
                ),
                f"kubectl apply the HorizontalPodAutoscaler {name} below",
                *self._unrestored(where),
                f"when satisfied: kubectl delete scaledobject {self._name}{where}",
            ],
            compared=[self._comparable(hpa, converted)],
            back=[
                f"kubectl delete hpa {name}{where}",
                (
                    f"kubectl annotate scaledobject {self._name}{where} {PAUSED}-  "
                    "# KEDA makes its HPA again"
                ),
            ],
        )

    def _unfit(self) -> Iterator[Remark]:
        """Yield why the manifest is none that KEDA 2 takes: a template, or one of KEDA 1."""
        for path in _SIZES:
            written = at(self._spec, *path)
            if written is not None and not text_at(self._spec, *path).isdecimal():
                yield Remark(
                    f"{self._about}: spec.{'.'.join(path)}",
                    f"{written!r} is no whole number: give the manifest as kubectl get or helm "
                    "template prints it",
                )
        if not text_at(self._spec, "scaleTargetRef", "name"):
            older = text_at(self._spec, "scaleTargetRef", "deploymentName")
            yield Remark(
                f"{self._about}: spec.scaleTargetRef.name",
                f"nothing is named that could be scaled{_KEDA_1 if older else ''}",
            )

    def _comparable(self, hpa: Mapping[str, object], converted: Sequence[Converted]) -> Comparable:
        metrics, left_out = [], []
        for each in converted:
            average = text_at(each.metric, "external", "target", "averageValue")
            # KEDA's formula takes each trigger's silence as it is set; one query cannot.
            if each.schedule is not None:
                continue
            if each.metric is None or not average or each.is_composite:
                left_out.append(each.name or text_at(each.metric, "type") or "a lost trigger")
                continue
            target = quantity.parse(average).milli / 1000
            metrics.append(ComparedMetric(each.name, each.query, target, each.silence_is_zero))
        options = read_options({
            key: str(value) for key, value in map_at(hpa, "metadata", "annotations").items()
        })  # fmt: skip
        fallbacks = [f.replicas for _, f in options.fallbacks if f.kind == "replicas"]
        least, most = at(hpa, "spec", "minReplicas"), at(hpa, "spec", "maxReplicas")
        return Comparable(
            self._about,
            metrics,
            least if isinstance(least, int) else 1,
            most if isinstance(most, int) else 1,
            fallbacks[0] if fallbacks else None,
            left_out,
        )

    def _lose(self, path: str, text: str) -> None:
        self._lost.append(Remark(f"{self._about}: {path}" if path else self._about, text))

    def _differ(self, path: str, text: str) -> None:
        self._differs.append(Remark(f"{self._about}: {path}" if path else self._about, text))

    def _triggers(self) -> list[Converted]:
        found = []
        for i, trigger in enumerate(list_at(self._spec, "triggers")):
            words = (self._namespace, self._name, text_at(trigger, "name") or str(i))
            each = triggers.convert(trigger, triggers.slug(*words))
            for text in each.lost:
                self._lose(f"triggers[{i}]", text)
            for text in each.differs:
                self._differ(f"triggers[{i}]", text)
            if each.metric is not None:
                self._flags += each.flags
                self._connect(trigger, f"triggers[{i}]")
            found.append(each)
        return found

    def _connect(self, trigger: Object, path: str) -> None:
        found = credentials(trigger, self._namespace, self._authentications)
        self._flags += found.flags
        for text in found.lost:
            self._lose(path, text)
        for text in found.differs:
            self._differ(path, text)

    def _composed(self, converted: Sequence[Converted], modifiers: Object) -> list[Converted]:
        """Return the triggers with those of the formula replaced by the composite metric."""
        resources = [each for each in converted if each.metric is not None and not each.name]
        formula = text_at(modifiers, "formula")
        queries = {
            text_at(trigger, "name"): each.query
            for trigger, each in zip(list_at(self._spec, "triggers"), converted, strict=True)
            if each.query
        }
        unknown = [word for word in _WORD.findall(formula) if word not in queries]
        path = "advanced.scalingModifiers"
        if text_at(modifiers, "activationTarget"):
            self._lose(path, "activationTarget: nothing is scaled from or to zero here")
        if not _FORMULA.fullmatch(formula) or unknown:
            self._lose(
                path,
                f"the formula {formula!r} uses more than arithmetic over Prometheus triggers"
                f"{f' ({unknown[0]})' if unknown else ''}: write it as one PromQL query",
            )
            return resources
        query = _WORD.sub(lambda word: f"sum({queries[word[0]]})", formula)
        name = triggers.slug(self._namespace, self._name, "composite")
        try:
            aim = triggers.target(text_at(modifiers, "metricType"), text_at(modifiers, "target"))
            rule = triggers.rule(name, query)
        except ValueError as error:
            self._lose(path, f"target or formula: {error}")
            return resources
        external = triggers.external(name, aim)
        return [*resources, Converted(external, name, rule, query, is_composite=True)]

    @property
    def _restores(self) -> bool:
        return is_true_at(self._spec, *_RESTORE.split("."))

    def _unrestored(self, where: str) -> list[str]:
        if not self._restores:
            return []
        patch = json.dumps({"spec": {"advanced": {"restoreToOriginalReplicaCount": False}}})
        return [f"kubectl patch scaledobject {self._name}{where} --type=merge -p '{patch}'"]

    def _sizes(self) -> None:
        if int(text_at(self._spec, "minReplicaCount") or 0) == 0:
            self._lose(
                "minReplicaCount",
                "0 (KEDA's default) scales to zero while nothing is active, after cooldownPeriod. "
                "The HPA keeps at least 1; where the API server has the gate HPAScaleToZero, "
                "minReplicas: 0 may be set, and activation thresholds are still not there",
            )
        elif text_at(self._spec, "cooldownPeriod"):
            self._lose("cooldownPeriod", "it only ever delayed scaling to zero, which is not used")
        if text_at(self._spec, "idleReplicaCount"):
            self._lose("idleReplicaCount", "there is no size for idle times beside minReplicas")
        if text_at(self._spec, "initialCooldownPeriod"):
            self._lose("initialCooldownPeriod", "it only delays scaling to zero after the start")
        if text_at(self._spec, "pollingInterval"):
            self._differ(
                "pollingInterval",
                "it paces activation in KEDA; an HPA is decided every 15 s "
                "(podscale.io/sync-period sets it per object)",
            )
        if self._restores:
            self._lose(
                _RESTORE,
                "deleting an HPA leaves the size as it is; KEDA sets the size from before it when "
                "the ScaledObject is deleted, also under the new HPA: take it out before (steps)",
            )

    def _hpa(
        self, metrics: Sequence[Mapping[str, object]], named: Sequence[Converted]
    ) -> dict[str, object]:
        reference = map_at(self._spec, "scaleTargetRef")
        written = map_at(self._spec, "advanced", "horizontalPodAutoscalerConfig")
        metadata: dict[str, object] = {"name": text_at(written, "name") or self._name}
        if self._namespace:
            metadata["namespace"] = self._namespace
        behavior = map_at(written, "behavior")
        annotations = self._paused(behavior) | self._fallback(named)
        if self._schedules:
            annotations["podscale.io/schedule"] = json.dumps(self._schedules)
            self._differ(
                "triggers",
                "cron triggers become the annotation podscale.io/schedule, which raises "
                "minReplicas; the in-tree controller does not know it",
            )
        if annotations:
            metadata["annotations"] = annotations
        spec: dict[str, object] = {
            "scaleTargetRef": {
                "apiVersion": text_at(reference, "apiVersion") or "apps/v1",
                "kind": text_at(reference, "kind") or "Deployment",
                "name": text_at(reference, "name"),
            },
            "minReplicas": max(int(text_at(self._spec, "minReplicaCount") or 0), 1),
            "maxReplicas": int(text_at(self._spec, "maxReplicaCount") or 100),
            "metrics": list(metrics),
        }
        if behavior:
            spec["behavior"] = behavior
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata,
            "spec": spec,
        }

    def _paused(self, behavior: dict[str, object]) -> dict[str, object]:
        def says(key: str) -> bool:
            # KEDA takes what it cannot read for a pause.
            return is_true_at(self._annotations, _PREFIX + key, unread=True)

        for key, direction in _DIRECTIONS:
            if says(key):
                behavior[direction] = {**map_at(behavior, direction), "selectPolicy": "Disabled"}
                self._differ(
                    f"annotation {key}",
                    f"becomes behavior.{direction}.selectPolicy Disabled; take it out to go on",
                )
        if says("force-activation"):
            self._lose("annotation force-activation", "nothing is scaled from zero here")
        replicas = text_at(self._annotations, f"{PAUSED}-replicas")
        if replicas:
            self._differ(
                "annotation paused-replicas",
                f"KEDA set the size to {replicas}; here the size at the moment of pausing stays: "
                f"kubectl scale to {replicas} first",
            )
        if not replicas and not says("paused"):
            return {}
        self._differ(
            "annotation paused",
            "the HPA below is paused as well, and scales nothing: take podscale.io/paused away to "
            "go on. The in-tree controller does not know it, and scales",
        )
        return {"podscale.io/paused": "true"}

    def _fallback(self, named: Sequence[Converted]) -> dict[str, object]:
        written = map_at(self._spec, "fallback")
        if not written or not named:
            if written:
                self._lose("fallback", "KEDA has none for cpu and memory, and there is no other")
            return {}
        behavior = text_at(written, "behavior") or "static"
        replicas = text_at(written, "replicas")
        self._differ(
            "fallback.failureThreshold",
            f"KEDA waits for more than {text_at(written, 'failureThreshold')} failures in a row; "
            "here the fallback stands in at the first decision without a value",
        )
        if behavior == "currentReplicas":
            return _fallbacks(named, "hold")
        if behavior == "currentReplicasIfHigher":
            return _fallbacks(named, f"replicas:{replicas}")  # raises only, unless told to lower
        if behavior == "static":
            self._differ(
                "fallback",
                f"static: a failing metric may scale in to {replicas}. Nothing else here shrinks "
                "on an error; podscale.io/fallback-may-lower allows it for this HPA. Take it out "
                "to let the fallback only raise",
            )
            return {**_fallbacks(named, f"replicas:{replicas}"),
                    "podscale.io/fallback-may-lower": "true"}  # fmt: skip
        self._lose(
            "fallback.behavior",
            f"{behavior} has no equal; hold is written, which keeps the size",
        )
        return _fallbacks(named, "hold")


def _fallbacks(named: Sequence[Converted], what: str) -> dict[str, object]:
    return {"podscale.io/fallback": json.dumps({each.name: what for each in named})}

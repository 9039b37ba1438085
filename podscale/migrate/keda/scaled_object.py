"""A ScaledObject as a HorizontalPodAutoscaler, external rules and annotations.

KEDA does three things here: it makes an HPA, answers its external metrics, and switches
between zero and one. The first two carry over; the third is told.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from msgspec.structs import replace

from hpa.decide.api.options import MOST_SCHEDULES
from podscale.feed.prover.tree import parse
from podscale.migrate.documents import Object, at, flag_at, list_at, map_at, name_of, text_at
from podscale.migrate.keda import triggers
from podscale.migrate.keda.connections import Authentications, connection
from podscale.migrate.keda.triggers import Converted
from podscale.migrate.outcome import Comparable, MigrationOutcome, Remark, RemarksOn

PAUSED = "autoscaling.keda.sh/paused"
_PREFIX = "autoscaling.keda.sh/"
_RESTORE = "advanced.restoreToOriginalReplicaCount"
_UNRESTORED = json.dumps({"spec": {"advanced": {"restoreToOriginalReplicaCount": False}}})
_KEDA_1 = " (deploymentName is of KEDA 1: write name, and apiVersion keda.sh/v1alpha1)"
_FORMULA = re.compile(r"[A-Za-z0-9_\s+*/().-]+")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIRECTIONS = (("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp"))
# Of fallback.behavior: static (the default) may lower, the other only raises.
_REPLACING = ("", "static", "currentReplicasIfHigher")
_SIZES = (("minReplicaCount",), ("maxReplicaCount",), ("fallback", "replicas"))


_KEYS = {  # that KEDA 2 knows, by where in the spec they are
    "": "scaleTargetRef pollingInterval cooldownPeriod initialCooldownPeriod idleReplicaCount "
    "minReplicaCount maxReplicaCount fallback advanced triggers",
    "scaleTargetRef": "name apiVersion kind envSourceContainerName",
    "fallback": "failureThreshold replicas behavior",
    "advanced": "restoreToOriginalReplicaCount horizontalPodAutoscalerConfig scalingModifiers",
    "advanced.horizontalPodAutoscalerConfig": "name behavior",
    "advanced.scalingModifiers": "formula target activationTarget metricType",
}
_OF_TRIGGER = "type name metadata authenticationRef metricType useCachedMetrics"
# What only ever delayed or paced KEDA's activation.
_LOST = {
    "idleReplicaCount": "there is no size for idle times beside minReplicas",
    "initialCooldownPeriod": "it only delays scaling to zero after the start",
}
_DIFFERS = {
    "pollingInterval": "it paces activation in KEDA; an HPA is decided every 15 s "
    "(podscale.io/sync-period sets it per object)"
}


class ScaledObjectConversion:
    """What a ScaledObject becomes."""

    def __init__(self, manifest: Object, authentications: Authentications, release: str) -> None:
        """``release`` is the cluster's, as ``1.37``."""
        self._release = release
        self._spec = map_at(manifest, "spec")
        self._annotations = map_at(manifest, "metadata", "annotations")
        self._namespace, self._name = name_of(manifest)
        self._where = f" -n {self._namespace}" if self._namespace else ""
        self._authentications = authentications
        self._about = f"ScaledObject {'/'.join(filter(None, (self._namespace, self._name)))}"
        self._outcome = MigrationOutcome(read=[self._about])
        self._restores = flag_at(self._spec, *_RESTORE.split(".")) is True

    def outcome(self) -> MigrationOutcome:
        outcome, where = self._outcome, self._where
        for path, known in _KEYS.items():
            self._tell_unknown(path, map_at(self._spec, *filter(None, path.split("."))), known)
        outcome.refused += self._unfit()
        if outcome.refused:
            return outcome
        converted = [
            self._trigger(trigger, i) for i, trigger in enumerate(list_at(self._spec, "triggers"))
        ]
        modifiers = map_at(self._spec, "advanced", "scalingModifiers")
        if text_at(modifiers, "formula"):
            converted = self._composed(converted, modifiers)
        every = [each.schedule for each in converted if each.schedule is not None]
        if len(every) > MOST_SCHEDULES:
            text = f"{len(every)} cron triggers: only the first {MOST_SCHEDULES} are carried over"
            self._on("triggers").lose(text)
        schedules = every[:MOST_SCHEDULES]
        if schedules and all(each.metric is None for each in converted):
            converted.append(triggers.constant(triggers.slug(self._namespace, self._name, "one")))
        without = sum(each.metric is None and each.schedule is None for each in converted)
        metrics = [each.metric for each in converted if each.metric is not None]
        if without and metrics:
            self._on("triggers").differ(
                f"the HPA below lacks {without} of them (see above): it may ask for less than KEDA "
                "did. Raise minReplicas, or keep the ScaledObject until they are replaced"
            )
        rules: list[Mapping[str, object]] = [
            {**each.rule, "source": each.source} for each in converted if each.rule
        ]
        self._sizes()
        if not metrics:
            self._on().lose("no trigger could be carried over, so no HPA is written")
            return outcome
        hpa = self._hpa(metrics, schedules, [each for each in converted if each.name])
        name = text_at(hpa, "metadata", "name")
        outcome.manifests = [hpa]
        outcome.rules = {"externalRules": rules} if rules else {}
        outcome.compared = [self._comparable(hpa, converted)]
        patch = f"kubectl patch scaledobject {self._name}{where}"
        annotate = f"kubectl annotate %sscaledobject {self._name}{where} "
        outcome.steps = [
            "add the rules below to the rules file and check them: podscale doctor -f FILE",
            f"{annotate % '--overwrite '}{PAUSED}=true  # KEDA removes its HPA and keeps the size",
            f"kubectl apply the HorizontalPodAutoscaler {name} below",
            *([f"{patch} --type=merge -p '{_UNRESTORED}'"] if self._restores else []),
            f"when satisfied: kubectl delete scaledobject {self._name}{where}",
        ]
        outcome.back = [
            f"kubectl delete hpa {name}{where}",
            f"{annotate % ''}{PAUSED}-  # KEDA makes its HPA again",
        ]
        return outcome

    def _on(self, path: str = "") -> RemarksOn:
        return RemarksOn(": ".join(filter(None, (self._about, path))), self._outcome)

    def _tell_unknown(self, path: str, written: Object, known: str) -> None:
        for key in (each for each in written if each not in known.split()):
            near = get_close_matches(key, known.split(), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self._on(path).lose(f"unknown key {key!r}, which KEDA ignores{hint}")

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
        replicas = text_at(self._spec, "fallback", "replicas")
        is_held = text_at(self._spec, "fallback", "behavior") not in _REPLACING
        return Comparable(
            self._about,
            [each.compared for each in converted if each.compared],
            int(text_at(hpa, "spec", "minReplicas")),
            int(text_at(hpa, "spec", "maxReplicas")),
            None if is_held or not replicas else int(replicas),
            [
                each.name or text_at(each.metric, "type") or "a lost trigger"
                for each in converted
                if each.compared is None and each.schedule is None
            ],
        )

    def _trigger(self, trigger: Object, index: int) -> Converted:
        on = self._on(f"triggers[{index}]")
        self._tell_unknown(f"triggers[{index}]", trigger, _OF_TRIGGER)
        words = (self._namespace, self._name, text_at(trigger, "name") or str(index))
        found = triggers.convert(trigger, triggers.slug(*words), on)
        if not found.query:
            return found
        source = connection(trigger, self._namespace, self._authentications, on)
        return replace(found, source=source)

    def _composed(self, converted: Sequence[Converted], modifiers: Object) -> list[Converted]:
        """Return the triggers with those of the formula replaced by the composite metric."""
        resources = [each for each in converted if each.metric is not None and not each.name]
        formula = text_at(modifiers, "formula")
        queries = {
            text_at(trigger, "name"): each
            for trigger, each in zip(list_at(self._spec, "triggers"), converted, strict=True)
            if each.query
        }
        unknown = [word for word in _WORD.findall(formula) if word not in queries]
        on = self._on("advanced.scalingModifiers")
        if text_at(modifiers, "activationTarget"):
            on.lose("activationTarget: an HPA leaves zero as soon as the metric is above 0")
        if not _FORMULA.fullmatch(formula) or unknown:
            on.lose(
                f"the formula {formula!r} uses more than arithmetic over Prometheus triggers"
                f"{f' ({unknown[0]})' if unknown else ''}: write it as one PromQL query"
            )
            return resources
        query = _WORD.sub(lambda word: f"sum({queries[word[0]].query})", formula)
        name = triggers.slug(self._namespace, self._name, "composite")
        sources = [queries[word].source for word in _WORD.findall(formula)]
        if any(each != sources[0] for each in sources):
            on.lose(f"the formula {formula!r} is over triggers of several Prometheus servers")
            return resources
        try:
            parse(query)
            aim = triggers.target(text_at(modifiers, "metricType"), text_at(modifiers, "target"))
            composite = triggers.external(name, query, aim)
        except ValueError as error:
            on.lose(f"target or formula: {error}")
            return resources
        # KEDA's formula takes each trigger's silence as it is set; one query cannot.
        return [*resources, replace(composite, compared=None, source=sources[0])]

    def _least(self, named: Sequence[Converted]) -> int:
        """Return minReplicas: KEDA's 0 where an HPA may have it."""
        least = int(text_at(self._spec, "minReplicaCount") or 0)
        on = self._on("minReplicaCount")
        if least:
            if text_at(self._spec, "cooldownPeriod"):
                text = "it only ever delayed scaling to zero, which is not used"
                self._on("cooldownPeriod").lose(text)
            return least
        if not named:
            on.lose(
                "0 (KEDA's default) becomes 1: only an External or Object metric scales to zero"
            )
        elif self._release == "1.36":
            on.lose("0 (KEDA's default) becomes 1: Kubernetes has HPAScaleToZero on from 1.37")
        else:
            on.differ(
                "0 (KEDA's default): the HPA scales to zero when all metrics are 0, after the "
                "stabilization window of scaleDown (300 s) instead of cooldownPeriod"
            )
            return 0
        return 1

    def _sizes(self) -> None:
        for field in (*_LOST, *_DIFFERS):
            if text_at(self._spec, field):
                on = self._on(field)
                on.lose(_LOST[field]) if field in _LOST else on.differ(_DIFFERS[field])
        if self._restores:
            self._on(_RESTORE).lose(
                "deleting an HPA leaves the size as it is; KEDA sets the size from before it when "
                "the ScaledObject is deleted, also under the new HPA: take it out before (steps)"
            )

    def _hpa(
        self,
        metrics: Sequence[Mapping[str, object]],
        schedules: Sequence[Mapping[str, object]],
        named: Sequence[Converted],
    ) -> dict[str, object]:
        reference = map_at(self._spec, "scaleTargetRef")
        written = map_at(self._spec, "advanced", "horizontalPodAutoscalerConfig")
        name = text_at(written, "name") or self._name
        namespace = {"namespace": self._namespace} if self._namespace else {}
        behavior = map_at(written, "behavior")
        annotations = self._paused(behavior) | self._fallback(named)
        if schedules:
            annotations["podscale.io/schedule"] = json.dumps(schedules)
            self._on("triggers").differ(
                "cron triggers become the annotation podscale.io/schedule, which raises "
                "minReplicas; the in-tree controller does not know it"
            )
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {
                "name": name,
                **namespace,
                **({"annotations": annotations} if annotations else {}),
            },
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": text_at(reference, "apiVersion") or "apps/v1",
                    "kind": text_at(reference, "kind") or "Deployment",
                    "name": text_at(reference, "name"),
                },
                "minReplicas": self._least([each for each in named if each.source]),
                "maxReplicas": int(text_at(self._spec, "maxReplicaCount") or 100),
                "metrics": list(metrics),
                **({"behavior": behavior} if behavior else {}),
            },
        }

    def _paused(self, behavior: dict[str, object]) -> dict[str, object]:
        def says(key: str) -> bool:
            # KEDA takes what it cannot read for a pause.
            path = self._annotations, _PREFIX + key
            return at(*path) is not None and flag_at(*path) is not False

        for key, direction in _DIRECTIONS:
            if says(key):
                behavior[direction] = {**map_at(behavior, direction), "selectPolicy": "Disabled"}
                text = f"becomes behavior.{direction}.selectPolicy Disabled; take it out to go on"
                self._on(f"annotation {key}").differ(text)
        if says("force-activation"):
            text = "an HPA leaves zero by its metrics alone: raise minReplicas to 1 instead"
            self._on("annotation force-activation").lose(text)
        replicas = text_at(self._annotations, f"{PAUSED}-replicas")
        if replicas:
            self._on("annotation paused-replicas").differ(
                f"KEDA set the size to {replicas}; here the size at the moment of pausing stays: "
                f"kubectl scale to {replicas} first"
            )
        if not replicas and not says("paused"):
            return {}
        self._on("annotation paused").differ(
            "the HPA below is paused as well, and scales nothing: take podscale.io/paused away to "
            "go on. The in-tree controller does not know it, and scales"
        )
        return {"podscale.io/paused": "true"}

    def _fallback(self, named: Sequence[Converted]) -> dict[str, object]:
        written, on = map_at(self._spec, "fallback"), self._on("fallback")
        if not written:
            return {}
        if not named:
            on.lose("KEDA has none for cpu and memory, and there is no other")
            return {}
        behavior = text_at(written, "behavior")
        replicas = text_at(written, "replicas")
        self._on("fallback.failureThreshold").differ(
            f"KEDA waits for more than {text_at(written, 'failureThreshold')} failures in a row; "
            "here the fallback stands in at the first decision without a value"
        )
        what = f"replicas:{replicas}" if behavior in _REPLACING else "hold"
        annotations: dict[str, object] = {
            "podscale.io/fallback": json.dumps({each.name: what for each in named})
        }
        if behavior in ("", "static"):
            on.differ(
                f"static: a failing metric may scale in to {replicas}. Nothing else here shrinks "
                "on an error; podscale.io/fallback-may-lower allows it for this HPA. Take it out "
                "to let the fallback only raise"
            )
            annotations["podscale.io/fallback-may-lower"] = "true"
        elif what == "hold" and behavior != "currentReplicas":
            text = f"{behavior} has no equal; hold is written, which keeps the size"
            self._on("fallback.behavior").lose(text)
        return annotations

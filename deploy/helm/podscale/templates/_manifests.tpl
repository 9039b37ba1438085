{{/* The manifests of kustomize under this release's names; values change them as they do the other parts':
(list $ file (dict part values)) */}}
{{- define "podscale.manifests" -}}
{{- $ := index . 0 }}
{{- $parts := index . 2 }}
{{- $name := include "podscale.fullname" $ }}
{{- $shared := fromYaml (include "podscale.container" $) }}
{{- $text := $.Files.Get (index . 1) | replace "@NAMESPACE@" (include "podscale.namespace" $) | replace "@NAME@" $name | replace "@CHART@" "podscale" }}
{{- range $index, $document := splitList "\n---\n" $text }}
{{- $each := fromYaml $document }}
{{- $labels := merge (dict "app.kubernetes.io/instance" $.Release.Name) ($each.metadata.labels | default dict) $.Values.customLabels }}
{{- $annotations := merge (dict) $.Values.customAnnotations }}
{{- $part := $each.metadata.name | trimPrefix (printf "%s-" $name) }}
{{- $skip := false }}
{{- if has $each.kind (list "ClusterRole" "Role" "ClusterRoleBinding" "RoleBinding") }}
{{- $skip = not $.Values.rbac.create }}
{{- end }}
{{- if eq $each.kind "PodDisruptionBudget" }}
{{- $skip = not (include "podscale.hasBudget" (list $ (index $parts $part).replicas)) }}
{{- $_ := set $each "spec" (merge (fromYaml (include "podscale.budget" $)) (dict "selector" $each.spec.selector)) }}
{{- end }}
{{- if eq $each.kind "MutatingWebhookConfiguration" }}
{{- /* Upstream's, kustomize's or another release's: none of this one's business. Webhooks are filled in by the program. */}}
{{- $found := lookup $each.apiVersion $each.kind "" $each.metadata.name }}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" ($found | default dict) }}
{{- $skip = and $found (ne $owner $.Release.Name) }}
{{- end }}
{{- /* Another release's that names other accounts is refused by helm: left out, ours would be held by none. */}}
{{- if hasPrefix "ValidatingAdmissionPolicy" $each.kind }}
{{- $skip = semverCompare "<1.30.0-0" $.Capabilities.KubeVersion.Version }}
{{- end }}
{{- if and (eq $each.kind "Service") (ne $part "admission") }}
{{- $_ := set (index $each.spec.ports 0) "port" $.Values.service.port }}
{{- end }}
{{- if eq $each.kind "Deployment" }}
{{- $values := index $parts $part }}
{{- $annotations = merge (dict) $.Values.deploymentAnnotations $annotations }}
{{- $_ := set $each.spec "replicas" $values.replicas }}
{{- $_ := set $each.spec "strategy" $.Values.strategy }}
{{- $template := $each.spec.template }}
{{- $_ := set $template.metadata "labels" (merge (dict) $template.metadata.labels $.Values.podLabels $.Values.customLabels) }}
{{- with merge (dict) $.Values.podAnnotations $.Values.customAnnotations }}
{{- $_ := set $template.metadata "annotations" . }}
{{- end }}
{{- $container := index $template.spec.containers 0 }}
{{- range $key := list "image" "imagePullPolicy" "env" "securityContext" }}
{{- $_ := set $container $key (index $shared $key) }}
{{- end }}
{{- $_ := set $container "resources" ($values.resources | default $container.resources) }}
{{- if $container.ports }}
{{- $_ := set $container "args" (concat $container.args (list (printf "--v=%v" $.Values.logLevel))) }}
{{- end }}
{{- $_ := set $container "args" (concat $container.args $values.extraArguments) }}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts $.Values.extraVolumeMounts) }}
{{- $pod := dict "serviceAccountName" $template.spec.serviceAccountName "containers" $template.spec.containers }}
{{- $_ := set $pod "volumes" (concat $template.spec.volumes $.Values.extraVolumes) }}
{{- $_ := set $template "spec" (merge $pod (fromYaml (include "podscale.pod" (list $ $part)))) }}
{{- range $template.spec.topologySpreadConstraints }}
{{- $_ := set . "labelSelector" $each.spec.selector }}
{{- end }}
{{- end }}
{{- if not $skip }}
{{- $_ := set $each.metadata "labels" $labels }}
{{- with $annotations }}
{{- $_ := set $each.metadata "annotations" . }}
{{- end }}
{{- if $index }}
---
{{- end }}
{{ toYaml $each }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "podscale.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "podscale.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "podscale.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "podscale.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "podscale.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "podscale.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "podscale.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* A values file of prometheus-adapter's chart works here, all but its image, which would be given our arguments. */}}
{{- define "podscale.image" -}}
{{- if contains "prometheus-adapter" (base .Values.image.repository) -}}
{{- fail (printf "image.repository is %q, which is prometheus-adapter's image and not podscale's: take image.repository and image.tag out of the values" .Values.image.repository) -}}
{{- end -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* Labels of a part: (list $ "adapter") */}}
{{- define "podscale.selector" -}}
app.kubernetes.io/name: {{ include "podscale.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "podscale.labels" -}}
{{ include "podscale.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/part-of: podscale
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- with (index . 0).Values.customLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of an object: (list $ "adapter" annotations) */}}
{{- define "podscale.labelling" -}}
labels:
  {{- include "podscale.labels" . | nindent 2 }}
{{- $annotations := merge (dict) (index . 2 | default dict) ((index . 0).Values.customAnnotations | default dict) }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "podscale.ownCertificate" -}}
{{- if or .Values.tls.enable .Values.certManager.enabled -}}yes{{- end -}}
{{- end -}}

{{/* Refused here and not by the schema, whose words are patterns. */}}
{{- define "podscale.prometheusUrl" -}}
{{- $url := tpl .Values.prometheus.url . -}}
{{- $port := toString (.Values.prometheus.port | default "") -}}
{{- $path := .Values.prometheus.path | default "" -}}
{{- if not (regexMatch "^https?://[^/]" $url) -}}
{{- fail (printf "prometheus.url is %q, which is no http or https URL such as http://prometheus.monitoring.svc" $url) -}}
{{- end -}}
{{- if $port -}}
{{- if not (and (regexMatch "^[0-9]{1,5}$" $port) (ge (atoi $port) 1) (le (atoi $port) 65535)) -}}
{{- fail (printf "prometheus.port is %q, which is no port: give 1 to 65535, or \"\" for none" $port) -}}
{{- end -}}
{{- if regexMatch "^https?://([^/]*@)?(\\[[^/]*\\]|[^][/@]*):[^/:@]*(/|$)" $url -}}
{{- fail (printf "prometheus.url is %q and has a port, and prometheus.port %s would follow it: set prometheus.port to \"\"" $url $port) -}}
{{- end -}}
{{- if regexMatch "^https?://[^/]*/" $url -}}
{{- fail (printf "prometheus.url is %q and has a path, which prometheus.port %s would follow: move it to prometheus.path, or set prometheus.port to \"\"" $url $port) -}}
{{- end -}}
{{- end -}}
{{- if and $path (not (hasPrefix "/" $path)) -}}
{{- fail (printf "prometheus.path is %q: it begins with a slash" $path) -}}
{{- end -}}
{{- $url }}{{ with $port }}:{{ . }}{{ end }}{{ $path }}
{{- end -}}

{{- define "podscale.registersExternal" -}}
{{- if or (eq (toString .Values.apiServices.external) "true") (and (eq (toString .Values.apiServices.external) "auto") .Values.rules.external) -}}yes{{- end -}}
{{- end -}}

{{- define "podscale.registersResource" -}}
{{- if or (eq (toString .Values.apiServices.resource) "true") (and (eq (toString .Values.apiServices.resource) "auto") .Values.rules.resource) -}}yes{{- end -}}
{{- end -}}

{{/* What both Deployments' pods share: (list $ "adapter") */}}
{{- define "podscale.pod" -}}
{{- $ := index . 0 -}}
{{- with $.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: 60
{{- if $.Values.hostNetwork.enabled }}
hostNetwork: true
{{- end }}
{{- with $.Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $.Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $.Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $component := index . 1 }}
{{- with $.Values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
- {{ toYaml (merge (dict) . (dict "labelSelector" (dict "matchLabels" (fromYaml (include "podscale.selector" (list $ $component)))))) | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What both containers share. */}}
{{- define "podscale.container" -}}
image: {{ include "podscale.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
ports:
- name: https
  containerPort: {{ .Values.listenPort }}
startupProbe:
  {{- toYaml .Values.startupProbe | nindent 2 }}
livenessProbe:
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  {{- toYaml .Values.readinessProbe | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
  {{- if and .Values.runAsUser (not (hasKey .Values.securityContext "runAsUser")) }}
  runAsUser: {{ .Values.runAsUser }}
  {{- end }}
{{- end -}}

{{- define "podscale.strategy" -}}
{{- toYaml .Values.strategy -}}
{{- end -}}

{{/* yes, where there is a budget: (list $ replicas). One that keeps the only pod would hold up every drain of its node. */}}
{{- define "podscale.hasBudget" -}}
{{- $values := (index . 0).Values.podDisruptionBudget -}}
{{- if and $values.enabled (or (gt (int (index . 1)) 1) (not (kindIs "invalid" $values.maxUnavailable))) -}}yes{{- end -}}
{{- end -}}

{{/* The API server takes one of both: a minAvailable that was set by hand gives way to it. */}}
{{- define "podscale.budget" -}}
{{- if kindIs "invalid" .Values.podDisruptionBudget.maxUnavailable -}}
minAvailable: {{ .Values.podDisruptionBudget.minAvailable }}
{{- else -}}
maxUnavailable: {{ .Values.podDisruptionBudget.maxUnavailable }}
{{- end }}
{{- /* A replica that waits unready holds up no drain. */}}
unhealthyPodEvictionPolicy: AlwaysAllow
{{- end -}}

{{/* An APIService: (list $ "adapter" service group version versionPriority) */}}
{{- define "podscale.apiService" -}}
{{- $ := index . 0 }}
{{- $inject := dict }}
{{- /* The recommender keeps a CA of its own in any case. */}}
{{- if and $.Values.certManager.enabled (ne (index . 1) "recommender") }}
{{- $_ := set $inject "cert-manager.io/inject-ca-from" (printf "%s/%s" (include "podscale.namespace" $) (index . 2)) }}
{{- end }}
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: {{ index . 4 }}.{{ index . 3 }}
  {{- include "podscale.labelling" (list $ (index . 1) $inject) | nindent 2 }}
spec:
  group: {{ index . 3 }}
  version: {{ index . 4 }}
  groupPriorityMinimum: 100
  versionPriority: {{ index . 5 }}
  {{- if and $.Values.tls.enable (not $.Values.certManager.enabled) (eq (index . 1) "adapter") }}
  caBundle: {{ b64enc $.Values.tls.ca }}
  {{- end }}
  service:
    name: {{ index . 2 }}
    namespace: {{ include "podscale.namespace" $ }}
    port: {{ $.Values.service.port }}
---
{{ end -}}

{{/* A binding: (list $ "adapter" kind(ClusterRole|Role) role name account) */}}
{{- define "podscale.clusterBinding" -}}
{{- $ := index . 0 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ index . 3 }}
  {{- include "podscale.labelling" (list $ (index . 1) dict) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ index . 2 }}
subjects:
- kind: ServiceAccount
  name: {{ index . 4 }}
  namespace: {{ index . 5 }}
{{- end -}}

{{/* A role and its binding in our namespace, and the reader of the front proxy's CA: (list $ "adapter" name account) */}}
{{- define "podscale.namespaceBindings" -}}
{{- $ := index . 0 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ index . 2 }}
  namespace: {{ include "podscale.namespace" $ }}
  {{- include "podscale.labelling" (list $ (index . 1) dict) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ index . 2 }}
subjects:
- kind: ServiceAccount
  name: {{ index . 3 }}
  namespace: {{ include "podscale.namespace" $ }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ index . 2 }}-auth-reader
  namespace: kube-system
  {{- include "podscale.labelling" (list $ (index . 1) dict) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: extension-apiserver-authentication-reader
subjects:
- kind: ServiceAccount
  name: {{ index . 3 }}
  namespace: {{ include "podscale.namespace" $ }}
{{- end -}}

{{- /* What the parts have in common: the scheduler, the controller, kubecri, each handler, and the Jobs. A part is
(list $ "controller" .Values.controller): its pods' app.kubernetes.io/name, and its values. */ -}}

{{- /* The ServiceAccount of a part: (list $ "kubeslot-controller" .Values.controller), with its own name. */ -}}
{{- define "kubeslot.serviceAccount" -}}
{{- $root := index . 0 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ index . 1 }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels: {{- include "kubeslot.labels" $root | nindent 4 }}
  {{- with dig "serviceAccount" "annotations" dict (index . 2) }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* Labels and annotations of a part's pods. A fourth element has annotations of the chart's own. */ -}}
{{- define "kubeslot.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
{{- $own := index (append . dict) 3 -}}
{{- $labels := merge (dict "app.kubernetes.io/name" (index . 1)) (include "kubeslot.labels" $root | fromYaml) -}}
labels: {{- toYaml (merge $labels ($values.podLabels | default dict)) | nindent 2 }}
{{- with merge (deepCopy $own) ($values.podAnnotations | default dict) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* How important a part's pods are, and where they go. Those of a Deployment are spread over nodes by default. */ -}}
{{- define "kubeslot.podSpec" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
{{- $own := dict "matchLabels" (dict "app.kubernetes.io/name" (index . 1) "app.kubernetes.io/instance" $root.Release.Name) -}}
{{- with include "kubeslot.priorityClass" $values }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- include "kubeslot.pullSecrets" $root }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.affinity }}
affinity: {{- toYaml $values.affinity | nindent 2 }}
{{- else if hasKey $values "replicas" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector: {{- toYaml $own | nindent 10 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
- {{- merge (deepCopy .) (dict "labelSelector" $own) | toYaml | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The PriorityClass of a part with the values; empty for none. `helm upgrade --reuse-values` has values of
charts in which Deployments had no such value. */ -}}
{{- define "kubeslot.priorityClass" -}}
{{- dig "priorityClassName" (ternary "system-cluster-critical" "" (hasKey . "replicas")) . -}}
{{- end }}

{{- /* What a handler's DaemonSet has where its values say nothing. */ -}}
{{- define "kubeslot.handler" -}}
{{- $kubecri := (index . 0).Values.kubecri -}}
{{- $values := index . 1 -}}
{{- $selector := $values.nodeSelector | default (dict "kubernetes.io/os" "linux") -}}
{{- $tolerations := $values.tolerations | default (list (dict "operator" "Exists")) -}}
{{- $affinity := $values.affinity | default $kubecri.affinity | default dict -}}
{{- toYaml (merge (dict "nodeSelector" $selector "tolerations" $tolerations "affinity" $affinity) (deepCopy $values)) -}}
{{- end }}

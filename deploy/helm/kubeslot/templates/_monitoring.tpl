{{- /* Whether there is somebody to monitor for; empty for no. */ -}}
{{- define "kubeslot.monitored" -}}
{{- $enabled := toString .Values.monitoring.enabled -}}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor")) }}yes{{ end -}}
{{- end }}

{{- /* Whether kubecri's metrics are read on each node; empty for no. */ -}}
{{- define "kubeslot.readsNodes" -}}
{{- if and (include "kubeslot.monitored" .) .Values.monitoring.nodes .Values.kubecri.enabled }}yes{{ end -}}
{{- end }}

{{- /* An alert as the values have it; empty when it is off: (list $ $rule). Without a scheduler its absence is none. */ -}}
{{- define "kubeslot.alert" -}}
{{- $root := index . 0 -}}
{{- $alerts := $root.Values.monitoring.alerts -}}
{{- $rule := index . 1 -}}
{{- $override := get $alerts.overrides $rule.alert | default dict -}}
{{- $off := and (eq $rule.alert "KubeslotSchedulerAbsent") (include "kubeslot.withoutScheduler" $root) -}}
{{- if dig "enabled" (not $off) $override -}}
{{- $url := $rule.annotations.runbook_url | replace "https://github.com/kubeslot/kubeslot/blob/main/docs/runbooks.md" $alerts.runbooks -}}
{{- $annotations := merge (dict "runbook_url" $url) $rule.annotations -}}
{{- $labels := merge (dict) ($override.labels | default dict) $rule.labels -}}
{{- $made := dict "alert" $rule.alert "expr" ($override.expr | default $rule.expr) "labels" $labels "annotations" $annotations -}}
{{- with ($override.for | default (get $rule "for")) }}{{- $_ := set $made "for" . }}{{- end -}}
{{- toYaml $made -}}
{{- end -}}
{{- end }}

{{- /* Plugins that are processes of their own, see docs/plugins.md. The flags by which their host, kubecri or the
scheduler, finds them: (list $ "devices") or (list $ "schedulers"). */ -}}
{{- define "kubeslot.pluginFlags" -}}
{{- $half := index . 1 -}}
{{- $policies := dict -}}
{{- range index ((index . 0).Values.plugins | default dict) $half -}}
{{- if hasKey $policies .name }}{{ fail (printf "plugins.%s has the name %s twice" $half .name) }}{{ end -}}
{{- $_ := set $policies .name (printf "%s=%s" .name (.policy | default "required")) -}}
{{- end -}}
{{- if $policies -}}
- --plugin-sockets=/run/kubeslot/plugins/{{ $half }}
- --plugin-policy={{ values $policies | sortAlpha | join "," }}
{{- end -}}
{{- end }}

{{- /* What a plugin's container is in both halves: (list $ $plugin). */ -}}
{{- define "kubeslot.pluginContainer" -}}
{{- $values := (index . 0).Values -}}
{{- $plugin := index . 1 -}}
{{- with $plugin.image -}}
image: {{ .repository }}{{ with .tag }}:{{ . }}{{ end }}{{ with .digest }}@{{ . }}{{ end }}
imagePullPolicy: {{ .pullPolicy | default $values.image.pullPolicy }}
{{- end }}
{{- with $plugin.args }}
args: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $plugin.env }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
terminationMessagePolicy: FallbackToLogsOnError
resources: {{- toYaml ($plugin.resources | default dict) | nindent 2 }}
{{- end }}

{{- /* What the values may change of a device half's container: root, since kubecri trusts no other user's servers. */ -}}
{{- define "kubeslot.pluginSecurity" -}}
runAsUser: 0
allowPrivilegeEscalation: {{ dig "privileged" false (.securityContext | default dict) }}
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seLinuxOptions: {type: spc_t}
seccompProfile: {type: RuntimeDefault}
{{- end }}

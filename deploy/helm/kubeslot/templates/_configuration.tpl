{{- /* The spec of a Configuration from values with the keys of Akri's chart:
(list $ "onvif") for .Values.onvif.configuration. */ -}}
{{- define "kubeslot.configurationSpec" -}}
{{- $root := index . 0 -}}
{{- $handler := index . 1 -}}
{{- $c := (index $root.Values $handler).configuration -}}
{{- $discovery := dict "name" $handler -}}
{{- $details := $c.discoveryDetails -}}
{{- if eq $handler "custom" -}}
  {{- $_ := set $discovery "name" (required "custom.configuration.discoveryHandlerName is not set: the name that your discovery handler registers with" $c.discoveryHandlerName) -}}
{{- end -}}
{{- if kindIs "map" $details -}}{{/* a text is as the handler takes it */}}
  {{- if eq $handler "opcua" -}}
    {{- $details = merge (dict "opcuaDiscoveryMethod" (dict "standard" (dict "discoveryUrls" $details.discoveryUrls))) (omit $details "discoveryUrls") -}}
  {{- else if eq $handler "debugEcho" -}}
    {{- $details = merge (dict "shared" $c.shared) $details -}}
  {{- else if and (eq $handler "udev") (not $details.udevRules) -}}
    {{- fail "udev.configuration.discoveryDetails.udevRules is empty: which devices? For example --set 'udev.configuration.discoveryDetails.udevRules[0]=KERNEL==\"video[0-9]*\"'" -}}
  {{- end -}}
  {{- $details = toYaml $details -}}
{{- end -}}
{{- $_ := set $discovery "discoveryDetails" $details -}}
{{- with $c.discoveryProperties -}}
  {{- $_ := set $discovery "discoveryProperties" . -}}
{{- end -}}
{{- $spec := dict "discoveryHandler" $discovery "capacity" (int $c.capacity) -}}
{{- if not (kindIs "invalid" $c.uniqueDevices) -}}
  {{- $_ := set $spec "uniqueDevices" $c.uniqueDevices -}}
{{- end -}}
{{- $properties := dict -}}
{{- range $name, $value := $c.brokerProperties -}}
  {{- $_ := set $properties $name (include "kubeslot.text" $value) -}}
{{- end -}}
{{- $_ := set $spec "brokerProperties" $properties -}}
{{- if $c.brokerPod.image.repository -}}
  {{- $_ := set $spec "brokerSpec" (dict "brokerPodSpec" (include "kubeslot.brokerPodSpec" (list $root $handler "brokerPod") | fromYaml)) -}}
  {{- if $c.createInstanceServices -}}
    {{- $_ := set $spec "instanceServiceSpec" (include "kubeslot.brokerService" $c.instanceService | fromYaml) -}}
  {{- end -}}
  {{- if $c.createConfigurationService -}}
    {{- $_ := set $spec "configurationServiceSpec" (include "kubeslot.brokerService" $c.configurationService | fromYaml) -}}
  {{- end -}}
{{- else if $c.brokerJob.image.repository -}}
  {{- $pod := include "kubeslot.brokerPodSpec" (list $root $handler "brokerJob") | fromYaml -}}
  {{- $_ := set $pod "restartPolicy" $c.brokerJob.restartPolicy -}}
  {{- $job := dict "template" (dict "spec" $pod) -}}
  {{- range list "backoffLimit" "parallelism" "completions" -}}
    {{- $_ := set $job . (int (index $c.brokerJob .)) -}}
  {{- end -}}
  {{- $_ := set $spec "brokerSpec" (dict "brokerJobSpec" $job) -}}
{{- end -}}
{{- toYaml $spec -}}
{{- end }}

{{- /* A value as text. Numbers of a file are floating-point ones for helm, and 4000000 would become 4e+06. */ -}}
{{- define "kubeslot.text" -}}
{{- if kindIs "float64" . }}{{ if eq . (floor .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}{{ else }}{{ toString . }}{{ end -}}
{{- end }}

{{- /* The pod of a broker: (list $ "onvif" "brokerPod") */ -}}
{{- define "kubeslot.brokerPodSpec" -}}
{{- $root := index . 0 -}}
{{- $handler := index . 1 -}}
{{- $kind := index . 2 -}}
{{- $c := (index $root.Values $handler).configuration -}}
{{- $broker := index $c $kind -}}
{{- $mounts := $broker.volumeMounts | default list -}}
{{- $volumes := $broker.volumes | default list -}}
{{- if and (eq $handler "opcua") $c.mountCertificates -}}
  {{- $mounts = append $mounts (dict "name" "credentials" "mountPath" "/etc/opcua-certs/client-pki") -}}
  {{- $volumes = append $volumes (include "kubeslot.opcuaCredentials" . | fromYaml) -}}
{{- end -}}
{{- with include "kubeslot.pullSecrets" $root }}
{{ . }}
{{- end }}
containers:
- name: {{ $c.name }}-broker
  image: {{ printf "%s:%s" $broker.image.repository $broker.image.tag | quote }}
  {{- with coalesce $broker.image.pullPolicy $c.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  {{- with $broker.command }}
  command: {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $broker.env }}
  env:
  {{- range $name, $value := . }}
  - {name: {{ $name | quote }}, value: {{ include "kubeslot.text" $value | quote }}}
  {{- end }}
  {{- end }}
  {{- with $broker.envFrom }}
  envFrom:
  {{- range .secretRef }}
  - secretRef: {name: {{ . | quote }}}
  {{- end }}
  {{- range .configMapRef }}
  - configMapRef: {name: {{ . | quote }}}
  {{- end }}
  {{- end }}
  {{- $security := $broker.securityContext }}
  {{- if and (eq $handler "udev") (eq $kind "brokerPod") (not $security) }}
  {{- $security = dict "privileged" true }}
  {{- end }}
  {{- with $security }}
  securityContext: {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    requests: {memory: {{ $broker.resources.memoryRequest }}, cpu: {{ $broker.resources.cpuRequest }}, "{{ "{{PLACEHOLDER}}" }}": "1"}
    limits: {memory: {{ $broker.resources.memoryLimit }}, cpu: {{ $broker.resources.cpuLimit }}, "{{ "{{PLACEHOLDER}}" }}": "1"}
  {{- with $mounts }}
  volumeMounts: {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $volumes }}
volumes: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- /* The Secret of Akri's OPC UA brokers, at the paths that they look at. */ -}}
{{- define "kubeslot.opcuaCredentials" -}}
name: credentials
secret:
  secretName: opcua-broker-credentials
  items:
  - {key: client_certificate, path: own/certs/AkriBroker.der}
  - {key: client_key, path: own/private/AkriBroker.pfx}
  - {key: ca_certificate, path: trusted/certs/SomeCA.der}
  - {key: ca_crl, path: trusted/crl/SomeCA.crl}
{{- end }}

{{- define "kubeslot.brokerService" -}}
type: {{ .type }}
ports:
- name: {{ coalesce .portName .name "grpc" | quote }}
  port: {{ int .port }}
  protocol: {{ .protocol }}
  targetPort: {{ .targetPort }}
{{- end }}

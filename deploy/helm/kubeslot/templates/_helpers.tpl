{{- define "kubeslot.labels" -}}
app.kubernetes.io/part-of: kubeslot
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The image of a component: (list $ "kubecri" .Values.kubecri), whose image.digest wins. Of those that load
plugins there is a second kind, see image.plugins. image.digests are those of the chart's own version. */ -}}
{{- define "kubeslot.image" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $image := $root.Values.image -}}
{{- $registry := required "image.registry is not set: make push REGISTRY=… sends the images to yours, see docs/helm.md" (coalesce $image.registry ($root.Values.global).imageRegistry) -}}
{{- $kind := printf "%s%s" $name (ternary "-plugins" "" (and $image.plugins (has $name (list "kubecri" "kube-scheduler")))) -}}
{{- $tag := $image.tag | default $root.Chart.AppVersion -}}
{{- $digest := dig "image" "digest" "" (index . 2) -}}
{{- if and (not $digest) (eq $tag $root.Chart.AppVersion) -}}
{{- $digest = get ($image.digests | default dict) $kind -}}
{{- end -}}
image: {{ $registry }}/{{ $name }}:{{ $tag }}{{ trimPrefix $name $kind }}{{ with $digest }}@{{ . }}{{ end }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- /* Names, or objects with a name, as in Akri's chart and most others. */ -}}
{{- define "kubeslot.pullSecrets" -}}
{{- with concat (.Values.imagePullSecrets | default list) ((.Values.global).imagePullSecrets | default list) }}
imagePullSecrets:
{{- range . }}
- name: {{ if kindIs "map" . }}{{ .name | quote }}{{ else }}{{ . | quote }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Objects of a file of deploy/, for the release's namespace: (list $ "files/rbac/kubecri.yaml") */ -}}
{{- define "kubeslot.objects" -}}
{{- $root := index . 0 -}}
{{- $namespace := $root.Release.Namespace -}}
{{- $root.Files.Get (index . 1) | replace "namespace: kubeslot-system" "namespace: \"kubeslot-system\"" | replace "kubeslot-system" $namespace -}}
{{- end }}

{{- define "kubeslot.runtimeSocket" -}}
{{- $sockets := dict "containerd" "/run/containerd/containerd.sock" "crio" "/var/run/crio/crio.sock" "k3s" "/run/k3s/containerd/containerd.sock" "microk8s" "/var/snap/microk8s/common/run/containerd.sock" -}}
{{- .Values.kubecri.runtime.socket | default (index $sockets .Values.kubecri.runtime.preset) -}}
{{- end }}

{{- /* Whether no scheduler of Kubeslot's gives out slots; empty for no. */ -}}
{{- define "kubeslot.withoutScheduler" -}}
{{- if and (not .Values.scheduler.enabled) (eq .Values.kubecri.mode "device-plugin") }}yes{{ end -}}
{{- end }}

{{- /* Whether helm test has a pod to run; empty for no. */ -}}
{{- define "kubeslot.tested" -}}
{{- $echo := or (has "debugEcho" .Values.kubecri.builtInHandlers) (not (kindIs "invalid" (index .Values.handlers "debug-echo"))) -}}
{{- if and .Values.scheduler.enabled .Values.kubecri.enabled $echo }}yes{{ end -}}
{{- end }}

{{- define "kubeslot.nriSocket" -}}
{{- .Values.kubecri.runtime.nriSocket | default "/var/run/nri/nri.sock" -}}
{{- end }}

{{- /* What client-go goes by in a pod, as entries of env. */ -}}
{{- define "kubeslot.apiServer" -}}
{{- if .Values.apiServer.host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ .Values.apiServer.host | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ .Values.apiServer.port | default "6443" | toString | quote }}}
{{- end }}
{{- end }}

{{- /* The API server's minor version, where it is older than the scheduler's, which then has
the feature gates of that one; else empty. Managed clusters say "34+". The scheduler takes the
flag once, so one in extraArgs wins. */ -}}
{{- define "kubeslot.emulatedVersion" -}}
{{- $minor := regexFind "^[0-9]+" .Capabilities.KubeVersion.Minor | int -}}
{{- if and (lt $minor 37) (not (contains "--emulated-version" (join " " .Values.scheduler.extraArgs))) }}{{ .Capabilities.KubeVersion.Major }}.{{ $minor }}{{ end -}}
{{- end }}

{{- /* A ResourceQuota that allows pods of these PriorityClasses, any number, as GKE's own does in kube-system: GKE
takes them in no namespace that has none. */ -}}
{{- define "kubeslot.criticalPods" -}}
spec:
  hard: {pods: 1G}
  scopeSelector:
    matchExpressions:
    - {scopeName: PriorityClass, operator: In, values: [system-cluster-critical, system-node-critical]}
{{- end }}

{{- /* Whether the cluster has OpenShift's SecurityContextConstraints; empty for no. */ -}}
{{- define "kubeslot.openShift" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1/SecurityContextConstraints" }}yes{{ end -}}
{{- end }}

{{- /* SecurityContextConstraints of the pods that work on nodes: what they need, and nothing of what privileged adds. */ -}}
{{- define "kubeslot.nodeConstraints" -}}
allowHostDirVolumePlugin: true
allowHostNetwork: true
allowHostPorts: false
allowHostPID: false
allowHostIPC: false
allowPrivilegedContainer: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
allowedCapabilities: []
requiredDropCapabilities: [ALL]
runAsUser: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
fsGroup: {type: RunAsAny}
supplementalGroups: {type: RunAsAny}
seccompProfiles: [runtime/default]
volumes: [configMap, emptyDir, hostPath, projected]
{{- end }}

package helm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// What Akri's documentation has people set for its chart, and the Configurations that its
// chart makes of it.
func TestAkrisValues(t *testing.T) {
	h := newHelm(t, 4)
	resources := func(memory, cpu, memoryLimit, cpuLimit string) string {
		return `
        resources:
          requests: {"{{PLACEHOLDER}}": "1", memory: ` + memory + `, cpu: ` + cpu + `}
          limits: {"{{PLACEHOLDER}}": "1", memory: ` + memoryLimit + `, cpu: ` + cpuLimit + `}`
	}
	const services = `
  instanceServiceSpec: {type: ClusterIP, ports: [{name: grpc, port: 80, protocol: TCP, targetPort: 8083}]}
  configurationServiceSpec: {type: ClusterIP, ports: [{name: grpc, port: 80, protocol: TCP, targetPort: 8083}]}`
	for name, tc := range map[string]struct {
		set                   []string
		configuration, detail string // detail is discoveryDetails
		spec                  string
	}{
		"debugEcho": {
			[]string{"debugEcho.discovery.enabled=true", "debugEcho.configuration.enabled=true", "debugEcho.configuration.shared=false"},
			"akri-debug-echo", "{descriptions: [foo0, foo1], shared: false}",
			`
  discoveryHandler: {name: debugEcho}
  capacity: 2`},
		"udev, with a broker": {
			[]string{"udev.discovery.enabled=true", "udev.configuration.enabled=true", "udev.configuration.name=akri-udev-video",
				`udev.configuration.discoveryDetails.udevRules[0]=KERNEL=="video[0-9]*"`, "udev.configuration.brokerPod.image.repository=ghcr.io/project-akri/akri/udev-video-broker",
				"udev.configuration.brokerPod.image.tag=v0.13.8", "udev.configuration.brokerProperties.RESOLUTION_WIDTH=640", "udev.configuration.capacity=3"},
			"akri-udev-video", `{udevRules: ['KERNEL=="video[0-9]*"']}`,
			`
  discoveryHandler: {name: udev}
  capacity: 3
  brokerProperties: {RESOLUTION_WIDTH: "640"}
  brokerSpec:
    brokerPodSpec:
      containers:
      - name: akri-udev-video-broker
        image: ghcr.io/project-akri/akri/udev-video-broker:v0.13.8
        securityContext: {privileged: true}` + resources("10Mi", "10m", "30Mi", "29m") + services},
		"udev, with a broker of its own mind": {
			[]string{"udev.configuration.enabled=true", "udev.configuration.discoveryDetails.udevRules[0]=A", "udev.configuration.discoveryDetails.groupRecursive=true",
				"udev.configuration.brokerPod.image.repository=b", "udev.configuration.brokerPod.image.pullPolicy=Always", "udev.configuration.brokerPod.securityContext.runAsUser=1",
				"udev.configuration.brokerPod.env.A=1", "udev.configuration.brokerPod.envFrom.secretRef[0]=s", "udev.configuration.brokerPod.envFrom.configMapRef[0]=m",
				"udev.configuration.brokerPod.volumeMounts[0].name=v", "udev.configuration.brokerPod.volumeMounts[0].mountPath=/v", "udev.configuration.brokerPod.volumes[0].name=v",
				"udev.configuration.createInstanceServices=false", "udev.configuration.createConfigurationService=false", "imagePullSecrets[0].name=mysecret"},
			"akri-udev", `{udevRules: [A], groupRecursive: true}`,
			`
  discoveryHandler: {name: udev}
  capacity: 1
  brokerSpec:
    brokerPodSpec:
      imagePullSecrets: [{name: mysecret}]
      volumes: [{name: v}]
      containers:
      - name: akri-udev-broker
        image: b:latest
        imagePullPolicy: Always
        env: [{name: A, value: "1"}]
        envFrom: [{secretRef: {name: s}}, {configMapRef: {name: m}}]
        volumeMounts: [{name: v, mountPath: /v}]
        securityContext: {runAsUser: 1}` + resources("10Mi", "10m", "30Mi", "29m")},
		"onvif, with credentials": {
			[]string{"onvif.discovery.enabled=true", "onvif.configuration.enabled=true", "onvif.configuration.capacity=2",
				"onvif.configuration.discoveryDetails.ipAddresses.items[0]=10.0.0.1", "onvif.configuration.discoveryDetails.uuids.action=Include",
				"onvif.configuration.discoveryProperties[0].name=device_credential_list", "onvif.configuration.discoveryProperties[0].valueFrom.secretKeyRef.name=onvif-auth",
				"onvif.configuration.discoveryProperties[0].valueFrom.secretKeyRef.key=list", "onvif.configuration.discoveryProperties[0].valueFrom.secretKeyRef.optional=false",
				"onvif.configuration.brokerPod.image.repository=ghcr.io/project-akri/akri/onvif-video-broker"},
			"akri-onvif", `{ipAddresses: {action: Exclude, items: ["10.0.0.1"]}, macAddresses: {action: Exclude, items: []}, scopes: {action: Exclude, items: []}, uuids: {action: Include}, discoveryTimeoutSeconds: 1}`,
			`
  discoveryHandler:
    name: onvif
    discoveryProperties: [{name: device_credential_list, valueFrom: {secretKeyRef: {name: onvif-auth, key: list, optional: false}}}]
  capacity: 2
  brokerSpec:
    brokerPodSpec:
      containers:
      - name: akri-onvif-broker
        image: ghcr.io/project-akri/akri/onvif-video-broker:latest` + resources("98Mi", "134m", "400Mi", "2800m") + services},
		"udev, with details as a text": {
			[]string{"udev.configuration.enabled=true", `udev.configuration.discoveryDetails=udevRules: ['KERNEL=="video0"']`},
			"akri-udev", `{udevRules: ['KERNEL=="video0"']}`,
			`
  discoveryHandler: {name: udev}
  capacity: 1`},
		"onvif, with details as a text": {
			[]string{"onvif.configuration.enabled=true",
				"onvif.configuration.discoveryDetails=discoveryTimeoutSeconds: 2"},
			"akri-onvif", `{discoveryTimeoutSeconds: 2}`,
			`
  discoveryHandler: {name: onvif}
  capacity: 1`},
		"custom, with details as a mapping": {
			[]string{"custom.configuration.enabled=true", "custom.configuration.discoveryHandlerName=http",
				"custom.configuration.discoveryDetails.url=http://a"},
			"akri-custom", `{url: "http://a"}`,
			`
  discoveryHandler: {name: http}
  capacity: 1`},
		"opcua, with certificates": {
			[]string{"opcua.configuration.enabled=true", "opcua.configuration.name=akri-opcua-monitoring", "opcua.configuration.discoveryDetails.discoveryUrls[0]=opc.tcp://10.0.0.2:4840/",
				"opcua.configuration.discoveryDetails.applicationNames.action=Include", "opcua.configuration.discoveryDetails.applicationNames.items[0]=Press",
				"opcua.configuration.mountCertificates=true", "opcua.configuration.brokerPod.image.repository=b"},
			"akri-opcua-monitoring", `{opcuaDiscoveryMethod: {standard: {discoveryUrls: ["opc.tcp://10.0.0.2:4840/"]}}, applicationNames: {action: Include, items: [Press]}}`,
			`
  discoveryHandler: {name: opcua}
  capacity: 1
  brokerSpec:
    brokerPodSpec:
      volumes:
      - name: credentials
        secret:
          secretName: opcua-broker-credentials
          items:
          - {key: client_certificate, path: own/certs/AkriBroker.der}
          - {key: client_key, path: own/private/AkriBroker.pfx}
          - {key: ca_certificate, path: trusted/certs/SomeCA.der}
          - {key: ca_crl, path: trusted/crl/SomeCA.crl}
      containers:
      - name: akri-opcua-monitoring-broker
        image: b:latest
        volumeMounts: [{name: credentials, mountPath: /etc/opcua-certs/client-pki}]` + resources("76Mi", "9m", "200Mi", "30m") + services},
		"custom, with a Job": {
			[]string{"custom.configuration.enabled=true", "custom.configuration.name=akri-http", "custom.configuration.discoveryHandlerName=http",
				"custom.configuration.discoveryDetails=http://discovery:9999/discovery", "custom.configuration.brokerJob.image.repository=busybox",
				"custom.configuration.brokerJob.command[0]=sh", "custom.configuration.brokerJob.backoffLimit=4", "custom.configuration.brokerJob.parallelism=2"},
			"akri-http", `http://discovery:9999/discovery`,
			`
  discoveryHandler: {name: http}
  capacity: 1
  brokerSpec:
    brokerJobSpec:
      backoffLimit: 4
      parallelism: 2
      completions: 1
      template:
        spec:
          restartPolicy: OnFailure
          containers:
          - name: akri-http-broker
            image: busybox:latest
            command: [sh]
            resources:
              requests: {"{{PLACEHOLDER}}": "1", memory: 11Mi, cpu: 10m}
              limits: {"{{PLACEHOLDER}}": "1", memory: 24Mi, cpu: 24m}`},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for _, s := range tc.set {
				args = append(args, "--set", s)
			}
			all := h.render(t, args...)
			got := all.get(t, "Configuration", tc.configuration)
			if hook := got.GetAnnotations()["helm.sh/hook"]; hook != "post-install,post-rollback" {
				t.Errorf("where Configurations are not known yet it is the hook %q", hook)
			}
			known := h.render(t, append(args, "--api-versions", "akri.sh/v0/Configuration")...).get(t, "Configuration", tc.configuration)
			if _, hook := known.GetAnnotations()["helm.sh/hook"]; hook {
				t.Error("where Configurations are known it is a hook still, which helm neither changes nor deletes")
			}
			decoded := func(o *unstructured.Unstructured) akriv0.Configuration {
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				var c akriv0.Configuration
				if err := yaml.UnmarshalStrict(text, &c); err != nil {
					t.Fatalf("%v in\n%s", err, text)
				}
				return c
			}
			if diff := cmp.Diff(decoded(known).Spec, decoded(got).Spec); diff != "" {
				t.Errorf("the first time it is another (-known +first):\n%s", diff)
			}
			var detail, gotDetail any
			if err := yaml.Unmarshal([]byte(tc.detail), &detail); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(decoded(got).Spec.DiscoveryHandler.DiscoveryDetails), &gotDetail); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(detail, gotDetail); diff != "" {
				t.Errorf("discoveryDetails (-want +got):\n%s", diff)
			}
			var want map[string]any
			if err := yaml.UnmarshalStrict([]byte("spec:"+tc.spec), &want); err != nil {
				t.Fatal(err)
			}
			spec := want["spec"].(map[string]any)
			if spec["brokerProperties"] == nil {
				spec["brokerProperties"] = map[string]any{}
			}
			gotSpec := got.Object["spec"].(map[string]any)
			delete(gotSpec["discoveryHandler"].(map[string]any), "discoveryDetails")
			if diff := cmp.Diff(spec, gotSpec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
	if strings.Count(readFile(t, chart, "values.yaml"), "    enabled: false\n") < 5 {
		t.Error("not all of Akri's Configurations are off by default")
	}
}

// Numbers of a file of values are what they were.
func TestLargeNumbersOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	values := `
onvif:
  configuration:
    enabled: true
    brokerProperties: {BITRATE: 4000000, RATE: 29.97, TURN: true, NAME: "007"}
    brokerPod: {image: {repository: b}, env: {BITRATE: 4000000}}
`
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newHelm(t, 4).render(t, "-f", file).get(t, "Configuration", "akri-onvif")
	properties := map[string]any{"BITRATE": "4000000", "RATE": "29.97", "TURN": "true", "NAME": "007"}
	if diff := cmp.Diff(any(properties), field(c, "spec", "brokerProperties")); diff != "" {
		t.Errorf("brokerProperties (-want +got):\n%s", diff)
	}
	pods, _ := field(c, "spec", "brokerSpec", "brokerPodSpec", "containers").([]any)
	if len(pods) != 1 || fmt.Sprint(pods[0].(map[string]any)["env"]) != "[map[name:BITRATE value:4000000]]" {
		t.Errorf("containers %v", pods)
	}
}

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// programs says where each program is.
type programs map[string]string

func (p programs) dirOf(name string) string { return filepath.Dir(p[name]) }

// etcd serves plain HTTP, because it listens only on the loopback of the control
// plane's own namespace, which nothing but the control plane can reach. It does
// not sync to disk: a cluster that is thrown away has nothing to survive for.
func etcdProcess(l layout, bin programs) *process {
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return &process{Component: Etcd, NetNS: l.netNS(controlNS), Argv: []string{
		bin["etcd"],
		"--name=etcd",
		"--data-dir=" + l.etcd(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=etcd=" + peer,
		"--unsafe-no-fsync",
		"--log-level=warn",
	}}
}

// gangsGate switches PodGroups on in a program.
const gangsGate = "--feature-gates=GenericWorkload=true"

func apiServerProcess(l layout, bin programs) *process {
	cert, key := l.keyPair(APIServer)
	kubeletCert, kubeletKey := l.keyPair(kubeletClientUser)
	saPublic, saPrivate := l.keyPair("service-account")
	proxyCert, proxyKey := l.keyPair(frontProxy)
	return &process{Component: APIServer, NetNS: l.netNS(controlNS), Argv: []string{
		bin["kube-apiserver"],
		"--etcd-servers=http://127.0.0.1:2379",
		"--advertise-address=" + controlIP.String(),
		"--bind-address=0.0.0.0",
		fmt.Sprintf("--secure-port=%d", apiPort),
		"--service-cluster-ip-range=" + serviceRange,
		"--enable-aggregator-routing=true", // to webhooks' pods: nothing makes their Services' addresses work
		"--cert-dir=" + l.pki(),
		"--tls-cert-file=" + cert,
		"--tls-private-key-file=" + key,
		"--client-ca-file=" + l.caFile(),
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--kubelet-certificate-authority=" + l.caFile(),
		"--kubelet-client-certificate=" + kubeletCert,
		"--kubelet-client-key=" + kubeletKey,
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + saPublic,
		"--service-account-signing-key-file=" + saPrivate,
		"--requestheader-client-ca-file=" + l.proxyCAFile(),
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + proxyCert,
		"--proxy-client-key-file=" + proxyKey,
		"--allow-privileged=true",
		"--audit-policy-file=" + filepath.Join(l.config(), "audit-policy.yaml"),
		"--audit-log-path=" + l.auditLog(),
		"--audit-log-mode=blocking",   // a write is in the log when its caller has the answer
		"--audit-log-maxsize=1000000", // MB. At 100, the default, who reads the log would lose it
	}}
}

// There is one controller manager and no other to elect: a lease would only make
// its restart wait for the old one's end.
func controllerManagerProcess(l layout, bin programs) *process {
	_, saPrivate := l.keyPair("service-account")
	kubeconfig := l.kubeconfig(ControllerManager)
	return &process{Component: ControllerManager, NetNS: l.netNS(controlNS), Argv: []string{
		bin["kube-controller-manager"],
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		// Getting each controller its credentials takes seconds at the default rate.
		"--kube-api-qps=100",
		"--kube-api-burst=200",
		"--service-account-private-key-file=" + saPrivate,
		"--root-ca-file=" + l.caFile(),
		// The default is in /usr/libexec, where it would stay.
		"--flex-volume-plugin-dir=" + filepath.Join(l.workOf(ControllerManager, ""), "volumeplugins"),
	}}
}

func stockSchedulerProcess(l layout, bin programs) *process {
	kubeconfig := l.kubeconfig(Scheduler)
	return &process{Component: Scheduler, NetNS: l.netNS(controlNS), Argv: []string{
		bin["kube-scheduler"],
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false", // it is alone, and without its Lease it would end
	}}
}

func forwarderProcess(l layout) *process {
	return &process{Component: Forwarder, Argv: []string{
		filepath.Join(l.bin(), "forward"),
		"--address-file=" + l.apiAddress(),
		"--netns=" + l.netNS(controlNS),
		fmt.Sprintf("--to=%s:%d", controlIP, apiPort),
	}}
}

// hostAddress is where the forwarder listens.
func (l layout) hostAddress() (string, error) {
	data, err := os.ReadFile(l.apiAddress())
	return strings.TrimSpace(string(data)), err
}

// writeAuditPolicy logs who wrote what: tests count API writes by it.
func writeAuditPolicy(l layout) error {
	return writeYAML(filepath.Join(l.config(), "audit-policy.yaml"), map[string]any{
		"apiVersion": "audit.k8s.io/v1",
		"kind":       "Policy",
		"omitStages": []string{"RequestReceived"},
		"rules": []any{
			map[string]any{
				"level": "Metadata",
				"verbs": []string{"create", "update", "patch", "delete", "deletecollection"},
			},
			map[string]any{"level": "None"},
		},
	})
}

func writeYAML(path string, content any) error {
	data, err := yaml.Marshal(content)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, data, 0o600)
}

package hostinstall

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/docs"
)

const repo = "../.."

// patchImage is the image that kubeadm's patch names.
func patchImage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "deploy/kubeadm/patches/kube-scheduler0+strategic.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil || len(pod.Spec.Containers) != 1 {
		t.Fatalf("the patch: %d containers, %v", len(pod.Spec.Containers), err)
	}
	image := pod.Spec.Containers[0].Image
	if !strings.Contains(image, "/kubeslot/kube-scheduler:v") {
		t.Fatalf("the patch names %q", image)
	}
	return image
}

// command is the one of a page that begins so.
func command(t *testing.T, page, begin string) string {
	t.Helper()
	c, err := docs.Command(repo, page, begin)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// `kubeadm upgrade` writes our scheduler's manifest when it is given the patches, and the
// stock one when it is not: dry runs against an API server that knows the cluster as
// kubeadm does. The commands are those
// of docs/kubeadm.md.
func TestKubeadmUpgrade(t *testing.T) {
	r := newKubeadmRoot(t)
	ourImage := patchImage(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cfg := cluster.Config{Name: "kubeadm", APIOnly: true, Stock: true}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(cluster.Down(ctx, cfg))
	c, err := cluster.Up(ctx, cfg)
	check(err)
	defer func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	r.write("/stock.yaml", initFile+clusterFile)
	r.kubeadm("init", "phase", "control-plane", "all", "--config", "/stock.yaml")
	r.knownTo(ctx, c)

	// The first time.
	script, err := docs.Block(repo, "docs/kubeadm.md", "cat > ")
	check(err)
	script = strings.NewReplacer("> /etc", "> "+r.dir+"/etc", "kubeadm init", "chroot "+r.dir+" /kubeadm init").Replace(script)
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+c.BinDir()+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	if image := r.scheduler().Spec.Containers[0].Image; image != ourImage {
		t.Errorf("%s\nwrites the image %s", script, image)
	}

	upgrade := func(args string) (scheduler string) {
		t.Helper()
		out := r.kubeadm(strings.Fields(args + " --dry-run --etcd-upgrade=false --certificate-renewal=false")...)
		_, manifest, found := strings.Cut(out, `Would write file "`+schedulerPod+`" with content:`)
		if !found {
			t.Fatalf("kubeadm %s writes no manifest of the scheduler", args)
		}
		for line := range strings.Lines(manifest) {
			if image, ok := strings.CutPrefix(strings.TrimSpace(line), "image: "); ok {
				return image
			}
		}
		t.Fatalf("the manifest has no image:\n%s", manifest)
		return ""
	}
	for begin, test := range map[string]struct{ old, new string }{
		command(t, "docs/kubeadm.md", "kubeadm upgrade apply"):          {"upgrade apply v1.37.3", "upgrade apply v1.37.2 --yes --force --ignore-preflight-errors=all --skip-phases=addon"},
		command(t, "docs/kubeadm.md", "kubeadm upgrade node --patches"): {"upgrade node", "upgrade node phase control-plane"},
		command(t, "docs/kubeadm.md", "kubeadm upgrade node --dry-run"): {"upgrade node", "upgrade node phase control-plane"},
	} {
		_, args, _ := strings.Cut(begin, " ")
		if image := upgrade(strings.Replace(args, test.old, test.new, 1)); image != ourImage {
			t.Errorf("%s writes the image %s", begin, image)
		}
	}
	if _, err := c.Kubectl(ctx, strings.Fields(command(t, "docs/kubeadm.md", "kubectl -n kube-system get pods"))[1:]...); err != nil {
		t.Error(err)
	}
	if image := upgrade("upgrade node phase control-plane"); image != "registry.k8s.io/kube-scheduler:v1.37.2" {
		t.Errorf("kubeadm upgrade node without the patches writes the image %s", image)
	}
	r.write("/upgrade.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: UpgradeConfiguration\nnode: {patches: {directory: /etc/kubernetes/patches}, dryRun: true, etcdUpgrade: false, certificateRenewal: false}\n")
	if out := r.kubeadm("upgrade", "node", "phase", "control-plane", "--config", "/upgrade.yaml"); !strings.Contains(out, "image: "+ourImage) {
		t.Error("an UpgradeConfiguration with the patches' folder does not write our image")
	}
}

// knownTo makes the objects that kubeadm left in a cluster of which this is a control plane
// node.
func (r kubeadmRoot) knownTo(ctx context.Context, c *cluster.Cluster) {
	r.Helper()
	check := func(err error) {
		r.Helper()
		if err != nil {
			r.Fatal(err)
		}
	}
	config, err := c.RESTConfig()
	check(err)
	client, err := kubernetes.NewForConfig(config)
	check(err)
	admin, err := os.ReadFile(c.Kubeconfig())
	check(err)
	r.write("/etc/kubernetes/admin.conf", string(admin))
	r.write("/etc/kubernetes/kubelet.conf", kubeletConf(r.T, string(admin)))
	for name, data := range map[string]map[string]string{
		"kubeadm-config": {"ClusterConfiguration": clusterFile},
		"kubelet-config": {"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"},
		"kube-proxy":     {"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"},
	} {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
		check(err)
	}
	known, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""},
		Annotations: map[string]string{"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock"}}}, metav1.CreateOptions{})
	check(err)
	known.Status.NodeInfo.KubeletVersion = "v1.37.2"
	_, err = client.CoreV1().Nodes().UpdateStatus(ctx, known, metav1.UpdateOptions{})
	check(err)
	// The API server's pod says where it is.
	server := &corev1.Pod{}
	check(yaml.UnmarshalStrict([]byte(r.read("/etc/kubernetes/manifests/kube-apiserver.yaml")), server))
	server.Name, server.Spec.NodeName, server.Spec.AutomountServiceAccountToken = server.Name+"-"+node, node, new(bool)
	server.Spec.PriorityClassName, server.Spec.Priority = "", nil
	_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	check(err)
	_, err = client.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, server, metav1.CreateOptions{})
	check(err)
}

// kubeletConf is the admin's kubeconfig with a kubelet's certificate, by which kubeadm knows
// the node's name.
func kubeletConf(t *testing.T, admin string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		NotAfter: time.Now().Add(time.Hour)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load([]byte(admin))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.ClientCertificate, user.ClientCertificateData = "", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

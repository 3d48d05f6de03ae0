package skew

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	reference "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
)

// crioNode is the node with CRI-O.
const crioNode = "crio"

// TestCRIO has a node with CRI-O in containerd's place, at the same sockets: kubecri in front
// of it, and as its NRI plugin. CRIO is the directory of crio, pinns, conmon, and crun or runc.
func TestCRIO(t *testing.T) {
	dir := os.Getenv("CRIO")
	if dir == "" {
		t.Skip("needs CRI-O: CRIO=<directory of crio, pinns, conmon and, if wanted, crun>, as root")
	}
	r := up(t, cluster.Config{Nodes: []string{crioNode}})
	r.logs = append(r.logs, [2]string{"cri-o", crioNode}, [2]string{cluster.Kubecri, crioNode}, [2]string{cluster.Kubelet, crioNode})
	version := r.useCRIO(t, dir)
	t.Logf("the node runs %s", version)
	for _, mode := range []string{"proxy", "nri"} {
		t.Run(mode, func(t *testing.T) {
			r := r.in(t)
			if mode == "nri" {
				r.check(r.SetNRI(r.ctx, crioNode, true))
			}
			r.advertised(crioNode)
			r.pod(crioNode, cluster.Pinned)
		})
	}
}

// useCRIO stops containerd, the kubelet and kubecri of the node, and starts them again with
// CRI-O. It returns the runtime's name and version, as the node reports it.
func (r *rig) useCRIO(t *testing.T, dir string) string {
	t.Helper()
	n := r.Nodes()[0]
	for _, component := range []string{cluster.Kubelet, cluster.Kubecri, cluster.Containerd} {
		r.check(r.Kill(component, n.Name, syscall.SIGKILL))
	}
	// CRI-O begins with deleting what it does not know, such as what CNI remembers of containerd's pods.
	cni := filepath.Join(n.Dir, "crio/cni")
	r.check(os.MkdirAll(cni, 0o755))
	if out, err := exec.CommandContext(r.ctx, "nsenter", "--mount="+n.MountNS, "mount", "--bind", cni, "/var/lib/cni").CombinedOutput(); err != nil {
		t.Fatalf("give CRI-O on node %s a /var/lib/cni of its own: %v: %s", n.Name, err, out)
	}
	config := r.crioConfig(n, dir)
	r.check(r.Cluster.Run(cluster.Program{Name: "cri-o", On: n.Name, Argv: []string{filepath.Join(dir, "crio"), "--config=" + config, "--config-dir=",
		"--registries-conf=" + filepath.Join(filepath.Dir(config), "registries.conf"), "--registries-conf-dir=" + filepath.Join(filepath.Dir(config), "containers")}}))
	conn, err := grpc.NewClient("unix://"+n.ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.check(err)
	t.Cleanup(func() { conn.Close() })
	var version *runtimeapi.VersionResponse
	r.await("CRI-O to answer", func() (bool, string) {
		version, err = runtimeapi.NewRuntimeServiceClient(conn).Version(r.ctx, &runtimeapi.VersionRequest{})
		return err == nil, fmt.Sprint(err)
	})
	r.pull(t, n, runtimeapi.NewImageServiceClient(conn))
	for _, component := range []string{cluster.Kubecri, cluster.Kubelet} {
		r.check(r.Start(component, n.Name))
		r.check(r.AwaitServing(r.ctx, component, n.Name))
	}
	want := "cri-o://" + version.RuntimeVersion
	r.await("the node to report "+want, func() (bool, string) {
		node, err := r.kube.CoreV1().Nodes().Get(r.ctx, n.Name, metav1.GetOptions{})
		r.check(err)
		return node.Status.NodeInfo.ContainerRuntimeVersion == want, node.Status.NodeInfo.ContainerRuntimeVersion
	})
	return want
}

// imageRegistry is on the node's loopback.
const imageRegistry = "127.0.0.1:5000"

// crioConfig writes CRI-O's configuration and returns its path. Everything of it is in a
// directory of the node.
func (r *rig) crioConfig(n cluster.Node, dir string) string {
	r.Helper()
	in := func(elem string) string { return filepath.Join(n.Dir, "crio", elem) }
	r.check(os.MkdirAll(in("containers"), 0o755))
	oci, program := "crun", filepath.Join(dir, "crun")
	if _, err := os.Stat(program); err != nil {
		oci, program = "runc", filepath.Join(r.BinDir(), "runc")
	}
	for path, text := range map[string]string{
		"policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}`,
		"registries.conf": fmt.Sprintf("[[registry]]\nprefix = \"kubeslot.test\"\nlocation = %q\ninsecure = true\n", imageRegistry),
		"crio.conf": fmt.Sprintf(`[crio]
root = %[1]q
runroot = %[2]q
log_dir = %[3]q
version_file = %[4]q
version_file_persist = %[5]q
clean_shutdown_file = %[6]q
[crio.api]
listen = %[7]q
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
conmon = %[8]q
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
disable_hostport_mapping = true
pinns_path = %[9]q
namespaces_dir = %[10]q
container_exits_dir = %[11]q
container_attach_socket_dir = %[12]q
cdi_spec_dirs = [%[13]q, "/etc/cdi", "/var/run/cdi"]
irqbalance_config_restore_file = "disable"
default_runtime = %[14]q
[crio.runtime.runtimes.%[14]s]
runtime_path = %[15]q
monitor_path = %[8]q
monitor_cgroup = "pod"
[crio.image]
signature_policy = %[16]q
pause_image = %[17]q
[crio.network]
network_dir = %[18]q
plugin_dirs = [%[19]q]
[crio.nri]
nri_listen = %[20]q
nri_plugin_dir = %[21]q
nri_plugin_config_dir = %[22]q
`, in("root"), in("run"), in("log"), in("version"), in("version-persist"), in("clean"), n.ContainerdSocket,
			filepath.Join(dir, "conmon"), filepath.Join(dir, "pinns"), in("ns"), in("exits"), in("attach"), n.CDIDir,
			oci, program, in("policy.json"), cluster.PauseImage, filepath.Join(n.Dir, "cni/net.d"), r.BinDir(),
			filepath.Join(n.Dir, "nri.sock"), in("nri/plugins"), in("nri/conf.d")),
	} {
		r.check(os.WriteFile(in(path), []byte(text), 0o644))
	}
	return in("crio.conf")
}

// pull has CRI-O pull the cluster's images, from a registry of this process.
func (r *rig) pull(t *testing.T, n cluster.Node, images runtimeapi.ImageServiceClient) {
	t.Helper()
	l, err := r.Listen(r.ctx, n.Name, "tcp", imageRegistry)
	r.check(err)
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	inNode := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return r.Dial(ctx, n.Name, network, address)
	}}
	for image, archive := range map[string]string{cluster.PauseImage: "pause.tar", cluster.AppImage: "app.tar"} {
		unpacked := filepath.Join(t.TempDir(), archive)
		r.check(untar(filepath.Join(filepath.Dir(r.BinDir()), "images", archive), unpacked))
		index, err := layout.ImageIndexFromPath(unpacked)
		r.check(err)
		manifest, err := index.IndexManifest()
		r.check(err)
		one, err := index.Image(manifest.Manifests[0].Digest)
		r.check(err)
		one = mutate.ConfigMediaType(one, types.OCIConfigJSON) // containerd takes others, too
		ref, err := reference.ParseReference(strings.Replace(image, "kubeslot.test", imageRegistry, 1), reference.Insecure)
		r.check(err)
		r.check(remote.Write(ref, one, remote.WithTransport(inNode)))
		_, err = images.PullImage(r.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
		r.check(err)
	}
}

// untar unpacks regular files and directories, of an archive that we made ourselves.
func untar(archive, into string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	for entries := tar.NewReader(f); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(into, entry.Name)
		if entry.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		data, err := io.ReadAll(entries)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
}

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// state makes the state directory of a cluster that is up.
func state(t *testing.T, root, name string) string {
	t.Helper()
	dir := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMountPointsGoWithTheLastCluster(t *testing.T) {
	root := t.TempDir()
	m := mountPoints{filepath.Join(root, "clusters", "record")}
	a, b, lost := state(t, root, "a"), state(t, root, "b"), state(t, root, "lost")
	there, made, parent, used := filepath.Join(root, "there"), filepath.Join(root, "made"), filepath.Join(root, "parent"), filepath.Join(root, "used")
	if err := os.Mkdir(there, 0o755); err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(there bool, dirs ...string) {
		t.Helper()
		for _, dir := range dirs {
			if exists(dir) != there {
				t.Errorf("%s is there: %v, want %v", dir, !there, there)
			}
		}
	}
	check(m.release(t.Context(), a)) // there is no record
	check(m.make(t.Context(), a, there, made, used))
	check(m.make(t.Context(), a, filepath.Join(parent, "child")))
	check(m.make(t.Context(), b, there, made))
	check(m.make(t.Context(), lost, made))
	check(os.WriteFile(filepath.Join(used, "by-somebody-else"), nil, 0o600))

	check(m.release(t.Context(), a))
	check(m.release(t.Context(), a))
	want(true, there, made, parent, m.file)
	check(os.RemoveAll(lost)) // somebody has, instead of taking the cluster down
	check(m.release(t.Context(), b))
	want(true, there, used)
	want(false, made, parent, m.file)
}

func TestRecordOfMountPointsThatCannotBeRead(t *testing.T) {
	m := mountPoints{filepath.Join(t.TempDir(), "record")}
	if err := os.WriteFile(m.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.release(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), m.file) {
		t.Errorf("release() = %v, want an error that names the file", err)
	}
}

// On a machine that never ran Kubernetes nothing but logs is left. The machine is this one, in
// a mount namespace that has empty directories where programs of Kubernetes write.
func TestNothingButLogsIsLeftOnAMachine(t *testing.T) {
	realCluster(t)
	root, err := FindRepoRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "cluster")
	build := exec.Command("go", "build", "-o", program, "./test/cluster/cmd/cluster")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const script = `set -e
		for dir in /run /var/lib /var/tmp /usr/libexec; do
			awk -v dir=$dir/ 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac | xargs --no-run-if-empty umount --lazy
			mount -t tmpfs tmpfs $dir
		done
		list() { find /run /var/lib /var/tmp /usr/libexec /etc /opt -xdev -not -path '*/logs/*' | sort; }
		cluster() { "$CLUSTER" "$1" --name bare "${@:2}"; }
		trap 'cluster down' EXIT
		list > /tmp/before.$$
		cluster up --stock --nodes node-a
		export KUBECONFIG=/var/tmp/kubeslot/bare/kubeconfigs/admin
		kubectl=/var/tmp/kubeslot/bare/bin/kubectl
		$kubectl run viewer --image=kubeslot.test/app:1 --image-pull-policy=Never
		$kubectl wait --for=condition=Ready pod/viewer --timeout=180s
		ls -d /run/containerd
		cluster down
		list | diff /tmp/before.$$ - | sed -n 's/^[<>]/left: &/p'
		rm /tmp/before.$$`
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation=private", "bash", "-c", script)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CLUSTER="+program)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n/run/containerd\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	left := ""
	for line := range strings.Lines(string(out)) {
		switch line = strings.TrimSpace(line); line {
		case "left: > /var/tmp/kubeslot", "left: > /var/tmp/kubeslot/bare", "left: > /var/tmp/kubeslot/bare/logs":
		default:
			if strings.HasPrefix(line, "left: ") {
				left += line + "\n"
			}
		}
	}
	if left != "" {
		t.Errorf("the cluster left on the machine:\n%s", left)
	}
}

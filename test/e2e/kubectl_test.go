package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// kubeslot runs `kubectl kubeslot`, as kubectl runs its plugins, and returns what it
// prints and its exit code.
func (r *rig) kubeslot(args ...string) (stdout, stderr string, code int) {
	r.Helper()
	cmd := r.kubeslotCommand(args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); !errors.As(err, new(*exec.ExitError)) {
		r.check(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// kubeslotCommand is `kubectl kubeslot` with the arguments, in the test's namespace.
func (r *rig) kubeslotCommand(args ...string) *exec.Cmd {
	r.Helper()
	cmd := exec.CommandContext(r.ctx, filepath.Join(shared.BinDir(), "kubectl"), append([]string{"kubeslot", "-n", r.ns, "--cache-dir", r.TempDir()}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig(), "PATH="+shared.BinDir())
	return cmd
}

// awaitKubeslot waits until the command prints all parts.
func (r *rig) awaitKubeslot(args []string, parts ...string) {
	r.Helper()
	r.await("kubectl kubeslot "+strings.Join(args, " ")+" to print "+strings.Join(parts, ", "), func() (bool, string) {
		stdout, stderr, code := r.kubeslot(args...)
		if code != 0 {
			return false, stderr
		}
		for _, part := range parts {
			if !regexp.MustCompile(part).MatchString(stdout) {
				return false, "it prints\n" + stdout + stderr
			}
		}
		return true, ""
	})
}

// Who holds a slot, why a pod waits, what is wrong: each one command.
func TestKubectl(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	devices := r.debugEcho("show", 1, nil, "gate", "yard")
	r.create(newPod("has", nodeA, map[string]int64{"show": 1}))
	r.awaitRunning("has")
	r.create(newPod("waits", "", map[string]int64{"show": 2}))
	r.awaitPending("waits", "1 of 2 slots free")

	has := r.slotClaims("show")[0]
	r.awaitKubeslot([]string{"list"}, `show +debugEcho +true +2 +2 +2 +1 +0 +1 +1 +-`)
	r.awaitKubeslot([]string{"slots", "show"}, has.Name+` +Held +`+r.ns+`/has +main +node-a`, `Free`)
	r.awaitKubeslot([]string{"instances", "show"}, devices[0].name+` +(gate|yard) +true +node-a,node-b +1`)
	r.awaitKubeslot([]string{"pod", "has"}, `Running for .*, node node-a`, `main +`+has.Name+` +Held`)
	r.awaitKubeslot([]string{"pod", "waits"}, `SlotsHeld, container main, akri.sh/show, on node-a,node-b: it asks for 2 different devices, .* reaches 2, 1 of them with a free slot`,
		has.Name+` +Held +`+r.ns+`/has`, `pod `+r.ns+`/has \(on node node-a\) has to end: then it can run on node node-a`, `Says the scheduler: .*1 of 2 slots free`)
	r.awaitKubeslot([]string{"pods"}, `has +Running`, `waits +Pending .*akri.sh/show:2 +0 +SlotsHeld`)
	r.awaitKubeslot([]string{"node", nodeA}, `Node node-a: Ready`, `akri.sh/show +2 +1 +1 +2`, `It reaches:`, has.Name+` +Held`)

	stdout, _, _ := r.kubeslot("slots", "show", "-o", "json")
	var list struct{ Items []view.Slot }
	r.check(json.Unmarshal([]byte(stdout), &list))
	if len(list.Items) != 2 {
		t.Errorf("-o json has %d slots, want 2:\n%s", len(list.Items), stdout)
	}
	stdout, _, _ = r.kubeslot("slots", "show", "--held", "-o", "name")
	if want := "slot.kubectl.kubeslot.io/" + has.Name + "\n"; stdout != want {
		t.Errorf("-o name prints %q, want %q", stdout, want)
	}
	if _, stderr, code := r.kubeslot("pod", "nobody"); code != 1 || !strings.Contains(stderr, "no pod nobody in namespace "+r.ns) {
		t.Errorf("of a pod that is not there it says %q, exit code %d", stderr, code)
	}

	holder := r.ns
	t.Run("of-one-namespace", func(t *testing.T) {
		r := newRig(t)
		const user = "sees-one-namespace"
		r.mayOnly(user, rbacv1.PolicyRule{APIGroups: []string{"", "akri.sh"}, Resources: []string{"pods", "configurations", "instances"}, Verbs: []string{"list"}})
		stdout, stderr, code := r.kubeslot("slots", "--as", user)
		if code != 0 || strings.Contains(stdout, holder) || !regexp.MustCompile(`You may not list .*slotclaims.kubeslot.io`).MatchString(stderr) {
			t.Errorf("%s, who may see another namespace, sees\n%s%s", user, stdout, stderr)
		}
		if stdout, _, _ := r.kubeslot("pods", "-A", "--as", user); strings.Contains(stdout, holder) {
			t.Errorf("%s, who may see another namespace, sees its pods:\n%s", user, stdout)
		}
		if _, stderr, code := r.kubeslot("doctor", "--as", user); code != 2 || !strings.Contains(stderr, "forbidden") {
			t.Errorf("doctor of a user who may not list everything says %q, exit code %d", stderr, code)
		}
	})
}

// doctor has nothing to say of a cluster in order, and finds what is wrong.
func TestKubectlDoctor(t *testing.T) {
	r := newRig(t)
	r.await("doctor to find nothing", func() (bool, string) {
		stdout, stderr, code := r.kubeslot("doctor")
		return code == 0 && strings.Contains(stderr, "No problems found."), "it says\n" + stdout + stderr
	})
	_, err := akri.AkriV0().Configurations(r.ns).Create(r.ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "misspelt"},
		Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEco"}}}, metav1.CreateOptions{})
	r.check(err)
	r.await("doctor to find the handler that there is not", func() (bool, string) {
		stdout, stderr, code := r.kubeslot("doctor")
		return code == 1 && strings.Contains(stdout, "configuration/"+r.ns+"/misspelt") &&
			strings.Contains(stdout, "UnknownHandler"), "it says\n" + stdout + stderr
	})
}

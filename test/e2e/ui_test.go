package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/ui/browser"
)

// background starts a program, which ends with the test, and returns the first text in what it
// writes to standard output, or else to standard error, that fits the pattern.
func (r *rig) background(pattern string, argv ...string) string {
	r.Helper()
	cmd := exec.CommandContext(r.ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig(), "PATH="+shared.BinDir())
	out, in, err := os.Pipe()
	r.check(err)
	cmd.Stdout, cmd.Stderr = in, in
	r.check(cmd.Start())
	in.Close()
	r.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		out.Close()
	})
	lines := bufio.NewScanner(out)
	written := ""
	for lines.Scan() {
		written += lines.Text() + "\n"
		if found := regexp.MustCompile(pattern).FindString(lines.Text()); found != "" {
			go func() { // so that it does not wait for a reader
				for lines.Scan() {
				}
			}()
			return found
		}
	}
	r.Fatalf("waited for %q from %s, which ended (%v) and wrote\n%s", pattern, strings.Join(argv, " "), lines.Err(), written)
	return ""
}

// ui starts `kubectl kubeslot ui` and returns the address of its page.
func (r *rig) ui(args ...string) string {
	r.Helper()
	return r.background(`^http://127\.0\.0\.1:\d+/\?key=\w+$`, append([]string{filepath.Join(shared.BinDir(), "kubectl"), "kubeslot", "-n", r.ns, "--cache-dir", r.TempDir(), "ui"}, args...)...)
}

// The page of a real cluster: who has which slot, why a pod waits, and what changes. It runs
// alone: the page shows the whole cluster, and what moves on it cannot be clicked.
func TestUI(t *testing.T) {
	r := newRig(t)
	devices := r.debugEcho("page", 1, nil, "gate", "yard")
	r.create(newPod("has", nodeA, map[string]int64{"page": 1}))
	r.awaitRunning("has")
	r.create(newPod("waits", "", map[string]int64{"page": 2}))
	r.awaitPending("waits", "1 of 2 slots free")
	claim := r.slotClaims("page")[0]
	instance := strings.TrimSuffix(claim.Name, "-0")
	held := fmt.Sprintf(`.device[data-name=%q] [data-slot="0"]`, instance)

	b := browser.Open(t, r.ui(), 1440, 900)
	b.Await("#live", "Live")
	b.Await("#grid", "gate", "yard")
	b.Await(held, "held by "+r.ns+"/has, container main")
	b.Click(held)
	b.Await("#drawer", claim.Name, r.ns+"/has", "node-a", "any device of page")
	b.Press("\x1b")
	b.Click(`#waiting [data-open="pod/` + r.ns + `/waits"]`)
	b.Await("#drawer", "2 × akri.sh/page", "What would let it run", r.ns+"/has", "the scheduler: 0/2 nodes are available")
	b.Picture("waits")

	// The holder ends: the pod that waits gets both devices, and the page shows it.
	before := time.Now()
	r.delete("has")
	for _, d := range devices {
		b.Await(fmt.Sprintf(`.device[data-name=%q] [data-slot="0"]`, d.name), "held by "+r.ns+"/waits")
	}
	t.Logf("the page showed the new holder %s after the old one was deleted", time.Since(before).Round(time.Millisecond))
	b.Await("#activity", r.ns+"/has released", r.ns+"/waits has its devices")
	b.Await("#drawer .pill", "Running")
	b.AwaitTrue(fmt.Sprintf("!document.querySelector(`#waiting [data-open=%q]`)", "pod/"+r.ns+"/waits"))

	other := r.ns // whose name the subtest's begins with
	t.Run("of-one-namespace", func(t *testing.T) {
		r := newRig(t)
		const user = "page-of-one-namespace"
		r.mayOnly(user, rbacv1.PolicyRule{APIGroups: []string{"", "akri.sh"}, Resources: []string{"pods", "configurations", "instances"}, Verbs: []string{"list", "watch"}})
		r.debugEcho("own", 1, nil, "desk")
		r.create(newPod("mine", nodeA, map[string]int64{"own": 1}))
		r.awaitRunning("mine")
		b := browser.Open(t, r.ui("--as", user), 1440, 900)
		b.Await("#notices", "You may not list", "slotclaims.kubeslot.io", "pods of other namespaces")
		b.Await("#grid .slot.held, #grid .slot.assigned", "by "+r.ns+"/mine")
		if html := browser.Eval[string](b, "document.documentElement.outerHTML"); strings.Contains(html, other+"/") {
			t.Errorf("the page shows something of namespace %s", other)
		}
	})
}

// kubeslot-ui serves the page to whoever has a token, with that token's permissions.
func TestServedUI(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.debugEcho("served", 1, nil, "gate")
	r.create(newPod("has", nodeA, map[string]int64{"served": 1}))
	r.awaitRunning("has")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	r.check(err)
	address := free.Addr().String()
	free.Close()
	r.background("Serving the page", filepath.Join(shared.BinDir(), "kubeslot-ui"), "--kubeconfig="+shared.Kubeconfig(),
		"--bind-address="+address, "--cluster-name=e2e")

	b := browser.Open(t, "https://"+address+"/", 1440, 900, chromedp.IgnoreCertErrors)
	b.Await("form", "Token")
	b.Picture("login")
	token := func(user string, rules ...rbacv1.PolicyRule) string {
		t.Helper()
		meta := metav1.ObjectMeta{Name: user}
		_, err := kube.CoreV1().ServiceAccounts(r.ns).Create(r.ctx, &v1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
		r.check(err)
		_, err = kube.RbacV1().Roles(r.ns).Create(r.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		r.check(err)
		_, err = kube.RbacV1().RoleBindings(r.ns).Create(r.ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: r.ns, Name: user}}}, metav1.CreateOptions{})
		r.check(err)
		request, err := kube.CoreV1().ServiceAccounts(r.ns).CreateToken(r.ctx, user, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		r.check(err)
		return request.Status.Token
	}
	b.Do(chromedp.SendKeys(chromedp.CSS("input[name=token]"), token("viewer",
		rbacv1.PolicyRule{APIGroups: []string{"", "akri.sh"}, Resources: []string{"pods", "configurations", "instances"}, Verbs: []string{"list", "watch"}})))
	b.Click("form .primary")
	b.Await("#about", "system:serviceaccount:"+r.ns+":viewer")
	b.Await("#notices", "slotclaims.kubeslot.io")
	b.Await("#grid .slot.held, #grid .slot.assigned", "by "+r.ns+"/has")
	b.Click("#logout button")
	b.Await("form", "Token")
}

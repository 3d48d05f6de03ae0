package deploy

import (
	"os"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubeslot/kubeslot/test/permissions"
)

// permissionsOf is the API server's authorizer, for the roles and bindings of files.
func permissionsOf(t *testing.T, files ...string) authorizer.Authorizer {
	t.Helper()
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, "\n---\n"...), text...)
	}
	return permissions.Of(t, all)
}

// The controller may do what is in the table and nothing else: no Secrets, no binding of
// pods, no other webhooks, and in particular nothing by which it could get more rights.
func TestWhatTheControllerMayDo(t *testing.T) {
	may := permissionsOf(t, "rbac/controller.yaml", "rbac/controller-brokers.yaml", "rbac/controller-services.yaml")
	for _, who := range []user.Info{
		&user.DefaultInfo{Name: "system:kubeslot-controller", Groups: []string{"system:authenticated"}},
		account("kubeslot-system", "kubeslot-controller", ""),
	} {
		permissions.Only(t, may, who, permissions.Controller)
	}
	for _, who := range []user.Info{account("default", "kubeslot-controller", ""), &user.DefaultInfo{Name: "eve", Groups: []string{"system:authenticated"}}} {
		if permissions.Allows(t, may, who, "get", "pods", "default", "any") {
			t.Errorf("%s has the controller's rights", who.GetName())
		}
	}
}

// The scheduler may do what is in the tables and nothing else, besides what Kubernetes gives
// every scheduler.
func TestWhatTheSchedulerMayDo(t *testing.T) {
	scheduler := &user.DefaultInfo{Name: "system:kube-scheduler", Groups: []string{"system:authenticated"}}
	permissions.Only(t, permissionsOf(t, "rbac/kube-scheduler.yaml"), scheduler, permissions.Scheduler)
	permissions.Only(t, permissionsOf(t, "scheduler-claims/rbac.yaml"), scheduler, permissions.SchedulersClaims)
	for _, who := range []user.Info{account("kubeslot-system", "kubeslot-controller", ""), kubecri("node-a")} {
		if permissions.Allows(t, permissionsOf(t, "rbac/kube-scheduler.yaml"), who, "assign", "instances.akri.sh", "default", "any") {
			t.Errorf("%s may assign devices", who.GetName())
		}
	}
}

package configurations

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeslot/kubeslot/controller/validation"
)

// A Configuration that is wrong and was stored nevertheless says so, until it is
// corrected. Each generation is checked once, however often the status is written.
func TestInvalidConfiguration(t *testing.T) {
	r := newRig(t, configuration(false))
	r.inv.SetConfiguration(configuration(false))
	r.found.Errors = field.ErrorList{field.Forbidden(field.NewPath("spec", "x"), "unknown field")}
	problem := func() string {
		r.Helper()
		r.clock.SetTime(r.clock.Now().Add(Interval))
		for after := r.reconcile().RequeueAfter; after > 0; after = r.reconcile().RequeueAfter {
			r.clock.SetTime(r.clock.Now().Add(after))
		}
		for _, p := range r.configuration().Status.Problems {
			return p.Reason + " " + p.Message
		}
		return ""
	}
	if got := problem(); got != "InvalidConfiguration spec.x: Forbidden: unknown field" {
		t.Errorf("the problem is %q", got)
	}
	r.slice("a", 1)
	problem()
	if r.checks != 1 || len(r.writes) != 2 {
		t.Errorf("checked %d times for %d writes", r.checks, len(r.writes))
	}
	const metric = "# HELP kubeslot_controller_invalid_configurations Configurations with a field that cannot work, as their status says.\n" +
		"# TYPE kubeslot_controller_invalid_configurations gauge\nkubeslot_controller_invalid_configurations "
	if err := testutil.CollectAndCompare(r.Reconciler.Invalid(), strings.NewReader(metric+"1\n")); err != nil {
		t.Error(err)
	}

	r.found = validation.Findings{Warnings: []string{"a warning is no problem"}}
	c := r.configuration()
	c.Generation++
	if err := r.api.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := problem(); got != "" || r.checks != 2 {
		t.Errorf("corrected, the problem is %q after %d checks", got, r.checks)
	}
	if err := testutil.CollectAndCompare(r.Reconciler.Invalid(), strings.NewReader(metric+"0\n")); err != nil {
		t.Error(err)
	}
	r.found.Errors = field.ErrorList{field.Forbidden(field.NewPath("spec", "x"), "unknown field")}
	if err := r.api.Delete(t.Context(), r.configuration()); err != nil {
		t.Fatal(err)
	}
	r.reconcile()
	if len(r.checked) != 0 {
		t.Error("what is deleted is remembered")
	}
}

package ledger

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A name that nobody has is answered with the nearest Configuration's, of those that are for everybody,
// and where the comparison costs little.
func TestUnknownName(t *testing.T) {
	l := New()
	set := func(name string, allowed *akriv0.AllowedNamespaces) {
		c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		c.Spec.AllowedNamespaces = allowed
		l.SetConfiguration(c)
	}
	set("cameras", nil)
	set("cameras-b", nil)
	set("secret", &akriv0.AllowedNamespaces{})
	said := func(name string) string {
		r := []ResourceRequest{{Name: name, Count: 1}}
		_, shortfall := l.Reach(&Request{Containers: []ContainerRequest{{Name: "main", Resources: r}}}, 1)
		return shortfall.String()
	}
	const near = `but there is no Configuration or Instance "camera"; did you mean "cameras"?`
	if got := said("camera"); !strings.HasSuffix(got, near) {
		t.Errorf("%q, want %q at its end", got, near)
	}
	for _, name := range []string{"thermometer", "secrets"} {
		if got := said(name); strings.Contains(got, "mean") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for i := range maxCompared - 3 {
		set(fmt.Sprint("other-", i), nil)
	}
	if got := said("camera"); !strings.HasSuffix(got, near) {
		t.Errorf("of %d Configurations: %q", maxCompared, got)
	}
	set("one-more", nil)
	if got := said("camera"); strings.Contains(got, "mean") {
		t.Errorf("of %d Configurations: %q", maxCompared+1, got)
	}
}

func BenchmarkUnknownName(b *testing.B) {
	l := New()
	for i := range maxCompared {
		name := fmt.Sprintf("%s-%03d", strings.Repeat("configuration-", 4), i) // 60 characters
		l.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	for b.Loop() {
		l.unknown("main", ResourceRequest{Name: strings.Repeat("xonfiguration-", 4) + "-abc", Count: 1})
	}
}

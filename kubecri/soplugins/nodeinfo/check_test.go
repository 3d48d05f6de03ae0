package nodeinfo

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// Whatever a plugin says, it is refused or can be written to the node: as an annotation
// from which the scheduler reads the same, and as resources that the API server takes.
func FuzzNodeInfo(f *testing.F) {
	f.Add(`{"name":"node-a","capacity":{"resource/group/gpu/0/cards":1},"allocatable":{"resource/group/gpu/0/cards":1},"scorer":{"resource/group/gpu/0/cards":1}}`,
		"resource/group/gpu/1/cards", "resource/group/gpu/1/cards", "example.com/gpu", int64(1))
	f.Add(`{"capacity":null,"used":{"a":1}}`, "", "", "cpu", int64(-1))
	f.Add(`{"capacity":{"akri.sh/cam":1}}`, "akri.sh/cam", "a", "akri.sh/cam", int64(1))
	f.Add(`{}`, strings.Repeat("n", maxBytes), "a", "requests.example.com/gpu", int64(1)<<62)
	f.Fuzz(func(t *testing.T, text, name, scored, extended string, n int64) {
		info := types.NewNodeInfoWithName("node-a")
		_ = json.Unmarshal([]byte(text), info) // what could be read stays
		info = info.Clone()
		info.Capacity[types.ResourceName(name)] = n
		info.Scorer[types.ResourceName(scored)] = int32(n)
		info.KubeCap[types.ResourceName(extended)] = n
		got, err := Check(info.Clone())
		if err != nil {
			if got != nil {
				t.Errorf("refused, and yet %v", got)
			}
			return
		}
		for _, list := range []types.ResourceList{got.Capacity, got.Allocatable, got.KubeCap, got.KubeAlloc} {
			for name, n := range list {
				if n < 0 || strings.HasPrefix(string(name), assignment.ResourcePrefix) || !utf8.ValidString(string(name)) {
					t.Errorf("%d of %q is good", n, name)
				}
			}
		}
		if errs := validation.IsQualifiedName(extended); len(errs) > 0 || !strings.Contains(extended, "/") {
			t.Errorf("%q is a good name of an extended resource: %v", extended, errs)
		}
		annotation, err := assignment.EncodeNode(got)
		if err != nil {
			t.Fatal(err)
		}
		back, err := assignment.DecodeNode(map[string]string{assignment.Annotation: annotation})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, back, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(types.NodeInfo{}, "KubeCap", "KubeAlloc")); diff != "" {
			t.Errorf("the scheduler reads (-said +read):\n%s", diff)
		}
	})
}

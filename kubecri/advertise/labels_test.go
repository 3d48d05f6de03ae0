package advertise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

type stringMap = map[string]string

func TestLabelPatch(t *testing.T) {
	const product, count = "gpu.kubeslot.io/product", "gpu.kubeslot.io/count"
	for name, tc := range map[string]struct {
		labels    stringMap
		listed    string
		want      stringMap
		unsettled bool
		patch     string // of the metadata
		foreign   []string
	}{
		"none": {patch: `{}`},
		"new": {want: stringMap{product: "A100", count: "8"},
			patch: `{"labels":{"gpu.kubeslot.io/count":"8","gpu.kubeslot.io/product":"A100"},"annotations":{"kubeslot.io/plugin-labels":"gpu.kubeslot.io/count,gpu.kubeslot.io/product"}}`},
		"without a value": {want: stringMap{product: ""},
			patch: `{"labels":{"gpu.kubeslot.io/product":""},"annotations":{"kubeslot.io/plugin-labels":"gpu.kubeslot.io/product"}}`},
		"there already":       {labels: stringMap{product: "A100", "zone": "b"}, listed: product, want: stringMap{product: "A100"}, patch: `{}`},
		"another value":       {labels: stringMap{product: "A100"}, listed: product, want: stringMap{product: "H100"}, patch: `{"labels":{"gpu.kubeslot.io/product":"H100"}}`},
		"removed by somebody": {listed: product, want: stringMap{product: "A100"}, patch: `{"labels":{"gpu.kubeslot.io/product":"A100"}}`},
		"not wanted any more": {labels: stringMap{product: "A100", count: "8"}, listed: count + "," + product,
			want:  stringMap{count: "8"},
			patch: `{"labels":{"gpu.kubeslot.io/product":null},"annotations":{"kubeslot.io/plugin-labels":"gpu.kubeslot.io/count"}}`},
		"none wanted any more": {labels: stringMap{product: "A100", "zone": "b"}, listed: product,
			patch: `{"labels":{"gpu.kubeslot.io/product":null},"annotations":{"kubeslot.io/plugin-labels":null}}`},
		"not wanted yet": {labels: stringMap{product: "A100"}, listed: product, unsettled: true, patch: `{}`},
		"one wanted, the other not yet": {labels: stringMap{product: "A100"}, listed: product, unsettled: true,
			want:  stringMap{count: "8"},
			patch: `{"labels":{"gpu.kubeslot.io/count":"8"},"annotations":{"kubeslot.io/plugin-labels":"gpu.kubeslot.io/count,gpu.kubeslot.io/product"}}`},
		"somebody else's": {labels: stringMap{product: "by NFD"}, want: stringMap{product: "A100", count: "8"},
			foreign: []string{product},
			patch:   `{"labels":{"gpu.kubeslot.io/count":"8"},"annotations":{"kubeslot.io/plugin-labels":"gpu.kubeslot.io/count"}}`},
		"somebody else's, and the same":   {labels: stringMap{product: "A100"}, want: stringMap{product: "A100"}, foreign: []string{product}, patch: `{}`},
		"listed, gone and wanted no more": {listed: product, patch: `{"annotations":{"kubeslot.io/plugin-labels":null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: tc.labels}}
			if tc.listed != "" {
				node.Annotations = stringMap{v1alpha1.PluginLabelsAnnotation: tc.listed}
			}
			patch, foreign := labelPatch(node, tc.want, !tc.unsettled)
			got, err := json.Marshal(patch.Metadata)
			if err != nil || string(got) != tc.patch || patch.IsZero() != (tc.patch == "{}") ||
				!slices.Equal(foreign, tc.foreign) {
				t.Errorf("patch %s, foreign %v (%v)\nwant  %s, %v", got, foreign, err, tc.patch, tc.foreign)
			}
		})
	}
}

// Labels go to the Node with the rest. Where the API server takes none, the rest goes there alone.
func TestLabelsAreWritten(t *testing.T) {
	for _, refused := range []bool{false, true} {
		kube := kubefake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a",
			Labels: stringMap{"zone": "b"}}})
		var patches atomic.Int32
		kube.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			patches.Add(1)
			if patch := action.(clienttesting.PatchAction).GetPatch(); refused &&
				bytes.Contains(patch, []byte("count")) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "a", errors.New("not these labels"))
			}
			return false, nil, nil
		})
		f := start(t, kube, func(_ *nodewriter.Config, c *Config) {
			c.Devices = func() (*types.NodeInfo, bool) {
				info := types.NewNodeInfoWithName("a")
				info.KubeCap["nvidia.com/gpu"], info.KubeAlloc["nvidia.com/gpu"] = 8, 8
				return info, true
			}
			c.Labels = func() (map[string]string, bool) { return stringMap{"gpu.kubeslot.io/count": "8"}, true }
		})
		f.wantStatus(t, "nvidia.com/gpu", "8")
		if refused {
			continue
		}
		want := stringMap{"zone": "b", "gpu.kubeslot.io/count": "8"}
		await.That(t, "labels", func() error {
			n, err := kube.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
			if err == nil && (!maps.Equal(n.Labels, want) ||
				n.Annotations[v1alpha1.PluginLabelsAnnotation] != "gpu.kubeslot.io/count") {
				err = fmt.Errorf("labels %v, annotations %v", n.Labels, n.Annotations)
			}
			return err
		})
		if n := patches.Load(); n != 1 {
			t.Errorf("%d patches", n)
		}
	}
}

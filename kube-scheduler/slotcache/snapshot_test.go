package slotcache

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func nodes(names ...string) (list []fwk.NodeInfo) {
	for _, name := range names {
		info := framework.NewNodeInfo()
		info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		list = append(list, info)
	}
	return list
}

func TestSnapshotIsOfItsListAlone(t *testing.T) {
	list := nodes("a")
	if r := newSnapshot(list); !r.of(list) || r.of(nodes("a")) || r.of(append(list, nodes("b")...)) {
		t.Error("the snapshot of one list passes for that of another")
	}
}

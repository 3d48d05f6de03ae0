package main

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubeslot/kubeslot/controller/dra"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// newDRA makes what publishes devices for DRA. The manager runs the publisher.
func newDRA(
	mgr manager.Manager, w *watch.Watch, inv *inventory.Inventory, writer client.Client, kube kubernetes.Interface,
	server *dra.Server,
) (*dra.Publisher, *dra.Classes, error) {
	hasInstance := func(key types.NamespacedName) bool {
		instance, err := watch.Get(context.Background(), mgr.GetClient(), key, &akriv0.Instance{}) // of the cache
		return err == nil && instance != nil
	}
	look := w.Look(watch.Configurations)
	changed := func(configuration string) {
		if c := inv.InForce(configuration); c != nil {
			look(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
		}
	}
	publisher := dra.NewPublisher(dra.PublisherConfig{Client: kube, Inventory: inv, HasInstance: hasInstance,
		Source: w.Source(watch.ResourceSlices), Changed: changed, Clock: clock.RealClock{}})
	classes := dra.NewClasses(dra.ClassConfig{Client: writer, Live: mgr.GetAPIReader(), Inventory: inv,
		Version: server.Version, Changed: changed, Clock: clock.RealClock{}})
	return publisher, classes, mgr.Add(publisher)
}

// once has a controller called once, with no object, also when there is none.
var once = source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	q.Add(reconcile.Request{})
	return nil
})

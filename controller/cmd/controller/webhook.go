package main

import (
	"crypto/tls"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/validation"
	"github.com/kubeslot/kubeslot/controller/validation/webhook"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// hook is the webhook, which is served by all replicas. Its zero value serves nothing.
type hook struct {
	server crwebhook.Server
	keeper *webhook.Keeper
}

func newWebhook(o *options) hook {
	host, port, err := splitBindAddress(o.webhookAddress)
	if err != nil { // "0": validate has refused all else
		return hook{}
	}
	name, _ := os.Hostname() // in a pod, the pod's
	keeper := &webhook.Keeper{Clock: clock.RealClock{}, Replica: webhook.ReplicaName(name, o.webhookAddress), Duration: o.webhookDuration}
	return hook{keeper: keeper, server: crwebhook.NewServer(crwebhook.Options{
		Host: host, Port: port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS13
			c.GetCertificate = keeper.GetCertificate
		}},
	})}
}

// setup has the manager run the webhook.
func (h hook) setup(mgr manager.Manager, check *validation.Checker, inv *inventory.Inventory) error {
	if h.server == nil {
		return nil
	}
	var err error
	if h.keeper.Client, err = kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return err
	}
	// GetWebhookServer has the manager start the server that it was given.
	mgr.GetWebhookServer().Register(webhook.Path, webhook.New(&webhook.Handler{
		Checker: check,
		Owner: func(namespace, name string) *akriv0.Configuration {
			key := types.NamespacedName{Namespace: namespace, Name: name}
			if summary := inv.Summary(key); summary.IsTaken(key) {
				return summary.Owner
			}
			return nil
		},
	}))
	return mgr.Add(h.keeper)
}

package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubeslot/kubeslot/controller/dra"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/validation"
	"github.com/kubeslot/kubeslot/controller/validation/webhook"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// addWebhook has the manager serve the webhook, on all replicas.
func addWebhook(
	ctx context.Context, mgr manager.Manager, o *options, check *validation.Checker, inv *inventory.Inventory,
	server *dra.Server,
) error {
	if o.webhookAddress == "0" {
		return nil
	}
	client, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	name, _ := os.Hostname() // in a pod, the pod's
	keeper := &webhook.Keeper{Client: client, Clock: clock.RealClock{}, Replica: webhook.ReplicaName(name, o.webhookAddress), Duration: o.webhookDuration}
	handler, err := webhook.New(&webhook.Handler{
		Checker: check,
		Owner: func(namespace, name string) *akriv0.Configuration {
			key := types.NamespacedName{Namespace: namespace, Name: name}
			if summary := inv.Summary(key); summary.IsTaken(key) {
				return summary.Owner
			}
			return nil
		},
		HeldBeyond: func(namespace, name string, capacity int) (int, []string) {
			return inv.HeldBeyond(types.NamespacedName{Namespace: namespace, Name: name}, capacity)
		},
		NoDRA: func() string { return dra.TooOld(server.Version()) },
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(webhook.Path, handler)
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: keeper.GetCertificate}
	if err := addServer(ctx, mgr, serverWebhook, o.webhookAddress, mux, config); err != nil {
		return err
	}
	return mgr.Add(keeper)
}

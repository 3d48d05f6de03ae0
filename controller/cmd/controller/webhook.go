package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubeslot/kubeslot/controller/dra"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/validation"
	"github.com/kubeslot/kubeslot/controller/validation/webhook"
)

// addWebhook has the manager serve the webhook, on all replicas.
func addWebhook(
	ctx context.Context, mgr manager.Manager, o *options, check *validation.Checker, inv *inventory.Inventory,
	kube kubernetes.Interface, server *dra.Server,
) error {
	if o.webhookAddress == "0" {
		return nil
	}
	name, _ := os.Hostname() // in a pod, the pod's
	keeper := &webhook.Keeper{Client: kube, Clock: clock.RealClock{},
		Replica: webhook.ReplicaName(name, o.webhookAddress), Duration: o.webhookDuration}
	handler, err := webhook.New(&webhook.Handler{
		Checker: check, Owner: inv.TakenBy, HeldBeyond: inv.HeldBeyond, NoDRA: server.TooOld})
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

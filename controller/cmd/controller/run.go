package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubeslot/kubeslot/controller/brokers"
	"github.com/kubeslot/kubeslot/controller/claims"
	"github.com/kubeslot/kubeslot/controller/configurations"
	"github.com/kubeslot/kubeslot/controller/dra"
	"github.com/kubeslot/kubeslot/controller/instances"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/services"
	"github.com/kubeslot/kubeslot/controller/validation"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/restored"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	userAgent = "kubeslot-controller"
	// How long the first lists may take: of all pods, of a slow API server. After it
	// the process ends, to be started anew.
	syncTimeout = 10 * time.Minute
	// What fails is tried again after the first, at last after the second.
	firstRetry, lastRetry = time.Second, time.Minute
)

// run works until ctx is done, or until the process is the leader no longer.
func run(ctx context.Context, o *options) error {
	logger := klog.FromContext(ctx)
	log.SetLogger(logger)
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig %q: %w", o.kubeconfig, err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config = rest.AddUserAgent(config, userAgent)
	guard := restored.New(config)
	check, err := validation.NewChecker(o.checkedHandlers)
	if err != nil {
		return fmt.Errorf("--checked-discovery-handlers: %w", err)
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:                        newScheme(),
		Logger:                        logger,
		Cache:                         watch.CacheOptions(),
		LeaderElection:                o.leaderElect,
		LeaderElectionNamespace:       o.leaseNamespace,
		LeaderElectionID:              o.leaseName,
		LeaderElectionReleaseOnCancel: true, // run's caller ends the process
		LeaseDuration:                 &o.leaseDuration,
		RenewDeadline:                 &o.renewDeadline,
		RetryPeriod:                   &o.retryPeriod,
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // see addServer
		HealthProbeBindAddress:        "0",
	})
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	inv := inventory.New()
	server := &dra.Server{Ask: kube.Discovery().ServerVersion, Clock: clock.RealClock{}}
	if err := addWebhook(ctx, mgr, o, check, inv, kube, server); err != nil {
		return fmt.Errorf("--webhook-bind-address: %w", err)
	}
	if err := addMetrics(ctx, mgr, kube, o.metricsAddress); err != nil {
		return fmt.Errorf("--metrics-bind-address: %w", err)
	}
	if err := setup(ctx, mgr, o, inv, check, guard, kube, server); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(kubescheme.AddToScheme(scheme))
	utilruntime.Must(akriv0.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// setup gives the manager its controllers.
func setup(
	ctx context.Context, mgr manager.Manager, o *options, inv *inventory.Inventory, check *validation.Checker,
	guard *restored.Guard, kube kubernetes.Interface, server *dra.Server,
) error {
	made, err := watch.NewMade(mgr)
	if err != nil {
		return err
	}
	// An index has its kind watched, for which a part that is off has no permission.
	kinds := []client.Object{&corev1.Pod{}}
	if o.brokers {
		kinds = append(kinds, &batchv1.Job{})
	}
	if o.services {
		kinds = append(kinds, &corev1.Service{})
	}
	for _, kind := range kinds {
		if err := made.Index(ctx, kind); err != nil {
			return err
		}
	}
	recorder, writer := mgr.GetEventRecorder(userAgent), client.WithFieldOwner(mgr.GetClient(), userAgent)
	claimReconciler := claims.New(claims.Config{
		Client: writer, Live: mgr.GetAPIReader(), Inventory: inv,
		Recorder: recorder, Clock: clock.RealClock{}, Grace: o.claimGrace,
	})
	w := watch.New(mgr.GetCache(), made, inv, claimReconciler.Forget)
	if err := mgr.Add(w.Feed(guard, kube.Discovery().RESTClient())); err != nil {
		return err
	}
	broker := brokers.New(brokers.Config{
		Client: writer, Made: made, Live: mgr.GetAPIReader(), Inventory: inv,
		Recorder: recorder, Clock: clock.RealClock{}, SchedulerName: o.schedulerName, PriorityClass: o.priorityClass,
		Changed: w.BrokersChanged, Wake: w.Look(watch.Brokers),
	})
	viewed := instances.New(writer, inv, clock.RealClock{}, w.Look(watch.Instances), w.Look(watch.Configurations))
	forServices := services.Config{Client: writer, Made: made, Live: mgr.GetAPIReader(), Inventory: inv,
		Instances: viewed.Sum, Brokers: broker, Recorder: recorder, Clock: clock.RealClock{}}
	publisher, classes, err := newDRA(mgr, w, inv, writer, kube, server)
	if err != nil {
		return err
	}
	config := configurations.Config{
		Client: writer, Live: mgr.GetAPIReader(), Inventory: inv, Instances: viewed.Sum, Brokers: broker.Sum,
		DRA: []func(string) string{
			func(string) string { return server.TooOld() }, classes.Problem, publisher.Problem,
		},
		Check: check.Check, Clock: clock.RealClock{},
		Disabled: configurations.Disabled{Brokers: !o.brokers, Services: !o.services},
	}
	if o.withoutScheduler {
		config.Allocator = (&dra.Handover{Live: mgr.GetAPIReader(), Inventory: inv}).Status
	}
	statuses := configurations.New(config)
	for _, c := range []struct {
		name       string
		reconciler reconcile.Reconciler
		source     watch.Source
		enabled    bool
	}{
		{"instances", viewed, watch.Instances, true},
		{"claims", claimReconciler, watch.Claims, true},
		{"brokers", broker, watch.Brokers, o.brokers},
		{"instance-services", services.OfInstances(forServices), watch.InstanceServices, o.services},
		{"configurations", statuses, watch.Configurations, true},
		{"configuration-services", services.OfConfigurations(forServices), watch.ConfigurationServices, o.services},
		{"device-classes", classes, watch.DeviceClasses, true},
	} {
		if !c.enabled {
			continue
		}
		from := []source.Source{w.Source(c.source)}
		if c.source == watch.DeviceClasses {
			from = append(from, once)
		}
		if err := add(mgr, o, c.name, c.reconciler, from...); err != nil {
			return err
		}
	}
	for _, c := range []prometheus.Collector{
		configurations.Counts(inv), brokers.PodCount(made), statuses.Invalid(),
		viewed.Withheld(), broker.Withheld(),
	} {
		if err := metrics.Registry.Register(c); err != nil {
			return err
		}
	}
	live := map[string]healthz.Checker{"ping": healthz.Ping}
	ready := map[string]healthz.Checker{"caches": func(*http.Request) error { return w.Synced() }}
	if err := addServer(ctx, mgr, serverHealth, o.healthAddress, healthHandler(live, ready), nil); err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	return nil
}

// add makes a controller. It starts its sources when this process leads: the queue of one that does not would grow
// with each name that there ever was.
func add(mgr manager.Manager, o *options, name string, r reconcile.Reconciler, from ...source.Source) error {
	c, err := controller.New(name, mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: o.workers,
		CacheSyncTimeout:        syncTimeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	})
	if err != nil {
		return err
	}
	for _, one := range from {
		if err := c.Watch(one); err != nil {
			return err
		}
	}
	return nil
}

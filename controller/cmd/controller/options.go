package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubeslot/kubeslot/controller/validation"
)

// options are the command line.
type options struct {
	kubeconfig string
	qps        float32
	burst      int

	leaderElect                               bool
	leaseNamespace, leaseName                 string
	leaseDuration, renewDeadline, retryPeriod time.Duration

	workers          int
	claimGrace       time.Duration
	schedulerName    string
	priorityClass    string
	brokers          bool
	services         bool
	withoutScheduler bool

	metricsAddress, healthAddress string

	webhookAddress  string
	webhookDuration time.Duration
	checkedHandlers []string
}

// flags returns the flags in the groups that --help shows.
func (o *options) flags() cliflag.NamedFlagSets {
	var groups cliflag.NamedFlagSets
	cluster := groups.FlagSet("cluster")
	cluster.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Kubeconfig of the controller's own identity. Empty means that of the pod it runs in.")
	// API priority and fairness bounds how many requests are worked on at once, and so do our workers, of
	// which each has one: 56 by default, where the API server has some 245 seats for all ServiceAccounts.
	// With a rate of 200 a second 50,000 brokers took 250 s at least, however idle the API server was.
	cluster.Float32Var(&o.qps, "kube-api-qps", -1,
		"Requests a second to the API server. -1 sets no limit: "+
			"API priority and fairness bounds them, and --concurrent-syncs.")
	cluster.IntVar(&o.burst, "kube-api-burst", 400,
		"Requests to the API server at once, where --kube-api-qps sets a limit.")
	election := groups.FlagSet("leader election")
	election.BoolVar(&o.leaderElect, "leader-elect", true,
		"Work only as the leader, which a Lease elects. Without it run one controller alone.")
	election.StringVar(&o.leaseNamespace, "leader-elect-resource-namespace", "kube-system",
		"Namespace of the Lease.")
	election.StringVar(&o.leaseName, "leader-elect-resource-name", "kubeslot-controller",
		"Name of the Lease.")
	election.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"How long others wait before they replace a leader that does not renew the Lease.")
	election.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"How long the leader tries to renew the Lease before it ends.")
	election.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second,
		"Time between two tries to get or renew the Lease.")
	work := groups.FlagSet("work")
	work.IntVar(&o.workers, "concurrent-syncs", 8,
		"How many objects are worked on at once, of each kind: Instances, SlotClaims, brokers, Services of Instances, "+
			"Services of Configurations, and Configurations.")
	work.DurationVar(&o.claimGrace, "claim-grace", 5*time.Second,
		"How long a SlotClaim is left alone that does not count, because its node does not see the device or the capacity is smaller, and that no pod was assigned.")
	work.StringVar(&o.schedulerName, "broker-scheduler-name", "",
		"Scheduler of brokers whose spec has no schedulerName. Empty means the cluster's default. Existing brokers are not changed.")
	work.StringVar(&o.priorityClass, "broker-priority-class", "",
		"PriorityClass of brokers whose spec says nothing of their priority: it has to exist. Empty means the cluster's default. Existing brokers are not changed.")
	work.BoolVar(&o.brokers, "enable-brokers", true,
		"Run the brokers that Configurations ask for. false needs no permissions to write pods and Jobs; "+
			"existing brokers are left as they are.")
	work.BoolVar(&o.services, "enable-services", true,
		"Make the Services that Configurations ask for. false needs no permissions for Services; "+
			"existing ones are left as they are.")
	work.BoolVar(&o.withoutScheduler, "without-scheduler", false,
		"No kube-scheduler of Kubeslot runs in the cluster, and all nodes are in device-plugin mode: write in its "+
			"place who gives a Configuration's devices when its spec.allocator changes.")
	checks := groups.FlagSet("validation")
	checks.StringVar(&o.webhookAddress, "webhook-bind-address", "127.0.0.1:10362",
		"Where to serve the webhook that refuses wrong Configurations, over HTTPS: where the ValidatingWebhookConfiguration kubeslot-configurations leads. \"0\" serves nothing.")
	checks.DurationVar(&o.webhookDuration, "webhook-certificate-duration", 30*24*time.Hour,
		"How long the webhook's certificate is valid, at least 1m. The controller makes it and renews it when a third is left.")
	checks.StringSliceVar(&o.checkedHandlers, "checked-discovery-handlers", validation.Handlers(),
		"Discovery handlers whose discoveryDetails are checked. Take out those that you have another handler for under the same name.")
	operations := groups.FlagSet("operations")
	operations.StringVar(&o.metricsAddress, "metrics-bind-address", "127.0.0.1:10360",
		"Where to serve /metrics: on the loopback over HTTP and to whoever can connect, elsewhere over HTTPS and to those whom the API server allows to get it. \"0\" serves nothing.")
	operations.StringVar(&o.healthAddress, "health-probe-bind-address", "127.0.0.1:10361",
		"Where to serve /healthz and /readyz. \"0\" serves nothing.")
	return groups
}

// validate checks everything that can be checked before anything is started.
func (o *options) validate() error {
	var errs []error
	bad := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	if o.kubeconfig != "" {
		_, err := os.Stat(o.kubeconfig)
		bad("kubeconfig", err)
	}
	if o.qps <= 0 && o.qps != -1 { // client-go takes 0 for 5
		bad("kube-api-qps", fmt.Errorf("%v: want more than 0, or -1 for no limit", o.qps))
	}
	if o.burst <= 0 {
		bad("kube-api-burst", fmt.Errorf("%d: want more than 0", o.burst))
	}
	if o.workers <= 0 {
		bad("concurrent-syncs", fmt.Errorf("%d: want more than 0", o.workers))
	}
	if o.claimGrace < 0 {
		bad("claim-grace", fmt.Errorf("%s is negative", o.claimGrace))
	}
	name := func(flag, value string, check func(string) []string) {
		for _, problem := range check(value) {
			bad(flag, fmt.Errorf("%q: %s", value, problem))
		}
	}
	if o.schedulerName != "" {
		name("broker-scheduler-name", o.schedulerName, utilvalidation.IsDNS1123Subdomain)
	}
	if o.priorityClass != "" {
		name("broker-priority-class", o.priorityClass, utilvalidation.IsDNS1123Subdomain)
	}
	if o.leaderElect {
		name("leader-elect-resource-namespace", o.leaseNamespace, utilvalidation.IsDNS1123Label)
		name("leader-elect-resource-name", o.leaseName, utilvalidation.IsDNS1123Subdomain)
		// As client-go's leader election has it, which would end the process only later.
		if o.leaseDuration <= o.renewDeadline || o.renewDeadline <= o.retryPeriod*12/10 || o.retryPeriod <= 0 {
			errs = append(errs, fmt.Errorf("--leader-elect-lease-duration %s, --leader-elect-renew-deadline %s, --leader-elect-retry-period %s: "+
				"want each longer than the next, the second by more than a fifth", o.leaseDuration, o.renewDeadline, o.retryPeriod))
		}
	}
	bad("webhook-bind-address", checkNumberedPort(o.webhookAddress))
	if o.webhookDuration < time.Minute {
		bad("webhook-certificate-duration", fmt.Errorf("%s: want at least 1m", o.webhookDuration))
	}
	_, err := validation.NewChecker(o.checkedHandlers)
	bad("checked-discovery-handlers", err)
	bad("metrics-bind-address", checkBindAddress(o.metricsAddress))
	bad("health-probe-bind-address", checkBindAddress(o.healthAddress))
	return errors.Join(errs...)
}

// checkBindAddress takes host:port, and "0" for none.
func checkBindAddress(address string) error {
	if address == "0" {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf(`%w: want host:port, :port, or "0" for none`, err)
	}
	return nil
}

// checkNumberedPort takes host:port, whose port is a number, and "0" for none.
func checkNumberedPort(address string) error {
	if err := checkBindAddress(address); err != nil || address == "0" {
		return err
	}
	_, port, _ := net.SplitHostPort(address)
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("port %q: want a number of 1 to 65535", port)
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// newCommand is upstream's app.NewSchedulerCommand, which does not let its scheduler be seen:
// lead is called once, when the scheduler begins to schedule because it leads. While ready returns
// an error, /readyz fails with it. addFlags adds flags to upstream's, in sections of their own.
func newCommand(lead func(), ready func() error, addFlags func(*cliflag.NamedFlagSets),
	plugins ...app.Option) *cobra.Command {
	upstream, opts := app.NewSchedulerCommand(), options.NewOptions()
	cmd := &cobra.Command{
		Use:               upstream.Use,
		Long:              upstream.Long,
		Args:              upstream.Args,
		PersistentPreRunE: func(*cobra.Command, []string) error { return opts.ComponentGlobalsRegistry.Set() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() {
				<-server.SetupSignalHandler()
				cancel()
			}()
			return run(ctx, cmd, opts, lead, ready, plugins)
		},
	}
	sections := opts.Flags
	verflag.AddFlags(sections.FlagSet("global"))
	globalflag.AddGlobalFlags(sections.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	addFlags(sections)
	for _, fs := range sections.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *sections, columns)
	if err := cmd.MarkFlagFilename("config", "yaml", "yml", "json"); err != nil {
		klog.Background().Error(err, "Failed to mark flag filename")
	}
	return cmd
}

// run is upstream's runCommand, with the call of lead, and ready.
func run(ctx context.Context, cmd *cobra.Command, opts *options.Options, lead func(), ready func() error,
	plugins []app.Option) error {
	verflag.PrintAndExitIfRequested()
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cliflag.PrintFlags(cmd.Flags())
	var err error
	if opts.InformerName, err = cache.NewInformerName("kube-scheduler"); err != nil { // for metrics
		return err
	}
	cc, sched, err := app.Setup(ctx, opts, plugins...)
	if err != nil {
		return err
	}
	gates.(featuregate.MutableFeatureGate).AddMetrics()
	opts.ComponentGlobalsRegistry.AddMetrics()
	onFirstPod(sched, lead)
	if cc.Authorization.Authorizer != nil { // else nothing is served
		cc.Authorization.Authorizer = readiness{cc.Authorization.Authorizer, ready}
	}
	return app.Run(ctx, cc, sched)
}

// onFirstPod has lead called when the scheduler asks its queue for the first pod, which may be
// long before there is one. A scheduler that does not lead does not ask.
func onFirstPod(sched *scheduler.Scheduler, lead func()) {
	next, once := sched.NextEntity, sync.OnceFunc(lead)
	sched.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		once()
		return next(logger)
	}
}

// readiness has /readyz fail. app.Run makes the handler and its list of checks by itself, and lets
// only what stands before them be chosen: the error of an authorizer is answered with status 500, as
// that of a check is. Nothing else sees it: leader election goes on.
type readiness struct {
	authorizer.Authorizer
	ready func() error
}

func (r readiness) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := r.Authorizer.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow && a.GetPath() == "/readyz" {
		if err := r.ready(); err != nil {
			return authorizer.DecisionNoOpinion, "", err
		}
	}
	return decision, reason, err
}

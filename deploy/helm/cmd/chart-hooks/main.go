// Command chart-hooks is what the chart runs in its hooks: `test` in the pod of `helm test`,
// `uninstall` after `helm uninstall`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/deploy/helm/uninstall"
	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chart-hooks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args, env []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "test":
			return test(args[1:], env, out)
		case "uninstall":
			return clean(ctx, args[1:], out)
		}
	}
	return errors.New("which? chart-hooks test|uninstall")
}

// test looks for a device in its container's environment.
func test(args, env []string, out io.Writer) error {
	flags := flag.NewFlagSet("chart-hooks test", flag.ContinueOnError)
	variable := flags.String("variable", "", "variable of a device, without the suffix that tells devices apart")
	value := flags.String("value", "", "what it has to be")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, e := range env {
		name, is, _ := strings.Cut(e, "=")
		if (name == *variable || strings.HasPrefix(name, *variable+"_")) && is == *value {
			fmt.Fprintf(out, "This container has its device: %s\n", e)
			return nil
		}
	}
	return fmt.Errorf("this container runs without its device: no variable %s is %q. Does kubecri run on the node, and does the runtime ask it? See docs/troubleshooting.md", *variable, *value)
}

func clean(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("chart-hooks uninstall", flag.ContinueOnError)
	c := uninstall.Config{Parallel: 128, Interval: 500 * time.Millisecond, Out: out}
	flags.StringVar(&c.Release, "release", "", "the release that goes")
	flags.StringVar(&c.Namespace, "namespace", "", "its namespace")
	file := flags.String("pod", "", "file with the pod to run on each node that had kubecri, which its affinity "+
		"selects; nodes stay as they are without one")
	timeout := flags.Duration("timeout", 4*time.Minute, "how long to wait for pods")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if c.Release == "" || c.Namespace == "" {
		return errors.New("--release and --namespace are needed")
	}
	if *timeout <= 0 {
		return fmt.Errorf("--timeout %s: want more than 0s", *timeout)
	}
	if *file != "" {
		text, err := os.ReadFile(*file)
		if err != nil {
			return fmt.Errorf("--pod: %w", err)
		}
		c.Pod = &corev1.Pod{}
		if err := yaml.UnmarshalStrict(text, c.Pod); err != nil {
			return fmt.Errorf("--pod %s: %w", *file, err)
		}
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.Client, err = versioned.NewForConfig(config); err != nil {
		return err
	}
	c.CleanNode = func(ctx context.Context, node string) ([]string, error) {
		return cleanup.Node(ctx, c.Kube, c.Client, node)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	return uninstall.Run(ctx, c)
}

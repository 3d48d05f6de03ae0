// Command cluster brings a real Kubernetes cluster up on this machine, takes it
// down without a trace, tells how it fares, and plugs devices into its nodes. See
// package cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kubeslot/kubeslot/test/cluster"
)

const usage = `usage: cluster up|down|status [flags]
       cluster plug|unplug [flags] NODE INTERFACE
       cluster load [flags] DIRECTORY...

  up       bring the cluster up, ready for pods
  down     take it away: processes, mounts, namespaces, cgroups; logs stay
  status   list its processes and nodes, and how to use it
  plug     plug a device into a node: a macvtap interface, a character device that
           only this node has in /sys
  unplug   take it out again
  load     build .so plugins, of the directories of their packages main, and restart what
           loads them: the scheduler, and kubecri on each node

`

// statusTimeout bounds a status whose API server does not answer.
const statusTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "cluster:", err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var cfg cluster.Config
	var nodes, nri, devicePlugin, buildFlags string
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.StringVar(&cfg.Name, "name", "", `name of the cluster (default "default")`)
	flags.StringVar(&cfg.StateDir, "state-dir", "", "directory that holds everything of it (default /var/tmp/kubeslot/<name>)")
	flags.StringVar(&nodes, "nodes", strings.Join(cluster.DefaultNodes, ","), "up: the nodes' names")
	flags.BoolVar(&cfg.Stock, "stock", false, "up: upstream's kube-scheduler, kubelets straight at containerd, nothing of deploy/")
	flags.StringVar(&nri, "nri", "", "up: nodes whose kubecri is a plugin of containerd, of --nodes")
	flags.StringVar(&devicePlugin, "device-plugin", "", "up: nodes whose kubecri gives out slots by device plugins of the kubelet, of --nodes")
	flags.BoolVar(&cfg.StockScheduler, "stock-scheduler", false, "up: upstream's kube-scheduler in place of ours")
	flags.StringVar(&buildFlags, "build-flags", "", "up: further flags of go build for our programs, e.g. -race")
	flags.BoolVar(&cfg.Keep, "keep", false, "up: leave a cluster that failed to come up as it is")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		flags.Usage()
		return flag.ErrHelp
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	plugs := args[0] == "plug" || args[0] == "unplug"
	if plugs && flags.NArg() != 2 {
		return fmt.Errorf("%s wants a node and the name of an interface, got %q", args[0], flags.Args())
	}
	if args[0] == "load" && flags.NArg() == 0 {
		return errors.New("load wants the directories of plugins, such as plugins/example/scheduler")
	}
	if !plugs && args[0] != "load" && flags.NArg() > 0 {
		return fmt.Errorf("unexpected arguments %q", flags.Args())
	}
	cfg.Nodes = strings.Split(nodes, ",")
	if nri != "" {
		cfg.NRI = strings.Split(nri, ",")
	}
	if devicePlugin != "" {
		cfg.DevicePlugin = strings.Split(devicePlugin, ",")
	}
	cfg.BuildFlags = strings.Fields(buildFlags)

	switch args[0] {
	case "up":
		c, err := cluster.Up(ctx, cfg)
		if err != nil {
			return err
		}
		return status(ctx, c)
	case "down":
		if err := cluster.Down(ctx, cfg); err != nil {
			return err
		}
		fmt.Println("the cluster is down")
		return nil
	case "status":
		c, err := cluster.Attach(cfg)
		if err != nil {
			return err
		}
		return status(ctx, c)
	case "load":
		return load(ctx, cfg, flags.Args())
	case "plug", "unplug":
		return plug(cfg, args[0] == "plug", flags.Arg(0), flags.Arg(1))
	default:
		flags.Usage()
		return fmt.Errorf("no such command: %s", args[0])
	}
}

func load(ctx context.Context, cfg cluster.Config, folders []string) error {
	c, err := cluster.Attach(cfg)
	if err != nil {
		return err
	}
	files, err := c.LoadPlugins(ctx, c.Config().Nodes, folders...)
	for _, file := range files {
		fmt.Println(file)
	}
	return err
}

func plug(cfg cluster.Config, in bool, node, name string) error {
	c, err := cluster.Attach(cfg)
	if err != nil {
		return err
	}
	if !in {
		return c.RemoveMacvtap(node, name)
	}
	tap, err := c.AddMacvtap(node, name)
	if err != nil {
		return err
	}
	fmt.Println(tap.Device, tap.DevPath)
	return nil
}

func status(ctx context.Context, c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return c.Status(ctx, os.Stdout)
}

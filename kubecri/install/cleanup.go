package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/kubeslot/kubeslot/kubecri/connection"
	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

const cleanupDescription = `cleanup removes what kubecri leaves on a node that it is taken away from. On the host:
CDI specs, sockets and what else kubecri wrote, and the directories if they are empty
then. Files of others in --state-dir stay, and are named. In the API, of this node:
akri.sh resources and those of device plugins in node.status, kubecri's annotations,
DeviceSlices and SlotClaims.

kubecri must not run here any more. Containers that run are not touched, and cleanup does
not look for them: the slots that it names are free for others then. It may be run again,
and exits with 0 when nothing is left, and with 1 otherwise.`

// newCleanupCommand makes `kubecri cleanup`.
func newCleanupCommand(code *int) *cobra.Command {
	var (
		paths            cleanup.Paths
		node, kubeconfig string
		yes, noAPI       bool
		timeout          time.Duration
	)
	run := func(ctx context.Context, cmd *cobra.Command) error {
		out := cmd.OutOrStdout()
		if err := checkTimeout(timeout); err != nil {
			return err
		}
		if node == "" {
			var err error
			if node, err = nodeutil.GetHostname(""); err != nil {
				return err
			}
		}
		if err := paths.Check(); err != nil {
			return fmt.Errorf("nothing was removed: %w", err)
		}
		var api *connection.Clients
		if !noAPI {
			var err error
			if api, err = connection.NewClients(kubeconfig); err != nil {
				return fmt.Errorf("nothing was removed: %w", err)
			}
		}
		fmt.Fprintf(out, "Removing what kubecri left on node %s: its files in %s\n", node,
			strings.Join([]string{filepath.Join("/", paths.Root, paths.StateDir), paths.CDIDir,
				paths.HandlersDir,
				paths.KubeletDir, filepath.Dir(paths.Listen)}, ", "))
		if api != nil {
			if claimed := cleanup.Claimed(ctx, api.Client, node); claimed != "" {
				fmt.Fprintln(out, "Note:", claimed)
			}
		}
		if !yes {
			if ok, err := confirm(cmd.InOrStdin(), out); err != nil || !ok {
				return err
			}
		}
		removed, stays, err := cleanup.Files(paths)
		if !noAPI {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			more, failed := cleanup.Node(ctx, api.Kube, api.Client, node)
			removed, err = append(removed, more...), errors.Join(err, failed)
		}
		printRemoved(out, removed, stays...)
		if err != nil {
			return fmt.Errorf("not all is gone: %w", err)
		}
		fmt.Fprintln(out, "nothing left")
		return nil
	}
	cmd := command(code, "cleanup", "Remove what a kubecri that is gone left on this node", cleanupDescription, run)
	flags := cmd.Flags()
	flags.StringVar(&node, "node-name", "", "Name of the Node object. (default the host's name)")
	flags.StringVar(&kubeconfig, "kubeconfig", "",
		"Kubeconfig with the permissions to clean up. Empty means that of the pod it runs in.")
	flags.StringVar(&paths.Root, "host-root", "", "Where the host's root directory is mounted, in a container.")
	flags.StringVar(&paths.StateDir, "state-dir", "/var/lib/kubecri",
		"Directory of kubecri's own files. Empty for none.")
	flags.StringVar(&paths.CDIDir, "cdi-dir", "/var/run/cdi", "Directory of CDI specs. Empty for none.")
	flags.StringVar(&paths.HandlersDir, "discovery-handlers-directory", pb.DefaultDirectory,
		"Directory of discovery handlers' sockets. Empty for none.")
	flags.StringVar(&paths.KubeletDir, "kubelet-directory", "/var/lib/kubelet",
		"The kubelet's directory, with sockets of kubecri's DRA driver and device plugins. Empty for none.")
	flags.StringVar(&paths.Listen, "listen", "/run/kubecri/kubecri.sock",
		"Socket that the kubelet used. Empty for none.")
	flags.StringSliceVar(&paths.Empty, "empty-directories", nil, "Further directories that go if they are empty.")
	flags.BoolVar(&noAPI, "files-only", false, "Leave the API as it is.")
	flags.BoolVarP(&yes, "yes", "y", false, "Do not ask.")
	flags.DurationVar(&timeout, "timeout", 8*time.Minute,
		"How long the API may take: five minutes after device-plugin mode, until the kubelet has forgotten the device "+
			"plugins.")
	return cmd
}

// printRemoved says what was removed, and which files stay.
func printRemoved(out io.Writer, removed []string, stays ...string) {
	for _, what := range removed {
		fmt.Fprintf(out, "  removed %s\n", what)
	}
	for _, what := range stays {
		fmt.Fprintf(out, "  kept %s: kubecri did not write it\n", what)
	}
}

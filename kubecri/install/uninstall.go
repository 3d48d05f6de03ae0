package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/kubeslot/kubeslot/kubecri/connection"
	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/kubecri/install/cleanup"
	"github.com/kubeslot/kubeslot/kubecri/install/hostinstall"
	"github.com/kubeslot/kubeslot/types/assignment"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

const uninstallDescription = `uninstall has the kubelet use the runtime again, as it did before install, and takes
kubecri away: its unit, its environment file, its program, and what it wrote on the
host and in the API, as kubecri cleanup does. Kubeconfigs stay.

It prints what it will change, and asks. When the kubelet does not come back healthy
within --timeout, it is pointed at kubecri again, which goes on.

Running pods go on, with their devices, and their slots are free for pods of other nodes:
both may use a device at once. A container of theirs that starts again gets none. Drain
the node first. The slots and their pods are in what it prints.`

// newUninstallCommand makes `kubecri uninstall`.
func newUninstallCommand(code *int) *cobra.Command {
	o := &installOptions{}
	cmd := command(code, "uninstall", "Take kubecri away from this host again", uninstallDescription, o.uninstall)
	o.addCommon(cmd.Flags())
	return cmd
}

func (o *installOptions) uninstall(ctx context.Context, cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	host, err := o.look(ctx)
	if err != nil {
		return err
	}
	plan, err := hostinstall.Uninstall(host, o.want.RuntimeEndpoint)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	env, name := plan.Environment, plan.Environment["NODE_NAME"]
	if name == "" {
		if name, err = nodeutil.GetHostname(host.Kubelet.Args.HostnameOverride); err != nil {
			return err
		}
	}
	paths := leftByKubecri(env, plan.Listen)
	if err := paths.Check(); err != nil && !errors.Is(err, cleanup.ErrRuns) {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	plan.Notes = append(plan.Notes, fmt.Sprintf("then what kubecri wrote of node %s in the API, and its files in %s, "+
		"%s, %s and %s, are removed; and last %s, which says where they are", name, paths.StateDir,
		paths.CDIDir, paths.HandlersDir, paths.KubeletDir, hostinstall.EnvFile))
	health := hostinstall.Health{Node: name}
	api, unreachable := connection.NewClients(env["KUBECONFIG"])
	if unreachable == nil {
		var ready bool
		if ready, unreachable = nodeReady(ctx, api.Kube, name); ready {
			health.Kube = api.Kube
		}
	}
	if unreachable == nil {
		plan.Notes = append(plan.Notes, podsWithDevices(ctx, api.Kube, name)...)
		if claimed := cleanup.Claimed(ctx, api.Client, name); claimed != "" {
			plan.Notes = append(plan.Notes, claimed)
		}
	} else {
		plan.Notes = append(plan.Notes, fmt.Sprintf("the API server cannot be asked (%v): what kubecri wrote there stays", unreachable))
	}
	hostinstall.Print(out, plan)
	if ok, err := o.proceed(cmd); err != nil || !ok {
		return err
	}
	if err := o.apply(ctx, out, plan, health); err != nil {
		return err
	}
	removed, stays, err := cleanup.Files(paths)
	printRemoved(out, removed, stays...)
	if err != nil {
		return fmt.Errorf("kubecri is uninstalled, but not all of its files are gone: %w. Run this again", err)
	}
	if unreachable == nil {
		removed, err = cleanup.Node(ctx, api.Kube, api.Client, name)
		printRemoved(out, removed)
		unreachable = err
	}
	if unreachable != nil {
		return fmt.Errorf("kubecri is uninstalled, but what it wrote of node %s in the API is not all gone: %w. Run `kubecri cleanup --node-name=%s --kubeconfig=…` where the API server can be reached", name, unreachable, name)
	}
	if err := hostinstall.Forget(); err != nil {
		return err
	}
	fmt.Fprintln(out, "kubecri is uninstalled, and nothing of it is left.")
	return nil
}

// nodeReady is false also for a node that was deleted: its kubelet makes it anew when it restarts.
func nodeReady(ctx context.Context, kube kubernetes.Interface, name string) (bool, error) {
	node, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && v1alpha1.Ready(node), err
}

// leftByKubecri says where the kubecri of the environment file has its files.
func leftByKubecri(env map[string]string, listen string) cleanup.Paths {
	args := strings.Fields(env["KUBECRI_ARGS"])
	plugins := filepath.Dir(registration.DevicesDirectory)
	return cleanup.Paths{
		StateDir:    cmp.Or(env["STATE_DIR"], "/var/lib/kubecri"),
		CDIDir:      cmp.Or(env["CDI_DIR"], "/var/run/cdi"),
		HandlersDir: argument(args, "discovery-handlers-directory", pb.DefaultDirectory),
		KubeletDir:  filepath.Dir(argument(args, "kubelet-device-plugin-dir", "/var/lib/kubelet/device-plugins")),
		Listen:      strings.TrimPrefix(listen, "unix://"),
		Empty: []string{registration.DevicesDirectory, plugins, filepath.Dir(plugins), // the unit makes them
			"/run/kubecri", "/var/lib/kubecri"},
	}
}

// argument returns the value of a flag among the arguments.
func argument(args []string, name, otherwise string) string {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			otherwise = value
		} else if arg == "--"+name && i+1 < len(args) {
			otherwise = args[i+1]
		}
	}
	return otherwise
}

// podsWithDevices names those of the node, of which the reader should know.
func podsWithDevices(ctx context.Context, kube kubernetes.Interface, node string) []string {
	pods, err := podsOf(ctx, kube, node)
	if err != nil {
		return []string{fmt.Sprintf("the pods of node %s cannot be listed: %v", node, err)}
	}
	var names []string
	for _, p := range pods {
		if p.Annotations[assignment.HolderAnnotation] == string(p.UID) && p.UID != "" && !informers.PodEnded(&p) {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d pods here were assigned devices, and run on with them: %s. A container of theirs that starts again gets none", len(names), strings.Join(names, ", "))}
}

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/assignment"
)

func (o *options) node() *cobra.Command {
	cmd := &cobra.Command{
		Use: "node NODE...", Aliases: []string{"nodes", "no"},
		Short: "A node: the devices that it reaches and advertises, and the slots of its pods",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the nodes: `kubectl get nodes` lists them")
			}
			return nil
		},
	}
	o.printFlags(cmd)
	cmd.ValidArgsFunction = o.complete(source.Nodes)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		v, err := o.read(cmd.Context(), source.Wanted{Kubecri: args})
		if err != nil {
			return err
		}
		var nodes []view.Node
		for _, name := range args {
			node, found := v.Node(name)
			if !found {
				return fmt.Errorf("there is no node %s that you can see%s", name,
					o.meant(cmd.Context(), name, source.Nodes))
			}
			nodes = append(nodes, node)
		}
		return describe(o, "Node", nodes, func(w io.Writer, n *view.Node) { describeNode(w, n, o.now()) })
	}
	return cmd
}

// describePods describes the pods of the names in the namespace.
func (o *options) describePods(ctx context.Context, s *selection, names []string) error {
	if s.watch || s.only || s.all || s.selector != "" {
		return errors.New("--watch, --all-namespaces and --selector are for `pod` without a name; `kubectl kubeslot top` follows one")
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	from, err := o.source()
	if err != nil {
		return err
	}
	v, err := o.read(ctx, source.Wanted{Of: namespace, Names: names})
	if err != nil {
		return err
	}
	var pods []view.Pod
	for _, name := range names {
		events, err := from.Events(ctx, namespace, name)
		if err != nil {
			return err
		}
		pod, found := v.Pod(namespace, name, events...)
		if !found {
			if err := o.noNamespace(ctx); err != nil {
				return err
			}
			why := v.Gone(events)
			if why == "" {
				why = o.meant(ctx, name, source.Pods)
			}
			return fmt.Errorf("there is no pod %s in namespace %s that you can see%s", name, namespace, why)
		}
		pods = append(pods, pod)
	}
	return describe(o, "Pod", pods, func(w io.Writer, p *view.Pod) { describePod(w, p, o.now()) })
}

// maxHolders is how many slots of others a description shows of one condition.
const maxHolders = 10

func describePod(w io.Writer, p *view.Pod, now time.Time) {
	where := "no node yet"
	if p.Node != "" {
		where = "node " + p.Node
	}
	for_ := ""
	if !p.Since.IsZero() {
		for_ = " for " + since(p.Since, now)
	}
	fmt.Fprintf(w, "Pod %s/%s: %s%s, %s\n", p.Namespace, p.Name, p.State, for_, where)
	if len(p.Requests) > 0 {
		var texts []string
		for _, r := range p.Requests {
			texts = append(texts, fmt.Sprintf("%d of %s for container %s", r.Count, r.Resource, r.Container))
		}
		fmt.Fprintln(w, "It asks for", plain(strings.Join(texts, ", ")))
	}
	section(w, "Its ResourceClaims:", p.Claims, []column[view.PodClaim]{
		{"NAME", wordColumn, func(c *view.PodClaim) string { return c.Name }},
		{"RESOURCECLAIM", wordColumn, func(c *view.PodClaim) string { return c.ResourceClaim }},
		{"ASKS FOR", wordColumn, func(c *view.PodClaim) string { return some(claimRequests(c), 2) }},
		{"ALLOCATED", wordColumn, func(c *view.PodClaim) string { return some(c.Devices, 3) }},
	})
	section(w, "It has:", p.Slots, []column[view.Slot]{
		{"CONTAINER", wordColumn, func(s *view.Slot) string { return s.Container }},
		{"SLOT", wordColumn, func(s *view.Slot) string { return s.Name }},
		{"STATE", wordColumn, func(s *view.Slot) string { return string(s.State) }},
		{"LEVEL", wordColumn, func(s *view.Slot) string { return s.Level }},
		{"SINCE", wordColumn, func(s *view.Slot) string { return since(s.Since, now) }},
		{"DEVICE", wordColumn, func(s *view.Slot) string { return short(s.Device, 60) }},
	})
	section(w, "It has, of plugins:", p.Devices, []column[view.PluginDevice]{
		{"CONTAINER", wordColumn, func(d *view.PluginDevice) string { return d.Container }},
		{"DEVICE", wordColumn, func(d *view.PluginDevice) string { return d.Device }},
	})
	if len(p.Waits) > 0 {
		fmt.Fprintln(w, "\nWhat is not met:")
	}
	for i := range p.Waits {
		describeWait(w, &p.Waits[i], p.Needs, now)
	}
	if len(p.Needs) > 0 {
		would := "let it run"
		if p.State == view.Running {
			would = "help"
		}
		fmt.Fprintf(w, "\nWhat would %s:\n", would)
		for _, need := range p.Needs {
			fmt.Fprintln(w, "  -", plain(need))
		}
	}
	for _, text := range p.Says {
		fmt.Fprintln(w, "\nSays", plain(text))
	}
	if len(p.Slots)+len(p.Devices)+len(p.Waits)+len(p.Says)+len(p.Requests)+len(p.Claims) == 0 {
		fmt.Fprintln(w, "It neither has nor waits for a device of Kubeslot.")
	}
}

// describeWait says one condition, as in
//
//   - SlotsHeld, container main, akri.sh/cameras, node-a,node-b: it asks for 2 ...
//
// What it needs is said there unless it is among what would let the pod run.
func describeWait(w io.Writer, wait *view.Wait, needs []string, now time.Time) {
	about := []string{wait.Reason}
	if wait.Container != "" {
		about = append(about, "container "+wait.Container)
	}
	if wait.Resource != "" {
		about = append(about, resourceName(wait.Resource))
	}
	if len(wait.Nodes) > 0 {
		about = append(about, "on "+some(wait.Nodes, 3))
	} else if wait.NodeCount > 0 {
		about = append(about, fmt.Sprintf("on %d node(s)", wait.NodeCount))
	}
	fmt.Fprintf(w, "  - %s: %s\n", plain(strings.Join(about, ", ")), plain(wait.Why))
	if wait.Needs != "" && !slices.ContainsFunc(needs, func(need string) bool { return strings.Contains(need, wait.Needs) }) {
		fmt.Fprintf(w, "    needs: %s\n", plain(wait.Needs))
	}
	if len(wait.Holders) == 0 {
		return
	}
	shown := wait.Holders[:min(len(wait.Holders), maxHolders)]
	columns := slices.DeleteFunc(slotColumns(func() time.Time { return now }, false), func(c column[view.Slot]) bool { return c.name == "LEVEL" })
	var table strings.Builder
	newTable(&table, columns, false, true, 0).print(shown)
	for line := range strings.Lines(table.String()) {
		fmt.Fprint(w, "    ", line)
	}
	if left := len(wait.Holders) - len(shown); left > 0 {
		fmt.Fprintf(w, "    and %d more: kubectl kubeslot slots -n %s %s\n", left, plain(shown[0].InstanceNamespace),
			plain(wait.Resource))
	}
}

// resourceName is the name as it stands in a pod; those of Kubernetes' own and of others are complete.
func resourceName(of string) string {
	if strings.Contains(of, "/") || slices.Contains([]string{"cpu", "memory", "ephemeral-storage"}, of) ||
		strings.HasPrefix(of, corev1.ResourceHugePagesPrefix) {
		return of
	}
	return assignment.ResourcePrefix + of
}

func describeNode(w io.Writer, n *view.Node, now time.Time) {
	state := "Ready"
	if !n.Ready {
		state = "not Ready, or not known"
	}
	if n.Cordoned {
		state += ", cordoned"
	}
	if n.Kubelet != "" {
		state += ", kubelet " + n.Kubelet
	}
	if n.Mode != "" {
		state += ", mode " + n.Mode + ": its kubelet gives out the slots"
	}
	fmt.Fprintf(w, "Node %s: %s\n", n.Name, plain(state))
	if !n.Reports {
		fmt.Fprintln(w, "It has no DeviceSlice that you can see: kubecri does not run there, or cannot reach the API server.")
	}
	for _, problem := range n.Problems {
		fmt.Fprintln(w, "Problem:", plain(problem))
	}
	section(w, "Its slots:", n.Resources, advertisedColumns)
	section(w, "It reaches:", n.Instances, instanceColumns(false))
	section(w, "Its pods have:", n.Slots, slotColumns(func() time.Time { return now }, false))
}

// section prints the rows, if there are any, below a title.
func section[T any](w io.Writer, title string, rows []T, columns []column[T]) {
	if len(rows) > 0 {
		fmt.Fprintln(w, "\n"+title)
		newTable(w, columns, false, true, 0).print(rows)
	}
}

package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/source"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// patience is how long a node has to make a claim again whose container runs: it does so at once
// when it reaches the API server.
const patience = 5 * time.Second

// needsRight says what a user lacks.
const needsRight = `that needs the verbs "release" and "delete" on slotclaims.kubeslot.io, which ClusterRole kubeslot:release has`

// releasing is a run of `release`.
type releasing struct {
	*options
	from       *source.Source
	yes, force bool
	answers    *bufio.Reader
}

func (o *options) release() *cobra.Command {
	r := &releasing{options: o}
	cmd := &cobra.Command{
		Use: "release SLOT...", Short: "Release slots of a node that is off",
		Long: `release frees slots whose node cannot: it deletes their claims.
As long as its Node exists a slot is released by the node alone, once the container
is gone, for the container of a node that is not Ready may still run. Who releases
a slot says that it does not: look before. Otherwise two use the device.
It says who holds the slot and since when the node is not Ready, and asks. Slots of
a node that is Ready are refused without --force: delete the pod, and they are free.
It waits for 5 seconds whether the node claims the slot again, as it does when the
container runs and kubecri reaches the API server. The exit code is 1 then.
It needs the verbs "release" and "delete" on slotclaims.kubeslot.io: ClusterRole
kubeslot:release.`,
		Example: `  kubectl kubeslot doctor                      # which slots wait for nodes that are not Ready
  kubectl kubeslot release cameras-f30c78-0
  kubectl kubeslot release --yes cameras-f30c78-0 cameras-f30c78-1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the slots to release: `kubectl kubeslot slots --held` lists those that are held")
			}
			return nil
		},
		ValidArgsFunction: o.complete(source.Claims),
	}
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&r.force, "force", false, "also if the node is Ready")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if !r.yes && !o.terminal() {
			return errors.New("there is no terminal to ask on; --yes releases without being asked")
		}
		if r.from, err = o.source(); err != nil {
			return err
		}
		r.answers = bufio.NewReader(o.streams.In)
		return r.run(cmd.Context(), args)
	}
	return cmd
}

// isTerminal reports whether the user can be asked.
func (o *options) isTerminal() bool {
	in, ok := o.streams.In.(*os.File)
	return ok && term.IsTerminal(int(in.Fd()))
}

// run looks at all slots before it releases the first.
func (r *releasing) run(ctx context.Context, names []string) error {
	var all []*source.Claimed
	var problems []string
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		c, err := r.look(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		all = append(all, c)
	}
	if len(problems) > 0 {
		if len(all) > 0 {
			problems = append(problems, "nothing was released")
		}
		return joined(problems)
	}
	var released []*source.Claimed
	for _, c := range all {
		fmt.Fprintln(r.streams.Out, r.describe(c))
		if !r.yes {
			yes, err := r.asked(ctx, c.Claim.Name)
			if err != nil {
				return err
			}
			if !yes {
				fmt.Fprintf(r.streams.Out, "Slot %s is kept.\n", c.Claim.Name)
				continue
			}
		}
		switch err := r.from.Release(ctx, c.Claim); {
		case err == nil:
			released = append(released, c)
		case apierrors.IsNotFound(err):
			fmt.Fprintf(r.streams.Out, "Slot %s was released meanwhile.\n", c.Claim.Name)
		default:
			problems = append(problems, notReleased(c.Claim.Name, err))
		}
	}
	return joined(append(problems, r.outcomes(ctx, released)...))
}

func joined(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "\nerror: "))
}

// look reads what there is to know of a slot that may be released.
func (r *releasing) look(ctx context.Context, name string) (*source.Claimed, error) {
	if _, err := slot.Parse(name); err != nil {
		return nil, fmt.Errorf("%q is no slot's name, which is <configuration>-<hash>-<index>%s", name,
			r.meant(ctx, name, source.Claims))
	}
	switch may, err := r.from.MayRelease(ctx, name); {
	case err != nil:
		return nil, err
	case !may:
		return nil, fmt.Errorf("you may not release slot %s: %s", name, needsRight)
	}
	c, err := r.from.Claimed(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, r.notClaimed(ctx, name)
	case err != nil:
		return nil, err
	}
	if v1alpha1.Ready(c.Node) && facts(c).Why() == v1alpha1.ReleasedByNode && !r.force {
		return nil, errors.New(readyAdvice(c))
	}
	return c, nil
}

// facts are what v1alpha1 decides by.
func facts(c *source.Claimed) v1alpha1.ReleaseFacts {
	return v1alpha1.ReleaseFacts{Claim: c.Claim, Node: c.Node, PodRuns: c.Claim.PodRuns(c.Pod),
		Heard: c.Claim.Spec.ReleaseUnreachableAfter != nil}
}

// notClaimed says what the slot is instead, as far as the user can see.
func (r *releasing) notClaimed(ctx context.Context, name string) error {
	if objects, _, err := r.from.List(ctx, source.Wanted{}); err == nil {
		for _, s := range view.New(objects).Slots() {
			switch {
			case s.Name != name:
			case s.State == view.Free:
				return fmt.Errorf("slot %s is free: nobody holds it", name)
			case s.State != view.Held:
				return fmt.Errorf("slot %s is assigned to pod %s/%s, and no node has claimed it: it is free when that pod is gone (kubectl delete pod -n %s %s)",
					name, s.Namespace, s.Pod, s.Namespace, s.Pod)
			}
		}
	}
	return fmt.Errorf("no slot %s is claimed%s", name, r.meant(ctx, name, source.Claims))
}

// readyAdvice says how the slot of a node that is Ready gets free.
func readyAdvice(c *source.Claimed) string {
	claim, node := c.Claim, c.Claim.Spec.NodeName
	do := fmt.Sprintf("the node releases the slot when its container is gone. If it does not, look at kubecri there: `kubecri check` on node %s", node)
	if of := claim.Spec.ResourceClaim; of != nil {
		do = fmt.Sprintf("delete the pods that the ResourceClaim is reserved for (kubectl describe resourceclaim -n "+
			"%s %s), and ", of.Namespace, of.Name) + do
	} else if c.Claim.PodRuns(c.Pod) {
		do = fmt.Sprintf("delete its pod (kubectl delete pod -n %s %s), and ", c.Pod.Namespace, c.Pod.Name) + do
	}
	return fmt.Sprintf("slot %s is held by %s, which is Ready: %s. --force releases it nevertheless", claim.Name,
		claim.HeldBy(), do)
}

// describe says who holds the slot, and what may happen.
func (r *releasing) describe(c *source.Claimed) string {
	claim, node := c.Claim, c.Claim.Spec.NodeName
	lines := []string{plain(fmt.Sprintf("Slot %s is held by %s.", claim.Name, claim.HeldBy()))}
	// A line each: who has a node may write messages with line ends.
	add := func(format string, args ...any) { lines = append(lines, "  "+plain(fmt.Sprintf(format, args...))) }
	why := facts(c).Why()
	switch {
	case c.Node == nil:
		add("There is no node %s: the controller deletes such claims, if it runs.", node)
	case why == v1alpha1.ReleaseNodeGone:
		add("Node %s was deleted and added again: the controller deletes such claims, if it runs.", node)
	case v1alpha1.Ready(c.Node):
		add("Node %s is Ready, and releases the slot itself when the container is gone.", node)
	default:
		ready := view.ReadyCondition(c.Node)
		add("Node %s %s%s%s.", node, view.NotReady(c.Node), r.ago(ready.LastTransitionTime.Time), because(ready.Message))
	}
	if !c.Heard.IsZero() {
		add("kubecri there was last heard of at %s%s.", c.Heard.UTC().Format(time.RFC3339), r.ago(c.Heard))
	}
	switch p := c.Pod; {
	case claim.Spec.Pod == nil:
	case p == nil:
		add("The pod is gone.")
	case !c.Claim.PodRuns(c.Pod):
		add("The pod has ended.")
	case p.DeletionTimestamp != nil:
		add("The pod was deleted at %s%s, and is still there. %s", p.DeletionTimestamp.UTC().Format(time.RFC3339), r.ago(p.DeletionTimestamp.Time), keptForPod(c))
	default:
		add("The pod is there: %s. %s", p.Status.Phase, keptForPod(c))
	}
	if of := claim.Spec.ResourceClaim; of != nil {
		add("The device is allocated to the ResourceClaim until it is reserved for no pod: kubectl describe "+
			"resourceclaim -n %s %s", of.Namespace, of.Name)
	}
	if after, ok := facts(c).Unreachable(); ok {
		add("By itself it is released when kubecri there was not heard of for %s (releaseUnreachableAfter).", view.Short(after))
	}
	return strings.Join(append(lines, "If its container still runs there, two use the device once another pod gets the slot."), "\n")
}

// ago says how long ago it was, in parentheses; "" for the zero time.
func (r *releasing) ago(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " (" + since(at, r.now()) + " ago)"
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(message, ".")
}

// keptForPod says that the claim is not all that keeps the slot.
func keptForPod(c *source.Claimed) string {
	how := " --force --grace-period=0" // for the node does not say that it is gone
	if v1alpha1.Ready(c.Node) {
		how = ""
	}
	return fmt.Sprintf("The scheduler gives its slot to nobody before it is gone: kubectl delete pod -n %s %s%s", c.Pod.Namespace, c.Pod.Name, how)
}

// asked asks the user. The context ends it: an interrupt comes while the terminal is read.
func (r *releasing) asked(ctx context.Context, slot string) (bool, error) {
	fmt.Fprintf(r.streams.Out, "Release slot %s? [y/N] ", slot)
	answered := make(chan string, 1)
	go func() {
		line, _ := r.answers.ReadString('\n') // none is no
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case answer := <-answered:
		return answer == "y" || answer == "yes", nil
	}
}

// notReleased explains an error of the API server.
func notReleased(slot string, err error) string {
	switch {
	case apierrors.IsConflict(err):
		return fmt.Sprintf("slot %s was not released: it has another claim by now; look at it again", slot)
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "kubeslot:release"):
		return fmt.Sprintf("slot %s was not released: %s: %v", slot, needsRight, err)
	}
	return fmt.Sprintf("slot %s was not released: %v", slot, err)
}

// outcomes says what became of the slots, and returns those that their nodes claimed again.
func (r *releasing) outcomes(ctx context.Context, released []*source.Claimed) (problems []string) {
	until, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	for _, c := range released {
		again, err := r.from.ClaimedAgain(ctx, until, c.Claim)
		name, node := c.Claim.Name, c.Claim.Spec.NodeName
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("released slot %s, and whether its node has claimed it again is not known: %v", name, err))
		case again == nil && c.Claim.PodRuns(c.Pod):
			fmt.Fprintf(r.streams.Out, "Released slot %s. It is free when pod %s/%s is gone.\n", name, c.Pod.Namespace, c.Pod.Name)
		case again == nil:
			fmt.Fprintf(r.streams.Out, "Released slot %s.\n", name)
		case again.Spec.NodeName == node && (again.Spec.MadeAgain || again.Spec.Holder == c.Claim.Spec.Holder):
			problems = append(problems, fmt.Sprintf("node %s has claimed slot %s again: its container runs there, and kubecri sees it. End the container, on the node if its kubelet does not: the node releases the slot then", node, name))
		default:
			fmt.Fprintf(r.streams.Out, "Released slot %s. It is held by %s now.\n", name, plain(again.HeldBy()))
		}
	}
	return problems
}

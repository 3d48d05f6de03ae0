package cluster

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status prints the cluster's processes and nodes, and how to use it.
func (c *Cluster) Status(ctx context.Context, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tNODE\tPID\tRUNS\tLOG")
	for _, p := range c.layout.processes() {
		runs := "no"
		if p.Started.alive() {
			runs = "yes"
		}
		pid := strconv.Itoa(p.Started.PID)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.Component, p.Node, pid, runs, c.LogPath(p.Component, p.Node))
	}
	fmt.Fprintln(w)
	if err := c.printNodes(ctx, w); err != nil {
		fmt.Fprintf(w, "the API does not answer: %v\n", err)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nexport KUBECONFIG=%s\nexport PATH=%s:$PATH\n", c.Kubeconfig(), c.BinDir())
	return err
}

func (c *Cluster) printNodes(ctx context.Context, out io.Writer) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "NODE\tREADY\tFOLDER")
	for i := range nodes.Items {
		node := &nodes.Items[i]
		ready := "yes"
		if err := readyCondition(node); err != nil {
			ready = err.Error()
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", node.Name, ready, c.layout.node(node.Name).Dir)
	}
	return nil
}

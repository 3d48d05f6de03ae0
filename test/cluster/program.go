package cluster

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
)

// Program is a process of a test's own: a discovery handler on a node, a camera on
// a machine. In the cluster's other methods its Name is its component and On its
// node: PID, Kill, Start and Restart work, and LogPath says where its output goes.
type Program struct {
	Name string
	// On is a node, in whose namespaces the program runs, or a machine; "" is the host.
	On   string
	Argv []string
	// Env is added to PATH and HOME.
	Env []string
}

// Run starts a program. It does not wait until the program is ready.
func (c *Cluster) Run(p Program) error {
	if len(p.Argv) == 0 || !validName.MatchString(p.Name) {
		return fmt.Errorf("program %q with arguments %q: want a name of lower case letters, digits and '-', and what to run", p.Name, p.Argv)
	}
	if _, err := c.layout.process(p.Name, p.On); err == nil {
		return fmt.Errorf("there is a program %q on %s already", p.Name, p.On)
	}
	started := &process{Component: p.Name, Node: p.On, Argv: p.Argv, Env: p.Env}
	if p.On == "" {
		return c.layout.start(started)
	}
	started.NetNS = c.layout.netNS(p.On)
	if slices.Contains(c.cfg.Nodes, p.On) {
		started.MountNS = c.layout.mountNS(p.On)
	}
	if _, err := os.Lstat(started.NetNS); err != nil {
		return fmt.Errorf("run %s: there is no node or machine %q", p.Name, p.On)
	}
	return c.layout.start(started)
}

// RemoveProgram kills a program of Run, if it runs, and forgets it. Its log stays.
func (c *Cluster) RemoveProgram(name, on string) error {
	if err := c.Kill(name, on, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return os.Remove(c.layout.recordOf(name, on))
}

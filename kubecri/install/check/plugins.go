package check

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/types"
)

// plugins says of each file whether it would be loaded, and of those that were
// started what they say of the node.
func (c *checker) plugins() {
	files, err := load.Files(c.Devices)
	if err != nil {
		c.fail("plugins", "%v", err)
		return
	}
	var sockets []string
	if c.Sockets != "" {
		sockets, _ = filepath.Glob(filepath.Join(c.Sockets, "*.sock")) // fails for a bad pattern alone
	}
	if len(files) == 0 {
		c.ok("plugins", "none in %s", c.Devices)
	}
	for _, socket := range sockets {
		c.ok("plugins", "%s is a plugin's socket", socket)
	}
	bad := load.CheckFiles(files, load.Devices.Factory)
	for _, file := range bad {
		c.fail("plugins", "%v", file)
	}
	for _, file := range files {
		if !slices.ContainsFunc(bad, func(b *load.FileError) bool { return b.File == file }) {
			c.ok("plugins", "%s can be loaded", file)
		}
	}
	if c.Plugins == nil {
		return
	}
	if err := c.Plugins.Failing(); err != nil {
		c.fail("plugins", "%v", err)
	}
	if len(files)+len(sockets) == 0 {
		return
	}
	info, _ := c.Plugins.NodeInfo()
	c.ok("plugins", "say that the node has %d resources in its annotation, and in its status %s", len(info.Allocatable), amounts(info))
}

func amounts(info *types.NodeInfo) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(info.KubeAlloc)) {
		all = append(all, fmt.Sprintf("%s: %d", name, info.KubeAlloc[name]))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// plugged says what the container gets from device plugins.
func (c *checker) plugged(ctx context.Context, container string, pod *types.PodInfo) {
	if c.Plugins == nil {
		c.ok("container", "%s was assigned %d resources of device plugins; with --start-plugins they are asked what it gets for them",
			container, len(soplugins.Assigned(pod.GetContainerInPod(container))))
		return
	}
	edits, err := c.Plugins.Allocate(ctx, pod, container)
	if err != nil {
		c.fail("container", "%s would be refused: %v", container, err)
		return
	}
	if _, err := inject.Merge(inject.Container{}, edits...); err != nil {
		c.fail("container", "%s would be refused: %v", container, err)
		return
	}
	for _, e := range edits {
		c.ok("container", "%s gets from %s: %s", container, e.Owner, describeEdits(e))
	}
}

func describeEdits(e inject.Edits) string {
	var parts []string
	add := func(what string, items []string) {
		if len(items) > 0 {
			parts = append(parts, what+" "+strings.Join(items, " "))
		}
	}
	var mounts []string
	for _, m := range e.Mounts {
		mounts = append(mounts, m.HostPath+":"+m.ContainerPath)
	}
	var devices, variables []string
	for _, d := range e.Devices {
		devices = append(devices, d.HostPath)
	}
	for _, v := range e.Env {
		variables = append(variables, v.Name)
	}
	add("devices", devices)
	add("CDI devices", e.CDI)
	add("mounts", mounts)
	add("environment", variables)
	return strings.Join(parts, ", ")
}

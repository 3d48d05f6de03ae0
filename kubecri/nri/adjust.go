package nri

import (
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubeslot/kubeslot/kubecri/inject"
)

// requested reads the container as the runtime is about to create it. The
// variables are the image's, too: which of them the pod set, NRI does not tell.
// The device nodes are left out, for a privileged container has all of the node;
// see devices.
func requested(c *api.Container) inject.Container {
	in := inject.Container{Users: inject.UserNamespace{Unknown: userNamespaced(c)}, ImageEnv: true, Privileged: seesAllDevices(c)}
	for _, env := range c.GetEnv() {
		name, _, _ := strings.Cut(env, "=")
		in.Env = append(in.Env, name)
	}
	for _, m := range c.GetMounts() {
		if m.GetType() == "bind" { // others are the runtime's, such as /proc
			in.Mounts = append(in.Mounts, m.GetDestination())
		}
	}
	for _, d := range c.GetCDIDevices() {
		in.CDI = append(in.CDI, d.GetName())
	}
	return in
}

// adjust returns the additions as the runtime wants them.
func adjust(add inject.Additions, c *api.Container) (*api.ContainerAdjustment, error) {
	a := &api.ContainerAdjustment{}
	for key, value := range add.Annotations {
		a.AddAnnotation(key, value)
	}
	for _, env := range add.Env {
		// NRI takes a name that begins with a dash for one to remove, and text for
		// UTF-8. The list of all devices has what is passed over here.
		if _, removal := api.IsMarkedForRemoval(env.Name); removal {
			continue
		}
		a.AddEnv(env.Name, strings.ToValidUTF8(env.Value, "\uFFFD"))
	}
	for _, m := range add.Mounts {
		options := []string{"rbind", "rprivate", "rw"}
		if m.ReadOnly {
			options[2] = "ro"
		}
		if add.Users.Own() {
			options = append(options, "ridmap") // runc maps as the container's namespace does
		}
		a.AddMount(&api.Mount{Destination: m.ContainerPath, Source: m.HostPath, Type: "bind", Options: options})
	}
	for _, d := range add.Devices {
		if err := addDevice(a, d, add.Owners.Paths[path.Clean(d.ContainerPath)], c); err != nil {
			return nil, err
		}
	}
	for _, name := range add.CDI {
		a.AddCDIDevice(&api.CDIDevice{Name: name})
	}
	return a, nil
}

func userNamespaced(c *api.Container) bool {
	return slices.ContainsFunc(c.GetLinux().GetNamespaces(), func(n *api.LinuxNamespace) bool { return n.GetType() == "user" })
}

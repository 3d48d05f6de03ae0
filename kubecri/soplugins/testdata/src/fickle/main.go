// Command fickle is a device plugin for tests, whose methods do what a file says:
// the file "fickle" in the directory that the process's --cridevices names. It has a
// line for each method that is to misbehave, and for what the others return:
//
//	Start error no driver      return an error
//	Allocate panic             panic
//	Allocate hang FILE         return when FILE exists
//	UpdateNodeInfo exit        end the goroutine
//	count 3                    the node has 3 of resource/group/fickle/<n>/cards, 2 without
//	device /dev/fuse           what Allocate returns, each any number of times
//	mount /host /container
//	env NAME VALUE
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// resource is what the node's status has, prefix what its annotation has.
const (
	resource types.ResourceName = "example.com/fickle"
	prefix                      = types.DeviceGroupPrefix + "/fickle/"
)

type fickle struct{}

// lines returns the file's lines that begin with the word, without it.
func lines(word string) [][]string {
	var found [][]string
	for _, arg := range os.Args {
		directory, ok := strings.CutPrefix(arg, "--cridevices=")
		if !ok {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(directory, "fickle"))
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == word {
				found = append(found, fields[1:])
			}
		}
	}
	return found
}

func do(method string) error {
	for _, what := range lines(method) {
		switch what[0] {
		case "error":
			return errors.New(strings.Join(what[1:], " "))
		case "panic":
			var m map[string]int
			m[method] = 1
		case "exit":
			runtime.Goexit()
		case "hang":
			for _, err := os.Stat(what[1]); err != nil; _, err = os.Stat(what[1]) {
				time.Sleep(time.Millisecond)
			}
		}
	}
	return nil
}

func (fickle) New() error      { return do("New") }
func (fickle) Start() error    { return do("Start") }
func (fickle) GetName() string { return "fickle" }

func (fickle) UpdateNodeInfo(info *types.NodeInfo) error {
	n := int64(2)
	for _, count := range lines("count") {
		n, _ = strconv.ParseInt(count[0], 10, 64)
	}
	info.KubeCap[resource], info.KubeAlloc[resource] = n, n
	for i := range n {
		key := types.ResourceName(fmt.Sprint(prefix, i, "/cards"))
		info.Capacity[key], info.Allocatable[key] = 1, 1
	}
	return do("UpdateNodeInfo")
}

func (fickle) Allocate(_ *types.PodInfo, c *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	if err := do("Allocate"); err != nil {
		return nil, nil, nil, err
	}
	var mine []string
	for _, from := range c.AllocateFrom {
		if name, ok := strings.CutPrefix(string(from), prefix); ok {
			mine = append(mine, strings.TrimSuffix(name, "/cards"))
		}
	}
	if len(mine) == 0 {
		return nil, nil, nil, nil
	}
	slices.Sort(mine)
	env := map[string]string{"FICKLE": strings.Join(mine, ",")}
	for _, e := range lines("env") {
		env[e[0]] = strings.Join(e[1:], " ")
	}
	var mounts []device.Mount
	for _, m := range lines("mount") {
		mounts = append(mounts, device.Mount{HostPath: m[0], ContainerPath: m[1], Readonly: true})
	}
	var devices []string
	for _, d := range lines("device") {
		devices = append(devices, d[0])
	}
	return mounts, devices, env, nil
}

// CreateDevicePlugin is what kubecri looks up.
func CreateDevicePlugin() (device.Device, error) { return fickle{}, do("CreateDevicePlugin") }

func main() {}

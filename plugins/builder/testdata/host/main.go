// Stands for kube-scheduler, and for kubecri when it is called that: it loads the
// plugins of a folder and says what they are.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/types"
)

func main() {
	if filepath.Base(os.Args[0]) == "kubecri" {
		devices()
		return
	}
	plugins, _, err := load.Directory(os.Args[1], load.Schedulers, load.Options{})
	if err != nil {
		klog.Fatal(err)
	}
	for _, p := range plugins {
		fmt.Println(p.Name)
	}
}

func devices() {
	plugins, _, err := load.Directory(os.Args[1], load.Devices, load.Options{})
	if err != nil {
		klog.Fatal(err)
	}
	for _, p := range plugins {
		node := types.NewNodeInfo()
		for _, err := range []error{p.Value.New(), p.Value.Start(), p.Value.UpdateNodeInfo(node)} {
			if err != nil {
				klog.Fatal(p.Name, err)
			}
		}
		fmt.Println(p.Name, len(node.Allocatable))
	}
}

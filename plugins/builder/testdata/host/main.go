// Stands for kube-scheduler: it loads the scheduler plugins of a folder.
package main

import (
	"fmt"
	"os"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/load"
)

func main() {
	plugins, _, err := load.Folder(os.Args[1], load.Schedulers, load.Options{})
	if err != nil {
		klog.Fatal(err)
	}
	for _, p := range plugins {
		fmt.Println(p.Name)
	}
}

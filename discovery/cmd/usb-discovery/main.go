// Command usb-discovery is the usb discovery handler as a program of its own, for
// kubecri's agent or Akri's. It needs the host's /sys, /dev, /run/udev and network. See
// docs/discovery/usb.md.
package main

import (
	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/uevent"
	"github.com/kubeslot/kubeslot/discovery/usb"
)

func main() {
	standalone.Run(func(flags *pflag.FlagSet) discovery.Handler {
		monitor := &uevent.Monitor{}
		flags.StringVar(&monitor.Tree.Sys, "sysfs", sysfs.DefaultSys, "where sysfs is mounted")
		flags.StringVar(&monitor.Tree.UdevData, "udev-data", sysfs.DefaultUdevData, "the directory of udevd's database")
		flags.StringVar(&monitor.Tree.Dev, "dev", sysfs.DefaultDev, "the directory of device nodes")
		return &usb.Handler{Monitor: monitor}
	})
}

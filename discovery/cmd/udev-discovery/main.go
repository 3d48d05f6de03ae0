// Command udev-discovery is the udev discovery handler as a program of its own, for
// kubecri's agent or Akri's. It needs the host's /dev, /run/udev and /sys. See
// docs/discovery/udev.md.
package main

import (
	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/udev"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

func main() {
	standalone.Run(func(flags *pflag.FlagSet) discovery.Handler {
		monitor := &uevent.Monitor{}
		flags.StringVar(&monitor.Tree.Sys, "sysfs", sysfs.DefaultSys, "where sysfs is mounted")
		flags.StringVar(&monitor.Tree.UdevData, "udev-data", sysfs.DefaultUdevData, "udevd's database")
		flags.StringVar(&monitor.Tree.Dev, "dev", sysfs.DefaultDev, "the node's directory of device nodes")
		flags.DurationVar(&monitor.ScanInterval, "scan-interval", uevent.DefaultScanInterval,
			"how often all devices are read again, for what changes without a uevent")
		return &udev.Handler{Monitor: monitor}
	})
}

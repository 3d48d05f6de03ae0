package hostinstall

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
)

// Where things are put.
const (
	Program  = "/usr/local/bin/kubecri"
	UnitName = "kubecri.service"
	UnitFile = "/etc/systemd/system/" + UnitName
	// SocketFile is of an install by hand; see docs/kubecri.md.
	SocketFile = "/etc/systemd/system/kubecri.socket"
	EnvFile    = "/etc/kubeslot/kubecri.env"
	RecordFile = "/etc/kubeslot/install.json"
)

// Proxy is the Want.Mode in which the kubelet uses kubecri's socket. In all others, such as
// NRI, it stays as it is.
const (
	Proxy = "proxy"
	NRI   = "nri"
)

// Kubelet is a host's kubelet.
type Kubelet struct {
	// Unit is its systemd unit, and Found whether there is one.
	Unit  string
	Found bool
	// Running is whether it is active, and Program what its main process is when that
	// is not a kubelet.
	Running bool
	Program string
	// Args are those of the process that runs; of Record.Args when none does.
	Args kubeletargs.Arguments
	// CommandLine are the files that systemd makes the command line from: the unit,
	// its drop-ins, environment files.
	CommandLine []string
	// Config are the files of its configuration, the one that wins last, and kubeadm's
	// instance-config.yaml if it is there.
	Config []string
}

// Host is all that a Plan goes by.
type Host struct {
	// Systemd is whether systemd runs this host.
	Systemd bool
	// Distribution is what runs a kubelet of its own in another program; "" for none.
	Distribution string
	Kubelet      Kubelet
	// Files are the contents of those that a Plan may look at or change, by path. A
	// file that is not there has no entry. Program has the hash of its content.
	Files map[string]string
	// Other is a kubecri on this host that install has no part in, such as the chart's,
	// as a sentence; "" for none.
	Other string
	// Active is whether kubecri's unit is.
	Active bool
	// Record is what a former install left; nil for none.
	Record *Record
}

// Record is what an install remembers of the host as it was.
type Record struct {
	// Done is false while an install or uninstall is under way, or was interrupted.
	Done bool   `json:"done"`
	Mode string `json:"mode"`
	// Listen is kubecri's socket and RuntimeEndpoint the runtime's, which the kubelet
	// used before.
	Listen          string `json:"listen"`
	RuntimeEndpoint string `json:"runtimeEndpoint"`
	// Endpoints are what the files of the kubelet said before they were changed, by
	// path; "" for nothing.
	Endpoints map[string]string `json:"kubeletEndpoints"`
	// Args are the kubelet's, for when it does not run.
	Args kubeletargs.Arguments `json:"kubeletArguments"`
	// PutProgram is whether install put Program there.
	PutProgram bool `json:"putProgram"`
}

// Want is what somebody wants of an install.
type Want struct {
	NodeName   string
	Mode       string
	Kubeconfig string
	Listen     string
	// RuntimeEndpoint is the runtime's; "" for the one that the kubelet uses.
	RuntimeEndpoint  string
	StateDir, CDIDir string
	// Args are further arguments of kubecri; nil leaves those that the environment file
	// has already.
	Args *string
	// Unit is the text of kubecri's unit, and Program the hash of the program that is
	// to be put into place; "" leaves the one that is there.
	Unit, Program string
}

// place is one file that can say where the kubelet expects the runtime.
type place struct {
	file string
	flag bool // on the command line; else a field of the configuration
	// endpoint is what it says; "" for nothing.
	endpoint string
}

// places returns all of them, those that say nothing too.
func (h Host) places() ([]place, error) {
	var all []place
	for _, file := range h.Kubelet.CommandLine {
		all = append(all, place{file, true, kubeletargs.Flag(h.Files[file])})
	}
	for _, file := range h.Kubelet.Config {
		endpoint, err := kubeletargs.Field(h.Files[file])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, place{file, false, endpoint})
	}
	return all, nil
}

// counts reports whether the kubelet goes by a place: kubeadm alone reads its
// instance-config.yaml, and a flag may stand in a variable that no command line has.
func (h Host) counts(p place) bool {
	if p.flag {
		return h.Kubelet.Args.RuntimeEndpoint != ""
	}
	return p.file != kubeletargs.InstanceConfig
}

// endpoint returns where the kubelet expects the runtime when it is started with
// these places. A flag that none of them has comes from elsewhere, and stays. Without a
// flag the last file of the configuration wins.
func (h Host) endpoint(all []place) string {
	flagged, configured := "", ""
	for _, p := range all {
		switch {
		case p.endpoint == "" || !h.counts(p):
		case p.flag:
			flagged = p.endpoint
		default:
			configured = p.endpoint
		}
	}
	if h.Kubelet.Running {
		flagged = cmp.Or(flagged, h.Kubelet.Args.RuntimeEndpoint)
	}
	return cmp.Or(flagged, configured, kubeletargs.DefaultEndpoint)
}

// vendored reports whether a package owns the file, so that its next version would
// undo a change.
func vendored(file string) bool {
	return slices.ContainsFunc([]string{"/usr/lib/", "/lib/", "/run/"}, func(dir string) bool { return strings.HasPrefix(file, dir) })
}

// Environment is what the environment file of kubecri's unit says.
func (h Host) Environment() map[string]string { return environment(h.Files[EnvFile]) }

// environment reads an environment file.
func environment(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if name, value, ok := strings.Cut(line, "="); ok {
			values[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return values
}

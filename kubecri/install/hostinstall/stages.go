package hostinstall

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
)

var reload = []string{"daemon-reload"}

// kubecri is the stage that installs and starts it.
func (h Host) kubecri(changes []Change, w Want) Stage {
	s := Stage{
		Changes: changes, Unit: UnitName, Await: Started,
		Commands:     [][]string{reload, {"enable", UnitName}, {"restart", UnitName}},
		UndoBefore:   [][]string{{"disable", "--now", UnitName}},
		UndoCommands: [][]string{reload},
	}
	if w.Mode == Proxy {
		s.Await = Serving
	}
	if _, there := h.Files[UnitFile]; there && h.Active {
		s.UndoBefore, s.UndoCommands = nil, [][]string{reload, {"restart", UnitName}}
	}
	return s
}

// restartKubelet is the stage that changes the kubelet's files, and restarts it.
func (h Host) restartKubelet(changes []Change) Stage {
	restart := [][]string{reload, {"restart", h.Kubelet.Unit}}
	return Stage{
		Changes: changes, Commands: restart, Unit: h.Kubelet.Unit, Await: Healthy,
		UndoCommands: restart, UndoAwait: Healthy,
	}
}

// Uninstall plans to point the kubelet at the runtime again, and to take kubecri's
// unit and its program away. What kubecri wrote elsewhere, on the host and in the API,
// is package cleanup's affair; the environment file says where that is, and goes last
// (Forget). runtime is the runtime's endpoint where no record has it, "" for none. An
// error says why there is none, and what to do about it.
func Uninstall(h Host, runtime string) (Plan, error) {
	env := environment(h.Files[EnvFile])
	_, unit := h.Files[UnitFile]
	if h.Record == nil && !unit && len(env) == 0 {
		return Plan{}, fmt.Errorf("kubecri is not installed here: there is neither %s nor %s", UnitFile, RecordFile)
	}
	switch {
	case !h.Systemd:
		return Plan{}, errors.New("systemd does not run this host (there is no /run/systemd/system): undo by " +
			"hand what was " +
			"done by hand")
	case !h.Kubelet.Found:
		return Plan{}, fmt.Errorf("systemd has no unit %s: name the kubelet's with --kubelet-unit", h.Kubelet.Unit)
	}
	all, err := h.places()
	if err != nil {
		return Plan{}, err
	}
	before := Record{Listen: env["LISTEN"], RuntimeEndpoint: env["RUNTIME_ENDPOINT"]}
	if h.Record != nil {
		before = *h.Record
	}
	before.RuntimeEndpoint = cmp.Or(runtime, before.RuntimeEndpoint)
	if before.Listen == "" || before.RuntimeEndpoint == "" {
		return Plan{}, fmt.Errorf("%s does not say LISTEN and RUNTIME_ENDPOINT, and there is no %s: name the "+
			"runtime's "+
			"socket with --runtime-endpoint, and kubecri's with LISTEN= in that file", EnvFile, RecordFile)
	}
	p := Plan{Title: "Uninstall kubecri", Listen: before.Listen, RuntimeEndpoint: before.RuntimeEndpoint, Environment: env}
	kubelet, err := h.restore(all, before)
	if err != nil {
		return Plan{}, err
	}
	p.Endpoint = h.endpoint(all)
	if kubeletargs.SameSocket(p.Endpoint, before.Listen) {
		files := strings.Join(append(h.Kubelet.CommandLine, h.Kubelet.Config...), ", ")
		return Plan{}, fmt.Errorf("the kubelet would still use %s: something else than %s says so. Set it to "+
			"%s there, "+
			"and restart the kubelet", p.Endpoint, files, before.RuntimeEndpoint)
	}
	if h.Record != nil && (h.Record.Done || len(kubelet) > 0) {
		begun := *h.Record
		begun.Done = false
		p.Stages = append(p.Stages, Stage{Changes: h.changes(map[string]string{RecordFile: begun.text()})})
	}
	if len(kubelet) > 0 || h.Record != nil && !h.Record.Done && h.Record.Mode == Proxy {
		p.Stages = append(p.Stages, h.restartKubelet(kubelet))
	}
	gone := []string{UnitFile, SocketFile}
	if h.Record != nil && h.Record.PutProgram {
		gone = append(gone, Program)
	} else if _, there := h.Files[Program]; there {
		p.Notes = append(p.Notes, fmt.Sprintf("%s stays: install did not put it there", Program))
	}
	// The kubelet does without kubecri by now, and has to while kubecri is half gone.
	stop := Stage{Commands: [][]string{reload}, Final: true}
	if _, there := h.Files[SocketFile]; there { // first, or it would start the service again
		stop.Before = append(stop.Before, []string{"disable", "--now", filepath.Base(SocketFile)})
	}
	if unit {
		stop.Before = append(stop.Before, []string{"disable", "--now", UnitName})
	}
	for _, path := range gone {
		if text, there := h.Files[path]; there {
			stop.Changes = append(stop.Changes, Change{path, &text, nil})
		}
	}
	p.Stages = append(p.Stages, stop)
	return p, nil
}

// modeFlag is kubecri's.
const modeFlag = "--mode="

// envFile returns the environment file of kubecri's unit: what is ours is set, and
// what somebody added to the one that is there stays.
func envFile(now string, w Want, runtime string) (string, error) {
	args := environment(now)["KUBECRI_ARGS"]
	if w.Args != nil {
		args = *w.Args
	}
	if strings.ContainsAny(args, "\"'\\\n") {
		return "", fmt.Errorf("arguments of kubecri with quotes, backslashes or line ends are not for a "+
			"command line that "+
			"systemd splits at blanks: %q", args)
	}
	words := slices.DeleteFunc(strings.Fields(args), func(arg string) bool { return strings.HasPrefix(arg, modeFlag) })
	if w.Mode != Proxy {
		words = append([]string{modeFlag + w.Mode}, words...)
	}
	ours := map[string]string{
		"NODE_NAME": w.NodeName, "KUBECONFIG": w.Kubeconfig, "LISTEN": w.Listen, "RUNTIME_ENDPOINT": runtime,
		"STATE_DIR": w.StateDir, "CDI_DIR": w.CDIDir, "KUBECRI_ARGS": strings.Join(words, " "),
	}
	var text strings.Builder
	written := map[string]bool{}
	for line := range strings.Lines(now) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		value, known := ours[name]
		switch {
		case !known:
			text.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		case !written[name]:
			fmt.Fprintf(&text, "%s=%s\n", name, value)
			written[name] = true
		}
	}
	for _, name := range []string{"NODE_NAME", "KUBECONFIG", "LISTEN", "RUNTIME_ENDPOINT", "STATE_DIR", "CDI_DIR", "KUBECRI_ARGS"} {
		if !written[name] && (ours[name] != "" || name != "KUBECRI_ARGS") {
			fmt.Fprintf(&text, "%s=%s\n", name, ours[name])
		}
	}
	return text.String(), nil
}

package hostinstall

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

// Change is what is done to a file.
type Change struct {
	Path string
	// Before and After are contents; nil for no file. Those of Program are hashes.
	Before, After *string
}

// Await is what a stage waits for when its commands have run.
type Await string

const (
	Nothing Await = ""
	Started Await = "until it has started"
	Serving Await = "until it serves the runtime at its socket"
	Healthy Await = "until it is healthy"
)

// Stage is a part of a plan that is done, and undone, as one.
type Stage struct {
	// Before are commands, as systemctl's arguments, that run before the changes, and
	// Commands those that run after.
	Before, Commands [][]string
	Changes          []Change
	// Unit is what is awaited, for as long as Await says.
	Unit  string
	Await Await
	// UndoBefore and UndoCommands are likewise when the stage is undone.
	UndoBefore, UndoCommands [][]string
	UndoAwait                Await
	// Final is of a stage after which there is no way back: when it fails, neither it nor those before
	// are undone.
	Final bool
}

// Plan is what is done to a host, stage by stage.
type Plan struct {
	// Title says what the plan is for.
	Title  string
	Stages []Stage
	// Listen and RuntimeEndpoint are kubecri's socket and the one that it stands in
	// front of. Endpoint is the kubelet's when the plan is done.
	Listen, RuntimeEndpoint, Endpoint string
	// Environment is what kubecri's unit gets, or got.
	Environment map[string]string
	// Notes are for the reader.
	Notes []string
}

// Empty reports whether there is nothing to do.
func (p Plan) Empty() bool { return len(p.Stages) == 0 }

// Install plans to put kubecri between the kubelet and its runtime, or beside them
// when the mode is another than Proxy. What is in place already is no part of the
// plan. An error says why there is none, and what to do about it.
func Install(h Host, w Want) (Plan, error) {
	if err := h.Check(); err != nil {
		return Plan{}, err
	}
	all, err := h.places()
	if err != nil {
		return Plan{}, err
	}
	before, err := h.before(all, w)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{
		Title:  fmt.Sprintf("Install kubecri on node %s, in mode %s", w.NodeName, w.Mode),
		Listen: w.Listen, RuntimeEndpoint: before.RuntimeEndpoint, Endpoint: before.RuntimeEndpoint,
	}
	env, err := envFile(h.Files[EnvFile], w, before.RuntimeEndpoint)
	if err != nil {
		return Plan{}, err
	}
	p.Environment = environment(env)

	var kubelet []Change
	if w.Mode == Proxy {
		p.Endpoint = w.Listen
		if kubelet, err = h.redirect(all, before, w.Listen); err != nil {
			return Plan{}, err
		}
	} else if kubelet, err = h.restore(all, before); err != nil { // from mode proxy
		return Plan{}, err
	}
	done := before
	done.Done, done.PutProgram = true, before.PutProgram || w.Program != ""

	ours := h.changes(map[string]string{EnvFile: env, UnitFile: strings.ReplaceAll(w.Unit, "kubelet.service", h.Kubelet.Unit)})
	if w.Program != "" {
		ours = append(h.changes(map[string]string{Program: w.Program}), ours...)
	} else if _, there := h.Files[Program]; !there {
		return Plan{}, fmt.Errorf("there is no %s: let install put it there", Program)
	}
	unfinished := h.Record != nil && !h.Record.Done
	if len(ours) == 0 && len(kubelet) == 0 && h.Active && !unfinished && h.Record != nil {
		return p, nil
	}
	begun := done
	begun.Done = false
	first := append(h.changes(map[string]string{RecordFile: begun.text()}), ours...)
	p.Stages = append(p.Stages, h.kubecri(first, w))
	// What came before may have changed the files, and not got to restart the kubelet.
	if len(kubelet) > 0 || unfinished {
		p.Stages = append(p.Stages, h.restartKubelet(kubelet))
	}
	text := begun.text()
	finished := done.text()
	p.Stages = append(p.Stages, Stage{Changes: []Change{{RecordFile, &text, &finished}}})
	return p, nil
}

// Check refuses hosts that are not like those that this is for.
func (h Host) Check() error {
	k := h.Kubelet
	switch {
	case h.Other != "":
		return fmt.Errorf("%s: one of the two is enough, and they would claim and release each other's "+
			"slots. Remove it "+
			"first, or keep it off this node", h.Other)
	case h.Distribution != "":
		return fmt.Errorf("%s runs the kubelet inside itself, and says itself where the runtime is: use the "+
			"chart, which "+
			"installs kubecri as a plugin of the runtime (docs/helm.md, kubecri.runtime.preset)", h.Distribution)
	case !h.Systemd:
		return errors.New("systemd does not run this host (there is no /run/systemd/system): install kubecri as " +
			"docs/install.md says, under \"By hand\"")
	case !k.Found:
		return fmt.Errorf("systemd has no unit %s: name the kubelet's with --kubelet-unit", k.Unit)
	case k.Running && k.Program != "":
		return fmt.Errorf("the main process of %s is %s, not a kubelet: install kubecri by hand "+
			"(docs/install.md)", k.Unit,
			k.Program)
	case !k.Running && (h.Record == nil || h.Record.Done):
		return fmt.Errorf("%s does not run: start it first, since only a kubelet that works can be seen to "+
			"go on working",
			k.Unit)
	}
	return nil
}

// before returns what was before kubecri: from the record, where there is one.
func (h Host) before(all []place, w Want) (Record, error) {
	now := h.endpoint(all)
	inFile := slices.ContainsFunc(all, func(p place) bool { return p.flag && p.endpoint != "" })
	if flag := h.Kubelet.Args.RuntimeEndpoint; w.Mode == Proxy && flag != "" && h.Kubelet.Running && !inFile {
		return Record{}, fmt.Errorf("the kubelet runs with --container-runtime-endpoint=%s, and none of "+
			"these files says "+
			"so: %s. Set it yourself, where the kubelet gets it from, to %s; see docs/install.md",
			flag, strings.Join(h.Kubelet.CommandLine, ", "), w.Listen)
	}
	r := Record{Mode: w.Mode, Listen: w.Listen, RuntimeEndpoint: w.RuntimeEndpoint, Endpoints: map[string]string{}, Args: h.Kubelet.Args}
	if old := h.Record; old != nil {
		r.PutProgram = old.PutProgram
		maps.Copy(r.Endpoints, old.Endpoints)
		r.RuntimeEndpoint = cmp.Or(r.RuntimeEndpoint, old.RuntimeEndpoint)
		if !h.Kubelet.Running {
			r.Args = old.Args
		}
	}
	if r.RuntimeEndpoint == "" && kubeletargs.SameSocket(now, w.Listen) { // installed by hand
		r.RuntimeEndpoint = environment(h.Files[EnvFile])["RUNTIME_ENDPOINT"]
		if r.RuntimeEndpoint == "" {
			return Record{}, fmt.Errorf("the kubelet uses %s already, and nothing says which runtime is "+
				"behind it: name it "+
				"with --runtime-endpoint", now)
		}
	}
	r.RuntimeEndpoint = cmp.Or(r.RuntimeEndpoint, now)
	for _, e := range []string{r.RuntimeEndpoint, w.Listen} {
		if _, err := proxy.SocketPath(e); err != nil {
			return Record{}, fmt.Errorf("%q is no unix socket: want unix:///path", e)
		}
	}
	if kubeletargs.SameSocket(r.RuntimeEndpoint, w.Listen) {
		return Record{}, fmt.Errorf("%s is both the runtime's socket and the one where kubecri is to listen: choose "+
			"another --listen", w.Listen)
	}
	for _, p := range all {
		if _, known := r.Endpoints[p.file]; !known && !h.ours(p.endpoint, r) {
			r.Endpoints[p.file] = p.endpoint
		}
	}
	return r, nil
}

// ours reports whether an endpoint leads to kubecri: where it is to listen, or did.
func (h Host) ours(endpoint string, r Record) bool {
	return endpoint != "" && (kubeletargs.SameSocket(endpoint, r.Listen) ||
		h.Record != nil && kubeletargs.SameSocket(endpoint, h.Record.Listen))
}

// redirect returns the changes that make the kubelet use listen, however it is told:
// each place that says something is changed, and where none does the configuration is.
func (h Host) redirect(all []place, before Record, listen string) ([]Change, error) {
	var changes []Change
	said := false
	for i, p := range all {
		if p.endpoint == "" {
			continue
		}
		said = said || h.counts(p)
		if kubeletargs.SameSocket(p.endpoint, listen) {
			continue
		}
		if vendored(p.file) {
			return nil, fmt.Errorf("%s sets --container-runtime-endpoint, and belongs to a package, whose next version would undo a change: override it with `systemctl edit %s`, in /etc", p.file, h.Kubelet.Unit)
		}
		c, err := h.point(p, listen)
		if err != nil {
			return nil, err
		}
		changes, all[i].endpoint = append(changes, c), listen
	}
	if said {
		return changes, nil
	}
	for i, p := range all {
		if !p.flag && p.file != kubeletargs.InstanceConfig { // its --config comes first
			c, err := h.point(p, listen)
			if err != nil {
				return nil, err
			}
			all[i].endpoint = listen
			return append(changes, c), nil
		}
	}
	return nil, fmt.Errorf("the kubelet has no --config file that could say where the runtime is: give it "+
		"--container-runtime-endpoint=%s yourself, and start kubecri.service before it; see docs/install.md",
		before.RuntimeEndpoint)
}

// restore returns the changes that take kubecri out of every place again: what the
// record has of it, and the runtime's endpoint in places that were made since, as by
// kubeadm.
func (h Host) restore(all []place, before Record) ([]Change, error) {
	var changes []Change
	for i, p := range all {
		if !h.ours(p.endpoint, before) {
			continue
		}
		old, known := before.Endpoints[p.file]
		if !known {
			old = before.RuntimeEndpoint
		}
		if old == "" && p.flag {
			old = before.RuntimeEndpoint
		}
		c, err := h.point(p, old)
		if err != nil {
			return nil, err
		}
		changes, all[i].endpoint = append(changes, c), old
	}
	return changes, nil
}

// point returns the change that makes a place say the endpoint; "" for nothing.
func (h Host) point(p place, endpoint string) (Change, error) {
	text := h.Files[p.file]
	if p.flag {
		changed := kubeletargs.SetFlag(text, endpoint)
		if kubeletargs.Flag(changed) != endpoint {
			return Change{}, fmt.Errorf("%s: --container-runtime-endpoint stands in a form that this "+
				"cannot change: set it to "+
				"%s by hand", p.file, endpoint)
		}
		return Change{p.file, &text, &changed}, nil
	}
	changed, err := kubeletargs.SetField(text, endpoint)
	if err != nil {
		return Change{}, fmt.Errorf("%s: %w", p.file, err)
	}
	return Change{p.file, &text, &changed}, nil
}

// changes returns what makes the files have these contents, in the order of paths.
func (h Host) changes(want map[string]string) []Change {
	var changes []Change
	for _, path := range slices.Sorted(maps.Keys(want)) {
		after := want[path]
		if before, there := h.Files[path]; !there {
			changes = append(changes, Change{path, nil, &after})
		} else if before != after {
			changes = append(changes, Change{path, &before, &after})
		}
	}
	return changes
}

func (r Record) text() string {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(err) // strings and booleans
	}
	return string(data) + "\n"
}

// ParseRecord reads RecordFile.
func ParseRecord(text string) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("%s: %w", RecordFile, err)
	}
	if r.Listen == "" || r.RuntimeEndpoint == "" {
		return nil, errors.New(RecordFile + " does not say which runtime was used before: it is no record of kubecri install")
	}
	return r, nil
}

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// commands are the programs and their commands, with where their flags are: a file, or a function of it.
var commands = []struct {
	title, about string
	from         []string
}{
	{"kube-scheduler", "Kubeslot's own, among those of the Kubernetes scheduler that it is made of: " +
		"[upstream's flags](https://kubernetes.io/docs/reference/command-line-tools-reference/kube-scheduler/). The plugins' arguments are in the file of `--config`: [the scheduler](../scheduler.md).",
		[]string{"kube-scheduler/binding/options.go", "kube-scheduler/deviceplugins/options.go"}},
	{"kube-scheduler and kubecri", "Both have them, for [plugins that are servers](../plugins.md#servers). " +
		"The defaults are kube-scheduler's and kubecri's.",
		[]string{"plugins/remote/options.go"}},
	{
		"kubecri",
		"Besides those of logging (`-v`, `--logging-format`), which are Kubernetes'. [kubecri](../kubecri.md) says how it is used.",
		[]string{
			"kubecri/cmd/kubecri/options.go",
			"kubecri/cmd/kubecri/handlers.go",
			"kubecri/cmd/kubecri/deviceplugin.go",
			"kubecri/cmd/kubecri/kubelet.go",
		},
	},
	{"kubecri check", "Besides those of kubecri itself.", []string{"kubecri/cmd/kubecri/check.go"}},
	{"kubecri install, kubecri uninstall", "", []string{"kubecri/install/install.go:addCommon"}},
	{"kubecri install", "", []string{"kubecri/install/install.go:addInstall"}},
	{"kubecri cleanup", "", []string{"kubecri/install/cleanup.go"}},
	{
		"controller",
		"Besides those of logging, which are Kubernetes'.",
		[]string{"controller/cmd/controller/options.go"},
	},
	{
		"kubectl kubeslot",
		"All commands have kubectl's flags to reach a cluster, such as `--context` and `--namespace`, and `-v`. [kubectl](../kubectl.md) shows what each prints. Those that print objects have the others.",
		[]string{"kubectl-kubeslot/command/command.go:newRoot", "kubectl-kubeslot/command/command.go:printFlags"},
	},
	{"kubectl kubeslot list, instances, slots, pod", "", []string{"kubectl-kubeslot/command/command.go:selection"}},
	{"kubectl kubeslot slots", "", []string{"kubectl-kubeslot/command/listings.go"}},
	{"kubectl kubeslot doctor", "", []string{"kubectl-kubeslot/command/doctor.go"}},
	{"kubectl kubeslot release", "", []string{"kubectl-kubeslot/command/release.go"}},
	{"kubectl kubeslot top", "", []string{"kubectl-kubeslot/command/top.go"}},
	{"kubectl kubeslot ui", "", []string{"kubectl-kubeslot/command/ui.go"}},
	{
		"kubeslot-ui",
		"Besides those of logging, which are Kubernetes'. [The page](../ui.md) says how it is used.",
		[]string{"kubectl-kubeslot/cmd/kubeslot-ui/options.go"},
	},
	{"The example plugin over gRPC", "[Plugins](../plugins.md) says how it is used.",
		[]string{"plugins/example/server/main.go"}},
	{
		"Discovery handlers as programs",
		"Each of them, which is named as its handler: `udev-discovery`. [Discovery](../discovery.md) says what each finds.",
		[]string{"discovery/standalone/run.go"},
	},
	{"debug-echo-discovery", "", []string{"discovery/cmd/debug-echo-discovery/main.go"}},
	{"udev-discovery", "", []string{"discovery/cmd/udev-discovery/main.go"}},
	{"usb-discovery", "", []string{"discovery/cmd/usb-discovery/main.go"}},
	{"onvif-discovery", "", []string{"discovery/cmd/onvif-discovery/main.go"}},
	{"opcua-discovery", "", []string{"discovery/cmd/opcua-discovery/main.go"}},
	{"mdns-discovery", "", []string{"discovery/cmd/mdns-discovery/main.go"}},
	{
		"discover",
		"Asks a handler of a program's what it finds: [write a handler](../discovery/protocol.md).",
		[]string{"discovery/cmd/discover/main.go"},
	},
	{
		"plugins/builder",
		"What `make plugin-builder` runs: [plugins](../plugins.md).",
		[]string{"plugins/builder/main.go"},
	},
}

// defaults are those that cannot be computed from constants, as their code has them.
var defaults = map[string]string{
	"builtInNames()":        "all of its own",
	"validation.Handlers()": "all of Kubeslot's",
	"api.DefaultSocketPath": "/var/run/nri/nri.sock",
	"o.SigningKeyFile":      "",
	"o.Folder":              "/schedulerplugins",
	`env("POD_IP")`:         "$POD_IP",
	"directory":             "$DISCOVERY_HANDLERS_DIRECTORY, else /var/lib/akri",
	"!shared":               "true if $DEBUG_ECHO_INSTANCES_SHARED is false",
	"&o.Policy":             "refuse", // kube-scheduler's
	"&o.devicesPolicy":      "skip",   // kubecri's
	"nil":                   "",
	"o.Sockets":             "/run/kubeslot/plugins/schedulers, …/devices",
	"o.Timeout":             "1s, 5s",
}

// texts are parts of meanings that cannot be computed, as their code has them.
var texts = map[string]string{"of": "object", `strings.Join(formats(), ", ")`: "wide, yaml, json, and what else kubectl has"}

// register are the methods of flag sets that make a flag.
var register = regexp.MustCompile(
	`^(Bool|Int|Int32|Int64|Uint|Uint32|Float32|Float64|Duration|String|StringSlice|StringArray|StringToString)?(Var)?(P)?$`,
)

type flag struct{ name, short, value, usage string }

// flags lists the flags of each program by where the code registers them.
func flags(t *tree, p *page) error {
	found := map[string][]flag{} // by "file:function"
	var problems error
	for _, folder := range []string{"kube-scheduler", "kubecri", "controller", "kubectl-kubeslot", "discovery", "plugins"} {
		t.each(folder, func(_ *goPackage, n ast.Node) {
			f, ok := n.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				return
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if one, is, err := t.flag(call); err != nil {
					problems = errors.Join(problems, fmt.Errorf("%s: %w", t.at(call), err))
				} else if is {
					file, _, _ := strings.Cut(t.at(f), ":")
					at := filepath.ToSlash(file) + ":" + f.Name.Name
					found[at] = append(found[at], one)
				}
				return true
			})
		})
	}
	p.begin("Flags", "where the Go code registers them", "`--help` of each program and command says the same.")
	for _, c := range commands {
		p.heading(2, c.title)
		if c.about != "" {
			p.paragraph(c.about)
		}
		var rows [][]string
		for _, from := range c.from {
			for _, at := range sortedKeys(found) {
				if at != from && !strings.HasPrefix(at, from+":") {
					continue
				}
				for _, f := range found[at] {
					name := code("--" + f.name)
					if f.short != "" {
						name = code("-"+f.short) + ", " + name
					}
					rows = append(rows, []string{name, code(f.value), plain(f.usage)})
				}
				delete(found, at)
			}
		}
		if len(rows) == 0 {
			return fmt.Errorf("%s: no flags in %v", c.title, c.from)
		}
		p.table([]string{"flag", "default", "meaning"}, rows)
	}
	for at := range found {
		problems = errors.Join(
			problems,
			fmt.Errorf("%s registers flags: add it to the list of commands in hack/reference/flags.go", at),
		)
	}
	return problems
}

// flag is what a call registers, if it does.
func (t *tree) flag(call *ast.CallExpr) (f flag, is bool, err error) {
	m := register.FindStringSubmatch(method(call))
	if _, selector := call.Fun.(*ast.SelectorExpr); !selector || m == nil || m[0] == "" || m[0] == "P" {
		return f, false, nil
	}
	args := call.Args
	if m[2] != "" { // the variable
		args = args[1:]
	}
	want := 3 // name, default, usage
	if m[3] != "" {
		want++
	}
	if m[1] == "" { // Var: the default is the variable's
		want--
	}
	if len(args) != want {
		return f, false, nil
	}
	name, constant := t.constant(args[0])
	if !constant || name == "" {
		return f, false, nil
	}
	f = flag{name: name, usage: t.text(args[len(args)-1])}
	if m[3] != "" {
		f.short, _ = t.constant(args[1])
	}
	of := args[len(args)-2]
	if m[1] == "" {
		of = call.Args[0]
	}
	if f.value, constant = t.value(of); !constant {
		return f, true, fmt.Errorf(
			"the default of --%s is no constant: add %q to defaults in hack/reference/flags.go",
			name,
			types.ExprString(of),
		)
	}
	return f, true, nil
}

// value is a flag's default as people write it.
func (t *tree) value(e ast.Expr) (string, bool) {
	if text, known := defaults[types.ExprString(e)]; known {
		return text, true
	}
	if text, ok := t.constant(e); ok {
		if of := t.info.Types[e].Type; of != nil && of.String() == "time.Duration" {
			d, err := time.ParseDuration(text + "ns")
			return shortDuration(d), err == nil
		}
		return text, true
	}
	if list, ok := t.list(e); ok {
		return strings.Join(list, ","), true
	}
	if field, ok := e.(*ast.SelectorExpr); ok { // of a variable
		if of, ok := field.X.(*ast.SelectorExpr); ok {
			if value := fields(t.vars[t.info.Uses[of.Sel]])[field.Sel.Name]; value != nil {
				return t.value(value)
			}
		}
	}
	return "", false
}

// shortDuration is a duration without parts that are zero: 10s, 1m, 720h.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// text is a text that is put together, with … for what is known only when the program runs.
func (t *tree) text(e ast.Expr) string {
	if text, ok := t.constant(e); ok {
		return text
	}
	if text, known := texts[types.ExprString(e)]; known {
		return text
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return t.text(e.X) + t.text(e.Y)
		}
	case *ast.CallExpr:
		if method(e) == "Sprintf" {
			var args []any
			for _, arg := range e.Args[1:] {
				args = append(args, t.text(arg))
			}
			return fmt.Sprintf(t.text(e.Args[0]), args...)
		}
	}
	return "…"
}

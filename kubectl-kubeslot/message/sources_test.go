package message

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// said is a text in a source file.
type said struct {
	text string // a format
	at   string
}

// texts finds in the folder's sources the texts that calls of the functions pass on, and
// constants whose names match.
func texts(t *testing.T, folder string, calls []string, constants string) []said {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources in %s: %v", folder, err)
	}
	var all []said
	set := token.NewFileSet()
	names := regexp.MustCompile(constants)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		add := func(e ast.Expr) {
			if text, ok := literal(e); ok && strings.Contains(text, " ") {
				all = append(all, said{text, set.Position(e.Pos()).String()})
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if slices.Contains(calls, callee(n.Fun)) {
					for _, arg := range n.Args {
						if inner, ok := arg.(*ast.CallExpr); ok && callee(inner.Fun) == "fmt.Sprintf" {
							arg = inner.Args[0]
						}
						add(arg)
					}
				}
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if constants != "" && names.MatchString(name.Name) && i < len(n.Values) {
						add(n.Values[i])
					}
				}
			}
			return true
		})
	}
	if len(all) == 0 {
		t.Fatalf("no texts in %s: have the functions been renamed?", folder)
	}
	return all
}

func callee(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name + "." + e.Sel.Name
		}
	}
	return ""
}

// literal is a text, or several added.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		a, oka := literal(e.X)
		b, okb := literal(e.Y)
		return a + b, oka && okb
	case *ast.ParenExpr:
		return literal(e.X)
	}
	return "", false
}

var verb = regexp.MustCompile(`%[-+#.0-9]*[a-zA-Z]`)

// filled puts something for each verb.
func (s said) filled() string {
	return verb.ReplaceAllStringFunc(s.text, func(v string) string {
		switch v[len(v)-1] {
		case 'q':
			return `"x"`
		case 'd':
			return "3"
		}
		return "x"
	})
}

// module is where the sources of Kubernetes are.
func module(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("ask go for k8s.io/kubernetes: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// notSaid are texts that no pod's condition has: of internal errors, and of parts.
var notSaid = regexp.MustCompile(`not signable|signature disabled|plugin disabled|no new claims to deallocate|still not schedulable|of ResourceClaim completed|` +
	`requests device slots|requests devices of plugins|All PostFilter plugins are skipped|^watch the API|^start plugin|^load the device|^make a client|^plugin %s|is not a directory|` +
	`^read %s|^list |^encode|No preemption victims|but it is of a static pod|^wait |, and this pod's other requests|at most one slot per Instance`)

func check(t *testing.T, of []said, meaning func(text string) Meaning, unknown ...string) {
	t.Helper()
	for _, s := range of {
		if notSaid.MatchString(s.text) {
			continue
		}
		if m := meaning(s.filled()); m.Reason == "" || slices.Contains(unknown, m.Reason) {
			t.Errorf("%s: nobody knows what %q means", s.at, s.filled())
		}
	}
}

func scheduler(text string) Meaning {
	parts := Scheduler("0/3 nodes are available: 3 " + text + ".")
	if len(parts) == 0 || parts[0].Reason == Unknown { // as PostFilter says it, then
		if parts = Scheduler("0/3 nodes are available: 3 Too many pods. " + text); len(parts) < 2 {
			return Meaning{Reason: Unknown}
		}
		return parts[1].Meaning
	}
	return parts[0].Meaning
}

// Each reason that our scheduler can give is known.
func TestOurSchedulersReasons(t *testing.T) {
	const root = "../../"
	status := []string{"unresolvable", "fwk.NewStatus", "v.refuse"}
	var all []said
	for _, folder := range []string{"configurationresources", "slotcache", "deviceplugins"} {
		all = append(all, texts(t, root+"kube-scheduler/"+folder, status, "")...)
	}
	all = append(all, texts(t, root+"kube-scheduler/preemption", []string{"errors.New"}, "")...)
	for _, s := range texts(t, root+"device-scheduler/ledger", []string{"fmt.Sprintf"}, "") {
		if strings.Contains(s.at, "shortfall.go") && !strings.HasPrefix(s.text, ";") {
			all = append(all, s)
		}
	}
	for _, s := range append(texts(t, root+"kube-scheduler/slotrequest", []string{"fmt.Errorf"}, ""), texts(t, root+"kube-scheduler/deviceplugins", []string{"fmt.Errorf"}, "")...) {
		if strings.Contains(s.at, "request.go") {
			all = append(all, s)
		}
	}
	check(t, all, func(text string) Meaning {
		// As the code says them, where a text goes on with another.
		text = strings.Replace(text, `slots; x`, "slots; a pod may request at most 3 slots, of at most 3 resources (akri.sh/…): split it into several", 1)
		text = strings.Replace(text, `resources; x`, "resources; a pod may request at most 3 slots, of at most 3 resources (akri.sh/…): split it into several", 1)
		text = strings.Replace(text, `3x; 3 of 3`, "3; 3 of 3", 1)
		text = strings.Replace(text, `3 heldx`, "3 held", 1)
		text = strings.Replace(text, "annotation x", "annotation KubeDevice/DeviceInfo", 1)
		text = strings.Replace(text, `container "x": x`, `container "x": annotation KubeDevice/DeviceInfo`, 1)
		text = strings.Replace(text, "x is more", `3 of "x" is more`, 1)
		text = strings.Replace(text, "answers for x", `answers for 3 of "x"`, 1)
		text = strings.Replace(text, "requests 3 of \"x\", and the pod has", `requests 3`, 1)
		return scheduler(text)
	}, Unknown)
}

// Each reason that kube-scheduler's own plugins can give is known.
func TestUpstreamReasons(t *testing.T) {
	plugins := filepath.Join(module(t), "pkg/scheduler/framework/plugins")
	folders, err := filepath.Glob(filepath.Join(plugins, "*/*.go"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no plugins in %s: %v", plugins, err)
	}
	seen := map[string]bool{}
	var all []said
	for _, file := range folders {
		folder := filepath.Dir(file)
		if seen[folder] || slices.Contains([]string{"testing", "feature", "helper", "names", "imagelocality", "queuesort", "defaultbinder", "deferredpodscheduling", "examples"}, filepath.Base(folder)) {
			continue
		}
		seen[folder] = true
		all = append(all, quiet(t, folder)...)
	}
	if len(all) < 30 {
		t.Errorf("only %d texts were found", len(all))
	}
	check(t, all, scheduler, Unknown)
}

// quiet is texts of a folder that may have none.
func quiet(t *testing.T, folder string) []said {
	set := token.NewFileSet()
	files, _ := filepath.Glob(filepath.Join(folder, "*.go"))
	var all []said
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if len(n.Args) < 2 || callee(n.Fun) != "fwk.NewStatus" {
					return true
				}
				if code := callee(n.Args[0]); code != "fwk.Unschedulable" && code != "fwk.UnschedulableAndUnresolvable" && code != "fwk.Pending" {
					return true
				}
				for _, arg := range n.Args[1:] {
					if inner, ok := arg.(*ast.CallExpr); ok && callee(inner.Fun) == "fmt.Sprintf" {
						arg = inner.Args[0]
					}
					if text, ok := literal(arg); ok {
						all = append(all, said{text, set.Position(arg.Pos()).String()})
					}
				}
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if strings.HasPrefix(strings.ToLower(name.Name), "errreason") && i < len(n.Values) {
						if text, ok := literal(n.Values[i]); ok {
							all = append(all, said{text, set.Position(name.Pos()).String()})
						}
					}
				}
			}
			return true
		})
	}
	return all
}

// Each reason for which kubecri does not start a container is known.
func TestKubecrisReasons(t *testing.T) {
	const root = "../../kubecri/"
	var all []said
	for folder, files := range map[string][]string{
		"claims": {"take.go", "store.go", "verify.go", "refusal.go", "containers.go", "claims.go", "namespaces.go"},
		"admit":  {"entitlement.go", "admit.go", "plugins.go"},
		"inject": {"slots.go", "merge.go", "users.go"}, "agent": {"device.go"}, "soplugins": {"allocate.go"},
	} {
		for _, file := range files {
			if _, err := os.Stat(root + folder + "/" + file); err != nil {
				t.Error(err)
			}
		}
		for _, s := range texts(t, root+folder, []string{"fmt.Errorf", "Refusef", "claims.Refusef"}, "") {
			file, _, _ := strings.Cut(filepath.Base(s.at), ":")
			if slices.Contains(files, file) && !strings.HasPrefix(s.text, "claims:") && !strings.HasPrefix(s.text, "delete SlotClaim") {
				all = append(all, s)
			}
		}
	}
	check(t, all, func(text string) Meaning {
		text = strings.NewReplacer("x; not here now",
			"x: no device plugin of this node answers for it: x; not here now", "x; not loaded",
			"x: no device plugin of this node answers for it: none is loaded; not loaded", "x: x: none is loaded",
			"x: no device plugin of this node answers for it: none is loaded",
			`x: x: "x"`, `x: no device plugin of this node answers for it: "x"`, "x: x: device plugin", "x: no device plugin of this node answers for it: device plugin",
			`"x": x: device plugin`, `"x": no device plugin of this node answers for it: device plugin`).Replace(text)
		text = strings.Replace(text, "assigned it no x: x", "assigned it no slots: x", 1)
		if text == "x: x" {
			text = "x: no device plugin of this node answers for it"
		}
		return Kubelet("CreateContainerError", `failed: kubecri does not start container "main" of pod a/b without its slots s-0: `+text)
	}, "DeviceUnavailable")
}

// Each word of the kubelet's for a container that waits, or a pod that it does not
// admit, is known.
func TestKubeletsReasons(t *testing.T) {
	root := module(t)
	words := map[string]bool{}
	for path, pattern := range map[string]*regexp.Regexp{
		"pkg/kubelet/images/types.go":                        regexp.MustCompile(`errors\.New\("(\w+)"\)`),
		"pkg/kubelet/kuberuntime/kuberuntime_container.go":   regexp.MustCompile(`errors\.New\("(\w+Error)"\)`),
		"pkg/kubelet/container/sync_result.go":               regexp.MustCompile(`errors\.New\("(\w+)"\)`),
		"pkg/kubelet/lifecycle/predicate.go":                 regexp.MustCompile(`\t[A-Z]\w+ = +"(\w+)"`),
		"pkg/kubelet/lifecycle/handlers.go":                  regexp.MustCompile(`Reason += "(\w+)"`),
		"pkg/kubelet/nodeshutdown/nodeshutdown_manager.go":   regexp.MustCompile(`(?i)reason += "(\w+)"`),
		"pkg/kubelet/eviction/helpers.go":                    regexp.MustCompile(`Reason = "(\w+)"`),
		"staging/src/k8s.io/api/core/v1/types.go (not read)": nil,
	} {
		if pattern == nil {
			continue
		}
		found := pattern.FindAllStringSubmatch(read(t, filepath.Join(root, path)), -1)
		if len(found) == 0 {
			t.Errorf("no words in %s", path)
		}
		for _, f := range found {
			words[f[1]] = true
		}
	}
	for word := range words {
		if word == "OutOf" { // with a resource's name behind it
			word = "OutOfcpu"
		}
		if _, length := find(kubeletTexts, word+": message"); length == 0 {
			t.Errorf("nobody knows what the kubelet's %s means", word)
		}
	}
}

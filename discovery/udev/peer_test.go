package udev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/discovery/uevent"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/need"
)

// TestSelectsWhatUdevSelects compares random rules with what udevadm says of them, on
// every device of the recordings.
func TestSelectsWhatUdevSelects(t *testing.T) {
	program := need.Program(t, "apt-get install udev", "udevadm")
	if !sysfstest.InNamespace(t) {
		return
	}
	m := sysfstest.New(t, sysfstest.Recording(t, "serial"), sysfstest.Recording(t, "camera"), sysfstest.Recording(t, "pci"))
	m.Add(t, "P: /devices/virtual/block/cciss!c0d0\nN: cciss/c0d0\nE: SUBSYSTEM=block\nE: DEVTYPE=disk\nE: MAJOR=104\nE: MINOR=0\nA: model=Fast  \\n\n")
	if err := os.WriteFile(m.Tree.UdevData+"/b104:0", []byte("G:once\nG:now\nQ:now\nV:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	devices := sysfstest.Devices(t, m.Tree)
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("KUBESLOT_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KUBESLOT_TEST_SEED=%d", seed)
	g := generator{rand: rand.New(rand.NewPCG(seed, 0)), devices: devices}
	var texts []string
	var rules []*rule
	var file strings.Builder
	for i := range 1000 {
		text := g.rule()
		if i < len(fixedRules) {
			text = fixedRules[i]
		}
		r, err := parseRule(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		texts, rules = append(texts, text), append(rules, r)
		fmt.Fprintf(&file, "%s, ENV{SELECTED_%d}=\"1\"\n", text, i)
	}

	seal(t)
	if err := errors.Join(os.CopyFS("/run/udev/data", os.DirFS(m.Tree.UdevData)),
		os.WriteFile("/run/udev/rules.d/1.rules", []byte(file.String()), 0o644),
		unix.Mount(m.Tree.Sys, "/sys", "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	selections, differences := 0, 0
	for _, d := range devices {
		command := exec.CommandContext(t.Context(), program, "test", "--action=add", "/sys"+d.Path())
		command.Env = append(os.Environ(), "SYSTEMD_DEVICE_VERIFY_SYSFS=0", "SYSTEMD_LOG_LEVEL=warning")
		output, err := command.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", command.Args, err, output)
		}
		theirs := map[string]bool{}
		for line := range strings.Lines(string(output)) {
			if number, ok := strings.CutPrefix(strings.TrimSpace(line), "SELECTED_"); ok {
				theirs[strings.TrimSuffix(number, "=1")] = true
			}
		}
		if !strings.Contains(string(output), "DEVPATH="+d.Path()) {
			t.Fatalf("udevadm says nothing of %s:\n%s", d.Path(), output)
		}
		selections += len(theirs)
		for i, r := range rules {
			if ours := r.matches(d); ours != theirs[strconv.Itoa(i)] {
				if differences++; differences <= 20 {
					t.Errorf("%s selects %s: we say %v, udevadm %v", texts[i], d.Path(), ours, !ours)
				}
			}
		}
	}
	t.Logf("%d rules on %d devices: udevadm selects %d times, %d differences", len(rules), len(devices), selections, differences)
	if selections < len(rules) {
		t.Errorf("udevadm selected only %d times: the rules test nothing", selections)
	}
}

// fixedRules are about an attribute that ends in two spaces, and a tag that the device once had.
var fixedRules = []string{
	`TAG=="once"`, `TAG!="once"`, `TAGS=="once"`, `TAG=="now"`, `TAGS=="now"`, `ENV{TAGS}=="*:once:*"`,
	`ATTR{model}=="Fast"`, `ATTR{model}=="Fast "`, `ATTR{model}=="Fast  "`, `ATTR{model}!="Fast"`, `ATTR{model}!="Fast  "`,
	`ATTR{model}=="Fast  |"`, `ATTR{model}=="|Fast  "`, `ATTR{model}=="|Fast"`, `ATTR{model}=="x|Fast  "`, `ATTR{model}=="x|Fast"`,
	`ATTR{model}=="x |Fast"`, `ATTR{model}=="x |Fast  "`, `ATTR{model}=="F*"`, `ATTR{model}=="*t"`, `ATTR{model}=="*t "`, `ATTR{model}=="* "`,
	`ATTR{model}=="||Fast"`, `ATTR{model}=="Fast||"`, `ATTR{model}=="?ast|x "`,
}

// generator makes rules that have a good chance to select one of the devices.
type generator struct {
	rand    *rand.Rand
	devices []*sysfs.Device
}

func pick[T any](g generator, from []T) T { return from[g.rand.IntN(len(from))] }

func (g generator) rule() string {
	d := pick(g, g.devices)
	above := d
	for above.Parent() != nil && g.rand.IntN(2) == 0 {
		above = above.Parent()
	}
	var conditions []string
	for range 1 + g.rand.IntN(3) {
		conditions = append(conditions, g.condition(d, above))
	}
	return strings.Join(conditions, pick(g, []string{", ", ",", ", \\\n\t"}))
}

func (g generator) condition(d, above *sysfs.Device) string {
	attributes := []string{
		"idVendor", "idProduct", "product", "serial", "bInterfaceClass", "index", "name", "vendor", "class", "devnum", "model", "nosuch", "driver", "subsystem",
	}
	attribute := pick(g, attributes)
	of, _ := d.Attr(attribute)
	ofAbove, _ := above.Attr(attribute)
	tag := func(d *sysfs.Device) string { return pick(g, append([]string{"nosuch"}, d.Tags()...)) }
	// Of properties, udevadm test has the kernel's alone.
	property := pick(g, []string{"DEVTYPE", "MAJOR", "MINOR", "SUBSYSTEM", "DEVNAME", "PRODUCT", "NOSUCH"})
	kind := pick(g, [][2]string{
		{"KERNEL", d.Name()}, {"SUBSYSTEM", d.Subsystem()}, {"DRIVER", d.Driver()}, {"DEVPATH", d.Path()},
		{"ATTR{" + attribute + "}", of}, {"ENV{" + property + "}", d.Property(property)}, {"TAG", tag(d)},
		{"KERNELS", above.Name()}, {"SUBSYSTEMS", above.Subsystem()}, {"DRIVERS", above.Driver()},
		{"ATTRS{" + attribute + "}", ofAbove}, {"TAGS", tag(above)},
	})
	operator := "=="
	if g.rand.IntN(4) == 0 {
		operator = "!="
	}
	value := g.value(kind[1])
	if strings.HasPrefix(kind[0], "TAG") && value == "?*" {
		// udevd turns =="?*" to !="" and then takes a device without tags for one that
		// has some; we do not.
		value = "*"
	}
	return kind[0] + operator + `"` + value + `"`
}

// value is a value, or a pattern near it.
func (g generator) value(v string) string {
	at := func() int { return g.rand.IntN(len(v) + 1) }
	switch g.rand.IntN(13) {
	case 0:
		i := at()
		return v[:i] + "*"
	case 1:
		i := at()
		return "*" + v[i:]
	case 2:
		i, j := at(), at()
		return v[:min(i, j)] + "*" + v[max(i, j):]
	case 3:
		if i := at(); i < len(v) {
			return v[:i] + "?" + v[i+1:]
		}
		return "?*"
	case 4:
		if i := at(); i < len(v) {
			return v[:i] + pick(g, []string{"[0-9]", "[!0-9]", "[^a-z]", "[a-z0-9:]", "[]]", "[[:alpha:]]", "[![:digit:]]", "[x-]", `[\]a]`, "["}) + v[i+1:]
		}
		return ""
	case 5:
		return v + "|" + pick(g, []string{"", "nosuch", "*0", v})
	case 6:
		return pick(g, []string{"nosuch", "", "?"}) + "|" + v
	case 7:
		return v + pick(g, []string{" ", "x", "*", "?"})
	case 8: // What a regular expression would take for something else.
		i, j := at(), at()
		expression := pick(g, []string{".*", ".?", ".+", "[0-9]+", "[a-z]*", `\d`, "(", "^", "$", "."})
		return v[:min(i, j)] + expression + v[max(i, j):]
	case 9:
		if v != "" { // A \ before the last quote would quote that.
			return `\` + v + pick(g, []string{"", "*"})
		}
	}
	return v
}

// TestUdevdsEvents runs udevd in a network namespace of its own: what its rules say of a
// device is there with the report.
func TestUdevdsEvents(t *testing.T) {
	program := need.Program(t, "apt-get install udev", "udevadm")
	if !sysfstest.InNamespace(t) {
		return
	}
	tree := sysfstest.Own(t)
	tree.UdevData = "/run/udev/data"
	seal(t)
	if err := errors.Join(unix.Mount(tree.Sys, "/sys", "", unix.MS_BIND, ""),
		os.WriteFile("/run/udev/rules.d/1.rules", []byte(`SUBSYSTEM=="macvtap", ENV{ID_KUBESLOT}="hello", TAG+="kubeslot"`+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	udevd := exec.Command(program)
	udevd.Args = []string{"systemd-udevd", "--children-max=2"}
	udevd.Env = append(os.Environ(), "SYSTEMD_IGNORE_CHROOT=1")
	udevd.Stdout, udevd.Stderr = &log, &log
	udevd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := udevd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = udevd.Process.Kill()
		_ = udevd.Wait()
		if t.Failed() {
			t.Logf("udevd:\n%s", &log)
		}
	}()
	await.That(t, "udevd to make its socket /run/udev/control", tree.UdevdRuns)

	type seen struct {
		*uevent.Event
		at time.Time
	}
	events := make(chan seen, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listening := make(chan struct{})
	go func() {
		_ = uevent.Watch(ctx, func(e *uevent.Event) {
			if e == nil {
				close(listening)
			} else if e.Subsystem == "macvtap" && e.Action == "add" {
				events <- seen{e, time.Now()}
			}
		})
	}()
	<-listening
	reports := discover(t, &Handler{&uevent.Monitor{Tree: tree, ScanInterval: time.Hour}},
		`udevRules: ['ENV{ID_KUBESLOT}=="hello", TAG=="kubeslot"']`)
	unlabelled := discover(t, &Handler{&uevent.Monitor{Tree: tree, ScanInterval: time.Hour}},
		`udevRules: ['SUBSYSTEM=="macvtap", TAG!="kubeslot"']`)
	awaitNodes(t, reports)
	awaitNodes(t, unlabelled)

	parent := addVeth(t)
	for try := 1; ; try++ {
		began := time.Now()
		tap := addMacvtap(t, "plug0", parent)
		r := awaitNodes(t, reports, fmt.Sprintf("/dev/tap%d", tap.Attrs().Index))
		took := r.at.Sub(began)
		var both []seen
		var texts []string
		for len(both) < 2 {
			select {
			case e := <-events:
				both = append(both, e)
				texts = append(texts, fmt.Sprintf("udevd: %v, %s, SEQNUM %v",
					e.Udevd, e.Properties["ID_KUBESLOT"], e.Properties["SEQNUM"] != ""))
			case <-time.After(await.Patience):
				t.Fatalf("want the kernel's event and udevd's, have %q", texts)
			}
		}
		want := []string{"udevd: false, , SEQNUM true", "udevd: true, hello, SEQNUM true"}
		if !slices.Equal(texts, want) {
			t.Fatalf("events %q, want %q", texts, want)
		}
		udevds := both[1].at.Sub(both[0].at)
		t.Logf("plugged in → reported, with udevd: %v, of which udevd took %v", took, udevds)
		// The device was not looked at before udevd was ready with it.
		if took <= time.Second && len(unlabelled) == 0 {
			return
		}
		// udevd is not waited for without end, and is slow where the machine is busy.
		if len(unlabelled) > 0 && udevds < 100*time.Millisecond || try == 10 {
			t.Fatalf("reported after %v, in try %d, and %d times without udevd's tag", took, try, len(unlabelled))
		}
		if err := netlink.LinkDel(tap); err != nil {
			t.Fatal(err)
		}
		awaitNodes(t, reports)
		for len(unlabelled) > 0 {
			if r := <-unlabelled; len(r.Devices) > 0 {
				awaitNodes(t, unlabelled)
			}
		}
	}
}

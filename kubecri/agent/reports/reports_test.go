package reports

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/kubeslot/kubeslot/discovery"
)

// Devices beyond those that are taken of all sources are counted.
func TestMoreDevicesThanAreTaken(t *testing.T) {
	began, full := time.Unix(1000, 0), map[string]Device{}
	for i := range maxDevices {
		id := fmt.Sprint(i)
		full[id] = Device{Device: discovery.Device{ID: id}, Hash: id}
	}
	r := New(DefaultGrace, began, began)
	r.Join("cam@built-in", true)
	r.Join("cam@/a.sock", false)
	r.Report("cam@built-in", true, full, nil)
	r.Report("cam@/a.sock", true, map[string]Device{"more": {Device: discovery.Device{ID: "more"}, Hash: "more"}}, nil)
	is := r.Stands(began, func(string) string { return "" })
	want := "1 devices: cam@/a.sock reports 1 devices beyond the 20000 that are taken of all sources"
	if got := Summary(is.Rejected); got != want || len(is.Devices) != maxDevices {
		t.Errorf("%d devices, left out %q, want %d and %q", len(is.Devices), got, maxDevices, want)
	}
}

// TestReports runs the stories in testdata/reports. Commands:
//
//	begin [registered=30s]        a session with the default grace begins; after that time all
//	                              endpoints that a former life of the agent knew have registered
//	join source=a [built-in]      the source is waited for
//	report source=a [local]       lines are the ids of all devices that it sees, with "=hash" for
//	                              one of another hash than its id
//	fail source=a                 it stopped working
//	remove source=a               and is not a source any more
//	clear                         other nodes see the devices
//	at t=40s                      since the session began
//	named hash=x id=b             the device that the slices have of a hash
//	works [since=10s]             may this node, which discovers for others since then, go on
//
// Each answer is what is known then: the devices, with "?" for one that new pods do not
// get; what becomes of those that only the slices have; and when this changes by itself.
func TestReports(t *testing.T) {
	datadriven.Walk(t, "testdata/reports", func(t *testing.T, path string) {
		begin := time.Unix(1000, 0)
		var r *Reports
		now, names := begin, map[string]string{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var source string
			d.MaybeScanArgs(t, "source", &source)
			switch d.Cmd {
			case "begin":
				registered := time.Duration(0)
				if d.HasArg("registered") {
					registered = duration(t, d, "registered")
				}
				now, names = begin, map[string]string{}
				fresh := New(DefaultGrace, begin, begin.Add(registered))
				r = &fresh
			case "join":
				r.Join(source, d.HasArg("built-in"))
			case "report":
				shared, devices := !d.HasArg("local"), map[string]Device{}
				for id := range strings.FieldsSeq(d.Input) {
					id, hash, other := strings.Cut(id, "=")
					if !other {
						hash = id
					}
					devices[hash] = Device{Device: discovery.Device{ID: id, Properties: map[string]string{"BY": source}}, Hash: hash, Shared: shared}
				}
				r.Report(source, shared, devices, nil)
			case "fail":
				r.Fail(source, now)
			case "remove":
				r.Remove(source, now)
			case "clear":
				r.Clear()
			case "named":
				var hash, id string
				d.ScanArgs(t, "hash", &hash)
				d.ScanArgs(t, "id", &id)
				names[hash] = id
			case "works":
				since := time.Duration(0)
				if d.HasArg("since") {
					since = duration(t, d, "since")
				}
				return fmt.Sprintln(r.Works(begin.Add(since), now))
			case "at":
				now = begin.Add(duration(t, d, "t"))
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			return answer(r, now, begin, names)
		})
	})
}

func duration(t *testing.T, d *datadriven.TestData, key string) time.Duration {
	t.Helper()
	var text string
	d.ScanArgs(t, key, &text)
	parsed, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func answer(r *Reports, now, begin time.Time, names map[string]string) string {
	var out strings.Builder
	for _, w := range r.Expire(now) {
		fmt.Fprintf(&out, "withdrew %d of %s\n", len(w.Devices), w.Source)
	}
	if again := r.Expire(now); len(again) > 0 {
		return "expires twice"
	}
	st := r.Stands(now, func(hash string) string { return names[hash] })
	var devices []string
	for _, f := range st.Devices {
		text := f.ID
		if len(r.sources) > 1 {
			text += "@" + f.Properties["BY"]
		}
		if f.Unschedulable {
			text += "?"
		}
		devices = append(devices, text)
	}
	slices.Sort(devices)
	if len(devices) == 0 {
		devices = []string{"none"}
	}
	fmt.Fprintf(&out, "devices: %s\n", strings.Join(devices, " "))
	if !st.Settled {
		text := func(a Age) string { return [...]string{"stay", "stay, not for new pods", "go"}[a] }
		fmt.Fprintf(&out, "of the slices: shared %s; local %s", text(st.Unreported.Shared), text(st.Unreported.Local))
		if len(st.Had) > 0 {
			fmt.Fprintf(&out, "; %d reported", len(st.Had))
		}
		out.WriteString("\n")
	}
	for _, err := range st.Rejected {
		fmt.Fprintf(&out, "rejected: %v\n", err)
	}
	if !st.Next.IsZero() {
		fmt.Fprintf(&out, "next: %s\n", st.Next.Sub(begin))
	}
	return out.String()
}

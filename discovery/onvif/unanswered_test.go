package onvif

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/onvifcamera"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

// A camera that answers probes and no requests is a warning that names it and says why,
// for the Configurations that may want it.
func TestACameraThatCannotBeAsked(t *testing.T) {
	l := lan.New(t)
	camera, host := startCamera(t, l, onvifcamera.Config{})
	camera.StopHTTP()
	h := &Handler{Interval: testInterval}
	r := discover(t, h, discovery.Request{})
	others := discover(t, h, discovery.Request{Details: "uuids: {items: [" + uuidB + "]}"})
	r.want(time.Minute, "a camera that is left out")
	select {
	case warning := <-r.warnings:
		for _, part := range []string{uuidA, "announced by " + host.IPv4.String(), "cannot be asked",
			"connection refused"} {
			if !strings.Contains(warning, part) {
				t.Errorf("warned of %q, which lacks %q", warning, part)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("no warning within a minute")
	}
	rounds := camera.Count("Probe") + 16
	await.That(t, "two rounds", func() bool { return camera.Count("Probe") >= rounds })
	if len(r.warnings) > 0 || len(others.warnings) > 0 {
		t.Errorf("%d more warnings, and %d of a Configuration for other cameras, want none",
			len(r.warnings), len(others.warnings))
	}
}

func TestWarningsOfCamerasThatCannotBeAsked(t *testing.T) {
	all := make([]unanswered, 1000)
	for i := range all {
		all[i].uuid, all[i].scopes, all[i].err = fmt.Sprint(i), []string{"s"}, io.EOF
		all[i].xaddr, all[i].source = "http://10.0.0.5/d", netip.MustParseAddr("10.0.0.5")
	}
	for filters, want := range map[string]int{
		"{}": maxUnansweredWarnings, "uuids: {items: ['7', '8']}": 2, "scopes: {items: [x]}": 0,
		"ipAddresses: {items: [10.0.0.6]}": 0, "ipAddresses: {items: [10.0.0.5]}": maxUnansweredWarnings,
	} {
		warnings := 0
		request := discovery.Request{Details: filters, Warn: func(string) { warnings++ }}
		d, err := parseDetails(request)
		if err != nil {
			t.Fatal(err)
		}
		q := newQuery(d, request, newClient(anyAddress))
		lists := 0
		for range 3 {
			q.warnUnanswered(func() []unanswered { lists++; return all })
		}
		wantLists := 3
		if want == maxUnansweredWarnings {
			wantLists = 1
		}
		if warnings != want || lists != wantLists {
			t.Errorf("%s: %d warnings of %d lists, want %d of %d", filters, warnings, lists, want, wantLists)
		}
	}
}

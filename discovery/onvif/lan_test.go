package onvif

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/onvifcamera"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

func TestMain(m *testing.M) { lan.Main(m) }

const (
	uuidA = "3fa1fe68-b915-4053-a3e1-a8294833fe3c"
	uuidB = "5f5a69c2-e0ae-504f-829b-00fcdab169cc"

	// testInterval makes three silent rounds short. It leaves cameras time to answer.
	testInterval = time.Second
)

// startCamera starts a simulated camera on a host of its own.
func startCamera(t *testing.T, l *lan.LAN, config onvifcamera.Config) (*onvifcamera.Camera, *lan.Host) {
	t.Helper()
	return startCameraOn(t, l.Host(), config)
}

func startCameraOn(t *testing.T, host *lan.Host, config onvifcamera.Config) (*onvifcamera.Camera, *lan.Host) {
	t.Helper()
	if config.UUID == "" {
		config.UUID = uuidA
	}
	if config.Port == 0 {
		config.Port = 80
	}
	config.MaxDelay = 200 * time.Millisecond
	var camera *onvifcamera.Camera
	err := host.Do(func() (err error) {
		camera, err = onvifcamera.Start(config)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(camera.Kill)
	return camera, host
}

// reports are what a Discover reported.
type reports struct {
	t        *testing.T
	results  chan discovery.Result
	warnings chan string
	last     []discovery.Device
	complete bool // a report was as wanted
	stop     func()
}

// discover runs the handler until the test ends.
func discover(t *testing.T, h *Handler, request discovery.Request) *reports {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	r := &reports{t: t, results: make(chan discovery.Result, 1000), warnings: make(chan string, 1000)}
	request.Warn = func(message string) { r.warnings <- message }
	done := make(chan error, 1)
	go func() { done <- h.Discover(ctx, request, func(result discovery.Result) { r.results <- result }) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		began := time.Now()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Discover() = %v after its context ended, want %v", err, context.Canceled)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("Discover() took %s to end", took)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// next returns the next report's devices.
func (r *reports) next(within time.Duration, what string) []discovery.Device {
	r.t.Helper()
	select {
	case result := <-r.results:
		if !result.Shared {
			r.t.Errorf("reported %+v, want shared devices", result)
		}
		r.last = result.Devices
		return r.last
	case <-time.After(within):
		r.t.Fatalf("no report within %s of %s; the last one was %s", within, what, ids(r.last))
		return nil
	}
}

// want awaits a report, which must be of these devices. Where the machine is busy the first ones may come before all
// cameras have answered.
func (r *reports) want(within time.Duration, what string, want ...string) []discovery.Device {
	r.t.Helper()
	devices := r.next(within, what)
	for !r.complete && len(devices) < len(want) {
		devices = r.next(within, what)
	}
	r.complete = true
	if diff := cmp.Diff(want, ids(devices)); diff != "" {
		r.t.Fatalf("after %s, reported (-want +got):\n%s", what, diff)
	}
	return devices
}

// wantNone checks that nothing was reported.
func (r *reports) wantNone(why string) {
	r.t.Helper()
	select {
	case result := <-r.results:
		r.t.Fatalf("reported %s, after %s, though %s", ids(result.Devices), ids(r.last), why)
	default:
	}
}

func ids(devices []discovery.Device) (all []string) {
	for _, d := range devices {
		all = append(all, d.ID)
	}
	return all
}

func akriID(host *lan.Host, uuid string) string {
	return fmt.Sprintf("http://%s/onvif/device_service-%s", host.IPv4, uuid)
}

// canceled returns a context that has ended.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	discoveryv0 "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// What a Configuration's author got wrong is in its status, in an Event and in both nodes'
// slices, so that it can be found; corrected, it is gone. Others are not held up.
func TestBadDiscoveryDetails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cases := map[string]struct {
		handler, details, reason string
		parts                    []string
	}{
		"no-handler": {"sonar", "", "UnknownHandler", []string{`"sonar"`}},
		"rule":       {"udev", `udevRules: ['KERNEL=="video*", SUBSYSTEM="video4linux"']`, "", []string{"udevRules[0]", "column 28"}},
		"wrong-type": {"udev", `udevRules: 7`, "", []string{"udevRules"}},
		"missing":    {"opcua", `{}`, "", []string{"opcuaDiscoveryMethod"}},
		"filter":     {"onvif", `ipAddresses: {action: Perhaps, items: []}`, "", []string{"ipAddresses.action", "Perhaps"}},
		"outside":    {"debugEcho", `{descriptions: [outside0], mounts: [{containerPath: /etc, hostPath: /etc}]}`, "", []string{"/etc"}},
	}
	r.withoutWebhook(func() {
		for name, c := range cases {
			r.discover(name, c.handler, 1, c.details)
		}
	})
	r.debugEcho("good", 1, nil, "good0")
	for name, c := range cases {
		r.awaitProblem(name, c.reason, c.parts...)
	}
	for name, reason := range map[string]string{"no-handler": "UnknownHandler", "wrong-type": "InvalidDiscoveryDetails"} {
		r.awaitEvent(name, reason, cases[name].handler)
		r.awaitReportedProblem(name, cases[name].parts[0])
	}
	// The handler of a Configuration cannot be changed: its author makes it anew.
	r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, "rule", metav1.DeleteOptions{}))
	r.discover("rule", "udev", 1, `udevRules: ['KERNEL=="video*", SUBSYSTEM=="video4linux"']`)
	r.await("the problem of the corrected rule to be gone", func() (bool, string) {
		s := r.status("rule")
		return len(s.Problems) == 0 && condition(s, akriv0.ConditionDiscovering).Status == metav1.ConditionUnknown, // it finds nothing
			fmt.Sprintf("%+v", s)
	})
}

// condition returns the condition of the type, or a zero one.
func condition(s akriv0.ConfigurationStatus, of string) metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == of {
			return c
		}
	}
	return metav1.Condition{}
}

func (r *rig) status(configuration string) akriv0.ConfigurationStatus {
	r.Helper()
	c, err := akri.AkriV0().Configurations(r.ns).Get(r.ctx, configuration, metav1.GetOptions{})
	r.check(err)
	return c.Status
}

// countsBrokers reports whether the status has so many brokers.
func countsBrokers(s akriv0.ConfigurationStatus, desired, ready int32) bool {
	return s.Brokers != nil && s.Brokers.Desired == desired && s.Brokers.Ready == ready
}

// awaitReportedProblem waits until both nodes' slices have a problem of the Configuration,
// with the part in its message.
func (r *rig) awaitReportedProblem(configuration, part string) {
	r.Helper()
	r.await("both nodes' slices to have the problem of "+configuration, func() (bool, string) {
		list, err := akri.KubeslotV1alpha1().DeviceSlices().List(r.ctx, metav1.ListOptions{})
		r.check(err)
		with := map[string]bool{}
		for _, s := range list.Items {
			for _, p := range s.Spec.Problems {
				if p.Configuration != nil && p.Configuration.Namespace == r.ns && p.Configuration.Name == configuration && strings.Contains(p.Message, part) {
					with[s.Spec.NodeName] = true
				}
			}
		}
		return with[nodeA] && with[nodeB], fmt.Sprint(with)
	})
}

// awaitProblem waits until the Configuration's status has a problem with the reason, if
// one is given, and the parts in its message.
func (r *rig) awaitProblem(configuration, reason string, parts ...string) {
	r.Helper()
	r.await(fmt.Sprintf("the status of %s to say %s %q", configuration, reason, parts), func() (bool, string) {
		s := r.status(configuration)
		for _, p := range s.Problems {
			if strings.Contains(p.Reason, reason) && containsAll(p.Message, parts) {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", s)
	})
}

// settled waits until the Configuration's one Instance is written no more, and returns it.
func (r *rig) settled(configuration string) (in akriv0.Instance) {
	r.Helper()
	in = r.awaitInstance(configuration, nodeA)
	since := time.Now()
	r.await("the Instance of "+configuration+" to be written no more", func() (bool, string) {
		if now := r.instances(configuration)[0]; now.ResourceVersion != in.ResourceVersion {
			in, since = now, time.Now()
		}
		return time.Since(since) >= settleWindow, in.ResourceVersion
	})
	return in
}

// foreign is a discovery handler that somebody else wrote: it speaks Akri's protocol,
// in the test's process, beside node-a's kubecri.
type foreign struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer
	*rig
	name    string
	say     chan *discoveryv0.DiscoverResponse // to the one stream
	streams chan struct{}                      // one is begun
	server  *grpc.Server
}

func (r *rig) newForeign(name string) *foreign {
	r.Helper()
	f := &foreign{rig: r, name: name, say: make(chan *discoveryv0.DiscoverResponse), streams: make(chan struct{}, 100)}
	f.serve()
	r.Cleanup(func() { f.server.Stop() })
	f.register()
	return f
}

func (f *foreign) socket() string { return filepath.Join(theNode().HandlersDir, f.name+".sock") }

func (f *foreign) serve() {
	f.Helper()
	l, err := net.Listen("unix", f.socket())
	f.check(err)
	f.server = grpc.NewServer()
	discoveryv0.RegisterDiscoveryHandlerServer(f.server, f)
	go func() { _ = f.server.Serve(l) }()
}

func (f *foreign) register() {
	f.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(theNode().HandlersDir, "agent-registration.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	f.check(err)
	defer conn.Close()
	_, err = discoveryv0.NewRegistrationClient(conn).RegisterDiscoveryHandler(f.ctx,
		&discoveryv0.RegisterDiscoveryHandlerRequest{Name: f.name, Endpoint: "/elsewhere/" + f.name + ".sock"})
	f.check(err)
}

func (f *foreign) Discover(_ *discoveryv0.DiscoverRequest, stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
	f.streams <- struct{}{}
	for {
		select {
		case response := <-f.say:
			if err := stream.Send(response); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// A handler that registers is used, and what it reports wrongly harms nobody: the right
// devices of the report are found, the others are named in the status.
func TestForeignHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.check(r.createConfiguration("toys", akriv0.ConfigurationSpec{Capacity: 1, PropertyPrefixes: []string{"TOASTER"},
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "toaster"}}))
	r.awaitProblem("toys", "UnknownHandler", `"toaster"`)
	f := r.newForeign("toaster")
	good := &discoveryv0.Device{Id: "good", Properties: map[string]string{"TOASTER": "four slices"},
		DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/toaster", HostPath: "/dev/zero", Permissions: "r"}}}
	f.say <- &discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{
		good,
		{Id: "good"},
		{Id: strings.Repeat("long", 10_000)},
		{Id: "escapes", Mounts: []*discoveryv0.Mount{{ContainerPath: "/x", HostPath: "/dev/../etc"}}},
		{Id: "shadow", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/x", HostPath: "/etc/shadow", Permissions: "rw"}}},
		{Id: "env", Properties: map[string]string{"A=B\x00": "C"}},
	}}
	r.awaitInstance("toys", nodeA)
	r.awaitProblem("toys", "DevicesRejected", "escapes", "shadow")
	r.create(newPod("p", "", map[string]int64{"toys": 1}))
	r.agree("p", "toys", 1)
	if got := strings.TrimSpace(r.exec("p", "read", "/dev/toaster", "4")); got != "00000000" {
		t.Errorf("read from /dev/toaster: %q", got)
	}

	// It registers again and again, as Akri's do: the stream goes on.
	for range 100 {
		f.register()
	}
	f.say <- &discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{good}}
	r.await("no device to be left out any more", func() (bool, string) {
		s := r.status("toys")
		rejected := slices.ContainsFunc(s.Problems, func(p akriv0.ConfigurationProblem) bool { return p.Reason == "DevicesRejected" })
		return !rejected, fmt.Sprintf("%+v", s)
	})
	if n := len(f.streams); n != 1 {
		t.Errorf("%d streams were opened, want 1", n)
	}

	// It crashes, and is there again: its device was never gone.
	before := r.settled("toys")
	f.server.Stop()
	f.serve()
	f.register()
	f.say <- &discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{good, {Id: "other"}}}
	r.awaitDevices("toys", 2)
	for _, in := range r.instances("toys") {
		if in.Name == before.Name && in.ResourceVersion != before.ResourceVersion {
			t.Errorf("Instance %s was written when its handler crashed", in.Name)
		}
	}
	f.say <- &discoveryv0.DiscoverResponse{}
	r.awaitWithdrawn("toys")
	r.awaitEvent("p", "DeviceGone")
}

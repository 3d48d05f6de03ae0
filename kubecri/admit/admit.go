// Package admit decides whether a container may be created, and with which
// devices: it reads the pod's assignment, claims the slots, asks the device plugins
// and returns what the container gets. Package intercept in proxy mode, and package nri in NRI mode,
// bring the request here and apply the answer.
//
// The rule for errors: a container that was assigned devices, or asks for some,
// never starts without them; any other never waits for anything here. A static pod
// is such another: it cannot be assigned anything, and if it asks for slots, that
// is logged as soon as its mirror pod is here.
package admit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/kubecri/tracing"
	"github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/assignment/signing"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Config configures an Admitter; everything but CDI, CDIUsable, Verifier,
// Plugins, Events, Metrics and Tracer is required.
type Config struct {
	Node string
	// Pods are those of this node. A pod that is not there (yet) is judged by
	// its annotations alone.
	Pods   corelisters.PodLister
	Claims *claims.Claims
	// Device returns the device behind an Instance, with the properties that
	// containers are to see. It may wait until ctx is done for one that is not
	// known yet.
	Device func(ctx context.Context, instance string) (discovery.Device, error)
	// DeviceTimeout bounds that wait.
	DeviceTimeout time.Duration
	// CDI returns the name by which the runtime knows a device, "" for none.
	CDI func(ctx context.Context, instance string, device discovery.Device) string
	// CDIUsable, if set, returns an error if the runtime would not give a container the CDI devices of ours that
	// it requests. It may wait until ctx is done.
	CDIUsable func(ctx context.Context) error
	// Events, if set, records for pods why their containers do not start.
	Events record.EventRecorder
	// Verifier, if set, takes only assignments that a trusted scheduler signed.
	Verifier *signing.Verifier
	// Plugins are the node's device plugins; nil is none.
	Plugins *soplugins.Plugins
	// Advertised, if set, reports whether the Node says that device plugins of this node give out a
	// resource: so it did before kubecri started, when the plugins have not said so yet.
	Advertised func(types.ResourceName) bool
	// Runtime is asked which containers use devices of Plugins; required if these are set.
	Runtime crilist.Runtime
	// VariableNamespaces are those whose pods may set variables that belong to device
	// plugins (see device.VariableOwner); AllNamespaces for every one.
	VariableNamespaces []string
	Metrics            *metrics.Metrics
	Tracer             *tracing.Tracer
}

// Admitter admits containers. Safe for concurrent use.
type Admitter struct {
	Config
	inUse inUse
}

// New makes an Admitter.
func New(config Config) (*Admitter, error) {
	if config.Node == "" || config.Pods == nil || config.Claims == nil || config.Device == nil || config.DeviceTimeout <= 0 {
		return nil, errors.New("admit: node, pods, claims, device and a positive device timeout are required")
	}
	if config.Plugins != nil && config.Runtime == nil {
		return nil, errors.New("admit: device plugins need the runtime")
	}
	return &Admitter{Config: config,
		inUse: inUse{node: config.Node, runtime: config.Runtime, creating: map[*user]bool{}}}, nil
}

// Container is one that is about to be created.
type Container struct {
	Pod claims.Pod
	// PodAnnotations are the pod's, as the kubelet gave them to the runtime.
	PodAnnotations map[string]string
	// PodLabels are the pod's, from there too.
	PodLabels map[string]string
	// Sandbox is the id of the pod's sandbox.
	Sandbox string
	Name    string
	// Requested is what it has without devices.
	Requested inject.Container
}

// Admission is a container that may be created. Exactly one of Created, Failed and
// Refuse is to be called.
type Admission struct {
	// Additions are what the container is to get; nothing for one without devices.
	Additions inject.Additions

	admitter  *Admitter
	container Container
	grants    []assignment.Grant
	given     []string // the devices behind the grants, and those of device plugins, for the log
	devices   bool
	taken     *claims.Taken // nil for a container without slots
	using     *user         // nil for a container without devices of plugins
}

// Admit claims the container's slots, or says why it must not be created, as a
// gRPC status: FailedPrecondition when the assignment must not be used, Unavailable
// for what may pass by itself. The kubelet retries both. Everything that can go
// wrong without a claim goes wrong before there is one.
func (a *Admitter) Admit(ctx context.Context, c Container) (*Admission, error) {
	logger := klog.FromContext(ctx)
	if err := a.checkCDI(ctx, c); err != nil {
		return nil, a.refused(logger, c, nil, err)
	}
	_, deciding := a.Tracer.Start(ctx, "Decide")
	e, err := a.entitlement(c.PodAnnotations, c.Pod, c.Name)
	deciding.End(err)
	if err != nil {
		return nil, a.refused(logger, c, nil, err)
	}
	if e.ignored != nil {
		logger.Info("Warning: a container starts without devices", "reason", e.ignored)
		a.Metrics.Injection(metrics.Ignored)
	}
	if e.none() {
		add, err := inject.Merge(c.Requested, a.withhold(c, nil)...)
		if err != nil {
			return nil, a.refused(logger, c, nil, err)
		}
		return &Admission{Additions: add, admitter: a}, nil
	}
	admission := &Admission{admitter: a, container: c, grants: e.grants, devices: true}
	finding, span := a.Tracer.Start(ctx, "FindDevices")
	err = a.find(finding, admission, e)
	span.End(err)
	if err != nil {
		return nil, a.refused(logger, c, e.grants, err)
	}
	if len(e.grants) == 0 && len(e.requested) == 0 {
		return admission, nil // from device plugins alone
	}
	taking, span := a.Tracer.Start(ctx, "Claim")
	if span.Recorded() {
		span.Slots(slotNames(e.grants))
	}
	admission.taken, err = a.Claims.Take(taking, claims.Request{
		Pod: c.Pod, Container: c.Name, Sandbox: c.Sandbox, Grants: e.grants, Requested: e.requested})
	span.End(err)
	if err != nil {
		a.inUse.end(admission.using)
		return nil, a.refused(logger, c, e.grants, err)
	}
	return admission, nil
}

// checkCDI returns an error if the container would not get the devices of its ResourceClaims.
func (a *Admitter) checkCDI(ctx context.Context, c Container) error {
	if a.CDIUsable == nil || !slices.ContainsFunc(c.Requested.CDI, cdi.OfClaim) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.DeviceTimeout)
	defer cancel()
	return a.CDIUsable(ctx)
}

// Created says that the runtime has created the container, under id; "" says that
// its id is not known, and has the runtime asked.
func (a *Admission) Created(ctx context.Context, id string) {
	if !a.devices {
		return
	}
	a.admitter.inUse.end(a.using)
	a.admitter.Metrics.Injection(metrics.Injected)
	if a.taken != nil && id == "" {
		a.taken.Failed(status.Error(codes.Unavailable, "the runtime's answer names no container"))
		return
	}
	if a.taken != nil {
		a.taken.Created(id)
	}
	klog.FromContext(ctx).Info("Injected devices", "containerID", id, "slots", slotNames(a.grants), "devices", a.given)
}

// Failed says that the runtime did not create the container, as err says, or, with
// code Canceled, DeadlineExceeded or Unavailable, that it is not known whether it did.
func (a *Admission) Failed(err error) {
	a.end(err)
	if a.devices {
		a.admitter.Metrics.Injection(metrics.Rejected)
	}
}

func (a *Admission) end(err error) {
	a.admitter.inUse.end(a.using)
	if a.taken != nil {
		a.taken.Failed(err)
	}
}

// Refuse says that the runtime was not asked for the container, because it cannot
// be told what to add, as err says. It returns what Admit would have.
func (a *Admission) Refuse(ctx context.Context, err error) error {
	a.end(err)
	return a.admitter.refused(klog.FromContext(ctx), a.container, a.grants, err)
}

// entitlement looks at the pod as the API server has it, if it is here already, and at
// the assignment in its annotations.
func (a *Admitter) entitlement(annotations map[string]string, pod claims.Pod, container string) (entitlement, error) {
	spec := a.spec(annotations, pod)
	gives := func(name types.ResourceName) bool {
		return a.Plugins.Gives(name) || a.Advertised != nil && a.Advertised(name)
	}
	e, err := decide(a.Node, annotations, pod, container, spec, gives, a.Verifier.Verify)
	if err != nil && spec != nil {
		err = allocatedByDRA(err, requests(spec, container), func(name string) bool {
			c, known := a.Claims.Configuration(name)
			return known && c != nil && !c.GivesSlots()
		})
	}
	return e, err
}

// spec returns the pod as the API server has it, nil while it is not here.
func (a *Admitter) spec(annotations map[string]string, pod claims.Pod) *corev1.Pod {
	p, err := a.Pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil {
		return nil
	}
	// A static pod is there as its mirror, which has a UID of its own.
	mirror := assignment.Static(annotations) && p.Annotations[corev1.MirrorPodAnnotationKey] == pod.UID
	if string(p.UID) == pod.UID || mirror {
		return p
	}
	return nil
}

// find finds the devices and fills in what they bring, and their names: ids of discovered devices,
// and resources that device plugins were asked for.
func (a *Admitter) find(ctx context.Context, admission *Admission, e entitlement) (err error) {
	c := admission.container
	if admission.using, err = a.use(ctx, c, e); err != nil {
		return err
	}
	if admission.Additions, admission.given, err = a.additions(ctx, c, e); err != nil {
		a.inUse.end(admission.using)
	}
	return err
}

func (a *Admitter) additions(ctx context.Context, c Container, e entitlement) (inject.Additions, []string, error) {
	plugged, err := a.pluginEdits(ctx, c, e)
	if err != nil {
		return inject.Additions{}, nil, err
	}
	granted := e.grants
	ctx, cancel := context.WithTimeout(ctx, a.DeviceTimeout)
	defer cancel()
	devices, names := map[string]discovery.Device{}, map[string]string{}
	grants, given := make([]inject.Grant, 0, len(granted)), make([]string, 0, len(granted))
	for _, g := range granted {
		device, ok := devices[g.Slot.Instance]
		if !ok {
			var err error
			if device, err = a.Device(ctx, g.Slot.Instance); err != nil {
				return inject.Additions{}, nil, fmt.Errorf("Instance %s cannot be reached from this node: %w; creation is retried, and the device may come back",
					g.Slot.Instance, err)
			}
			devices[g.Slot.Instance] = device
			// What CDI mounts has no id mappings: to the users of another namespace
			// all files in it would be nobody's.
			if a.CDI != nil && !c.Requested.NoCDI && !(c.Requested.Users.Own() && len(device.Mounts) > 0) {
				names[g.Slot.Instance] = a.CDI(ctx, g.Slot.Instance, device)
			}
		}
		configuration, _ := slot.SplitInstance(g.Slot.Instance)
		grant := inject.Grant{Slot: g.Slot, Device: device, CDI: names[g.Slot.Instance], Broker: c.PodLabels[akriv0.BrokerLabel] == configuration}
		if !g.InstanceLevel() {
			grant.Holder = c.Pod.UID
		}
		grants, given = append(grants, grant), append(given, device.ID)
	}
	edits, err := inject.SlotEdits("", grants)
	if err != nil {
		return inject.Additions{}, nil, err
	}
	add, err := inject.Merge(c.Requested, slices.Concat(edits, plugged, a.withhold(c, plugged))...)
	return add, append(given, pluginDevices(e, c.Name)...), err
}

func slotNames(grants []assignment.Grant) []string {
	names := make([]string, 0, len(grants))
	for _, g := range grants {
		names = append(names, g.Slot.String())
	}
	return names
}

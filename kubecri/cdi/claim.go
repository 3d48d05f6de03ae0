package cdi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A ResourceClaim that is prepared has a spec of its own, with a device for each of its requests. Of a
// container the runtime is given the names of its requests' devices alone, so that the spec has all that the
// container gets: the environment, too.

// claimKind is the kind of the devices of ResourceClaims.
const claimKind = v1alpha1.DRADriver + "/claim"

// claimPrefix begins the names of their specs' files: slots.kubeslot.io-claim-<claim's UID>.json.
const claimPrefix = v1alpha1.DRADriver + "-claim-"

// ClaimDevice returns the CDI name of what a request of a ResourceClaim gives. A subrequest's is
// <request>/<subrequest>.
func ClaimDevice(claim types.UID, request string) string {
	return claimKind + "=" + claimDevice(claim, request)
}

func claimDevice(claim types.UID, request string) string {
	return string(claim) + "-" + strings.ReplaceAll(request, "/", ".")
}

func (s *store) claimPath(claim types.UID) string {
	return filepath.Join(s.dir, claimPrefix+string(claim)+suffix)
}

// OfClaim reports whether the CDI device is one of a ResourceClaim of ours.
func OfClaim(name string) bool { return strings.HasPrefix(name, claimKind+"=") }

// Usable asks the runtime, and returns an error where it does not resolve names of ours, or does not say before ctx is
// done. Such a runtime may give a container nothing, and say nothing.
func (i *Injector) Usable(ctx context.Context) error {
	if i == nil {
		return errors.New("kubecri writes no CDI specs here, by which containers get devices of ResourceClaims: " +
			"give it a --cdi-dir")
	}
	_, usable, err := i.probe(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("the container runtime does not say whether it has CDI on: %w", err)
	case !usable:
		return fmt.Errorf("the container runtime is not known to have CDI on and to read CDI specs in %s: "+
			"turn CDI on (containerd's enable_cdi), or give kubecri a --cdi-dir that the runtime reads", i.store.dir)
	}
	return nil
}

// PutClaim writes the spec of a ResourceClaim: what each of its requests gives, and annotations. A container with a
// request that is not among them cannot be created.
func (i *Injector) PutClaim(claim types.UID, requests map[string]inject.Additions,
	annotations map[string]string) error {
	data, err := describeClaim(claim, requests, annotations)
	if err != nil {
		return fmt.Errorf("CDI cannot describe it: %w", err)
	}
	if err := i.store.write(i.store.claimPath(claim), data); err != nil {
		return fmt.Errorf("write its CDI spec: %w", err)
	}
	return nil
}

// Claims returns the UIDs of the ResourceClaims that have specs.
func (i *Injector) Claims() ([]types.UID, error) {
	if i == nil {
		return nil, nil
	}
	files, err := filepath.Glob(i.store.claimPath("*"))
	var all []types.UID
	for _, file := range files {
		all = append(all, types.UID(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), claimPrefix), suffix)))
	}
	return all, err
}

// ClaimAnnotations returns the annotations of a ResourceClaim's spec; nil where there is none.
func (i *Injector) ClaimAnnotations(claim types.UID) (map[string]string, error) {
	if i == nil {
		return nil, nil
	}
	data, err := os.ReadFile(i.store.claimPath(claim))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var spec specs.Spec
	if err == nil {
		err = json.Unmarshal(data, &spec)
	}
	if err != nil {
		return nil, fmt.Errorf("read the CDI spec of ResourceClaim %s: %w", claim, err)
	}
	return spec.Annotations, nil
}

// RemoveClaim removes the spec of a ResourceClaim, if there is one.
func (i *Injector) RemoveClaim(claim types.UID) error {
	if i == nil {
		return nil
	}
	if err := i.store.remove(i.store.claimPath(claim)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove its CDI spec: %w", err)
	}
	return nil
}

func describeClaim(claim types.UID, requests map[string]inject.Additions,
	annotations map[string]string) ([]byte, error) {
	spec := &specs.Spec{Kind: claimKind, Annotations: annotations}
	for _, request := range slices.Sorted(maps.Keys(requests)) {
		add := requests[request]
		nodes, err := resolved(add.Devices)
		if err != nil {
			return nil, err
		}
		edits, err := containerEdits(add.Mounts, nodes)
		if err != nil {
			return nil, err
		}
		for _, v := range add.Env {
			if !utf8.ValidString(v.Name + v.Value) {
				return nil, fmt.Errorf("the variable %q is not UTF-8, as the text of a spec is", v.Name)
			}
			edits.Env = append(edits.Env, v.Name+"="+v.Value)
		}
		spec.Devices = append(spec.Devices, specs.Device{Name: claimDevice(claim, request), ContainerEdits: edits})
	}
	if len(spec.Devices) == 0 { // a spec has to have one, and a device an edit
		none := specs.ContainerEdits{Env: []string{inject.DevicesEnv + "=[]"}}
		spec.Devices = []specs.Device{{Name: string(claim), ContainerEdits: none}}
	}
	return encode(spec)
}

// resolved are the device nodes with what links among them lead to, as a runtime resolves those of CRI.
func resolved(nodes []discovery.DeviceSpec) ([]discovery.DeviceSpec, error) {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		path, err := filepath.EvalSymlinks(nodes[i].HostPath)
		if err != nil {
			return nil, err
		}
		nodes[i].HostPath = path
	}
	return nodes, nil
}

// Package template is a discovery handler to start your own from: it finds the device
// nodes whose path matches a pattern. docs/discovery/protocol.md goes through it.
package template

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

const (
	// Name is what Configurations select the handler by.
	Name = "template"

	// PathProperty is the environment variable with the device's path.
	PathProperty = "TEMPLATE_PATH"
)

// details are a Configuration's discoveryDetails.
type details struct {
	// Paths are patterns as of filepath.Match, such as /dev/ttyACM*.
	Paths []string `json:"paths"`
}

// Handler is the handler. Its zero value is ready for use.
type Handler struct{}

var _ discovery.Sharer = (*Handler)(nil)

// Name implements discovery.Handler.
func (*Handler) Name() string { return Name }

// Shared implements discovery.Sharer: /dev of another node has other devices.
func (*Handler) Shared() bool { return false }

// Discover implements discovery.Handler.
func (*Handler) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	var d details
	if err := request.Decode(Name, &d); err != nil {
		return err
	}
	if len(d.Paths) == 0 {
		return discovery.Invalidf("discoveryDetails of %s: paths, the patterns of device nodes, is missing", Name)
	}
	looks := time.NewTicker(time.Second)
	defer looks.Stop()
	report = discovery.Changes(report)
	for {
		paths, err := find(d.Paths)
		if err != nil {
			return err
		}
		report(result(paths))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-looks.C:
		}
	}
}

// find returns the paths that match one of the patterns, sorted.
func find(patterns []string) ([]string, error) {
	var paths []string
	for i, pattern := range patterns {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, discovery.Invalidf("discoveryDetails of %s: paths[%d] %q: %w", Name, i, pattern, err)
		}
		paths = append(paths, matches...)
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// result is what containers are given of the paths.
func result(paths []string) discovery.Result {
	var all discovery.Result
	for _, path := range paths {
		all.Devices = append(all.Devices, discovery.Device{
			ID:          path,
			Properties:  map[string]string{PathProperty: path},
			DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: path, HostPath: path, Permissions: "rw"}},
		})
	}
	return all
}

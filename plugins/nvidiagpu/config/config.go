// Package config reads the configuration of NVIDIA's device plugin: its file format, version
// v1, and its environment variables.
//
//   - config.go: what is configured, and what cannot be
//   - file.go: the file format
//   - environment.go: the environment, and which file a node has
//   - health.go: which XIDs leave a GPU healthy
package config

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// Strategies for GPUs in MIG mode, and for sharing.
const (
	MIGNone   = "none"   // MIG slices are not given out
	MIGSingle = "single" // all GPUs are partitioned alike, a slice is an nvidia.com/gpu
	MIGMixed  = "mixed"  // a slice is an nvidia.com/mig-<profile>

	ShareNone        = "none"
	ShareTimeSlicing = "time-slicing"
	ShareMPS         = "mps"
)

const (
	domain = "nvidia.com/"
	// maxName is in bytes, with the domain, as NVIDIA's plugin has it.
	maxName = 63
	// maxReplicas of a device bounds what a mistake can advertise; a node has far fewer pods.
	maxReplicas = 1024
	// maxMPS is how many clients an MPS server has at most.
	maxMPS = 48
)

// Config is what a node's GPUs are to be. Its zero value shares none, and has no MIG slices.
type Config struct {
	MIGStrategy     string
	PassDeviceSpecs bool   // give containers the device nodes, too
	MPSRoot         string // the directory of NVIDIA's MPS control daemon
	shares          map[string]Share
}

// Share is what a kind of device, as "gpu" or "mig-1g.10gb", is advertised as.
type Share struct {
	Kind         string // another one if it is renamed
	Replicas     int64  // of each device; 1 if it is not shared
	MPS          bool   // through MPS instead of time-slicing
	FailAboveOne bool   // a container that asks for more than one is refused
}

// Share returns what the kind is advertised as.
func (c *Config) Share(kind string) Share {
	if s, ok := c.shares[kind]; ok {
		return s
	}
	return Share{Kind: kind, Replicas: 1}
}

// Strategy returns how replicas share a device.
func (s Share) Strategy() string {
	switch {
	case s.Replicas <= 1:
		return ShareNone
	case s.MPS:
		return ShareMPS
	default:
		return ShareTimeSlicing
	}
}

// check sets the default MIG strategy. It returns an error if that cannot be.
func (c *Config) check() error {
	switch c.MIGStrategy {
	case "":
		c.MIGStrategy = MIGNone
	case MIGNone:
	case MIGSingle, MIGMixed:
		for _, s := range c.shares {
			if s.MPS {
				return fmt.Errorf("sharing.mps with MIG strategy %s: MPS does not share MIG slices: "+
					"use sharing.timeSlicing, or strategy none", c.MIGStrategy)
			}
		}
	default:
		return fmt.Errorf("MIG strategy %q: use none, single or mixed", c.MIGStrategy)
	}
	return nil
}

// kindOf returns the kind that a resource's name in a file means, with the domain or without.
func kindOf(name string) (string, error) {
	kind := strings.TrimPrefix(name, domain)
	if n := len(domain + kind); n > maxName {
		return "", fmt.Errorf("%.*q: with %s it has %d bytes, at most %d may be", maxName, name, domain, n, maxName)
	}
	if wrong := validation.IsDNS1123Subdomain(kind); len(wrong) > 0 {
		return "", fmt.Errorf("%q: %s", name, strings.Join(wrong, "; "))
	}
	if _, ok := gpu.Kind(gpu.KindResource(kind)); !ok {
		return "", fmt.Errorf("%q: GPUs cannot have this name: use another", name)
	}
	return kind, nil
}

// own are the kinds of devices that are not renamed.
var own = regexp.MustCompile(`^(gpu|mig-[0-9cg.]+gb([.-](me|gfx|all))*)$`)

// renamed returns the kind that the entry's devices are advertised as.
func (r resource) renamed(kind string, byDefault bool) (string, error) {
	name := r.Rename
	if name == "" && byDefault {
		name = kind + ".shared"
	}
	if name == "" {
		return kind, nil
	}
	to, err := kindOf(name)
	if err == nil && to != kind && own.MatchString(to) {
		err = fmt.Errorf("%q: devices that are not renamed have this name", name)
	}
	if err != nil {
		return "", fmt.Errorf("rename of %s to %w", kind, err)
	}
	return to, nil
}

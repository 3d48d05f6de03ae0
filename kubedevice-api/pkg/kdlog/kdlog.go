// Package kdlog is KubeDevice-API's pkg/kdlog, which was a copy of klog. Here
// it writes to klog itself: the log of the program that loaded the plugin.
package kdlog

import (
	"flag"
	"io"

	"k8s.io/klog/v2"
)

type (
	// Level is klog.Level.
	Level = klog.Level
	// OutputStats is klog.OutputStats.
	OutputStats = klog.OutputStats
)

// Verbose is klog's Verbose when that was a bool, so that "if kdlog.V(2) {" compiles.
type Verbose bool

var (
	// MaxSize has no effect: the program that loaded the plugin sets its own.
	MaxSize = klog.MaxSize
	// Stats counts what all of the program logs.
	Stats = &klog.Stats
)

// V is klog.V.
func V(level Level) Verbose { return Verbose(klog.VDepth(1, level).Enabled()) }

// Info is klog.Info, if v.
func (v Verbose) Info(args ...interface{}) {
	if v {
		klog.InfoDepth(1, args...)
	}
}

// Infoln is klog.Infoln, if v.
func (v Verbose) Infoln(args ...interface{}) {
	if v {
		klog.InfolnDepth(1, args...)
	}
}

// Infof is klog.Infof, if v.
func (v Verbose) Infof(format string, args ...interface{}) {
	if v {
		klog.InfofDepth(1, format, args...)
	}
}

// InitFlags is klog.InitFlags.
func InitFlags(flagset *flag.FlagSet) { klog.InitFlags(flagset) }

// Flush is klog.Flush.
func Flush() { klog.Flush() }

// SetOutput is klog.SetOutput.
func SetOutput(w io.Writer) { klog.SetOutput(w) }

// SetOutputBySeverity is klog.SetOutputBySeverity.
func SetOutputBySeverity(name string, w io.Writer) { klog.SetOutputBySeverity(name, w) }

// CopyStandardLogTo is klog.CopyStandardLogTo.
func CopyStandardLogTo(name string) { klog.CopyStandardLogTo(name) }

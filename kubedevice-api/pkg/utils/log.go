// Package utils is KubeDevice-API's pkg/utils: logging, and small helpers that
// plugins use.
package utils

import "k8s.io/klog/v2"

// What plugins log through. They are variables, as in KubeDevice, so that a
// test can catch what is logged. The defaults write to the log of the program
// that loaded the plugin, at its -v.
var (
	// Logb reports whether messages of the level are logged.
	Logb func(int) bool = LogV
	// Logf logs at the level.
	Logf func(int, string, ...interface{}) = Log
	// Warningf logs a warning.
	Warningf func(string, ...interface{}) = Warning
	// Errorf logs an error.
	Errorf func(string, ...interface{}) = Error
)

// LogV is the default of Logb.
func LogV(level int) bool { return klog.VDepth(1, klog.Level(level)).Enabled() }

// Log is the default of Logf.
func Log(level int, format string, args ...interface{}) {
	if v := klog.VDepth(1, klog.Level(level)); v.Enabled() {
		v.InfofDepth(1, format, args...)
	}
}

// Error is the default of Errorf.
func Error(format string, args ...interface{}) { klog.ErrorfDepth(1, format, args...) }

// Warning is the default of Warningf.
func Warning(format string, args ...interface{}) { klog.WarningfDepth(1, format, args...) }

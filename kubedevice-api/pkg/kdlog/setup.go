package kdlog

import (
	"fmt"
	"log"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

const flushFrequencyFlag = "log-flush-frequency"

var flushFrequency = 5 * time.Second

// AddFlags adds the flag log-flush-frequency, unless the program has it already.
func AddFlags(fs *pflag.FlagSet) {
	if fs.Lookup(flushFrequencyFlag) == nil {
		fs.DurationVar(&flushFrequency, flushFrequencyFlag, flushFrequency, "Maximum number of seconds between log flushes")
	}
}

// Loop calls f at every interval, and does not return.
func Loop(f func(), intervalDuration time.Duration) {
	for range time.Tick(intervalDuration) {
		f()
	}
}

// InitLogs does nothing: a plugin must not redirect the log of the program that
// loaded it, and klog works without.
func InitLogs() {}

// FlushLogs is klog.Flush.
func FlushLogs() { klog.Flush() }

// KlogWriter writes to klog's info log.
type KlogWriter struct{}

// Write implements io.Writer.
func (KlogWriter) Write(data []byte) (n int, err error) {
	klog.InfoDepth(1, string(data))
	return len(data), nil
}

// NewLogger returns a logger that writes to klog's info log.
func NewLogger(prefix string) *log.Logger { return log.New(KlogWriter{}, prefix, 0) }

// GlogSetter sets klog's verbosity.
func GlogSetter(val string) (string, error) {
	var level Level
	if err := level.Set(val); err != nil {
		return "", fmt.Errorf("set the log's verbosity to %q: %w", val, err)
	}
	return "set the log's verbosity to " + val, nil
}

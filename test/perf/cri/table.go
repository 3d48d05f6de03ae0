package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// process is measured through /proc.
type process struct{ pid int }

// clockTick is USER_HZ, which is 100 on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// cpu returns the time that the process has used, of all its threads.
func (p process) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0, err
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // from the third, see proc(5)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", p.pid, text)
	}
	user, userErr := strconv.Atoi(fields[11])
	system, systemErr := strconv.Atoi(fields[12])
	return time.Duration(user+system) * clockTick, errors.Join(userErr, systemErr)
}

// anonymous returns the process's resident memory in bytes, without pages of files.
func (p process) anonymous() (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "RssAnon:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no RssAnon", p.pid)
}

// quantile returns the value that the share q of times does not exceed.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// write prints the results as Markdown.
func (b *bench) write(out io.Writer) error {
	var text strings.Builder
	text.WriteString("| call | direct p50 | p99 | kubecri p50 | p99 | added p50 | ratio p50 | kubecri CPU a call |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range b.results {
		direct, through := quantile(r.times[0], .5), quantile(r.times[1], .5)
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s | %.3f | %s |\n", r.operation,
			ms(direct), ms(quantile(r.times[0], .99)), ms(through), ms(quantile(r.times[1], .99)),
			ms(through-direct), float64(through)/float64(max(direct, 1)), ms(r.cpu/time.Duration(max(r.calls, 1))))
	}
	text.WriteString("\n| anonymous resident memory | kubecri | of it heap in use | containerd |\n|---|---|---|---|\n")
	for _, m := range b.memory {
		fmt.Fprintf(&text, "| %s | %.1f MiB | %.1f MiB | %.1f MiB |\n", m.when, mib(float64(m.kubecri)), mib(m.heap), mib(float64(m.containerd)))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func ms(d time.Duration) string { return fmt.Sprintf("%.3f ms", float64(d)/float64(time.Millisecond)) }

func mib(bytes float64) float64 { return bytes / (1 << 20) }

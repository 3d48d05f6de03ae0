package footprint

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smaps = `00400000-0119b000 r--p 00000000 fe:00 42    /usr/local/bin/kubecri
Size:              13932 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
0119b000-02bb0000 r-xp 00d9b000 fe:00 42    /usr/local/bin/kubecri
Anonymous:             0 kB
02bb0000-04a06000 r-xp 027b0000 fe:00 42    /usr/local/bin/kubecri
Anonymous:             4 kB
04a06000-04a07000 r--p 04606000 fe:00 42    /usr/local/bin/kubecri
Anonymous:             4 kB
04a07000-04ab2000 rw-p 04607000 fe:00 42    /usr/local/bin/kubecri
Anonymous:             0 kB
04ab2000-04ab3000 r--s 04607000 fe:00 42    /usr/local/bin/kubecri
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 43    /lib/libc.so.6
Anonymous:             0 kB
7f0000001000-7f0000002000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000002000-7f0000003000 r-xp 00000000 fe:00 44    /opt/a b/kubecri (deleted)
Anonymous:             0 kB
`

func TestOnlyWhatIsTheFilesAlone(t *testing.T) {
	for file, want := range map[string][]mapping{
		"/usr/local/bin/kubecri":     {{0x400000, 0x119b000}, {0x119b000, 0x2bb0000}},
		"/opt/a b/kubecri (deleted)": {{0x7f0000002000, 0x7f0000003000}},
		"/none":                      nil,
	} {
		if diff := cmp.Diff(want, clean(smaps, file), cmp.AllowUnexported(mapping{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// filePages is how much of the process's memory are pages of files, in KiB.
func filePages(t *testing.T) (kib int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(data), "RssFile:")
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

func TestTheProcessIsSmallerAndRunsOn(t *testing.T) {
	before := filePages(t)
	for range 3 {
		if err := Release(); err != nil {
			t.Fatal(err)
		}
	}
	after := filePages(t)
	if after >= before {
		t.Errorf("%d KiB of file pages before, %d after", before, after)
	}
	if got := fmt.Sprintf("%x", struct{ A, B int }{1, 2}); got != "{1 2}" {
		t.Errorf("the program has changed: %q", got)
	}
}

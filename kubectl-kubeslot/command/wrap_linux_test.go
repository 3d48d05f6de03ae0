package command

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// The width is the terminal's; a file or a pipe has none, so that what scripts read stays as it is.
func TestTerminalWidth(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, tc := range []struct {
		name          string
		out           *os.File
		columns, want int
	}{
		{"a terminal", terminal, 80, 80},
		{"a terminal that is hardly one", terminal, 3, leastWidth},
		{"a terminal that does not know", terminal, 0, 0},
		{"a file", file, 0, 0},
	} {
		if tc.out == terminal {
			if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(tc.columns)}); err != nil {
				t.Fatal(err)
			}
		}
		if got := newOptions(genericiooptions.IOStreams{Out: tc.out}).width(); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

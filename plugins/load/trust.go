package load

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkTrust says who else than root and this process's user could have written
// the file or put another in its place: a plugin runs with all that this process
// may do. It returns the file's path without symbolic links, which is the file
// that is checked and opened from here on; "" if there is none.
func checkTrust(path string) (string, []Finding) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", []Finding{{Unreadable, fmt.Sprintf("cannot be read: %v", err)}}
	}
	if real, err = filepath.Abs(real); err != nil {
		return "", []Finding{{Unreadable, fmt.Sprintf("cannot be read: %v", err)}}
	}
	stat, err := os.Stat(real)
	if err != nil {
		return "", []Finding{{Unreadable, fmt.Sprintf("cannot be read: %v", err)}}
	}
	if !stat.Mode().IsRegular() {
		return "", []Finding{{Unreadable, fmt.Sprintf("is not a regular file but %s", kindOfFile(stat.Mode()))}}
	}
	findings := checkOwner(real, "", stat)
	folders := []string{filepath.Dir(real)}
	if listed, err := filepath.Abs(filepath.Dir(path)); err == nil && listed != folders[0] {
		folders = append(folders, listed) // where the link is
	}
	for _, folder := range folders {
		if stat, err := os.Stat(folder); err == nil {
			findings = append(findings, checkOwner(folder, fmt.Sprintf("is in %s, which ", folder), stat)...)
		}
	}
	return real, findings
}

// checkOwner says who else could write a path; where begins the text, which goes on
// from the file's name.
func checkOwner(path, where string, stat fs.FileInfo) []Finding {
	var findings []Finding
	if sys, ok := stat.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		findings = append(findings, Finding{Untrusted,
			fmt.Sprintf("%sbelongs to user %d, and neither to root nor to this process's user %d: chown root %s", where, sys.Uid, os.Geteuid(), path)})
	}
	if mode := stat.Mode().Perm(); mode&0o022 != 0 {
		findings = append(findings, Finding{Untrusted,
			fmt.Sprintf("%scan be written by others than its owner (mode %04o): chmod go-w %s", where, mode, path)})
	}
	return findings
}

func kindOfFile(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a device"
	}
}

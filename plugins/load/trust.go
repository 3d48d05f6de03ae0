package load

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// checkTrust says who else than root and this process's user could have written
// the file or put another in its place: a plugin runs with all that this process
// may do. Each directory on the way to it counts, those behind symbolic links too. It
// returns the file's path without symbolic links, which is the file that is checked and
// opened from here on; "" if there is none.
func checkTrust(path string) (string, []Finding) {
	real, directories, err := follow(path)
	if err != nil {
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
	for _, directory := range directories {
		stat, err := os.Stat(directory)
		if err != nil {
			findings = append(findings, Finding{Unreadable, fmt.Sprintf("is in %s, which cannot be read: %v", directory, err)})
			continue
		}
		findings = append(findings, checkOwner(directory, fmt.Sprintf("is in %s, which ", directory), stat)...)
	}
	return real, findings
}

// maxLinks is how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

// follow goes to a file as the kernel does. It returns the file's path without symbolic
// links, and every directory in which a name was looked up, each once, in that order.
func follow(path string) (real string, directories []string, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", nil, err
	}
	seen := map[string]bool{}
	real, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		if !seen[real] {
			seen[real] = true
			directories = append(directories, real)
		}
		next := filepath.Join(real, name)
		stat, err := os.Lstat(next)
		if err != nil {
			return "", nil, err
		}
		if stat.Mode()&fs.ModeSymlink == 0 {
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", nil, fmt.Errorf("%s leads through more than %d symbolic links", path, maxLinks)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", nil, err
		}
		if filepath.IsAbs(target) {
			real = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return real, directories, nil
}

// checkOwner says who else could write a path; where begins the text, which goes on
// from the file's name. In a directory with the sticky bit, such as /tmp, others can make
// files and cannot replace what is not theirs.
func checkOwner(path, where string, stat fs.FileInfo) []Finding {
	var findings []Finding
	if sys, ok := stat.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		findings = append(findings, Finding{Untrusted,
			fmt.Sprintf("%sbelongs to user %d, and neither to root nor to this process's user %d: chown root %s", where, sys.Uid, os.Geteuid(), path)})
	}
	if mode := stat.Mode().Perm(); mode&0o022 != 0 && stat.Mode()&(fs.ModeDir|fs.ModeSticky) != fs.ModeDir|fs.ModeSticky {
		findings = append(findings, Finding{Untrusted,
			fmt.Sprintf("%scan be written by others than its owner (mode %04o): chmod go-w %s", where, mode, path)})
	}
	return findings
}

func kindOfFile(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	default:
		return "a device"
	}
}

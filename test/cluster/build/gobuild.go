package build

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// goBuild runs `go build` with the variables in its environment and shows how far it is.
func goBuild(ctx context.Context, root string, env []string, out io.Writer, flags, packages []string) error {
	ctx, cancel := context.WithCancel(ctx)
	show := newProgress(out)
	defer show.stop()
	var planning sync.WaitGroup
	planning.Go(func() {
		// It asks what go build will compile while that begins already.
		if work, err := planned(ctx, root, env, flags, packages); err == nil {
			show.plan(work)
		}
	})
	defer planning.Wait()
	defer cancel()
	said, lines := io.Pipe()
	var other []string
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(said); s.Scan(); {
			switch line := s.Text(); {
			case strings.HasPrefix(line, "go: downloading "):
				show.downloading()
			case packagePath.MatchString(line):
				show.compiling(line)
			default:
				other = append(other, line)
			}
		}
		_, _ = io.Copy(io.Discard, said) // a line beyond the scanner's limit
	}()
	args := append(append([]string{"build", "-v"}, flags...), packages...)
	err := command(ctx, root, env, lines, args...)
	lines.Close()
	<-read
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, strings.Join(other, "\n"), unreachable(other))
	}
	return nil
}

// packagePath is a line of go build -v that names a package.
var packagePath = regexp.MustCompile(`^[a-zA-Z0-9][^\s:]*$`)

// command runs the go tool, and writes what it says to out. It ends with this process: a
// kill -9 leaves no build behind.
func command(ctx context.Context, dir string, env []string, out io.Writer, args ...string) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread, not the process
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = dir
		// Caller's flags would have packages compiled once more.
		cmd.Env = append(append(os.Environ(), "GOFLAGS=", "GOWORK=off"), env...)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		done <- cmd.Run()
	}()
	err := <-done
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: what was compiled is kept, and the next run goes on from there: %w", context.Cause(ctx), err)
	}
	return err
}

var (
	networkError = regexp.MustCompile(`dial tcp|no such host|i/o timeout|connection (refused|reset)|TLS handshake|x509: |proxyconnect|: EOF$|deadline exceeded|` +
		`(403|404|407|50[234]) [A-Z]|module lookup disabled by GOPROXY=off`)
	moduleOfLine = regexp.MustCompile(`([\w.\-/]+@v[\w.\-+]+)`)
)

// unreachable says which module cannot be had and what to set, if that is what failed.
func unreachable(lines []string) string {
	for _, line := range lines {
		if !networkError.MatchString(line) {
			continue
		}
		module := "a module"
		if found := moduleOfLine.FindString(line); found != "" {
			module = "module " + found
		}
		proxy, err := exec.Command("go", "env", "GOPROXY").Output()
		if err != nil {
			proxy = []byte("unknown")
		}
		return fmt.Sprintf("\nGo cannot fetch %s from GOPROXY=%s: set GOPROXY to a module proxy that this machine reaches, "+
			"and GOSUMDB=off if it reaches no checksum database; what was built and fetched so far is kept",
			module, strings.TrimSpace(string(proxy)))
	}
	return ""
}

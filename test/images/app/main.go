// Command app is the one program of the test cluster's application image. Its commands let
// a test, or a reader of the demo, look at a container from inside: `app help` lists them.
package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const usage = `app is the program of the image kubeslot.test/app:1, to look at a container from inside.

  app [run]             log a line, wait for SIGTERM, end at once
  app env               print the environment, sorted
  app exit CODE         end with CODE
  app sleep DURATION    end well after DURATION, or on SIGTERM
  app end               have the container's run, sleep or hold end now, and well
  app read FILE N       print up to N bytes of FILE in hexadecimal
  app get URL           GET an HTTP URL, print the answer's status line
  app ls PATH           list a directory, or one file: mode, size, name
  app hold DIR DURATION use the container's slots, GPUs, and widgets of plugins/example,
                        as devices that take one user: lock DIR/<slot> for each, or
                        write DIR/CONFLICT and end with 3; end after DURATION, or on
                        SIGTERM
  app witness REPORTS DIR DURATION
                        write what devices the container has to a file in REPORTS, and
                        whether DIR is there, then hold
  app help              print this
`

// arguments are how many each command takes.
var arguments = map[string]int{"run": 0, "env": 0, "exit": 1, "sleep": 1, "end": 0,
	"read": 2, "get": 1, "ls": 1, "hold": 2, "witness": 3, "help": 0}

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"run"}
	}
	code, err := command(args[0], args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "app %s: %v\n", args[0], err)
		code = 2
	}
	os.Exit(code)
}

func command(name string, args []string) (exitCode int, err error) {
	if name == "--help" || name == "-h" {
		name = "help"
	}
	n, ok := arguments[name]
	if !ok {
		return 0, errors.New("no such command: app help lists them")
	}
	if len(args) != n {
		return 0, fmt.Errorf("takes %d arguments, got %d: see app help", n, len(args))
	}
	switch name {
	case "help":
		fmt.Print(usage)
	case "run":
		run()
	case "env":
		env := os.Environ()
		slices.Sort(env)
		for _, entry := range env {
			fmt.Println(entry)
		}
	case "exit":
		return strconv.Atoi(args[0])
	case "sleep":
		return 0, sleep(args[0])
	case "end":
		return 0, syscall.Kill(1, syscall.SIGTERM)
	case "read":
		return 0, read(args[0], args[1])
	case "get":
		return 0, get(args[0])
	case "ls":
		return 0, list(args[0])
	case "hold":
		return hold(args[0], args[1])
	case "witness":
		if err := witness(args[0], args[1]); err != nil {
			return 0, err
		}
		return hold(args[1], args[2])
	}
	return 0, nil
}

func run() {
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM, syscall.SIGINT)
	host, _ := os.Hostname()
	fmt.Println("app running on", host)
	<-terminate
}

// sleep ends early when told to terminate, as a well-behaved container does.
func sleep(duration string) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-time.After(d):
	case <-terminate:
	}
	return nil
}

func read(file, count string) error {
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(data))
	return nil
}

func get(url string) error {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	fmt.Println(response.Proto, response.Status)
	return nil
}

// hold locks a file for each slot. Nodes of the test cluster share the machine's
// files, and a lock ends with its process, whichever way that ends: two holders of
// a slot cannot live at the same time unseen.
func hold(dir, duration string) (exitCode int, err error) {
	held, err := devices()
	if err != nil {
		return 0, err
	}
	if held == nil {
		return 0, errors.New("the container has no devices")
	}
	for _, d := range held {
		f, err := os.OpenFile(filepath.Join(dir, d.Slot), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			other, _ := io.ReadAll(f)
			host, _ := os.Hostname()
			report := fmt.Sprintf("%s: pod %s finds slot %s in use by %s\n", time.Now().Format(time.RFC3339Nano), host, d.Slot, other)
			fmt.Print(report)
			c, err := os.OpenFile(filepath.Join(dir, "CONFLICT"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
			if err != nil {
				return 0, err
			}
			_, err = c.WriteString(report)
			return 3, errors.Join(err, c.Close())
		case err != nil:
			return 0, err
		}
		host, _ := os.Hostname()
		if err := errors.Join(f.Truncate(0), write(f, host)); err != nil {
			return 0, err
		}
	}
	return 0, sleep(duration)
}

func write(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

func list(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	names := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		names = nil
		for _, entry := range entries {
			names = append(names, filepath.Join(path, entry.Name()))
		}
	}
	for _, name := range names {
		info, err := os.Lstat(name)
		if err != nil {
			return err
		}
		fmt.Println(info.Mode(), info.Size(), name)
	}
	return nil
}

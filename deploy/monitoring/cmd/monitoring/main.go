// Command monitoring writes the files of deploy/monitoring that are made from others:
// dashboards/*.json and prometheusrule.yaml. Its argument is that directory.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeslot/kubeslot/deploy/monitoring"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: monitoring <directory>")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(folder string) error {
	files, err := monitoring.Generated(folder)
	if err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

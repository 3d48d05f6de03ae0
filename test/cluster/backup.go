package cluster

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Backup copies etcd's data to a directory, which must not exist. etcd is paused
// meanwhile: what it has answered is in the copy.
func (c *Cluster) Backup(dir string) (err error) {
	if err := c.Kill(Etcd, "", syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Kill(Etcd, "", syscall.SIGCONT)) }()
	if err := os.CopyFS(dir, os.DirFS(c.layout.etcd())); err != nil {
		return fmt.Errorf("copy etcd's data: %w", err)
	}
	return nil
}

// Restore stops the API server and etcd, gives etcd the data of a Backup, and starts
// both. Resource versions go back. It does not wait until they serve; the components
// that Kubernetes wants restarted after a restore run on.
func (c *Cluster) Restore(dir string) error {
	for _, component := range []string{APIServer, Etcd} {
		if err := c.Kill(component, "", syscall.SIGKILL); err != nil {
			return err
		}
	}
	data := c.layout.etcd()
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := os.CopyFS(data, os.DirFS(dir)); err != nil {
		return fmt.Errorf("copy the backup to etcd: %w", err)
	}
	if err := os.Chmod(data, 0o700); err != nil { // as etcd wants it
		return err
	}
	return errors.Join(c.Start(Etcd, ""), c.Start(APIServer, ""))
}

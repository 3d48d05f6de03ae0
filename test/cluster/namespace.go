package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// onOwnThread runs fn on a thread of its own, which ends with it: fn may change
// the thread's namespaces, and no other goroutine ever runs there.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends, and /proc/self shows its namespaces. While
			// this goroutine keeps it, fn gets another.
			defer runtime.UnlockOSThread()
			done <- onOwnThread(fn)
			return
		}
		done <- fn() // not unlocked: the thread is not fit for reuse
	}()
	return <-done
}

// inNetNS runs fn in the network namespace bound at path.
func inNetNS(path string, fn func() error) error {
	return onOwnThread(func() error {
		if err := enterNetNS(path); err != nil {
			return err
		}
		return fn()
	})
}

// enterNetNS moves the calling thread into the network namespace bound at path.
func enterNetNS(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// dialInNetNS connects from within a network namespace. The address must hold an
// IP, not a name: the resolver would leave the thread, and so the namespace.
func dialInNetNS(ctx context.Context, path, network, address string) (conn net.Conn, err error) {
	err = inNetNS(path, func() error {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		conn = c
		return err
	})
	return conn, err
}

// makeNamespaceDir prepares the folder that namespaces are bound in. The kernel
// binds a mount namespace only where mounts do not propagate.
func makeNamespaceDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s onto itself: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mount %s private: %w", dir, err)
	}
	return nil
}

// makeNetNS creates a network namespace and binds it at path.
func makeNetNS(path string) error {
	return makeNamespace(path, "net", func() error {
		return unix.Unshare(unix.CLONE_NEWNET)
	})
}

// makeMountNS creates a mount namespace and binds it at path. Mounts of the host
// arrive in it, its own do not leave it, and every key of binds shows its value.
// Its /sys is that of the network namespace bound at netNS.
func makeMountNS(path, netNS string, binds map[string]string) error {
	return onEachCPU(func(pin func() error) error {
		return makeNamespace(path, "mnt", func() error {
			if err := pin(); err != nil {
				return err
			}
			return newMountNS(netNS, binds)
		})
	})
}

// onEachCPU calls try for one CPU after the other, until it ends other than with EINVAL. What try is
// given pins the calling thread to the CPU.
//
// Linux binds a mount namespace only if its number is above that of the caller's mount namespace, and
// answers EINVAL if not. Since Linux 6.18 each CPU numbers namespaces from a range of its own. The CPU
// on which the caller's namespace was made always gives a number above it.
func onEachCPU(try func(pin func() error) error) error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("the CPUs of this process: %w", err)
	}
	err := error(unix.EINVAL)
	for cpu := 0; errors.Is(err, unix.EINVAL) && cpu < len(allowed)*64; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		err = try(func() error { return unix.SchedSetaffinity(0, &one) })
	}
	return err
}

// newMountNS moves the calling thread into a new mount namespace, see makeMountNS.
func newMountNS(netNS string, binds map[string]string) error {
	if err := enterNetNS(netNS); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts slaves: %w", err)
	}
	// Before mounts are shared: unmounting /sys would unmount the copies too.
	if err := mountSysfs(); err != nil {
		return err
	}
	// Shared among themselves, as on a node booted by systemd: containers may
	// ask for Bidirectional mount propagation.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared: %w", err)
	}
	if err := dropNamespaceMounts(); err != nil {
		return err
	}
	for target, source := range binds {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s on %s: %w", source, target, err)
		}
	}
	return nil
}

// dropNamespaceMounts unmounts the copies of bound namespaces that a new mount
// namespace inherits; each would keep another cluster's network alive.
func dropNamespaceMounts() error {
	mounts, err := readMounts("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	slices.Reverse(mounts)
	for _, m := range mounts {
		if m.fsType != "nsfs" {
			continue
		}
		if err := unix.Unmount(m.target, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop the copy of namespace %s: %w", m.target, err)
		}
	}
	return nil
}

// makeNamespace lets enter change a thread's namespace and binds the result at
// path from outside: a thread cannot bind its own new mount namespace where the
// host would see it.
func makeNamespace(path, kind string, enter func() error) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	tid, bound, ended := make(chan int, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- onOwnThread(func() error {
			if err := enter(); err != nil {
				close(tid)
				return fmt.Errorf("new %s namespace: %w", kind, err)
			}
			tid <- unix.Gettid()
			<-bound
			return nil
		})
	}()
	var err error
	if id, ok := <-tid; ok {
		source := fmt.Sprintf("/proc/self/task/%d/ns/%s", id, kind)
		if err = unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
			err = fmt.Errorf("bind new %s namespace at %s: %w", kind, path, err)
		}
	}
	close(bound)
	return errors.Join(err, <-ended)
}

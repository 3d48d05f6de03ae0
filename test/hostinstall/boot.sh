#!/bin/sh
# Boots systemd as the first process of a host of its own: the network of a test
# cluster's node, and this machine's files, of which /etc, /usr/local and /var/lib may be
# changed without this machine noticing. Nothing but the units of $UNITS is known to it,
# no generator runs, and killing it kills all that it started.
#
# It runs in fresh namespaces: see host_test.go. It needs WORK, an empty folder; UNITS,
# the folder of units; NODE_DIR, the node's.
set -e
mount --make-rprivate /
for dir in etc usr/local var/lib; do
	mkdir -p "$WORK/$dir/upper" "$WORK/$dir/work"
	mount -t overlay overlay -o "lowerdir=/$dir,upperdir=$WORK/$dir/upper,workdir=$WORK/$dir/work" "/$dir"
done
rmdir /var/lib/akri /var/lib/kubecri 2>/dev/null || true # other tests may have left them
mkdir -p /var/lib/kubelet
mount --bind "$NODE_DIR/kubelet" /var/lib/kubelet
mount --bind "$NODE_DIR/var-log" /var/log
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/containerd /run/lock
mount --bind "$NODE_DIR/run-containerd" /run/containerd

mkdir -p "$WORK/admin"
mount --bind "$WORK/admin" /etc/systemd/system
mount --bind "$UNITS" /usr/lib/systemd/system
# systemd mounts further cgroup hierarchies, and makes folders for them: in a copy.
ls /sys/fs/cgroup >/run/hierarchies
if [ ! -e /sys/fs/cgroup/cgroup.procs ]; then
	mkdir /run/cgroup
	mount -t tmpfs -o mode=755 tmpfs /run/cgroup
	for hierarchy in $(cat /run/hierarchies); do
		mkdir "/run/cgroup/$hierarchy"
		mount --bind "/sys/fs/cgroup/$hierarchy" "/run/cgroup/$hierarchy"
	done
	umount --lazy --recursive /sys/fs/cgroup
	mount --move /run/cgroup /sys/fs/cgroup
fi
mount --make-rshared / # as systemd has it; containers may ask for propagation

# Its own cgroup, where it makes those of its units.
for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
	if [ -e "$hierarchy/cgroup.procs" ]; then
		mkdir -p "$hierarchy/$CGROUP"
		echo $$ >"$hierarchy/$CGROUP/cgroup.procs"
	fi
done
hostname "$NODE_NAME"
export container=kubeslot-test
export SYSTEMD_UNIT_PATH=/etc/systemd/system:/usr/lib/systemd/system
export SYSTEMD_GENERATOR_PATH=/nonexistent SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/nonexistent
exec /lib/systemd/systemd --system --unit=multi-user.target --log-target=console --log-level=info --show-status=no

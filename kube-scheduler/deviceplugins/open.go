package deviceplugins

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// open loads the plugins. Each file that is bad is told in the log, in an event and
// in a metric.
func open(ctx context.Context, client clientset.Interface, o Options) ([]devicescheduler.DeviceScheduler, error) {
	folder := o.Folder
	if folder == "" {
		folder = DefaultFolder
	} else if stat, err := os.Stat(folder); err != nil || !stat.IsDir() {
		return nil, fmt.Errorf("--devschedpath=%s is not a directory that can be read (%v): make it, or leave the flag out to use no plugins", folder, err)
	}
	plugins, bad, err := load.Directory(folder, load.Schedulers, load.Options{Policy: o.Policy})
	logger := klog.FromContext(ctx)
	for _, b := range bad {
		logger.Error(b, "A device scheduler plugin cannot be loaded", "file", b.File, "policy", o.Policy.String())
		for _, f := range b.Findings {
			badFiles.WithLabelValues(string(f.Reason)).Inc()
		}
		if err := tell(ctx, client, b); err != nil {
			logger.Error(err, "Cannot record an event about a plugin", "file", b.File)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("load the device scheduler plugins of %s: %w (to start without those that cannot be loaded: --devsched-bad-plugins=%s)", folder, err, load.Skip)
	}
	schedulers := make([]devicescheduler.DeviceScheduler, 0, len(plugins))
	for _, p := range plugins {
		logger.Info("Loaded a device scheduler plugin", "plugin", p.Name, "file", p.File)
		schedulers = append(schedulers, p.Value)
	}
	return schedulers, nil
}

// lease is what the scheduler's own events are about: the one of its leader
// election, where upstream records events as well.
var lease = v1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: metav1.NamespaceSystem, Name: "kube-scheduler"}

const tellTimeout = 5 * time.Second

// tell records an event about a bad file. It waits for the API, since the scheduler
// may be about to end, and uses one event however often it is started.
func tell(ctx context.Context, client clientset.Interface, bad *load.FileError) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	host, _ := os.Hostname()
	text := bad.Error()
	now := metav1.Now()
	event := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: lease.Namespace,
			Name:      fmt.Sprintf("kube-scheduler.%x", sha256.Sum256([]byte(host+"\n"+text)))[:len("kube-scheduler.")+16],
		},
		InvolvedObject: lease, Reason: "BadDevicePlugin", Type: v1.EventTypeWarning, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: v1.EventSource{Component: "kube-scheduler", Host: host}, Message: shorten(text, maxEventMessage),
	}
	events := client.CoreV1().Events(lease.Namespace)
	_, err := events.Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		patch := fmt.Sprintf(`{"lastTimestamp":%q}`, now.UTC().Format(time.RFC3339))
		_, err = events.Patch(ctx, event.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	return err
}

// maxEventMessage is what the API allows, in bytes.
const maxEventMessage = 1024

// shorten cuts a text that is longer than n bytes.
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:n-len(more)], "") + more // it may end within a character
}

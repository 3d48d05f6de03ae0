package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/standalone"
)

const (
	floodMinutes = 6 // the first few spend the burst
	floodDevices = 500
)

// flood is a discovery handler whose devices of 1 kB all change each second.
type flood struct{}

func (flood) Name() string { return "flood" }
func (flood) Shared() bool { return true }

func (flood) Discover(ctx context.Context, _ discovery.Request, report func(discovery.Result)) error {
	for second := 0; ; second++ {
		result := discovery.Result{Shared: true}
		for i := range floodDevices {
			text := fmt.Sprint(second, strings.Repeat("x", 1000))
			result.Devices = append(result.Devices, discovery.Device{
				ID: fmt.Sprint("service-", i), Properties: map[string]string{"MDNS_TXT_STATE": text}})
		}
		report(result)
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// seen counts events of a watch, and the bytes of their objects.
type seen struct {
	mu            sync.Mutex
	writes, bytes int
}

// take returns what was counted since it was asked last.
func (s *seen) take() (writes, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes, bytes = s.writes, s.bytes
	s.writes, s.bytes = 0, 0
	return writes, bytes
}

// follow counts until the watch ends.
func (s *seen) follow(w watch.Interface) {
	for e := range w.ResultChan() {
		text, _ := json.Marshal(e.Object) // only its length counts
		s.mu.Lock()
		s.writes++
		s.bytes += len(text)
		s.mu.Unlock()
	}
}

// measureFlood has a handler report other devices each second, and prints what that makes kubecri and the
// controller write in each minute.
func (b *bench) measureFlood(ctx context.Context, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	options := metav1.ListOptions{}
	slices, err := b.client.KubeslotV1alpha1().DeviceSlices().Watch(ctx, options)
	if err != nil {
		return err
	}
	defer slices.Stop()
	instances, err := b.client.AkriV0().Instances(namespace).Watch(ctx, options)
	if err != nil {
		return err
	}
	defer instances.Stop()
	var ofSlices, ofInstances seen
	go ofSlices.follow(slices)
	go ofInstances.follow(instances)
	served := make(chan error, 1)
	go func() {
		served <- standalone.Serve(ctx, flood{}, standalone.Options{Directory: b.cluster.Nodes()[0].HandlersDir})
	}()
	if err := b.create(ctx, "flood", flood{}.Name(), ""); err != nil {
		return err
	}
	fmt.Fprintf(out, "| %d devices of 1 kB change each second; minute "+
		"| DeviceSlices: writes | kB | Instances: writes | kB |\n|---|---|---|---|---|\n", floodDevices)
	for minute := range floodMinutes {
		select {
		case err := <-served:
			return errors.Join(errors.New("the handler ended"), err)
		case <-time.After(time.Minute):
		case <-ctx.Done():
			return ctx.Err()
		}
		writes, bytes := ofSlices.take()
		changes, more := ofInstances.take()
		fmt.Fprintf(out, "| %d | %d | %d | %d | %d |\n", minute+1, writes, bytes/1000, changes, more/1000)
	}
	return nil
}

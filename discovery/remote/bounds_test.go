package remote

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// heap is what is in use.
func heap() uint64 {
	runtime.GC()
	var is runtime.MemStats
	runtime.ReadMemStats(&is)
	return is.HeapAlloc
}

// answer is the codec of a handler that sends the same bytes each time, without a copy.
type answer struct {
	encoding.CodecV2
	response []byte
}

func (a answer) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(a.response)}, nil
}

// Streams that send lists of 16 MiB share the memory, and each has its turn.
func TestManyLargeListsStayWithinTheBound(t *testing.T) {
	const kubecri, worker = maxStreams*128<<10 + maxLarge*16<<20 + decodeBytes,
		maxStreams*(160<<10+windowBytes) + maxLarge*18<<20
	if kubecri > 256<<20 || worker > 140<<20 {
		t.Errorf("the bounds are %d MiB and %d MiB, want the 256 and 140 of docs/security.md", kubecri>>20, worker>>20)
	}
	const streams, bound = 20, kubecri + worker // of which this process is both
	s := newServer(t, nil)
	large, err := proto.Marshal(devices(strings.Repeat("x", maxMessageBytes-100)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range streams {
		l, err := net.Listen("unix", filepath.Join(s.config.Directory, fmt.Sprintf("x%d.sock", i)))
		if err != nil {
			t.Fatal(err)
		}
		serveOn(t, l, sends(nil), grpc.ForceServerCodecV2(answer{encoding.GetCodecV2("proto"), large}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	reports := make(chan uint64, streams)
	before := heap()
	for i := range streams {
		source := register(t, s, fmt.Sprint("x", i), true)
		running.Go(func() {
			_ = source.Handler.Discover(ctx, discovery.Request{}, func(result discovery.Result) {
				reports <- heap()
				runtime.KeepAlive(result)
			})
		})
	}
	var most uint64
	for range streams {
		most = max(most, await.Next(t, "the list of each", reports))
	}
	if most -= before; most > bound {
		t.Errorf("%d streams took %d MiB, of %d", streams, most>>20, bound>>20)
	}
}

// What is counted for a list that is decoded is no less than it takes.
func TestAPartIsCountedAsWhatItTakes(t *testing.T) {
	const parts = 200_000
	lists := map[string]*pb.DiscoverResponse{
		"devices":         {Devices: make([]*pb.Device, parts)},
		"properties":      {},
		"a property each": {}, "a mount each": {}, "a device node each": {},
		"mounts": {Devices: []*pb.Device{{Mounts: make([]*pb.Mount, parts)}}},
	}
	for range parts / 2 {
		for name, device := range map[string]*pb.Device{
			"a property each":    {Properties: map[string]string{"": ""}},
			"a mount each":       {Mounts: []*pb.Mount{{}}},
			"a device node each": {DeviceSpecs: []*pb.DeviceSpec{{}}},
		} {
			lists[name].Devices = append(lists[name].Devices, device)
		}
	}
	for range parts / 257 {
		all := map[string]string{}
		for i := range 256 {
			all[fmt.Sprint(i)] = ""
		}
		lists["properties"].Devices = append(lists["properties"].Devices, &pb.Device{Properties: all})
	}
	b := newBounds()
	for name, response := range lists {
		data, err := proto.Marshal(response)
		if err != nil {
			t.Fatal(err)
		}
		lists[name], response = nil, nil
		before := heap()
		err = b.take(t.Context(), list{data, func() {}}, func(response *pb.DiscoverResponse) {
			result := decode(response, true)
			took := heap() - before
			if each := took / parts; each > partBytes {
				t.Errorf("%s: a part takes %d bytes, is counted as %d", name, each, partBytes)
			}
			runtime.KeepAlive(result)
			runtime.KeepAlive(response)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A handler that begins a large list and does not end it does not keep others from sending theirs.
func TestALargeListThatDoesNotEnd(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	b := newBounds()
	m := b.meter(here)
	go func() {
		frame := make([]byte, 9+16<<10)
		frame[1] = 16 << 10 >> 8
		for range 5 { // more than smallBytes
			if _, err := there.Write(frame); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 16<<10)
	for range 10 { // two for each frame, for it has a header
		if _, err := m.Read(buffer); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.large) != 1 {
		t.Errorf("%d large lists, want one", len(b.large))
	}
	m.Conn.SetReadDeadline(time.Now())
	var err error
	for err == nil {
		_, err = m.Read(buffer)
	}
	if !strings.Contains(err.Error(), "took longer than") {
		t.Errorf("Read() = %v", err)
	}
	// Others wait for the place that is left, and for that of the connection that is closed.
	for range maxLarge - 1 {
		b.large <- struct{}{}
	}
	other, _ := net.Pipe()
	waits := b.meter(other)
	waits.pending = smallBytes + 1
	waited := make(chan error, 1)
	go func() { waited <- waits.await() }()
	m.Close()
	if err := await.Next(t, "the place of the connection that was closed", waited); err != nil {
		t.Errorf("await() = %v", err)
	}
}

// A list in tiny frames takes more memory than its bytes, and is counted so, however it is read.
func TestFramesAreCounted(t *testing.T) {
	data, ping := []byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 'x'}, []byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	sent := bytes.Repeat(append(bytes.Clone(data), ping...), 10)
	for _, size := range []int{1, 7, 26, len(sent)} {
		var f frames
		all, lists := 0, 0
		for chunk := range slices.Chunk(sent, size) {
			a, d := f.read(chunk)
			all, lists = all+a, lists+d
		}
		if wantLists := 10 * (1 + frameBytes); lists != wantLists || all != wantLists+10*(8+frameBytes) {
			t.Errorf("read by %d bytes, %d are counted of lists and %d of all", size, lists, all)
		}
	}
}

// A handler has at most half of the streams, so that others have some, and all have maxStreams.
func TestMoreStreamsThanThereMayBe(t *testing.T) {
	s := newServer(t, nil)
	open := func(handler string, n int) (closed func()) {
		t.Helper()
		for range n {
			var err error
			if closed, err = s.bounds.open(handler); err != nil {
				t.Fatal(err)
			}
		}
		return closed
	}
	refused := func(handler, want string) {
		t.Helper()
		serveHandler(t, s, handler, sends(devices("a")))
		err := await.Next(t, "the refusal", start(t, register(t, s, handler, true), discovery.Request{}).done)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Discover() of %s = %v, want %q", handler, err, want)
		}
	}
	closed := open("x", maxStreamsOfHandler)
	refused("x", `128 streams of the discovery handler "x" are open`)
	open("y", maxStreams-maxStreamsOfHandler)
	refused("z", "256 streams of discovery handlers are open")
	closed()
	open("x", 1)
}

// A list that came whole while its connection waited for a place gives the place back, and has no deadline.
func TestAListThatCameWhileItsConnectionWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		b := newBounds()
		for range maxLarge {
			b.large <- struct{}{}
		}
		m := b.meter(here)
		defer m.Close()
		m.pending = smallBytes + 1
		waited := make(chan error, 1)
		go func() { waited <- m.await() }()
		synctest.Wait()
		m.complete()()
		<-b.large
		if err := <-waited; err != nil || m.large || len(b.large) != maxLarge-1 {
			t.Errorf("await() = %v; it has a place: %v; %d are taken", err, m.large, len(b.large))
		}
	})
}

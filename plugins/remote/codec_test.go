package remote

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// A message from a plugin takes a few times its bytes at most, whatever is in it.
func TestManyParts(t *testing.T) {
	const most = MaxMessageBytes / 2 // of two bytes each
	changes := func(n int) *pb.FitResponse {
		requests := map[string]int64{}
		for i := range n {
			requests[string(rune(i+1))] = 0
		}
		return &pb.FitResponse{Verdicts: []*pb.Verdict{{Changes: &pb.PodChanges{
			RunningContainers: map[string]*pb.ContainerChanges{"main": {DevRequests: requests}}}}}}
	}
	for name, tc := range map[string]struct {
		message *pb.FitResponse
		refused bool
	}{
		"verdicts":       {&pb.FitResponse{Verdicts: slices.Repeat([]*pb.Verdict{{}}, most)}, true},
		"as many as may": {&pb.FitResponse{Verdicts: slices.Repeat([]*pb.Verdict{{}}, maxParts)}, false},
		"one more":       {&pb.FitResponse{Verdicts: slices.Repeat([]*pb.Verdict{{}}, maxParts+1)}, true},
		"reasons": {&pb.FitResponse{Verdicts: []*pb.Verdict{{
			Reasons: slices.Repeat([]*pb.Reason{{}}, most)}}}, true},
		"changes":             {changes(2 * maxParts), true},
		"as many as may, too": {changes(maxParts - 4), false},
	} {
		t.Run(name, func(t *testing.T) {
			wire, err := proto.Marshal(tc.message)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			data := mem.BufferSlice{mem.SliceBuffer(wire)}
			err = codec{encoding.GetCodecV2("proto")}.Unmarshal(data, &pb.FitResponse{})
			runtime.ReadMemStats(&after)
			if tc.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "of 32768 that may be") {
				t.Error(err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 12<<20 {
				t.Errorf("%d bytes were allocated for %d", took, len(wire))
			}
		})
	}
}

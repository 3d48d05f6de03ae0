package remote

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec "proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/discovery"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

const (
	// maxMessageBytes is how long a response may be.
	maxMessageBytes = 16 << 20

	// maxParts is how many devices, properties, mounts and device nodes a response may
	// have together: enough for 20,000 devices, which is as many as kubecri takes of a
	// Configuration, with two dozen properties each. A device can be of two bytes on
	// the wire and of a hundred in memory.
	maxParts = 500_000
)

// codec is gRPC's proto codec, which leaves responses encoded: they are passed on.
type codec struct{}

// Name implements encoding.CodecV2. Without a name the content type is plain
// application/grpc, which every server takes for proto.
func (codec) Name() string { return "" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2("proto").Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	response, ok := v.(*mem.BufferSlice)
	if !ok {
		return fmt.Errorf("%T is no response", v)
	}
	data.Ref()
	*response = slices.Clone(data)
	return nil
}

// take decodes the list and calls report with it, when there is memory for it. It releases the list.
func (b *bounds) take(ctx context.Context, list list, report func(*pb.DiscoverResponse)) error {
	defer list.release()
	parts, err := countParts(list.encoded)
	if err != nil {
		return fmt.Errorf("the response is not a DiscoverResponse: %w", err)
	}
	if parts > maxParts {
		return fmt.Errorf("the response has more than %d devices, properties, mounts and device nodes", maxParts)
	}
	needed := int64(len(list.encoded) + parts*partBytes)
	if err := b.decoding.Acquire(ctx, needed); err != nil {
		return err
	}
	defer b.decoding.Release(needed)
	response := &pb.DiscoverResponse{}
	if err := proto.Unmarshal(list.encoded, response); err != nil {
		return fmt.Errorf("the response is not a DiscoverResponse: %w", err)
	}
	report(response)
	return nil
}

// countParts returns how many messages and strings are repeated in an encoded
// DiscoverResponse; it stops counting beyond maxParts.
func countParts(response []byte) (parts int, err error) {
	err = eachField(response, func(number protowire.Number, value []byte) error {
		parts++
		if number != 1 || parts > maxParts {
			return nil
		}
		return eachField(value, func(protowire.Number, []byte) error {
			parts++
			return nil
		})
	})
	return parts, err
}

// eachField calls do with each length-delimited field of an encoded message.
func eachField(message []byte, do func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(number, kind, message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if err := do(number, value); err != nil {
				return err
			}
		}
		message = message[n:]
	}
	return nil
}

// encode is the request as the protocol has it: a property without a value is one
// without vec.
func encode(details string, properties map[string][]byte) *pb.DiscoverRequest {
	message := &pb.DiscoverRequest{DiscoveryDetails: details,
		DiscoveryProperties: make(map[string]*pb.ByteData, len(properties))}
	for name, value := range properties {
		message.DiscoveryProperties[name] = &pb.ByteData{Vec: value}
	}
	return message
}

// decode is the response as a Result; registered is what holds without
// DiscoverResponse.shared.
func decode(response *pb.DiscoverResponse, registered bool) discovery.Result {
	result := discovery.Result{Shared: registered, Devices: make([]discovery.Device, 0, len(response.GetDevices()))}
	if response.Shared != nil {
		result.Shared = response.GetShared()
	}
	for _, d := range response.GetDevices() {
		device := discovery.Device{ID: d.GetId(), Properties: d.GetProperties()}
		for _, m := range d.GetMounts() {
			device.Mounts = append(device.Mounts, discovery.Mount{
				ContainerPath: m.GetContainerPath(), HostPath: m.GetHostPath(), ReadOnly: m.GetReadOnly()})
		}
		for _, s := range d.GetDeviceSpecs() {
			device.DeviceSpecs = append(device.DeviceSpecs, discovery.DeviceSpec{
				ContainerPath: s.GetContainerPath(), HostPath: s.GetHostPath(), Permissions: s.GetPermissions()})
		}
		result.Devices = append(result.Devices, device)
	}
	return result
}

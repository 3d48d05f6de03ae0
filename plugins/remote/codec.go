package remote

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxParts is how many messages, such as verdicts and entries of maps, may be in one from a plugin: each
// takes about 100 bytes once it is decoded, and may take two before. 64 verdicts with 16 KiB of names of
// 32 bytes have as many.
const maxParts = 32 << 10

// codec is gRPC's, and refuses a message that has too many in it before it is decoded.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	buffer, message := data.MaterializeToBuffer(mem.DefaultBufferPool()), v.(proto.Message)
	defer buffer.Free()
	wire := buffer.ReadOnlyData()
	if n := parts(wire, message.ProtoReflect().Descriptor()); n > maxParts {
		return fmt.Errorf("%d messages are in it, of %d that may be", n, maxParts)
	}
	return proto.Unmarshal(wire, message)
}

// parts returns how many messages are in one, as far as it can be read.
func parts(wire []byte, of protoreflect.MessageDescriptor) (n int) {
	for len(wire) > 0 {
		number, kind, size := protowire.ConsumeField(wire)
		if size < 0 {
			break // decoding it fails
		}
		field := of.Fields().ByNumber(number)
		if kind == protowire.BytesType && field != nil && field.Message() != nil {
			part, _ := protowire.ConsumeBytes(wire[protowire.SizeTag(number):size])
			n += 1 + parts(part, field.Message())
		}
		wire = wire[size:]
	}
	return n
}

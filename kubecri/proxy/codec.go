package proxy

import (
	"fmt"

	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// rawCodec hands a message's frames through as they are. It bears protobuf's
// name because the peer sees that name in the content-type and must not notice.
//
// Buffers are counted: who receives a message owns one reference and frees it;
// grpc takes and frees its own around each send.
type rawCodec struct{}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2. grpc frees what it returns.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("proxy: cannot send a %T: want the raw frames", v)
	}
	m.Ref()
	return *m, nil
}

// Unmarshal implements encoding.CodecV2. grpc frees data once it has returned,
// so the receiver's reference is taken here.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*mem.BufferSlice)
	if !ok {
		return fmt.Errorf("proxy: cannot receive into a %T: want the raw frames", v)
	}
	data.Ref()
	*m = data
	return nil
}

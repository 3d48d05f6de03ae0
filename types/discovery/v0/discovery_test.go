package v0

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// What goes over the wire is Akri's discovery.proto v0.13: a handler that was compiled
// from that one works.
func TestTheProtocolIsAkris(t *testing.T) {
	file := File_types_discovery_v0_discovery_proto
	for message, fields := range map[protoreflect.Name][]string{
		"RegisterDiscoveryHandlerRequest": {"1 name string", "2 endpoint string", "3 endpoint_type enum", "4 shared bool"},
		"Empty":                           nil,
		"DiscoverRequest":                 {"1 discovery_details string", "2 discovery_properties map of message"},
		"ByteData":                        {"1 vec optional bytes"},
		"DiscoverResponse":                {"1 devices list of message", "1000 shared optional bool", "1001 warnings list of string"},
		"Device":                          {"1 id string", "2 properties map of string", "3 mounts list of message", "4 device_specs list of message"},
		"Mount":                           {"1 container_path string", "2 host_path string", "3 read_only bool"},
		"DeviceSpec":                      {"1 container_path string", "2 host_path string", "3 permissions string"},
	} {
		var got []string
		descriptor := file.Messages().ByName(message)
		for i := range descriptor.Fields().Len() {
			got = append(got, describe(descriptor.Fields().Get(i)))
		}
		if !slices.Equal(got, fields) {
			t.Errorf("message %s has %q, want %q", message, got, fields)
		}
	}
	if n := file.Messages().Len(); n != 8 {
		t.Errorf("%d messages, want 8", n)
	}
	if RegisterDiscoveryHandlerRequest_UDS != 0 || RegisterDiscoveryHandlerRequest_NETWORK != 1 {
		t.Error("the numbers of EndpointType are not UDS 0, NETWORK 1")
	}
	if got, want := Registration_RegisterDiscoveryHandler_FullMethodName, "/v0.Registration/RegisterDiscoveryHandler"; got != want {
		t.Errorf("registration is %s, want %s", got, want)
	}
	if got, want := DiscoveryHandler_Discover_FullMethodName, "/v0.DiscoveryHandler/Discover"; got != want {
		t.Errorf("discovery is %s, want %s", got, want)
	}
	discover := file.Services().ByName("DiscoveryHandler").Methods().ByName("Discover")
	if discover.IsStreamingClient() || !discover.IsStreamingServer() {
		t.Error("Discover does not answer one request with a stream")
	}
}

func describe(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	switch {
	case f.IsMap():
		kind = "map of " + f.MapValue().Kind().String()
	case f.IsList():
		kind = "list of " + kind
	case f.HasOptionalKeyword():
		kind = "optional " + kind
	}
	return fmt.Sprintf("%d %s %s", f.Number(), f.Name(), kind)
}

package opcua

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
)

// The requests are byte for byte those that gopcua writes.
func TestWritesWhatGopcuaWrites(t *testing.T) {
	const handle = 0x01020304
	now := time.Date(2026, 11, 27, 12, 30, 0, 123_456_700, time.UTC)
	long := "opc.tcp://ofen.example/ö/" + strings.Repeat("x", 4000)
	for _, url := range []string{"", "opc.tcp://10.0.0.1:4840/", long} {
		for name, tc := range map[string]struct {
			request request
			gopcua  ua.Request
		}{
			"OpenSecureChannel": {openSecureChannel(), &ua.OpenSecureChannelRequest{
				RequestType: ua.SecurityTokenRequestTypeIssue, SecurityMode: ua.MessageSecurityModeNone,
				RequestedLifetime: uint32(channelLifetime.Milliseconds()),
			}},
			"CloseSecureChannel": {closeSecureChannel(), &ua.CloseSecureChannelRequest{}},
			"FindServers":        {findServers(url), &ua.FindServersRequest{EndpointURL: url}},
			"FindServersOnNetwork": {findServersOnNetwork(7), &ua.FindServersOnNetworkRequest{
				StartingRecordID: 7, MaxRecordsToReturn: recordsAtOnce,
			}},
		} {
			tc.gopcua.SetHeader(&ua.RequestHeader{
				AuthenticationToken: ua.NewTwoByteNodeID(0), Timestamp: now, RequestHandle: handle,
				AdditionalHeader: ua.NewExtensionObject(nil),
			})
			if diff := cmp.Diff(encode(t, tc.gopcua), tc.request.encode(handle, now)); diff != "" {
				t.Errorf("%s with %.30q (-gopcua +own):\n%s", name, url, diff)
			}
		}
		want, err := ua.Encode(&uacp.Hello{
			ReceiveBufSize: maxFrameBytes, SendBufSize: maxFrameBytes, MaxMessageSize: maxMessageBytes,
			EndpointURL: url,
		})
		if diff := cmp.Diff(want, hello(url)); diff != "" || err != nil {
			t.Errorf("Hello with %.30q: %v (-gopcua +own):\n%s", url, err, diff)
		}
	}
	policy := ua.NewBuffer(nil)
	policy.WriteString(ua.SecurityPolicyURINone)
	policy.WriteByteString(nil)
	policy.WriteByteString(nil)
	if diff := cmp.Diff(policy.Bytes(), asymmetricHeader()); diff != "" {
		t.Errorf("the security header (-gopcua +own):\n%s", diff)
	}
}

func TestNumbersAndNamesAreGopcuas(t *testing.T) {
	for own, gopcua := range map[uint32]uint32{
		openSecureChannelResponse:    id.OpenSecureChannelResponse_Encoding_DefaultBinary,
		findServersResponse:          id.FindServersResponse_Encoding_DefaultBinary,
		findServersOnNetworkResponse: id.FindServersOnNetworkResponse_Encoding_DefaultBinary,
		typeServer:                   uint32(ua.ApplicationTypeServer),
		uint32(finalChunk):           uacp.ChunkTypeFinal,
		uint32(continuedChunk):       uacp.ChunkTypeIntermediate,
		uint32(abortedChunk):         uacp.ChunkTypeAbort,
	} {
		if own != gopcua {
			t.Errorf("%d is %d for gopcua", own, gopcua)
		}
	}
	for code, name := range statusNames {
		if want := ua.StatusCodes[ua.StatusCode(code)].Name; "Status"+name != want {
			t.Errorf("0x%08X is %s, want %s", uint32(code), name, want)
		}
	}
	if got, want := statusCode(0x80FF0001).Error(), "status 0x80FF0001"; got != want {
		t.Errorf("an unknown code is %q, want %q", got, want)
	}
}

// Each response that ends too early is an error, wherever it ends.
func TestResponsesThatAreCut(t *testing.T) {
	oven := description("Oven", ua.ApplicationTypeServer, "opc.tcp://a:1", "https://a:2")
	channel := &ua.OpenSecureChannelResponse{SecurityToken: &ua.ChannelSecurityToken{ChannelID: 5}}
	servers := &ua.FindServersResponse{Servers: []*ua.ApplicationDescription{oven, oven}}
	record := &ua.ServerOnNetwork{RecordID: 3, DiscoveryURL: "opc.tcp://a:1", ServerCapabilities: []string{"DA"}}
	onNetwork := &ua.FindServersOnNetworkResponse{Servers: []*ua.ServerOnNetwork{record, record}}
	channel.ResponseHeader, servers.ResponseHeader = responseHeader(), responseHeader()
	onNetwork.ResponseHeader = responseHeader()
	for name, tc := range map[string]struct {
		message []byte
		read    func([]byte) error
		unread  int // bytes at the end that nobody reads
	}{
		"OpenSecureChannel": {
			encode(t, channel),
			func(m []byte) error { _, _, err := readChannel(m); return err },
			8 + 4 + 4, // creation, lifetime, nonce
		},
		"FindServers": {
			encode(t, servers),
			func(m []byte) error { _, err := readApplications(m); return err },
			0,
		},
		"FindServersOnNetwork": {
			encode(t, onNetwork),
			func(m []byte) error { _, err := readRecords(m); return err },
			0,
		},
	} {
		for n := range len(tc.message) + 1 {
			if err := tc.read(tc.message[:n]); (err == nil) != (n >= len(tc.message)-tc.unread) {
				t.Errorf("%s, %d of %d bytes: error is %v", name, n, len(tc.message), err)
			}
		}
	}
}

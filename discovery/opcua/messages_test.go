package opcua

import (
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// responseHeader has everything that a header may have.
func responseHeader() *ua.ResponseHeader {
	return &ua.ResponseHeader{
		Timestamp: time.Now(), RequestHandle: 7,
		ServiceDiagnostics: &ua.DiagnosticInfo{
			EncodingMask: 0x7f, SymbolicID: 1, NamespaceURI: 2, Locale: 3, LocalizedText: 4, AdditionalInfo: "more", InnerStatusCode: ua.StatusBad,
			InnerDiagnosticInfo: &ua.DiagnosticInfo{},
		},
		StringTable:      []string{"a", "", "c"},
		AdditionalHeader: ua.NewExtensionObject(&ua.AnonymousIdentityToken{PolicyID: "any"}),
	}
}

// encode is a message as gopcua writes it.
func encode(t testing.TB, response any) []byte {
	t.Helper()
	body := ua.NewBuffer(nil)
	body.WriteStruct(ua.NewFourByteExpandedNodeID(0, ua.ServiceTypeID(response)))
	body.WriteStruct(response)
	if err := body.Error(); err != nil {
		t.Fatal(err)
	}
	return body.Bytes()
}

func description(name string, kind ua.ApplicationType, urls ...string) *ua.ApplicationDescription {
	return &ua.ApplicationDescription{
		ApplicationURI: "urn:" + name, ProductURI: "urn:product", ApplicationType: kind, DiscoveryURLs: urls,
		ApplicationName: &ua.LocalizedText{EncodingMask: ua.LocalizedTextText | ua.LocalizedTextLocale, Locale: "de", Text: name},
	}
}

func TestReadsWhatGopcuaWrites(t *testing.T) {
	applications, err := readApplications(encode(t, &ua.FindServersResponse{ResponseHeader: responseHeader(), Servers: []*ua.ApplicationDescription{
		description("Oven", ua.ApplicationTypeServer, "opc.tcp://a:1", "https://a:2"),
		{ApplicationName: &ua.LocalizedText{}, ApplicationType: ua.ApplicationTypeDiscoveryServer},
	}}))
	want := []application{
		{uri: "urn:Oven", name: "Oven", kind: uint32(ua.ApplicationTypeServer), discoveryURLs: []string{"opc.tcp://a:1", "https://a:2"}},
		{kind: uint32(ua.ApplicationTypeDiscoveryServer), discoveryURLs: []string{}},
	}
	if diff := cmp.Diff(want, applications, cmp.AllowUnexported(application{})); err != nil || diff != "" {
		t.Errorf("applications: %v (-want +got):\n%s", err, diff)
	}
	records, err := readRecords(encode(t, &ua.FindServersOnNetworkResponse{ResponseHeader: responseHeader(), LastCounterResetTime: time.Now(), Servers: []*ua.ServerOnNetwork{
		{RecordID: 3, ServerName: "Oven", DiscoveryURL: "opc.tcp://a:1", ServerCapabilities: []string{"DA", "LDS"}},
	}}))
	if diff := cmp.Diff([]record{{3, "Oven", "opc.tcp://a:1", []string{"DA", "LDS"}}}, records, cmp.AllowUnexported(record{})); err != nil || diff != "" {
		t.Errorf("records: %v (-want +got):\n%s", err, diff)
	}
	channel, token, err := readChannel(encode(t, &ua.OpenSecureChannelResponse{ResponseHeader: responseHeader(), SecurityToken: &ua.ChannelSecurityToken{ChannelID: 5, TokenID: 6}}))
	if channel != 5 || token != 6 || err != nil {
		t.Errorf("readChannel() = %d, %d, %v", channel, token, err)
	}
}

// hostile are messages that must be errors, and be so without much memory: gopcua's
// decoder takes 16 GiB for the third.
func hostile(t testing.TB) map[string][]byte {
	header := encode(t, &ua.FindServersResponse{ResponseHeader: responseHeader()})
	header = header[:len(header)-4] // without the list's length
	deep := append(words(id.FindServersResponse_Encoding_DefaultBinary<<16|0x0001), make([]byte, 16)...)
	deep = append(deep, make([]byte, 1<<20)...)
	for i := 20; i < len(deep); i++ {
		deep[i] = 0x40 // diagnostics with diagnostics in them
	}
	fault := responseHeader()
	fault.ServiceResult = ua.StatusBadTooManyOperations
	return map[string][]byte{
		"nothing":               {},
		"no list":               header,
		"a list of 2 billion":   append(header[:len(header):len(header)], words(0x7fffffff)...),
		"a string of 2 GB":      append(header[:len(header):len(header)], words(1, 0x7fffffff)...),
		"diagnostics, 1M deep":  deep,
		"another response":      encode(t, &ua.GetEndpointsResponse{ResponseHeader: responseHeader()}),
		"a fault":               encode(t, &ua.ServiceFault{ResponseHeader: fault}),
		"a type that is no ID":  append([]byte{0x3f}, header...),
		"a type with a string":  append([]byte{0xc3, 0, 0, 1, 0, 0, 0, 'x', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, header...),
		"a response cut in two": header[:len(header)/2],
	}
}

func TestHostileMessages(t *testing.T) {
	for name, message := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			list, err := readApplications(message)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("read as %v", list)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
				t.Errorf("took %d bytes of memory", took)
			}
		})
	}
}

func FuzzMessages(f *testing.F) {
	for _, message := range hostile(f) {
		if len(message) < 1<<10 {
			f.Add(message)
		}
	}
	f.Add(encode(f, &ua.FindServersResponse{ResponseHeader: responseHeader(), Servers: []*ua.ApplicationDescription{description("Oven", ua.ApplicationTypeServer, "opc.tcp://a:1")}}))
	f.Add(encode(f, &ua.FindServersOnNetworkResponse{ResponseHeader: responseHeader(), Servers: []*ua.ServerOnNetwork{{DiscoveryURL: "opc.tcp://a:1"}}}))
	asked, err := parseTarget("opc.tcp://10.0.0.1:4840/")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		_, _, _ = readChannel(message)
		_, _ = readRecords(message)
		list, err := readApplications(message)
		if err != nil {
			return
		}
		devices, _ := devicesOf(serversOf(list, nil, maxServers), asked, nil)
		for _, d := range devices {
			if _, err := parseTarget(d.ID); err != nil {
				t.Errorf("device %q: %v", d.ID, err)
			}
		}
	})
}

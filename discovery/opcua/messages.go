package opcua

import "fmt"

// application is what a server says of one application (ApplicationDescription, Part 4,
// 7.2). Nothing in it has been checked.
type application struct {
	uri, name     string
	kind          uint32 // typeServer, or another
	discoveryURLs []string
}

// typeServer is the ApplicationType of servers that are neither clients nor discovery
// servers (Part 4, 7.4).
const typeServer = 0

// readResponse reads a response's type and header (Part 4, 7.33) and leaves the reader
// behind them. want is the number of the response's binary encoding.
func readResponse(message []byte, want uint32) (*reader, error) {
	r := &reader{rest: message}
	kind := r.numericID()
	r.bytes(8) // timestamp
	r.uint32() // request handle
	result := statusCode(r.uint32())
	r.skipDiagnostics()
	r.strings()
	r.skipExtensionObject()
	switch {
	case r.err != nil:
		return nil, r.err
	case result.bad():
		return nil, result
	case kind != want:
		return nil, fmt.Errorf("not OPC UA: a response of type %d, want %d", kind, want)
	}
	return r, nil
}

// readChannel reads an OpenSecureChannelResponse.
func readChannel(message []byte) (channel, token uint32, err error) {
	r, err := readResponse(message, openSecureChannelResponse)
	if err != nil {
		return 0, 0, err
	}
	r.uint32() // protocol version
	channel, token = r.uint32(), r.uint32()
	return channel, token, r.err
}

// readApplications reads a FindServersResponse.
func readApplications(message []byte) ([]application, error) {
	r, err := readResponse(message, findServersResponse)
	if err != nil {
		return nil, err
	}
	const least = 6*4 + 1 // bytes of an application whose strings are null
	list := make([]application, r.length(least))
	for i := range list {
		a := &list[i]
		a.uri = r.string()
		r.string() // product
		a.name = r.localizedText()
		a.kind = r.uint32()
		r.string() // gateway
		r.string() // discovery profile
		a.discoveryURLs = r.strings()
	}
	return list, r.err
}

// record is a server that a discovery server knows from the network (ServerOnNetwork,
// Part 4, 7.38).
type record struct {
	id           uint32
	name, url    string
	capabilities []string
}

// readRecords reads a FindServersOnNetworkResponse.
func readRecords(message []byte) ([]record, error) {
	r, err := readResponse(message, findServersOnNetworkResponse)
	if err != nil {
		return nil, err
	}
	r.bytes(8) // last time that the numbers began anew
	const least = 4 * 4
	list := make([]record, r.length(least))
	for i := range list {
		list[i] = record{id: r.uint32(), name: r.string(), url: r.string(), capabilities: r.strings()}
	}
	return list, r.err
}

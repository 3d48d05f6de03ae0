package opcua

import (
	"encoding/binary"
	"slices"
	"time"
)

// Numbers of the types' binary encodings (Part 6, annex A).
const (
	findServersRequest           = 422
	findServersResponse          = 425
	openSecureChannelRequest     = 446
	openSecureChannelResponse    = 449
	closeSecureChannelRequest    = 452
	findServersOnNetworkRequest  = 12208
	findServersOnNetworkResponse = 12209
)

const securityPolicyNone = "http://opcfoundation.org/UA/SecurityPolicy#None"

// null is the length of a string or an array that is not there.
const null = 0xffffffff

// request is a request without its header.
type request struct {
	kind uint16 // number of its binary encoding
	body []byte
}

// hello is the body of a Hello message, which has no header (Part 6, 7.1.2.3).
func hello(url string) []byte {
	const version, maxChunks = 0, 0 // any number of chunks
	return append(words(version, maxFrameBytes, maxFrameBytes, maxMessageBytes, maxChunks), text(url)...)
}

// openSecureChannel asks for a channel without security.
func openSecureChannel() request {
	const version, issue, none = 0, 0, 1
	return request{openSecureChannelRequest, words(version, issue, none, null, uint32(channelLifetime.Milliseconds()))}
}

// asymmetricHeader is the security header of openSecureChannel: without certificates.
func asymmetricHeader() []byte { return append(text(securityPolicyNone), words(null, null)...) }

func closeSecureChannel() request { return request{kind: closeSecureChannelRequest} }

// findServers asks for all applications, in any locale, of the server at a URL.
func findServers(url string) request {
	return request{findServersRequest, append(text(url), words(null, null)...)}
}

// findServersOnNetwork asks for a page of the servers with any capabilities.
func findServersOnNetwork(first uint32) request {
	return request{findServersOnNetworkRequest, words(first, recordsAtOnce, null)}
}

// encode returns the request with its type and header (Part 4, 7.32).
func (r request) encode(handle uint32, now time.Time) []byte {
	const fourByteID = 1
	noID := []byte{0, 0} // of two bytes
	return slices.Concat(
		words(uint32(r.kind)<<16|fourByteID),
		noID, // authentication token
		timestamp(now),
		words(handle, 0, null, 0), // no diagnostics, no audit entry, no timeout
		noID, []byte{0},           // no additional header
		r.body,
	)
}

// timestamp counts 100 ns since 1601 (Part 6, 5.2.2.5).
func timestamp(t time.Time) []byte {
	const from1601To1970 = 116_444_736_000_000_000
	return binary.LittleEndian.AppendUint64(nil, uint64(t.UnixNano()/100+from1601To1970))
}

// text is the encoding of a string.
func text(s string) []byte {
	if s == "" {
		return words(null)
	}
	return append(words(uint32(len(s))), s...)
}

// words is the encoding of numbers.
func words(values ...uint32) (encoded []byte) {
	for _, v := range values {
		encoded = binary.LittleEndian.AppendUint32(encoded, v)
	}
	return encoded
}

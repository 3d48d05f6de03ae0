package opcua

import "fmt"

// statusCode is why a server refuses (Part 6, annex A).
type statusCode uint32

const (
	badServiceUnsupported statusCode = 0x800B0000
	badNotImplemented     statusCode = 0x80400000
)

// bad is whether the code is one of a failure, and not good or uncertain.
func (c statusCode) bad() bool { return c&0x80000000 != 0 }

func (c statusCode) Error() string {
	if name, ok := statusNames[c]; ok {
		return fmt.Sprintf("%s (0x%08X)", name, uint32(c))
	}
	return fmt.Sprintf("status 0x%08X", uint32(c))
}

// statusNames are those of the codes with which servers refuse connections, channels and
// requests for servers.
var statusNames = map[statusCode]string{
	0x80010000:            "BadUnexpectedError",
	0x80020000:            "BadInternalError",
	0x80030000:            "BadOutOfMemory",
	0x80040000:            "BadResourceUnavailable",
	0x80050000:            "BadCommunicationError",
	0x80060000:            "BadEncodingError",
	0x80070000:            "BadDecodingError",
	0x80080000:            "BadEncodingLimitsExceeded",
	0x800A0000:            "BadTimeout",
	badServiceUnsupported: "BadServiceUnsupported",
	0x800C0000:            "BadShutdown",
	0x800D0000:            "BadServerNotConnected",
	0x800E0000:            "BadServerHalted",
	0x80100000:            "BadTooManyOperations",
	0x80130000:            "BadSecurityChecksFailed",
	0x801F0000:            "BadUserAccessDenied",
	0x80220000:            "BadSecureChannelIDInvalid",
	badNotImplemented:     "BadNotImplemented",
	0x804F0000:            "BadServerURIInvalid",
	0x80530000:            "BadRequestTypeInvalid",
	0x80540000:            "BadSecurityModeRejected",
	0x80550000:            "BadSecurityPolicyRejected",
	0x80560000:            "BadTooManySessions",
	0x807D0000:            "BadTCPServerTooBusy",
	0x807E0000:            "BadTCPMessageTypeInvalid",
	0x807F0000:            "BadTCPSecureChannelUnknown",
	0x80800000:            "BadTCPMessageTooLarge",
	0x80810000:            "BadTCPNotEnoughResources",
	0x80820000:            "BadTCPInternalError",
	0x80830000:            "BadTCPEndpointURLInvalid",
	0x80860000:            "BadSecureChannelClosed",
	0x80AC0000:            "BadConnectionRejected",
	0x80AE0000:            "BadConnectionClosed",
	0x80B70000:            "BadMaxConnectionsReached",
	0x80B80000:            "BadRequestTooLarge",
	0x80B90000:            "BadResponseTooLarge",
	0x80BE0000:            "BadProtocolVersionUnsupported",
}

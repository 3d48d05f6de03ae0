// Package onvifcamera is a simulated ONVIF camera for tests. It speaks the
// protocols as a camera does: it answers WS-Discovery probes and resolves over
// multicast (IPv4 and IPv6), announces itself with Hello and Bye, and serves
// ONVIF's device service, and enough of the media service for clients to log in,
// over HTTP with WS-UsernameToken or HTTP digest authentication.
//
// It is written from the specifications (WS-Discovery of April 2005, SOAP-over-UDP,
// ONVIF Core, RFC 7616) and shares no code with the discovery handler that it
// tests. Tests prove it with clients of other authors: npm's onvif, and Debian's
// onvif-tools.
package onvifcamera

// Package onvif is the discovery handler onvif: it finds IP cameras by
// WS-Discovery. Details, properties and identities are Akri's; docs/discovery/onvif.md
// has them, and says what is different.
//
// How a camera becomes a device:
//
//   - link.go sends probes on every interface and receives answers, Hello and Bye.
//   - message.go reads them, within the bounds of xml.go.
//   - sightings.go keeps who was heard where, and decides who is asked directly and
//     who is gone. It is plain data without I/O.
//   - scan.go runs these three once for all Configurations.
//   - client.go asks a camera directly (SOAP over HTTP), and logs in with
//     wssecurity.go or httpdigest.go.
//   - query.go and devices.go apply one Configuration's filters and credentials.
package onvif

package uevent

import (
	"bytes"
	"encoding/binary"
	"path"
	"strings"
)

// udevd's messages begin with this and a header, see libsystemd's device-monitor.c:
//
//	prefix [8]byte "libudev\0", magic uint32 big endian, header_size, properties_off,
//	properties_len uint32 in the machine's order, then four filters.
const (
	udevdPrefix     = "libudev\x00"
	udevdMagic      = 0xfeedcafe
	udevdHeaderSize = 40
)

// parse returns the event of a message, or nil for what is none.
func parse(message []byte, udevd bool) *Event {
	var pairs []byte
	if udevd {
		if len(message) < udevdHeaderSize || string(message[:len(udevdPrefix)]) != udevdPrefix ||
			binary.BigEndian.Uint32(message[8:]) != udevdMagic {
			return nil
		}
		offset, length := uint64(binary.NativeEndian.Uint32(message[16:])), uint64(binary.NativeEndian.Uint32(message[20:]))
		if offset < udevdHeaderSize || offset+length > uint64(len(message)) {
			return nil
		}
		pairs = message[offset : offset+length]
	} else {
		// The kernel's: "add@/devices/…\0" and then the pairs.
		head, rest, ok := bytes.Cut(message, []byte{0})
		if !ok || !bytes.Contains(head, []byte("@/")) {
			return nil
		}
		pairs = rest
	}
	event := &Event{Properties: make(map[string]string, 16), Udevd: udevd}
	for pair := range bytes.SplitSeq(pairs, []byte{0}) {
		if key, value, ok := strings.Cut(string(pair), "="); ok && key != "" {
			event.Properties[key] = value
		}
	}
	event.Action, event.Path, event.Subsystem = event.Properties["ACTION"], event.Properties["DEVPATH"], event.Properties["SUBSYSTEM"]
	if event.Action == "" || !strings.HasPrefix(event.Path, "/") || path.Clean(event.Path) != event.Path {
		return nil
	}
	return event
}

package opcua

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxDiagnostics is how deep diagnostics may be in each other. Part 6, 5.1.12, wants
// decoders to support a hundred levels at least.
const maxDiagnostics = 100

var errShort = errors.New("not OPC UA: a message ends too early")

// reader reads OPC UA's binary encoding (Part 6, 5.2). After an error it returns zero
// values only. It takes no memory for what is announced but not there, and does not
// recurse.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) bytes(n int) []byte {
	if r.err == nil && (n < 0 || n > len(r.rest)) {
		r.err = errShort
	}
	if r.err != nil {
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// length of a string or an array, whose elements take at least each bytes. A null one,
// which is any negative length, has none.
func (r *reader) length(each int) int {
	n := int(int32(r.uint32()))
	if n > len(r.rest)/each {
		r.err = errShort
	}
	if n < 0 || r.err != nil {
		return 0
	}
	return n
}

func (r *reader) string() string { return string(r.bytes(r.length(1))) }

func (r *reader) strings() []string {
	list := make([]string, r.length(4))
	for i := range list {
		list[i] = r.string()
	}
	return list
}

// localizedText returns the text without its locale.
func (r *reader) localizedText() (text string) {
	const hasLocale, hasText = 1, 2
	mask := r.byte()
	if mask&hasLocale != 0 {
		r.string()
	}
	if mask&hasText != 0 {
		text = r.string()
	}
	return text
}

// numericID is a NodeId of the namespace 0. Others, which no message here has, are 0.
func (r *reader) numericID() uint32 {
	const (
		twoByte, fourByte, numeric, text, guid, opaque = 0, 1, 2, 3, 4, 5
		hasServerIndex, hasNamespaceURI                = 0x40, 0x80
	)
	encoding := r.byte()
	var namespace uint16
	var id uint32
	switch encoding &^ (hasServerIndex | hasNamespaceURI) {
	case twoByte:
		id = uint32(r.byte())
	case fourByte:
		namespace, id = uint16(r.byte()), uint32(r.uint16())
	case numeric:
		namespace, id = r.uint16(), r.uint32()
	case text, opaque:
		r.uint16()
		r.string()
	case guid:
		r.bytes(2 + 16)
	default:
		r.fail("a NodeId of the encoding %#x", encoding)
	}
	if encoding&hasNamespaceURI != 0 {
		r.string()
	}
	if encoding&hasServerIndex != 0 {
		r.uint32()
	}
	if namespace != 0 {
		return 0
	}
	return id
}

// skipExtensionObject passes over a value of any type. Its bytes are counted.
func (r *reader) skipExtensionObject() {
	const noBody = 0
	r.numericID()
	if r.byte() != noBody {
		r.string()
	}
}

// skipDiagnostics passes over a DiagnosticInfo.
func (r *reader) skipDiagnostics() {
	const (
		symbolicID, namespace, text, locale = 0x01, 0x02, 0x04, 0x08
		additional, innerStatus, inner      = 0x10, 0x20, 0x40
	)
	for range maxDiagnostics {
		mask := r.byte()
		for _, field := range []byte{symbolicID, namespace, text, locale} {
			if mask&field != 0 {
				r.uint32()
			}
		}
		if mask&additional != 0 {
			r.string()
		}
		if mask&innerStatus != 0 {
			r.uint32()
		}
		if mask&inner == 0 {
			return
		}
	}
	r.fail("diagnostics more than %d deep", maxDiagnostics)
}

// fail is for the first thing that is wrong.
func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("not OPC UA: "+format, args...)
	}
}

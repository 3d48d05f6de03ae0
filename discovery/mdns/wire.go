package mdns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"
)

// Record types (RFC 1035 3.2.2, RFC 2782, RFC 3596).
const (
	typeA    uint16 = 1
	typePTR  uint16 = 12
	typeTXT  uint16 = 16
	typeAAAA uint16 = 28
	typeSRV  uint16 = 33
)

const (
	classIN = 1
	// cacheFlush is the top bit of a record's class (RFC 6762 10.2).
	cacheFlush = 1 << 15

	headerBytes = 12
	// maxPacketBytes is RFC 6762 17's limit of a message, with its IP header.
	maxPacketBytes = 9000
	// maxQueryBytes is how long our own queries get: a packet of Ethernet.
	maxQueryBytes = 1400

	maxNameBytes  = 254 // without the root label (RFC 1035 3.1)
	maxLabelBytes = 63
	maxTXTBytes   = 1300 // kept of a TXT record: more is "not recommended" (RFC 6763 6.2)
	maxPointers   = 32   // of compression, in one name

	flagResponse  = 1 << 15
	flagTruncated = 1 << 9
	maskOpcode    = 0xf << 11
	maskRcode     = 0xf
)

// name is a domain name as on the wire, uncompressed and without the root label: of
// each label a byte of length and its bytes. Labels may hold any byte, also a dot.
type name string

// newName makes a name of labels, each 1 to 63 bytes long.
func newName(labels ...string) (name, error) {
	var b strings.Builder
	for _, label := range labels {
		if label == "" || len(label) > maxLabelBytes {
			return "", fmt.Errorf("label %.70q has %d bytes: want 1 to %d", label, len(label), maxLabelBytes)
		}
		b.WriteByte(byte(len(label)))
		b.WriteString(label)
	}
	if b.Len() > maxNameBytes {
		return "", fmt.Errorf("name has %d bytes: want at most %d", b.Len(), maxNameBytes)
	}
	return name(b.String()), nil
}

// fold returns the name for comparisons: ASCII in lower case (RFC 6762 16). Lengths
// are below 64 and so no letters.
func (n name) fold() name { return name(foldASCII(string(n))) }

func foldASCII(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if 'A' <= b[j] && b[j] <= 'Z' {
					b[j] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// cut returns the first label and the name behind it; two empty ones for the root.
func (n name) cut() (label string, rest name) {
	if n == "" {
		return "", ""
	}
	end := 1 + int(n[0])
	return string(n[1:end]), n[end:]
}

// String returns the labels with dots between them, as people write host names.
func (n name) String() string {
	var labels []string
	for n != "" {
		var label string
		label, n = n.cut()
		labels = append(labels, label)
	}
	return strings.Join(labels, ".")
}

// record is a resource record of one of the types above. Records with equal fields
// are the same: data is uncompressed.
type record struct {
	name  name
	rtype uint16
	flush bool   // the cache-flush bit
	ttl   uint32 // seconds; 0 is a goodbye
	data  string // A, AAAA: the address; PTR: the name; SRV: 6 bytes and the name; TXT: as on the wire
}

func (r record) address() netip.Addr {
	address, _ := netip.AddrFromSlice([]byte(r.data))
	return address
}

// srvPort and srvTarget are for the data of SRV records.
func srvPort(data string) uint16 { return uint16(data[4])<<8 | uint16(data[5]) }
func srvTarget(data string) name { return name(data[6:]) }

// txtStrings are the strings of a TXT record's data.
func txtStrings(data string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for data != "" {
			n := min(1+int(data[0]), len(data))
			if !yield(data[1:n]) {
				return
			}
			data = data[n:]
		}
	}
}

var (
	errNotResponse = errors.New("not a response")
	errMalformed   = errors.New("malformed DNS message")
)

// parseResponse returns the records of an mDNS response, of all its sections, that are
// of a type above. Any other message is an error: a query, one with an opcode or
// response code (RFC 6762 18.3, 18.11), one that does not parse to its end.
func parseResponse(packet []byte) ([]record, error) {
	if len(packet) < headerBytes {
		return nil, errMalformed
	}
	flags := binary.BigEndian.Uint16(packet[2:])
	if flags&flagResponse == 0 || flags&(maskOpcode|maskRcode) != 0 {
		return nil, errNotResponse
	}
	questions := int(binary.BigEndian.Uint16(packet[4:]))
	count := 0
	for i := 6; i < headerBytes; i += 2 {
		count += int(binary.BigEndian.Uint16(packet[i:]))
	}
	offset := headerBytes
	for range questions {
		_, next, err := parseName(packet, offset)
		if err != nil || next+4 > len(packet) {
			return nil, errMalformed
		}
		offset = next + 4
	}
	var records []record
	for range count {
		r, next, known, err := parseRecord(packet, offset)
		if err != nil {
			return nil, err
		}
		if known {
			records = append(records, r)
		}
		offset = next
	}
	return records, nil
}

// parseRecord returns the record at an offset and the offset of the next one. known is
// false for records of other types and classes.
func parseRecord(packet []byte, offset int) (r record, next int, known bool, err error) {
	n, offset, err := parseName(packet, offset)
	if err != nil || offset+10 > len(packet) {
		return record{}, 0, false, errMalformed
	}
	class := binary.BigEndian.Uint16(packet[offset+2:])
	r = record{
		name:  n,
		rtype: binary.BigEndian.Uint16(packet[offset:]),
		flush: class&cacheFlush != 0,
		ttl:   binary.BigEndian.Uint32(packet[offset+4:]),
	}
	length := int(binary.BigEndian.Uint16(packet[offset+8:]))
	offset += 10
	next = offset + length
	if next > len(packet) {
		return record{}, 0, false, errMalformed
	}
	if class&^cacheFlush != classIN {
		return record{}, next, false, nil
	}
	data := packet[offset:next]
	switch r.rtype {
	case typeA, typeAAAA:
		if want := map[uint16]int{typeA: 4, typeAAAA: 16}[r.rtype]; length != want {
			return record{}, 0, false, errMalformed
		}
		r.data = string(data)
	case typeTXT:
		kept := 0
		for at := 0; at < length; {
			if at += 1 + int(data[at]); at > length {
				return record{}, 0, false, errMalformed
			}
			if at <= maxTXTBytes {
				kept = at
			}
		}
		r.data = string(data[:kept])
	case typePTR, typeSRV:
		fixed := 0
		if r.rtype == typeSRV {
			fixed = 6
		}
		if length < fixed {
			return record{}, 0, false, errMalformed
		}
		target, end, err := parseName(packet[:next], offset+fixed)
		if err != nil || end != next {
			return record{}, 0, false, errMalformed
		}
		r.data = string(data[:fixed]) + string(target)
	default:
		return record{}, next, false, nil
	}
	return r, next, true, nil
}

// parseName returns the name at an offset and the offset behind it. Each compression
// pointer must point further back than the one before, so that there is no loop.
func parseName(packet []byte, offset int) (name, int, error) {
	var b []byte
	next, limit := -1, offset
	for pointers := 0; ; {
		if offset >= len(packet) {
			return "", 0, errMalformed
		}
		length := int(packet[offset])
		switch length & 0xc0 {
		case 0:
			if length == 0 {
				if next < 0 {
					next = offset + 1
				}
				return name(b), next, nil
			}
			if offset+1+length > len(packet) || len(b)+1+length > maxNameBytes {
				return "", 0, errMalformed
			}
			b = append(b, packet[offset:offset+1+length]...)
			offset += 1 + length
		case 0xc0:
			if offset+2 > len(packet) {
				return "", 0, errMalformed
			}
			if next < 0 {
				next = offset + 2
			}
			target := int(binary.BigEndian.Uint16(packet[offset:])) & 0x3fff
			if pointers++; pointers > maxPointers || target >= limit {
				return "", 0, errMalformed
			}
			offset, limit = target, target
		default:
			return "", 0, errMalformed
		}
	}
}

// question asks for the records of a name and type.
type question struct {
	name  name
	rtype uint16
}

// knownAnswer is a PTR record that we have: whoever has announced it need not answer
// (RFC 6762 7.1).
type knownAnswer struct {
	service  name
	instance name
	ttl      uint32 // seconds left
}

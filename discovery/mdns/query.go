package mdns

import (
	"encoding/binary"
)

// buildQueries returns the questions as packets, with the known answers to them. Known
// answers that do not fit into their question's packet follow in others, which the TC
// bit announces (RFC 6762 7.2). All names are valid and shorter than a packet.
func buildQueries(questions []question, known []knownAnswer) [][]byte {
	var packets [][]byte
	for len(questions) > 0 {
		p := newPacket()
		asked := map[name]bool{}
		n := 0
		for n < len(questions) && p.question(questions[n]) {
			if questions[n].rtype == typePTR {
				asked[questions[n].name] = true
			}
			n++
		}
		questions = questions[n:]
		for _, k := range known {
			if !asked[k.service] || p.answer(k) {
				continue
			}
			p.bytes[2] |= flagTruncated >> 8
			packets = append(packets, p.bytes)
			p = newPacket()
			p.answer(k)
		}
		packets = append(packets, p.bytes)
	}
	return packets
}

// packet is a query that is being built.
type packet struct {
	bytes   []byte
	offsets map[name]int // of names, for compression
}

func newPacket() *packet {
	return &packet{bytes: make([]byte, headerBytes, maxQueryBytes), offsets: map[name]int{}}
}

// question appends a question, or nothing and returns false when it does not fit.
func (p *packet) question(q question) bool {
	mark := len(p.bytes)
	p.name(q.name)
	p.uint16(q.rtype, classIN)
	return p.commit(mark, 4)
}

// answer appends a known answer, or nothing and returns false when it does not fit.
func (p *packet) answer(k knownAnswer) bool {
	mark := len(p.bytes)
	p.name(k.service)
	p.uint16(typePTR, classIN)
	p.bytes = binary.BigEndian.AppendUint32(p.bytes, k.ttl)
	length := len(p.bytes)
	p.uint16(0)
	p.name(k.instance)
	binary.BigEndian.PutUint16(p.bytes[length:], uint16(len(p.bytes)-length-2))
	return p.commit(mark, 6)
}

// commit keeps what was appended since mark and adds one to the header's counter, or
// drops it when the packet has become too long.
func (p *packet) commit(mark, counter int) bool {
	if len(p.bytes) > maxQueryBytes {
		p.bytes = p.bytes[:mark]
		for n, offset := range p.offsets {
			if offset >= mark {
				delete(p.offsets, n)
			}
		}
		return false
	}
	binary.BigEndian.PutUint16(p.bytes[counter:], binary.BigEndian.Uint16(p.bytes[counter:])+1)
	return true
}

func (p *packet) uint16(values ...uint16) {
	for _, v := range values {
		p.bytes = binary.BigEndian.AppendUint16(p.bytes, v)
	}
}

// name appends a name; for an end of it that the packet has, a pointer. A query is
// short enough for a pointer to reach all of it.
func (p *packet) name(n name) {
	for n != "" {
		if offset, ok := p.offsets[n]; ok {
			p.uint16(0xc000 | uint16(offset))
			return
		}
		p.offsets[n] = len(p.bytes)
		_, rest := n.cut()
		p.bytes = append(p.bytes, n[:len(n)-len(rest)]...)
		n = rest
	}
	p.bytes = append(p.bytes, 0)
}

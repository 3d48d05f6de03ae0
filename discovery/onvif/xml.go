package onvif

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
)

const (
	// maxDepth is how deep elements may be in each other. ONVIF's need about 12.
	maxDepth = 64

	// maxTokens bounds the work for one message.
	maxTokens = 20_000

	// maxTypes and maxNamespaceBytes bound what the names of types grow to when they are
	// expanded. ONVIF's namespaces have about 40 bytes.
	maxTypes          = 16
	maxNamespaceBytes = 128
)

var errDTD = errors.New("a document type declaration, which SOAP forbids")

// unmarshal is xml.Unmarshal for messages of strangers. It refuses document types,
// so there are no entities to expand, and messages of absurd depth or number of
// elements. The callers bound the length.
//
// Names of types, which are text with prefixes, are expanded to "{namespace}local":
// only here it is known what the prefixes mean. Where a prefix is not declared, as in
// the messages of careless cameras, or its namespace is absurdly long, that is empty.
func unmarshal(message []byte, into any) error {
	raw := xml.NewDecoder(bytes.NewReader(message))
	raw.CharsetReader = charset
	return xml.NewTokenDecoder(&boundedReader{raw: raw}).Decode(into)
}

// boundedReader is an xml.TokenReader.
type boundedReader struct {
	raw    *xml.Decoder
	open   []element
	tokens int
}

// element is one that is open.
type element struct {
	local      string
	namespaces map[string]string // by prefix, as declared here; nil for none
}

func (r *boundedReader) Token() (xml.Token, error) {
	// Raw tokens: the decoder above this one expands names, and matches ends.
	token, err := r.raw.RawToken()
	if err != nil {
		return token, err
	}
	if r.tokens++; r.tokens > maxTokens {
		return nil, fmt.Errorf("more than %d elements, attributes and texts", maxTokens)
	}
	switch t := token.(type) {
	case xml.Directive:
		return nil, errDTD
	case xml.StartElement:
		if len(r.open) == maxDepth {
			return nil, fmt.Errorf("elements are more than %d deep", maxDepth)
		}
		r.tokens += len(t.Attr)
		r.open = append(r.open, element{t.Name.Local, declarations(t.Attr)})
	case xml.EndElement:
		if len(r.open) > 0 {
			r.open = r.open[:len(r.open)-1]
		}
	case xml.CharData:
		if len(r.open) > 0 && r.open[len(r.open)-1].local == "Types" {
			return xml.CharData(r.expand(string(t))), nil
		}
	}
	return token, nil
}

func declarations(attributes []xml.Attr) map[string]string {
	var namespaces map[string]string
	for _, a := range attributes {
		prefix, ok := "", false
		switch {
		case a.Name.Space == "xmlns":
			prefix, ok = a.Name.Local, true
		case a.Name.Space == "" && a.Name.Local == "xmlns":
			ok = true
		}
		if ok && len(a.Value) <= maxNamespaceBytes {
			if namespaces == nil {
				namespaces = map[string]string{}
			}
			namespaces[prefix] = a.Value
		}
	}
	return namespaces
}

func (r *boundedReader) expand(text string) string {
	names := strings.Fields(text)
	names = names[:min(len(names), maxTypes)]
	for i, name := range names {
		prefix, local, ok := strings.Cut(name, ":")
		if !ok {
			prefix, local = "", name
		}
		names[i] = "{" + r.namespace(prefix) + "}" + local
	}
	return strings.Join(names, " ")
}

func (r *boundedReader) namespace(prefix string) string {
	for _, e := range slices.Backward(r.open) {
		if namespace, ok := e.namespaces[prefix]; ok {
			return namespace
		}
	}
	return ""
}

// charset converts what a camera declares to UTF-8. What it misspells or makes up is taken
// for UTF-8, with U+FFFD for what is none: everything that matters here is ASCII.
func charset(name string, input io.Reader) (io.Reader, error) {
	from := encoding.Encoding(unicode.UTF8)
	switch strings.ToLower(name) {
	case "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252":
		from = charmap.Windows1252
	case "gb2312", "gb_2312-80", "gbk", "cp936", "gb18030":
		from = simplifiedchinese.GB18030 // which has the others in it
	}
	return from.NewDecoder().Reader(input), nil
}

// escape makes text fit for an XML element.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}

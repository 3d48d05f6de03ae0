package onvif

import (
	"encoding/xml"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// soap is an answer to a probe, laid out as gSOAP's, which most cameras have.
func soap(declarations, content string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>
<SOAP-ENV:Envelope xmlns:SOAP-ENV="http://www.w3.org/2003/05/soap-envelope" xmlns:wsa="http://schemas.xmlsoap.org/ws/2004/08/addressing"
 xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery" ` + declarations + `><SOAP-ENV:Header>
<wsa:MessageID>uuid:1</wsa:MessageID><wsa:RelatesTo>uuid:2</wsa:RelatesTo></SOAP-ENV:Header><SOAP-ENV:Body>` + content + `</SOAP-ENV:Body></SOAP-ENV:Envelope>`
}

func match(address, types, scopes, xaddrs string) string {
	return `<d:ProbeMatches><d:ProbeMatch><wsa:EndpointReference><wsa:Address>` + address + `</wsa:Address></wsa:EndpointReference>` +
		`<d:Types>` + types + `</d:Types><d:Scopes>` + scopes + `</d:Scopes><d:XAddrs>` + xaddrs + `</d:XAddrs>` +
		`<d:MetadataVersion>1</d:MetadataVersion></d:ProbeMatch></d:ProbeMatches>`
}

const (
	onvifTypes = `xmlns:dn="http://www.onvif.org/ver10/network/wsdl" xmlns:tds="http://www.onvif.org/ver10/device/wsdl"`
	dpws       = `xmlns:wsdp="http://schemas.xmlsoap.org/ws/2006/02/devprof" xmlns:pub="http://schemas.microsoft.com/windows/pub/2005/07"`
	xaddr      = "http://192.168.1.64/onvif/device_service"
)

func TestMessages(t *testing.T) {
	camera := announcement{uuid: uuidA, address: "urn:uuid:" + uuidA, xaddrs: []string{xaddr}, scopes: []string{}, version: "1"}
	with := func(change func(*announcement)) []announcement {
		c := camera
		change(&c)
		return []announcement{c}
	}
	transmitter := "dn:NetworkVideoTransmitter"
	declared := func(charset, scope string) string {
		text := soap(onvifTypes, match("urn:uuid:"+uuidA, transmitter, scope, xaddr))
		return strings.Replace(text, "UTF-8", charset, 1)
	}
	for name, tc := range map[string]struct {
		message string
		want    []announcement
		leaving []string
		wantErr string
	}{
		"a transmitter": {
			message: soap(onvifTypes, match(" urn:uuid:"+strings.ToUpper(uuidA)+"\n", transmitter, "\n", "\n"+xaddr+"  https://[fd00::1]:8443/d\t")),
			want: with(func(a *announcement) {
				a.address, a.xaddrs = "urn:uuid:"+strings.ToUpper(uuidA), []string{xaddr, "https://[fd00::1]:8443/d"}
			}),
		},
		"both types and scopes": {
			message: soap(onvifTypes, match("urn:uuid:"+uuidA, "dn:NetworkVideoTransmitter\n tds:Device", "onvif://www.onvif.org/a  b", xaddr)),
			want:    with(func(a *announcement) { a.scopes = []string{"onvif://www.onvif.org/a", "b"} }),
		},
		"uuid: alone, as older cameras have": {
			message: soap(onvifTypes, match("uuid:"+uuidA, transmitter, "", xaddr)), want: with(func(a *announcement) { a.address = "uuid:" + uuidA })},
		"a prefix that is not declared":    {message: soap("", match("urn:uuid:"+uuidA, transmitter, "", xaddr)), want: []announcement{camera}},
		"a prefix declared at the element": {message: soap("", strings.Replace(match("urn:uuid:"+uuidA, "x:Device", "", xaddr), "<d:Types>", `<d:Types xmlns:x="`+nsDevice+`">`, 1)), want: []announcement{camera}},
		"no types, as an answer to a probe for them": {
			message: soap("", strings.Replace(match("urn:uuid:"+uuidA, "", "", xaddr), "<d:Types></d:Types>", "", 1)), want: []announcement{camera}},
		"no XAddrs":                          {message: soap(onvifTypes, match("urn:uuid:"+uuidA, transmitter, "", "")), want: with(func(a *announcement) { a.xaddrs, a.brief = nil, true })},
		"a device, by its profile no camera": {message: soap(onvifTypes, match("urn:uuid:"+uuidA, "tds:Device", "onvif://www.onvif.org/Profile/C onvif://www.onvif.org/name/door", xaddr))},
		"a device of profile T": {
			message: soap(onvifTypes, match("urn:uuid:"+uuidA, "tds:Device", "onvif://www.onvif.org/Profile/G ONVIF://www.onvif.org/Profile/T", xaddr)),
			want: with(func(a *announcement) {
				a.scopes = []string{"onvif://www.onvif.org/Profile/G", "ONVIF://www.onvif.org/Profile/T"}
			})},
		"Windows and Samba":                   {message: soap(dpws, match("urn:uuid:"+uuidA, "wsdp:Device pub:Computer", "", xaddr))},
		"Windows, prefixes not declared":      {message: soap("", match("urn:uuid:"+uuidA, "wsdp:Device pub:Computer", "", xaddr))},
		"a printer":                           {message: soap(`xmlns:p="http://schemas.microsoft.com/windows/2006/08/wdp/print"`, match("urn:uuid:"+uuidA, "p:PrintDeviceType", "", xaddr))},
		"two cameras in a message":            {message: soap(onvifTypes, strings.Repeat(match("urn:uuid:"+uuidA, transmitter, "", xaddr), 2)), want: []announcement{camera, camera}},
		"an XAddr twice, and useless ones":    {message: soap(onvifTypes, match("urn:uuid:"+uuidA, transmitter, "", xaddr+" "+xaddr+" ftp://x/ http:/// http://u:p@x/ http://%zz/ /d "+"http://x/"+strings.Repeat("y", 600))), want: []announcement{camera}},
		"no address":                          {message: soap(onvifTypes, match("", transmitter, "", xaddr))},
		"an address of 10 KiB":                {message: soap(onvifTypes, match(strings.Repeat("x", 10<<10), transmitter, "", xaddr))},
		"an address of strange characters":    {message: soap(onvifTypes, match("urn:uuid:a&#10;b", transmitter, "", xaddr))},
		"a message about cameras, by nobody":  {message: soap(onvifTypes, "<d:ProbeMatches/>")},
		"a probe, which is the handler's own": {message: string(probes()[0])},
		"Bye":                                 {message: soap("", `<d:Bye><wsa:EndpointReference><wsa:Address>urn:uuid:`+uuidA+`</wsa:Address></wsa:EndpointReference></d:Bye>`), leaving: []string{uuidA}},
		"Hello": {
			message: soap(onvifTypes, `<d:Hello><wsa:EndpointReference><wsa:Address>urn:uuid:`+uuidA+`</wsa:Address></wsa:EndpointReference><d:Types>`+transmitter+`</d:Types><d:XAddrs>`+xaddr+`</d:XAddrs><d:MetadataVersion>1</d:MetadataVersion></d:Hello>`),
			want:    with(func(a *announcement) { a.kind = hello })},
		"Hello of something": {
			message: soap(onvifTypes, `<d:Hello><wsa:EndpointReference><wsa:Address>urn:uuid:`+uuidA+`</wsa:Address></wsa:EndpointReference><d:XAddrs>`+xaddr+`</d:XAddrs><d:MetadataVersion>1</d:MetadataVersion></d:Hello>`),
			want:    with(func(a *announcement) { a.kind, a.brief = hello, true })},
		"ISO-8859-1": {message: strings.Replace(soap(onvifTypes, match("urn:uuid:"+uuidA, transmitter, "\xe9", xaddr)), "UTF-8", "iso-8859-1", 1), want: with(func(a *announcement) { a.scopes = []string{"é"} })},
		"utf8":       {message: declared("utf8", "é"), want: with(func(a *announcement) { a.scopes = []string{"é"} })},
		"GB2312": {message: declared("gb2312", "\xcf\xfb"),
			want: with(func(a *announcement) { a.scopes = []string{"消"} })},
		"a charset of nobody": {
			message: declared("EBCDIC", "a\xcfb"),
			want:    with(func(a *announcement) { a.scopes = []string{"a\ufffdb"} })},

		"empty":                    {wantErr: "EOF"},
		"no XML":                   {message: "\x00\xff", wantErr: "illegal character"},
		"cut off":                  {message: soap(onvifTypes, match("urn:uuid:"+uuidA, transmitter, "", xaddr))[:400], wantErr: "EOF"},
		"crossed elements":         {message: "<a><b></a></b>", wantErr: "closed by"},
		"a document type":          {message: `<!DOCTYPE x [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>` + soap("", "&b;"), wantErr: "document type"},
		"an external entity":       {message: `<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>` + soap("", match("&a;", transmitter, "", xaddr)), wantErr: "document type"},
		"an entity of nobody":      {message: soap("", "&lol;"), wantErr: "entity"},
		"10,000 levels":            {message: strings.Repeat("<a>", 10_000), wantErr: "deep"},
		"10,000 levels, all ended": {message: strings.Repeat("<a>", 10_000) + strings.Repeat("</a>", 10_000), wantErr: "deep"},
		"50,000 elements":          {message: "<a>" + strings.Repeat("<b/>", 50_000) + "</a>", wantErr: "more than"},
		"50,000 attributes":        {message: "<a " + strings.Repeat("b='' ", 50_000) + "/>", wantErr: "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			got, leaving, err := parseMessage([]byte(tc.message))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error is %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(announcement{})); diff != "" {
				t.Errorf("announced (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.leaving, leaving); diff != "" {
				t.Errorf("leaving (-want +got):\n%s", diff)
			}
		})
	}
}

// A message of many types in a long namespace must not grow to gigabytes when their names
// are expanded: the worker would end, and with it all discovery by network.
// Whoever sends one datagram does not have us look for room for hundreds of cameras.
func TestAMessageAnnouncesFewCameras(t *testing.T) {
	one := match("urn:uuid:"+uuidA, "dn:NetworkVideoTransmitter", "", "http://10.0.0.1/")
	one = strings.TrimSuffix(strings.TrimPrefix(one, "<d:ProbeMatches>"), "</d:ProbeMatches>")
	many := "<d:ProbeMatches>" + strings.Repeat(one, 40) + "</d:ProbeMatches>"
	present, _, err := parseMessage([]byte(soap(onvifTypes, many)))
	if err != nil || len(present) != maxMatches {
		t.Errorf("%d announcements, %v, want %d", len(present), err, maxMatches)
	}
}

func TestTypesInALongNamespace(t *testing.T) {
	const half = 16 << 10
	message := `<a xmlns:n="http://` + strings.Repeat("n", half) + `"><Types>` + strings.Repeat("n:x ", half/4) +
		`</Types></a>`
	var before, after runtime.MemStats
	var a struct{ Types string }
	runtime.ReadMemStats(&before)
	err := unmarshal([]byte(message), &a)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > 50*uint64(len(message)) {
		t.Errorf("%d bytes for a message of %d, which came to %d; error %v", took, len(message), len(a.Types), err)
	}
}

func TestLongScopesAreCutAtASpace(t *testing.T) {
	scope := strings.Repeat("s", 1000)
	a, ok := endpoint{Scopes: strings.Repeat(scope+" ", 20), Types: "{x}NetworkVideoTransmitter",
		EndpointReference: struct{ Address string }{"uuid:a"}}.announcement(probeMatch)
	if !ok || len(a.scopes) != maxScopesBytes/1001 || a.scopes[len(a.scopes)-1] != scope {
		t.Errorf("%d scopes, want %d whole ones", len(a.scopes), maxScopesBytes/1001)
	}
	a, _ = endpoint{Scopes: strings.Repeat("s", 20_000), Types: "{x}NetworkVideoTransmitter",
		EndpointReference: struct{ Address string }{"uuid:a"}}.announcement(probeMatch)
	if len(a.scopes) != 0 {
		t.Errorf("%d scopes, want none whole", len(a.scopes))
	}
	a, _ = endpoint{Scopes: strings.Repeat("s ", 1000), Types: "{x}NetworkVideoTransmitter",
		EndpointReference: struct{ Address string }{"uuid:a"}}.announcement(probeMatch)
	if len(a.scopes) != maxScopes {
		t.Errorf("%d short scopes are kept, want %d", len(a.scopes), maxScopes)
	}
}

// What is sent is well-formed, and its prefixes are declared.
func TestOwnMessages(t *testing.T) {
	for _, message := range append(probes(), resolve(`urn:uuid:<&">`)) {
		decoder := xml.NewDecoder(strings.NewReader(string(message)))
		for {
			token, err := decoder.Token()
			if err != nil {
				if err.Error() != "EOF" {
					t.Errorf("%s: %v", message, err)
				}
				break
			}
			if start, ok := token.(xml.StartElement); ok && !strings.HasPrefix(start.Name.Space, "http://") {
				t.Errorf("%s: element %v has no namespace", message, start.Name)
			}
		}
	}
	var m struct {
		Body struct{ Probe struct{ Types string } }
	}
	if err := unmarshal(probes()[0], &m); err != nil || m.Body.Probe.Types != "{http://www.onvif.org/ver10/network/wsdl}NetworkVideoTransmitter" {
		t.Errorf("probe for %q, %v", m.Body.Probe.Types, err)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(soap(onvifTypes, match("urn:uuid:"+uuidA, "dn:NetworkVideoTransmitter tds:Device", "onvif://www.onvif.org/a", xaddr))))
	f.Add([]byte(`<!DOCTYPE x>`))
	f.Add([]byte(strings.Repeat("<a>", 100)))
	f.Fuzz(func(t *testing.T, data []byte) {
		present, leaving, err := parseMessage(data)
		if err != nil && len(present)+len(leaving) > 0 {
			t.Errorf("%q: an error, and cameras", data)
		}
		for _, a := range present {
			if a.uuid == "" || len(a.uuid) > maxUUIDBytes || len(a.xaddrs) > maxXAddrs || len(a.xaddrs) == 0 && !a.brief {
				t.Errorf("%q: %+v", data, a)
			}
			for _, x := range a.xaddrs {
				if len(x) > maxXAddrBytes || strings.ContainsAny(x, "\x00\r\n ") {
					t.Errorf("%q: XAddr %q", data, x)
				}
			}
		}
	})
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Digest realm="a \"b\"", qop="auth,auth-int", algorithm=SHA-256, nonce="n", Basic realm="x"`)
	f.Add(`=,Digest ,`)
	f.Fuzz(func(t *testing.T, header string) {
		if c, ok := bestChallenge([]string{header}); ok && !strings.HasPrefix(c.authorization(login{"u", "p"}, "POST", "/"), "Digest ") {
			t.Errorf("%q", header)
		}
	})
}

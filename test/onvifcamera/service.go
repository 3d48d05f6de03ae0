package onvifcamera

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

const (
	devicePath = "/onvif/device_service"
	mediaPath  = "/onvif/media_service"

	manufacturer, model, firmware, serial = "Kubeslot", "Simulated-1", "1.0", "SIM-0001"

	nsMedia  = "http://www.onvif.org/ver10/media/wsdl"
	nsSchema = "http://www.onvif.org/ver10/schema"
	nsError  = "http://www.onvif.org/ver10/error"

	maxRequest = 64 << 10
)

// call is a SOAP request.
type call struct {
	XMLName xml.Name `xml:"http://www.w3.org/2003/05/soap-envelope Envelope"`
	Header  struct {
		Token *usernameToken `xml:"Security>UsernameToken"`
	} `xml:"http://www.w3.org/2003/05/soap-envelope Header"`
	Body struct {
		Operation struct {
			XMLName xml.Name
		} `xml:",any"`
	} `xml:"http://www.w3.org/2003/05/soap-envelope Body"`
}

// operation is one of ONVIF's.
type operation struct {
	// open operations need no credentials: access class PRE_AUTH.
	open bool

	// body returns the response's content. The receiver's address is the host and
	// port that the client asked.
	body func(c *Camera, host string) string
}

func (c *Camera) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+devicePath, c.service(nsDevice, deviceOperations))
	mux.Handle("POST "+mediaPath, c.service(nsMedia, mediaOperations))
	return mux
}

func (c *Camera) service(namespace string, operations map[string]operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		var request call
		if err == nil {
			err = xml.Unmarshal(text, &request)
		}
		if err != nil {
			fault(w, http.StatusBadRequest, "env:Sender", "ter:WellFormed", err.Error())
			return
		}
		name := request.Body.Operation.XMLName
		c.count(name.Local)
		op, ok := operations[name.Local]
		if name.Space != namespace || !ok {
			fault(w, http.StatusInternalServerError, "env:Receiver", "ter:ActionNotSupported", "Optional Action Not Implemented")
			return
		}
		if !op.open {
			if err := c.auth.allows(r, request.Header.Token); err != nil {
				c.count("unauthorized")
				c.config.Log("%s of %s is not allowed: %v", name.Local, r.RemoteAddr, err)
				status := http.StatusBadRequest
				if c.config.Auth != AuthWSS {
					status = http.StatusUnauthorized
					c.auth.challenge(w.Header())
				}
				fault(w, status, "env:Sender", "ter:NotAuthorized", "Sender not authorized")
				return
			}
		}
		c.config.Log("%s of %s", name.Local, r.RemoteAddr)
		respond(w, http.StatusOK, fmt.Sprintf(`<x:%sResponse xmlns:x="%s">%s</x:%[1]sResponse>`, name.Local, namespace, op.body(c, r.Host)))
	})
}

func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/soap+xml; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><env:Envelope xmlns:env="%s" xmlns:tds="%s" xmlns:trt="%s" xmlns:tt="%s" xmlns:ter="%s">`+
		`<env:Body>%s</env:Body></env:Envelope>`, nsSOAP, nsDevice, nsMedia, nsSchema, nsError, body)
}

func fault(w http.ResponseWriter, status int, code, subcode, reason string) {
	respond(w, status, fmt.Sprintf(`<env:Fault><env:Code><env:Value>%s</env:Value><env:Subcode><env:Value>%s</env:Value></env:Subcode></env:Code>`+
		`<env:Reason><env:Text xml:lang="en">%s</env:Text></env:Reason></env:Fault>`, code, subcode, escape(reason)))
}

var deviceOperations = map[string]operation{
	"GetSystemDateAndTime": {open: true, body: (*Camera).dateAndTime},
	"GetServices": {open: true, body: func(_ *Camera, host string) string {
		service := `<tds:Service><tds:Namespace>%s</tds:Namespace><tds:XAddr>http://%s%s</tds:XAddr>` +
			`<tds:Version><tt:Major>2</tt:Major><tt:Minor>60</tt:Minor></tds:Version></tds:Service>`
		return fmt.Sprintf(service, nsDevice, escape(host), devicePath) + fmt.Sprintf(service, nsMedia, escape(host), mediaPath)
	}},
	"GetCapabilities": {open: true, body: func(_ *Camera, host string) string {
		return fmt.Sprintf(`<tds:Capabilities><tt:Device><tt:XAddr>http://%s%s</tt:XAddr></tt:Device>`+
			`<tt:Media><tt:XAddr>http://%[1]s%[3]s</tt:XAddr><tt:StreamingCapabilities><tt:RTPMulticast>false</tt:RTPMulticast>`+
			`<tt:RTP_TCP>true</tt:RTP_TCP><tt:RTP_RTSP_TCP>true</tt:RTP_RTSP_TCP></tt:StreamingCapabilities></tt:Media></tds:Capabilities>`,
			escape(host), devicePath, mediaPath)
	}},
	"GetHostname": {open: true, body: func(c *Camera, _ string) string {
		return `<tds:HostnameInformation><tt:FromDHCP>false</tt:FromDHCP><tt:Name>` + escape(c.config.Name) + `</tt:Name></tds:HostnameInformation>`
	}},
	"GetDeviceInformation": {body: func(*Camera, string) string {
		return fmt.Sprintf(`<tds:Manufacturer>%s</tds:Manufacturer><tds:Model>%s</tds:Model><tds:FirmwareVersion>%s</tds:FirmwareVersion>`+
			`<tds:SerialNumber>%s</tds:SerialNumber><tds:HardwareId>%s</tds:HardwareId>`, manufacturer, model, firmware, serial, "SIM")
	}},
	"GetScopes": {body: func(c *Camera, _ string) string {
		var b strings.Builder
		for i, scope := range c.scopes() {
			definition := "Configurable"
			if i < 2 {
				definition = "Fixed"
			}
			fmt.Fprintf(&b, `<tds:Scopes><tt:ScopeDef>%s</tt:ScopeDef><tt:ScopeItem>%s</tt:ScopeItem></tds:Scopes>`, definition, escape(scope))
		}
		return b.String()
	}},
	"GetNetworkInterfaces": {body: (*Camera).networkInterfaces},
	"GetNetworkDefaultGateway": {body: func(*Camera, string) string {
		return `<tds:NetworkGateway/>`
	}},
	"GetDNS": {body: func(*Camera, string) string {
		return `<tds:DNSInformation><tt:FromDHCP>false</tt:FromDHCP></tds:DNSInformation>`
	}},
	"GetNTP": {body: func(*Camera, string) string {
		return `<tds:NTPInformation><tt:FromDHCP>false</tt:FromDHCP></tds:NTPInformation>`
	}},
}

func (c *Camera) dateAndTime(string) string {
	now := c.now()
	return fmt.Sprintf(`<tds:SystemDateAndTime><tt:DateTimeType>Manual</tt:DateTimeType><tt:DaylightSavings>false</tt:DaylightSavings>`+
		`<tt:TimeZone><tt:TZ>UTC0</tt:TZ></tt:TimeZone><tt:UTCDateTime>`+
		`<tt:Time><tt:Hour>%d</tt:Hour><tt:Minute>%d</tt:Minute><tt:Second>%d</tt:Second></tt:Time>`+
		`<tt:Date><tt:Year>%d</tt:Year><tt:Month>%d</tt:Month><tt:Day>%d</tt:Day></tt:Date></tt:UTCDateTime></tds:SystemDateAndTime>`,
		now.Hour(), now.Minute(), now.Second(), now.Year(), now.Month(), now.Day())
}

// networkInterfaces tells of the interface that has the address that was asked.
func (c *Camera) networkInterfaces(host string) string {
	mac, address := c.config.MAC, c.config.IP
	if asked, err := hostAddress(host); err == nil {
		for _, l := range c.links {
			for _, a := range l.addresses {
				if a.WithZone("") == asked.WithZone("") && mac == "" {
					mac = l.mac.String()
				}
			}
		}
		if address == "" && asked.Is4() {
			address = asked.String()
		}
	}
	if mac == "" {
		mac = c.links[0].mac.String()
	}
	ipv4 := ""
	if address != "" {
		ipv4 = fmt.Sprintf(`<tt:IPv4><tt:Enabled>true</tt:Enabled><tt:Config><tt:Manual><tt:Address>%s</tt:Address>`+
			`<tt:PrefixLength>24</tt:PrefixLength></tt:Manual><tt:DHCP>false</tt:DHCP></tt:Config></tt:IPv4>`, escape(address))
	}
	return fmt.Sprintf(`<tds:NetworkInterfaces token="eth0"><tt:Enabled>true</tt:Enabled><tt:Info><tt:Name>eth0</tt:Name>`+
		`<tt:HwAddress>%s</tt:HwAddress><tt:MTU>1500</tt:MTU></tt:Info>%s</tds:NetworkInterfaces>`, escape(mac), ipv4)
}

// hostAddress returns the address of a Host header.
func hostAddress(host string) (netip.Addr, error) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return address, errors.New("the client asked a name")
	}
	return address, nil
}

// profile is the content of the one media profile.
const profile = `<tt:Name>main</tt:Name>` +
	`<tt:VideoSourceConfiguration token="source"><tt:Name>source</tt:Name><tt:UseCount>1</tt:UseCount>` +
	`<tt:SourceToken>sensor</tt:SourceToken><tt:Bounds x="0" y="0" width="1920" height="1080"/></tt:VideoSourceConfiguration>` +
	`<tt:VideoEncoderConfiguration token="encoder"><tt:Name>encoder</tt:Name><tt:UseCount>1</tt:UseCount><tt:Encoding>H264</tt:Encoding>` +
	`<tt:Resolution><tt:Width>1920</tt:Width><tt:Height>1080</tt:Height></tt:Resolution><tt:Quality>5</tt:Quality>` +
	`<tt:RateControl><tt:FrameRateLimit>25</tt:FrameRateLimit><tt:EncodingInterval>1</tt:EncodingInterval>` +
	`<tt:BitrateLimit>4096</tt:BitrateLimit></tt:RateControl><tt:H264><tt:GovLength>50</tt:GovLength><tt:H264Profile>Main</tt:H264Profile></tt:H264>` +
	`<tt:SessionTimeout>PT60S</tt:SessionTimeout></tt:VideoEncoderConfiguration>`

var mediaOperations = map[string]operation{
	"GetProfiles": {body: func(*Camera, string) string {
		return `<trt:Profiles token="main" fixed="true">` + profile + `</trt:Profiles>`
	}},
	"GetProfile": {body: func(*Camera, string) string {
		return `<trt:Profile token="main" fixed="true">` + profile + `</trt:Profile>`
	}},
	"GetVideoSources": {body: func(*Camera, string) string {
		return `<trt:VideoSources token="sensor"><tt:Framerate>25</tt:Framerate>` +
			`<tt:Resolution><tt:Width>1920</tt:Width><tt:Height>1080</tt:Height></tt:Resolution></trt:VideoSources>`
	}},
	"GetStreamUri": {body: func(_ *Camera, host string) string {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		return `<trt:MediaUri><tt:Uri>rtsp://` + escape(net.JoinHostPort(strings.Trim(host, "[]"), "554")) + `/main</tt:Uri>` +
			`<tt:InvalidAfterConnect>false</tt:InvalidAfterConnect><tt:InvalidAfterReboot>false</tt:InvalidAfterReboot><tt:Timeout>PT60S</tt:Timeout></trt:MediaUri>`
	}},
}

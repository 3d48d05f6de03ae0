package onvif

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// anyAddress lets a client of a test ask servers of this machine.
func anyAddress(netip.Addr) error { return nil }

// onLoopback is a service of this machine.
func onLoopback(t *testing.T, handler http.HandlerFunc) target {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return target{xaddr: server.URL + "/d", source: netip.MustParseAddr("127.0.0.1")}
}

func envelopeOf(body string) string {
	return `<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Header/><s:Body>` + body + `</s:Body></s:Envelope>`
}

const dateAndTime = `<GetSystemDateAndTimeResponse><SystemDateAndTime><UTCDateTime><Time><Hour>%d</Hour><Minute>%d</Minute><Second>%d</Second></Time>` +
	`<Date><Year>%d</Year><Month>%d</Month><Day>%d</Day></Date></UTCDateTime></SystemDateAndTime></GetSystemDateAndTimeResponse>`

func dateAndTimeOf(at time.Time) string {
	at = at.UTC()
	return envelopeOf(fmt.Sprintf(dateAndTime, at.Hour(), at.Minute(), at.Second(), at.Year(), at.Month(), at.Day()))
}

// What cameras, and what is none, answer when they are asked whether they are there.
func TestIsThere(t *testing.T) {
	respond := func(status int, body string, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	fault := envelopeOf(`<s:Fault><s:Code><s:Value>s:Sender</s:Value><s:Subcode><s:Value>ter:NotAuthorized</s:Value></s:Subcode></s:Code><s:Reason><s:Text>x</s:Text></s:Reason></s:Fault>`)
	began, yesterday := time.Now(), time.Now().Add(-24*time.Hour)
	for name, tc := range map[string]struct {
		serve   http.HandlerFunc
		offset  time.Duration // within 2 s when the test begins
		wantErr string
	}{
		"its time":                         {serve: respond(200, dateAndTimeOf(time.Now()))},
		"a clock in the future":            {serve: respond(200, dateAndTimeOf(time.Now().Add(5*time.Hour))), offset: 5 * time.Hour},
		"a byte order mark of white space": {serve: respond(200, "\r\n "+dateAndTimeOf(time.Now()))},
		"no time, but a date of HTTP":      {serve: respond(200, envelopeOf(`<GetSystemDateAndTimeResponse/>`), "Date", yesterday.UTC().Format(http.TimeFormat)), offset: -24 * time.Hour},
		"a broken clock":                   {serve: respond(200, strings.Replace(dateAndTimeOf(time.Now()), "<Hour>", "<Hour>x", 1), "Date", yesterday.UTC().Format(http.TimeFormat)), offset: -24 * time.Hour},
		"a login wanted, with status 401":  {serve: respond(401, "<html>", "Date", yesterday.UTC().Format(http.TimeFormat)), offset: -24 * time.Hour},
		"a login wanted, with a fault":     {serve: respond(400, fault)},
		"a fault with status 200":          {serve: respond(200, fault)},
		"a web page":                       {serve: respond(200, "<html><body>Hello</body></html>"), wantErr: `answer is <> in <html>`},
		"not found":                        {serve: respond(404, "<html>"), wantErr: "404"},
		"another operation":                {serve: respond(200, envelopeOf("<GetFooResponse/>")), wantErr: "answer is <GetFooResponse>"},
		"nothing":                          {serve: respond(200, ""), wantErr: "EOF"},
		"a document type":                  {serve: respond(200, `<!DOCTYPE lolz [<!ENTITY lol "lol">]>`+dateAndTimeOf(time.Now())), wantErr: "document type"},
		"10,000 levels":                    {serve: respond(200, strings.Repeat("<a>", 10_000)), wantErr: "deep"},
		"100 MB": {serve: func(w http.ResponseWriter, _ *http.Request) {
			block := []byte(strings.Repeat("<a/>", 1<<18))
			for range 100 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
			t.Error("all of 100 MB were read")
		}, wantErr: "more than 262144 bytes"},
		"headers without end": {serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, wantErr: "headers"},
		"a redirect elsewhere": {serve: respond(302, "", "Location", "http://10.96.0.1/"), wantErr: "302"},
		"an answer to nobody": {serve: func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
		}, wantErr: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			offset, err := newClient(anyAddress).isThere(t.Context(), onLoopback(t, tc.serve))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.Contains(err.Error(), "GetSystemDateAndTime of http://127.0.0.1") {
					t.Errorf("error is %v, want one of GetSystemDateAndTime with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || (offset-tc.offset).Abs() > 2*time.Second+time.Since(began) {
				t.Errorf("offset is %s, %v, want %s", offset, err, tc.offset)
			}
		})
	}
}

// A request ends with its context, and after requestTimeout, however the camera drags.
func TestSlowCameras(t *testing.T) {
	slow := onLoopback(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for r.Context().Err() == nil { // a byte from time to time
			fmt.Fprint(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := newClient(anyAddress).isThere(ctx, slow); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
	if _, err := newClient(anyAddress).isThere(t.Context(), slow); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want a timeout", err)
	}
}

func TestHTTPS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, dateAndTimeOf(time.Now())) }))
	t.Cleanup(server.Close)
	for _, scheme := range []string{"https:", "HTTPS:"} { // cameras may write it as they like
		at := target{xaddr: strings.Replace(server.URL, "https:", scheme, 1), source: netip.MustParseAddr("127.0.0.1")}
		if _, err := newClient(anyAddress).isThere(t.Context(), at); err != nil {
			t.Errorf("with a certificate of its own: %v", err)
		}
	}
}

// A proxy of the environment is not asked for cameras.
func TestNoProxy(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("HTTP_PROXY", "http://"+listener.Addr().String())
	if p := newClient(anyAddress).http.Transport.(*http.Transport).Proxy; p != nil {
		t.Error("the client has a proxy")
	}
}

func TestNetworkInterfaces(t *testing.T) {
	one := func(info, config string) string {
		return `<tds:NetworkInterfaces token="e"><tt:Info>` + info + `</tt:Info><tt:IPv4><tt:Enabled>true</tt:Enabled><tt:Config>` + config + `</tt:Config></tt:IPv4></tds:NetworkInterfaces>`
	}
	manual := func(ip string) string {
		return `<tt:Manual><tt:Address>` + ip + `</tt:Address><tt:PrefixLength>24</tt:PrefixLength></tt:Manual>`
	}
	dhcp := func(ip string) string {
		return `<tt:FromDHCP><tt:Address>` + ip + `</tt:Address></tt:FromDHCP><tt:DHCP>true</tt:DHCP>`
	}
	mac := func(m string) string { return `<tt:Name>eth0</tt:Name><tt:HwAddress>` + m + `</tt:HwAddress>` }
	for name, tc := range map[string]struct {
		content string
		want    network
	}{
		"manual":                                {one(mac("02:00:00:00:00:01"), manual("10.0.0.9")), network{"10.0.0.9", "02:00:00:00:00:01"}},
		"DHCP":                                  {one(mac("02-00-00-00-00-01"), dhcp("10.0.0.9")), network{"10.0.0.9", "02-00-00-00-00-01"}},
		"the first of two interfaces":           {one(mac("02:00:00:00:00:01"), dhcp("10.0.0.9")) + one(mac("02:00:00:00:00:02"), dhcp("10.0.0.8")), network{"10.0.0.9", "02:00:00:00:00:01"}},
		"the address asked, not the maker's":    {one(mac("02:00:00:00:00:01"), manual("192.168.1.108")+dhcp("127.0.0.1")), network{"127.0.0.1", "02:00:00:00:00:01"}},
		"white space":                           {one(mac(" 02:00:00:00:00:01\n"), dhcp(" 10.0.0.9 ")), network{"10.0.0.9", "02:00:00:00:00:01"}},
		"an address that is none":               {one(mac("02:00:00:00:00:01"), dhcp("x")), network{"", "02:00:00:00:00:01"}},
		"a MAC that is none, and one of 10 KiB": {one(mac("FOO=1\nBAR"), dhcp("10.0.0.9")) + one(mac(strings.Repeat("0", 10<<10)), ""), network{"10.0.0.9", ""}},
		"nothing":                               {"", network{}},
	} {
		t.Run(name, func(t *testing.T) {
			at := onLoopback(t, func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, envelopeOf(`<tds:GetNetworkInterfacesResponse xmlns:tds="`+nsDevice+`" xmlns:tt="http://www.onvif.org/ver10/schema">`+tc.content+`</tds:GetNetworkInterfacesResponse>`))
			})
			got, err := newClient(anyAddress).network(t.Context(), at, nil, 0)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(network{})); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A camera whose clock was set since is asked for its time, and logged in to again. One
// whose clock is right is not asked twice: it would lock out the user.
func TestClockWasSet(t *testing.T) {
	for offset, wantRequests := range map[time.Duration]int{0: 2, time.Hour: 3} {
		requests := 0
		at := onLoopback(t, func(w http.ResponseWriter, r *http.Request) {
			requests++
			body, _ := io.ReadAll(r.Body)
			switch {
			case strings.Contains(string(body), "GetSystemDateAndTime"):
				fmt.Fprint(w, dateAndTimeOf(time.Now().Add(offset)))
			case requests == 3:
				fmt.Fprint(w, envelopeOf(`<GetNetworkInterfacesResponse/>`))
			default:
				w.WriteHeader(400)
				fmt.Fprint(w, envelopeOf(`<s:Fault><s:Reason><s:Text>Sender not Authorized</s:Text></s:Reason></s:Fault>`))
			}
		})
		_, err := newClient(anyAddress).network(t.Context(), at, &login{"u", "p"}, 0)
		if requests != wantRequests || errors.Is(err, errNotAuthorized) != (wantRequests == 2) {
			t.Errorf("clock off by %s: %d requests, want %d; error %v", offset, requests, wantRequests, err)
		}
	}
}

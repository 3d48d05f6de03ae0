package onvif

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// requestTimeout is how long a camera has for one request.
const requestTimeout = 3 * time.Second

// errNotAuthorized is wrapped when a camera wants a login, or another one.
var errNotAuthorized = errors.New("not authorized")

// client asks cameras. Its zero value is not ready: newClient makes one. It is safe for
// concurrent use.
type client struct{ http *http.Client }

// newClient returns a client that connects to the addresses for which allowed is nil.
func newClient(allowed func(netip.Addr) error) *client {
	return &client{&http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			// Never a proxy: cameras are on the local network.
			DialContext: dialer{allowed}.dial,
			// Self-signed certificates are all that cameras have. They stand for no more
			// than plain HTTP, which is what cameras usually speak.
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
			MaxResponseHeaderBytes: 16 << 10,
			DisableKeepAlives:      true, // the next request may be in hours
			DisableCompression:     true, // which readBody does
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// fault is a SOAP fault: of SOAP 1.2, or of 1.1, whose elements are in lower case.
type fault struct {
	Code struct {
		Value   string
		Subcode struct {
			Value   string
			Subcode struct{ Value string }
		}
	}
	Reason struct{ Text string }

	Code11   string `xml:"faultcode"`
	Reason11 string `xml:"faultstring"`
}

func (f *fault) Error() string {
	return fmt.Sprintf("SOAP fault %.64q: %.200q", f.subcode(), f.reason())
}

func (f *fault) subcode() string { return strings.TrimSpace(cmp.Or(f.Code.Subcode.Value, f.Code11)) }

func (f *fault) reason() string { return strings.TrimSpace(cmp.Or(f.Reason.Text, f.Reason11)) }

// Is makes ter:NotAuthorized an errNotAuthorized. Some cameras have it in the reason
// alone, as "Sender not Authorized".
func (f *fault) Is(err error) bool {
	text := strings.ToLower(strings.Join([]string{f.subcode(), f.Code.Subcode.Subcode.Value, f.reason()}, " "))
	text = strings.ReplaceAll(text, " ", "")
	return err == errNotAuthorized && (strings.Contains(text, "notauthorized") || strings.Contains(text, "failedauthentication"))
}

// answerOf is the content of a SOAP answer: a struct whose name is that of its element.
type answerOf interface{ element() xml.Name }

// envelope is a SOAP answer.
type envelope[T answerOf] struct {
	XMLName xml.Name
	Body    struct {
		Fault    *fault
		Response T `xml:",any"`
	}
}

// post sends one request of the device service. header is the SOAP header's content,
// authorization that of HTTP; both may be empty. It returns the answer with its body
// read, whatever its status is.
func (c *client) post(ctx context.Context, t target, operation, header, authorization string) (*http.Response, []byte, error) {
	body := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?><s:Envelope xmlns:s="%s"><s:Header>%s</s:Header>`+
		`<s:Body><%s xmlns="%s"/></s:Body></s:Envelope>`, nsSOAP, header, operation, nsDevice)
	ctx = context.WithValue(ctx, targetKey{}, t)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.xaddr, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Content-Type", `application/soap+xml; charset=utf-8; action="`+nsDevice+"/"+operation+`"`)
	request.Header.Set("User-Agent", "kubeslot")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := readBody(response.Body)
	if err != nil {
		return nil, nil, err
	}
	return response, text, nil
}

// read takes the content of an answer to an operation.
func read[T answerOf](operation string, response *http.Response, text []byte) (content T, err error) {
	var e envelope[T]
	err = unmarshal(bytes.TrimSpace(text), &e)
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		return content, fmt.Errorf("%w: %s", errNotAuthorized, response.Status)
	case err == nil && e.Body.Fault != nil:
		return content, e.Body.Fault
	case response.StatusCode != http.StatusOK:
		return content, fmt.Errorf("HTTP status %.64q", response.Status)
	case err != nil:
		return content, fmt.Errorf("answer: %w", err)
	case e.XMLName.Local != "Envelope" || e.Body.Response.element().Local != operation+"Response":
		return content, fmt.Errorf("answer is <%.64s> in <%.64s>", e.Body.Response.element().Local, e.XMLName.Local)
	}
	return e.Body.Response, nil
}

// asked wraps an error of a request with what was asked of whom.
func asked(t target, operation string, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // it repeats the URL
	}
	return fmt.Errorf("%s of %s: %w", operation, t.xaddr, err)
}

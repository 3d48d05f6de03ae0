package onvif

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// raw answers with pieces of text as they are, without the rules of HTTP. In them, echo
// stands for the request.
func raw(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\n\r\n%s", r.URL.Path, r.Host, body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		for _, piece := range pieces {
			_, _ = io.WriteString(conn, strings.ReplaceAll(piece, echo, request))
		}
	}
}

const echo = "{echo}"

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// What cameras of careless makers answer, which other clients understand.
func TestCarelessAnswers(t *testing.T) {
	body := dateAndTimeOf(time.Now().Add(5 * time.Hour))
	answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	compressed := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if accepts := r.Header.Get("Accept-Encoding"); accepts != "" {
				t.Errorf("%s was asked for", accepts)
			}
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tc := range map[string]struct {
		serve   http.HandlerFunc
		wantErr string
	}{
		"gzip that is none": {serve: compressed(body)},
		"gzip, unasked":     {serve: compressed(zipped(body))},
		"gzip of 4 MB": {serve: compressed(zipped(strings.Repeat("<a/>", 1<<20))),
			wantErr: "more than 262144 bytes"},
		"gzip that is cut":   {serve: compressed(zipped(body)[:40]), wantErr: "EOF"},
		"a charset misspelt": {serve: compressed(`<?xml version="1.0" encoding="utf8"?>` + body)},
		"the request before": {serve: raw(echo + answer)},
		"byte by byte":       {serve: raw(append([]string{echo}, strings.Split(answer, "")...)...)},
		"in the status line": {serve: raw(echo+answer[:7], answer[7:])},
		"no status line":     {serve: raw(echo), wantErr: "malformed HTTP"},
		"a late status line": {serve: raw(strings.Repeat("x", maxEcho), answer), wantErr: "malformed HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			offset, err := newClient(anyAddress).isThere(t.Context(), onLoopback(t, tc.serve))
			switch {
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("error is %v, want one with %q", err, tc.wantErr)
			case tc.wantErr == "" && (err != nil || offset.Round(time.Hour) != 5*time.Hour):
				t.Errorf("offset is %s, %v, want 5h", offset, err)
			}
		})
	}
}

// A fault of SOAP 1.1 that refuses a login is one, and says why.
func TestFaultsOfSOAP11(t *testing.T) {
	for name, tc := range map[string]struct {
		code, text string
		refused    bool
	}{
		"in the string": {"SOAP-ENV:Client", "Sender not Authorized", true},
		"in the code":   {"wsse:FailedAuthentication", "x", true},
		"another":       {"SOAP-ENV:Server", "Out of memory", false},
	} {
		t.Run(name, func(t *testing.T) {
			at := onLoopback(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(500)
				fmt.Fprintf(w, `<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><e:Fault>`+
					`<faultcode>%s</faultcode><faultstring>%s</faultstring></e:Fault></e:Body></e:Envelope>`, tc.code, tc.text)
			})
			_, err := newClient(anyAddress).network(t.Context(), at, nil, 0)
			if err == nil || errors.Is(err, errNotAuthorized) != tc.refused || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("error is %v, want one with %q, and not authorized = %v", err, tc.text, tc.refused)
			}
		})
	}
}

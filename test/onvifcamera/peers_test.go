package onvifcamera

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/test/need"
	"github.com/kubeslot/kubeslot/test/npm"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

// Clients that others wrote take the camera for one.

// seen is what testdata/client.js prints.
type seen struct {
	Found []struct {
		URN    string
		XAddrs []string
	}
	Time        time.Time
	Information struct{ Manufacturer, Model, SerialNumber string }
	Scopes      []string
	Interfaces  []struct {
		Info struct{ HwAddress string }
		IPv4 struct {
			Config struct{ Manual struct{ Address string } }
		}
	}
	Hostname struct{ Name string }
	Stream   struct{ URI string }
	Error    string
}

func TestWithNpmOnvif(t *testing.T) {
	l := lan.New(t)
	var modules string
	lan.Outside(t, func() { modules = npm.Install(t, "onvif@0.8.3") })
	client := l.Host()
	for name, tc := range map[string]struct {
		config         Config
		password, auth string // of the client
		wantErr        string
	}{
		"no login needed":               {auth: "wss"},
		"WS-UsernameToken":              {config: Config{User: "admin", Password: `p&<"x`, Auth: AuthWSS}, password: `p&<"x`, auth: "wss"},
		"a nonce is used once":          {config: Config{User: "admin", Password: "secret", Auth: AuthWSS, RefuseReplays: true}, password: "secret", auth: "wss"},
		"a clock that is ahead":         {config: Config{User: "admin", Password: "secret", Auth: AuthWSS, ClockOffset: 5 * time.Hour}, password: "secret", auth: "wss"},
		"a clock that is behind":        {config: Config{User: "admin", Password: "secret", Auth: AuthWSS, ClockOffset: -24 * time.Hour}, password: "secret", auth: "wss"},
		"HTTP digest, MD5":              {config: Config{User: "admin", Password: "secret", Auth: AuthDigest, DigestAlgorithm: "MD5"}, password: "secret", auth: "digest"},
		"HTTP digest, SHA-256":          {config: Config{User: "admin", Password: "secret", Auth: AuthDigest, DigestAlgorithm: "SHA-256"}, password: "secret", auth: "digest"},
		"HTTP digest, both offered":     {config: Config{User: "admin", Password: "secret"}, password: "secret", auth: "digest"},
		"another password":              {config: Config{User: "admin", Password: "secret", Auth: AuthWSS}, password: "guess", auth: "wss", wantErr: "NotAuthorized"},
		"another password, HTTP digest": {config: Config{User: "admin", Password: "secret", Auth: AuthDigest}, password: "guess", auth: "digest", wantErr: "401"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.Name = "Hall"
			camera, host := start(t, l, tc.config)
			cmd := exec.Command("node", "testdata/client.js", "admin", tc.password, tc.auth)
			cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
			cmd.Stderr = os.Stderr
			var output bytes.Buffer
			cmd.Stdout = &output
			if err := client.Do(cmd.Run); err != nil {
				t.Fatalf("node: %v\n%s", err, output.Bytes())
			}
			var got seen
			if err := json.Unmarshal(output.Bytes(), &got); err != nil {
				t.Fatalf("%v: %s", err, output.Bytes())
			}
			url := fmt.Sprintf("http://%s:%d%s", host.IPv4, camera.Port(), devicePath)
			if len(got.Found) != 1 || got.Found[0].URN != "urn:uuid:"+testUUID || len(got.Found[0].XAddrs) != 1 || got.Found[0].XAddrs[0] != url {
				t.Fatalf("found %+v, want %s at %s", got.Found, testUUID, url)
			}
			if tc.wantErr != "" {
				if !strings.Contains(strings.ReplaceAll(got.Error, " ", ""), tc.wantErr) && !strings.Contains(got.Error, "not authorized") {
					t.Errorf("error is %q, want %q", got.Error, tc.wantErr)
				}
				if camera.Count("unauthorized") == 0 {
					t.Error("the camera turned nothing down")
				}
				return
			}
			if got.Error != "" {
				t.Fatal(got.Error)
			}
			if off := time.Until(got.Time) - tc.config.ClockOffset; off.Abs() > 10*time.Second {
				t.Errorf("time is %s, %s off", got.Time, off)
			}
			if got.Information.Manufacturer != manufacturer || got.Information.SerialNumber != serial || got.Hostname.Name != "Hall" {
				t.Errorf("information is %+v, host name %+v", got.Information, got.Hostname)
			}
			if len(got.Scopes) != 4 || got.Scopes[2] != "onvif://www.onvif.org/name/Hall" {
				t.Errorf("scopes are %q", got.Scopes)
			}
			if len(got.Interfaces) != 1 || got.Interfaces[0].IPv4.Config.Manual.Address != host.IPv4.String() || len(got.Interfaces[0].Info.HwAddress) != 17 {
				t.Errorf("network interfaces are %+v", got.Interfaces)
			}
			if want := "rtsp://" + host.IPv4.String() + ":554/main"; got.Stream.URI != want {
				t.Errorf("stream is %q, want %q", got.Stream.URI, want)
			}
			camera.Kill()
		})
	}
}

func TestWithOnvifTools(t *testing.T) {
	program := need.Program(t, "apt-get install onvif-tools", "onvif-util")
	l := lan.New(t)
	client := l.Host()
	_, host := start(t, l, Config{Port: 80, Name: "Hall", User: "admin", Password: "secret", ClockOffset: time.Hour})
	run := func(input string, args ...string) string {
		t.Helper()
		cmd := exec.Command("timeout", append([]string{"30", program}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		output, err := client.Run(cmd)
		if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
			t.Fatalf("onvif-util %q: %v", args, err)
		}
		return string(output)
	}
	want := func(output string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(output, part) {
				t.Errorf("onvif-util prints no %q:\n%s", part, output)
			}
		}
	}
	want(run("", "-a"), "Found 1 cameras", host.IPv4.String()+" Hall(Hall Simulated-1)")
	want(run("get network\nget time\nget rtsp\nquit\n", "-u", "admin", "-p", "secret", host.IPv4.String()),
		"successfully connected", "serial: "+serial, "IP Address: "+host.IPv4.String(), "rtsp://"+host.IPv4.String()+":554/main", "Time Offset: 3600 seconds")
	if output := run("quit\n", "-u", "admin", "-p", "guess", host.IPv4.String()); strings.Contains(output, serial) || !strings.Contains(output, "NotAuthorized") {
		t.Errorf("a wrong password is taken:\n%s", output)
	}
}

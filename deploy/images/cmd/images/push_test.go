package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// What is built is listed by name, tag and digest, for those who copy or pin it.
func TestImagesAreListed(t *testing.T) {
	t.Chdir("../../../..")
	out := t.TempDir()
	args := []string{"-registry=reg.example/k", "-version=v1", "-only=chart-hooks", "-arch=" + runtime.GOARCH,
		"-o=" + out}
	if err := run(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(out, imageList))
	if err != nil {
		t.Fatal(err)
	}
	layout, err := os.ReadFile(filepath.Join(out, "chart-hooks.tar"))
	if err != nil {
		t.Fatal(err)
	}
	name, digest, _ := strings.Cut(strings.TrimSpace(string(list)), "@sha256:")
	if name != "reg.example/k/chart-hooks:v1" || len(digest) != 64 || !bytes.Contains(layout, []byte(digest)) {
		t.Errorf("the list is %q, and the archive has that digest: %t", list, bytes.Contains(layout, []byte(digest)))
	}
}

// What a registry would refuse is said before anything is built. The test runs in a directory
// without the sources, where a build fails.
func TestPushAsksTheRegistryFirst(t *testing.T) {
	const builds = "build ./deploy/helm/cmd/chart-hooks"
	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := nowhere.Addr().String()
	_ = nowhere.Close()
	serve := func(handler http.HandlerFunc) string {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://")
	}
	anonymous := serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		http.Error(w, `{"errors": [{"code": "UNAUTHORIZED"}]}`, http.StatusUnauthorized)
	})
	readOnly := serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, `{"errors": [{"code": "DENIED"}]}`, http.StatusForbidden)
		}
	})
	noRepository := serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, `{"errors": [{"code": "NAME_UNKNOWN"}]}`, http.StatusNotFound)
		}
	})
	good := httptest.NewServer(registry.New())
	t.Cleanup(good.Close)
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // no credentials
	for name, test := range map[string]struct {
		registry string
		says     []string
	}{
		"no registry":    {closed, []string{"does not take " + closed + "/kubeslot/chart-hooks:v1", "connection refused"}},
		"no credentials": {anonymous, []string{"does not let you push", `log in with "docker login ` + anonymous + `"`, "UNAUTHORIZED"}},
		"may only read":  {readOnly, []string{"does not let you push", "DENIED"}},
		"no repository":  {noRepository, []string{"does not take " + noRepository + "/kubeslot/chart-hooks:v1", "NAME_UNKNOWN"}},
		"no address":     {"registry:nonsense", []string{"registry:nonsense"}},
		"takes it":       {strings.TrimPrefix(good.URL, "http://"), []string{builds}},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), []string{"-push", "-registry=" + test.registry + "/kubeslot", "-version=v1", "-only=chart-hooks", "-o=" + t.TempDir()})
			if err == nil {
				t.Fatal("nothing is said")
			}
			for _, s := range test.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error lacks %q: %v", s, err)
				}
			}
			if built := strings.Contains(err.Error(), builds); built != (name == "takes it") {
				t.Errorf("built: %v: %v", built, err)
			}
		})
	}
}

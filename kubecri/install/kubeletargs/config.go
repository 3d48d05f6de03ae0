package kubeletargs

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// DefaultEndpoint is the kubelet's own default for the runtime's socket.
const DefaultEndpoint = "unix:///run/containerd/containerd.sock"

// SameSocket compares endpoints, with or without unix://; /var/run is /run.
func SameSocket(a, b string) bool { return socket(a) == socket(b) }

func socket(endpoint string) string {
	path := filepath.Clean(strings.TrimPrefix(endpoint, "unix://"))
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return "/run/" + rest
	}
	return path
}

// Configuration is what a kubelet's command line and files say; "" for what they do not say.
type Configuration struct {
	Runtime string // containerRuntimeEndpoint
	from    string // what says so
	Images  string // imageServiceEndpoint; a kubelet without uses the runtime's
	// Healthz is where it serves /healthz, as host:port; "" when it does not. Flags of the kubelet that say
	// otherwise are deprecated, and not looked at.
	Healthz string
}

// Endpoint returns where the kubelet expects the runtime, and what says so: a flag, a file, or its default.
func (c Configuration) Endpoint() (endpoint, from string) {
	return cmp.Or(c.Runtime, DefaultEndpoint), cmp.Or(c.from, "the kubelet's default")
}

// Configuration reads the files of a kubelet with these arguments. root is put before their paths, "" for none.
func (a Arguments) Configuration(root string) (c Configuration, err error) {
	files, err := a.Files(root)
	if err != nil {
		return Configuration{}, err
	}
	host, port := "127.0.0.1", 10248 // the kubelet's defaults
	for _, path := range files {
		f, err := readFile(path)
		if err != nil {
			return Configuration{}, err
		}
		if f.ContainerRuntimeEndpoint != "" {
			c.Runtime, c.from = f.ContainerRuntimeEndpoint, strings.TrimPrefix(path, root)
		}
		c.Images = cmp.Or(f.ImageServiceEndpoint, c.Images)
		host = cmp.Or(f.HealthzBindAddress, host)
		if f.HealthzPort != nil {
			port = *f.HealthzPort
		}
	}
	if a.RuntimeEndpoint != "" {
		c.Runtime, c.from = a.RuntimeEndpoint, "its flag --container-runtime-endpoint"
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if port != 0 {
		c.Healthz = net.JoinHostPort(host, strconv.Itoa(port))
	}
	return c, nil
}

// Files lists the files of configuration that a kubelet with these arguments reads, the one that wins last: its
// --config, and as in the kubelet those of its --config-dir named *.conf, in the order of their names. root is put
// before their paths, "" for none.
func (a Arguments) Files(root string) (files []string, err error) {
	if a.Config != "" {
		files = append(files, root+a.Config)
	}
	if a.ConfigDir == "" {
		return files, nil
	}
	err = filepath.WalkDir(root+a.ConfigDir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's --config-dir: %w", err)
	}
	return files, nil
}

// file is what is taken from a KubeletConfiguration. The rest is read past, fields that are yet to be invented too.
type file struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	ImageServiceEndpoint     string `json:"imageServiceEndpoint"`
	HealthzBindAddress       string `json:"healthzBindAddress"`
	HealthzPort              *int   `json:"healthzPort"`
}

func readFile(path string) (f file, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return f, fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	if err := yaml.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("%s is not a KubeletConfiguration: %w", path, err)
	}
	if f.Kind != "KubeletConfiguration" || !strings.HasPrefix(f.APIVersion, "kubelet.config.k8s.io/") {
		return f, fmt.Errorf("%s is not a KubeletConfiguration: it is %q of %q", path, f.Kind, f.APIVersion)
	}
	return f, nil
}

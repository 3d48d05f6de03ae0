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

// configuration is what is taken from a KubeletConfiguration. The rest is read
// past, fields that are yet to be invented too.
type configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	ImageServiceEndpoint     string `json:"imageServiceEndpoint"`
	HealthzBindAddress       string `json:"healthzBindAddress"`
	HealthzPort              *int   `json:"healthzPort"`
}

// Endpoints are where a kubelet expects CRI; "" where its configuration says
// nothing.
type Endpoints struct {
	Runtime string // containerRuntimeEndpoint
	Images  string // imageServiceEndpoint; a kubelet without uses the runtime's
}

// ReadEndpoints returns the endpoints that a kubelet with this --config and
// --config-dir would use. As in the kubelet the directory's files *.conf count in the
// order of their names, over the file. Either path may be empty.
func ReadEndpoints(file, dir string) (Endpoints, error) {
	files, err := ConfigFiles(file, dir)
	if err != nil {
		return Endpoints{}, err
	}
	var endpoints Endpoints
	for _, path := range files {
		c, err := readConfiguration(path)
		if err != nil {
			return Endpoints{}, err
		}
		endpoints.Runtime = cmp.Or(c.ContainerRuntimeEndpoint, endpoints.Runtime)
		endpoints.Images = cmp.Or(c.ImageServiceEndpoint, endpoints.Images)
	}
	return endpoints, nil
}

// ConfigFiles lists the files that a kubelet with this --config and --config-dir
// reads, the one that wins last. Either path may be empty.
func ConfigFiles(file, dir string) ([]string, error) {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if dir == "" {
		return files, nil
	}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
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

// HealthzAddress returns where a kubelet with these files of configuration serves
// /healthz, as host:port; "" when it does not. Flags of the kubelet that say
// otherwise are deprecated, and not looked at.
func HealthzAddress(files []string) (string, error) {
	host, port := "127.0.0.1", 10248 // the kubelet's defaults
	for _, path := range files {
		c, err := readConfiguration(path)
		if err != nil {
			return "", err
		}
		host = cmp.Or(c.HealthzBindAddress, host)
		if c.HealthzPort != nil {
			port = *c.HealthzPort
		}
	}
	if port == 0 {
		return "", nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

func readConfiguration(path string) (configuration, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return configuration{}, fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	var c configuration
	if err := yaml.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s is not a KubeletConfiguration: %w", path, err)
	}
	if c.Kind != "KubeletConfiguration" || !strings.HasPrefix(c.APIVersion, "kubelet.config.k8s.io/") {
		return c, fmt.Errorf("%s is not a KubeletConfiguration: it is %q of %q", path, c.Kind, c.APIVersion)
	}
	return c, nil
}

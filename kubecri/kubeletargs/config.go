package kubeletargs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
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
}

// Endpoints are where a kubelet expects CRI; "" where its configuration says
// nothing.
type Endpoints struct {
	Runtime string // containerRuntimeEndpoint
	Images  string // imageServiceEndpoint; a kubelet without uses the runtime's
}

// ReadEndpoints returns the endpoints that a kubelet with this --config and
// --config-dir would use. As in the kubelet the folder's files *.conf count in the
// order of their names, over the file. Either path may be empty.
func ReadEndpoints(file, dir string) (Endpoints, error) {
	var files []string
	if file != "" {
		files = append(files, file)
	}
	if dir != "" {
		err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return Endpoints{}, fmt.Errorf("read the kubelet's --config-dir: %w", err)
		}
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

func readConfiguration(path string) (configuration, error) {
	var c configuration
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s is not a KubeletConfiguration: %w", path, err)
	}
	if c.Kind != "KubeletConfiguration" || !strings.HasPrefix(c.APIVersion, "kubelet.config.k8s.io/") {
		return c, fmt.Errorf("%s is not a KubeletConfiguration: it is %q of %q", path, c.Kind, c.APIVersion)
	}
	return c, nil
}

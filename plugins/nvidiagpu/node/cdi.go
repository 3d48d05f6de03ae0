package node

import (
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// cdiKind is what nvidia-ctk's CDI specs describe; a GPU's qualified name is cdiKind=<name>.
const cdiKind = "nvidia.com/gpu"

// cdiFolders are where the runtime looks for CDI specs: the two that CDI knows,
// and the one that kubecri has in its environment.
func cdiFolders() []string {
	folders := []string{"/etc/cdi", "/var/run/cdi"}
	if own := os.Getenv("CDI_DIR"); own != "" {
		folders = append(folders, own)
	}
	return folders
}

// maxSpec bounds what is read of a file; nvidia-ctk's specs have some 20 KiB.
const maxSpec = 4 << 20

// cdiDevices returns the names of the GPUs that the CDI specs in the folders describe. What cannot be read
// describes none: the container then gets its GPUs without CDI.
func cdiDevices(folders []string) map[string]bool {
	names := map[string]bool{}
	for _, folder := range folders {
		entries, _ := os.ReadDir(folder)
		for _, e := range entries {
			switch filepath.Ext(e.Name()) {
			case ".json", ".yaml": // the two that CDI knows
			default:
				continue
			}
			file := filepath.Join(folder, e.Name())
			if stat, err := os.Stat(file); err != nil || !stat.Mode().IsRegular() || stat.Size() > maxSpec {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			var spec specs.Spec
			if yaml.Unmarshal(data, &spec) != nil || spec.Kind != cdiKind {
				continue
			}
			for _, d := range spec.Devices {
				names[d.Name] = true
			}
		}
	}
	return names
}

package device

import (
	"path/filepath"
	"testing"
)

func TestNoPlugin(t *testing.T) {
	if d, err := CreateDeviceFromPlugin(filepath.Join(t.TempDir(), "none.so")); d != nil || err == nil {
		t.Fatal(d, err)
	}
}

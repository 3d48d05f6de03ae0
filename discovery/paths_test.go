package discovery

import (
	"strings"
	"testing"
)

func TestCheckContainerPath(t *testing.T) {
	for path, want := range map[string]string{
		"/":                              "is the container's root",
		"/..":                            "is the container's root",
		"/a/../.":                        "is the container's root",
		"/proc":                          "is the kernel's",
		"/proc/":                         "is the kernel's",
		"/proc/sys/x":                    "is the kernel's",
		"/data/../proc/x":                "is the kernel's",
		"/sys":                           "want a path below it",
		"/dev":                           "want a path below it",
		"/var":                           "the directory of the container's ServiceAccount",
		"/var/run":                       "the directory of the container's ServiceAccount",
		"/run":                           "the directory of the container's ServiceAccount",
		"/run/secrets":                   "the directory of the container's ServiceAccount",
		"/var/run/secrets/kubernetes.io": "the directory of the container's ServiceAccount",
		"/var/run/secrets/kubernetes.io/serviceaccount":        "the directory of the container's ServiceAccount",
		"//var/run/secrets/kubernetes.io/serviceaccount/token": "the directory of the container's ServiceAccount",
		"/run/secrets/kubernetes.io/serviceaccount/ca.crt":     "the directory of the container's ServiceAccount",

		"/dev/video0":                 "",
		"/dev/bus/usb/001":            "",
		"/sys/class/gpio":             "",
		"/process":                    "",
		"/run/udev":                   "",
		"/var/run/udev":               "",
		"/var/lib/x":                  "",
		"/run/secrets/x":              "",
		"/var/run/secrets/eks.io/x":   "",
		"/data":                       "",
		"/var/run/secrets/kubernetes": "",
	} {
		err := CheckContainerPath(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

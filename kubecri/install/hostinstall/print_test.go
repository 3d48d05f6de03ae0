package hostinstall

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrint(t *testing.T) {
	s := &simulated{scenarios["kubeadm 1.34 and newer"].look()}
	var out strings.Builder
	Print(&out, s.install(t, want))
	expected := `Install kubecri on node node-a, in mode proxy:
  create  /etc/kubeslot/install.json
  create  /usr/local/bin/kubecri
  create  /etc/kubeslot/kubecri.env
          + NODE_NAME=node-a
          + KUBECONFIG=/etc/kubeslot/kubecri.kubeconfig
          + LISTEN=unix:///run/kubecri/kubecri.sock
          + RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock
          + STATE_DIR=/var/lib/kubecri
          + CDI_DIR=/var/run/cdi
  create  /etc/systemd/system/kubecri.service
  run     systemctl daemon-reload
  run     systemctl enable kubecri.service
  run     systemctl restart kubecri.service, and wait until it serves the runtime at its socket
  change  /var/lib/kubelet/config.yaml
          - containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
          + containerRuntimeEndpoint: unix:///run/kubecri/kubecri.sock
  change  /var/lib/kubelet/instance-config.yaml
          - containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock"
          + containerRuntimeEndpoint: "unix:///run/kubecri/kubecri.sock"
  run     systemctl daemon-reload
  run     systemctl restart kubelet.service, and wait until it is healthy
  change  /etc/kubeslot/install.json
`
	if diff := cmp.Diff(expected, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

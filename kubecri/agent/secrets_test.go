package agent

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// overHTTP is a handler that has registered an http:// endpoint.
type overHTTP struct{ *echoes }

func (h overHTTP) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	if request.Secret {
		h.change(func() { h.runs++ })
		return fmt.Errorf("endpoint http://h:1: %w", discovery.ErrSecretsNeedTLS)
	}
	return h.echoes.Discover(ctx, request, report)
}

// A handler that must not get a Secret is a problem, and is not tried again until something is another.
func TestSecretsNeedTLSIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, remote := configuration("cam"), overHTTP{seeing("foo1")}
		key := v0.DiscoveryPropertyKeySelector{Namespace: ns, Name: "cam", Key: "password", Optional: new(true)}
		c.Spec.DiscoveryHandler.DiscoveryProperties = []v0.DiscoveryProperty{
			{Name: "password", ValueFrom: &v0.DiscoveryPropertySource{SecretKeyRef: &key}}}
		api := newAPI(c)
		agent := api.start(t, "node-a", seeing("foo0"))
		agent.Add(at("http://h:1", remote))
		api.want(t, "node-a-0: foo0 foo1") // there is no Secret
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cam"},
			Data: map[string][]byte{"password": []byte("x")}}
		if _, err := api.kube.CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		api.wantNow(t, "node-a-0: foo0 foo1? !SecretsNeedTLS")
		agent.wantEvents(t, `Warning SecretsNeedTLS Node node-a: discovery handler "echoes": endpoint http://h:1: `+
			discovery.ErrSecretsNeedTLS.Error())
		if remote.ran() != 2 {
			t.Errorf("ran %d times, want once with each value", remote.ran())
		}
	})
}

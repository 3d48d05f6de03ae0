package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/test/await"
)

// cluster has the ValidatingWebhookConfiguration, and replicas of the controller that look
// at it when the test says so.
type cluster struct {
	*testing.T
	client *fake.Clientset
	clock  *clocktesting.FakeClock
	writes int
	fail   error // of the next write
}

func newCluster(t *testing.T, bundle []byte) *cluster {
	url := "https://127.0.0.1:10362" + Path
	c := &cluster{T: t, clock: clocktesting.NewFakeClock(start)}
	c.client = fake.NewClientset(&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName, UID: "u", ResourceVersion: "1"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "other.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}},
			{Name: Name, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle}},
		},
	})
	c.client.PrependReactor("patch", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
		c.writes++
		err := c.fail
		c.fail = nil
		return err != nil, nil, err
	})
	return c
}

func (c *cluster) replica(name string) *Keeper {
	return &Keeper{Client: c.client, Clock: c.clock, Replica: name, Duration: month}
}

func (c *cluster) object() *admissionregistrationv1.ValidatingWebhookConfiguration {
	c.Helper()
	o, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(c.Context(), ConfigurationName, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return o
}

func (c *cluster) bundle() []*x509.Certificate {
	return readBundle(c.object().Webhooks[1].ClientConfig.CABundle)
}

// settle has the replicas look until nothing changes, and returns for how long nothing
// will.
func (c *cluster) settle(replicas ...*Keeper) time.Duration {
	c.Helper()
	for range 10 {
		before, wait := c.writes, lookInterval
		for _, k := range replicas {
			c.clock.Step(writeInterval)
			wait = min(wait, k.look(c.Context(), c.object()))
		}
		if c.writes == before {
			return wait
		}
	}
	c.Fatalf("%d writes, and no end", c.writes)
	return 0
}

// trust fails unless API servers that know the caBundle trust what the replicas serve.
func (c *cluster) trust(replicas ...*Keeper) {
	c.Helper()
	roots := x509.NewCertPool()
	for _, certificate := range c.bundle() {
		roots.AddCert(certificate)
	}
	for _, k := range replicas {
		served, err := k.GetCertificate(nil)
		if err != nil {
			c.Fatal(err)
		}
		if _, err := served.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1", CurrentTime: c.clock.Now()}); err != nil {
			c.Errorf("%s at %s: %v", k.Replica, c.clock.Now().Sub(start), err)
		}
	}
}

// Replicas that come, go and are restarted are all trusted, write each certificate once,
// and leave each other's and strangers' alone.
func TestReplicas(t *testing.T) {
	c := newCluster(t, nil)
	a, b := c.replica("a"), c.replica("b")
	c.settle(a, b)
	c.trust(a, b)
	if n := len(c.bundle()); n != 2 || c.writes != 2 {
		t.Errorf("%d certificates after %d writes, want 2 and 2", n, c.writes)
	}
	again := c.replica("a")
	c.settle(again, b)
	c.trust(again, b)
	if n := len(c.bundle()); n != 2 || c.writes != 3 {
		t.Errorf("after a restart %d certificates after %d writes, want 2 and 3", n, c.writes)
	}
	if other := c.object().Webhooks[0]; other.ClientConfig.CABundle != nil {
		t.Error("another webhook was changed")
	}
	// helm or kubectl takes the caBundle away: it is there again after one look of each.
	o := c.object()
	o.Webhooks[1].ClientConfig.CABundle = nil
	if _, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.settle(again, b)
	c.trust(again, b)
	if n := len(c.bundle()); n != 2 || c.writes != 5 {
		t.Errorf("after it was emptied %d certificates after %d writes, want 2 and 5", n, c.writes)
	}
}

// Two controllers on one host and address, as nobody should run them, do not fight.
func TestReplicasOfOneName(t *testing.T) {
	c := newCluster(t, nil)
	a, b := c.replica("same"), c.replica("same")
	c.settle(a, b)
	c.trust(a, b)
	before := c.writes
	for range 100 {
		c.clock.Step(lookInterval)
		a.look(t.Context(), c.object())
		b.look(t.Context(), c.object())
	}
	if c.writes != before || before > 4 {
		t.Errorf("%d writes, then %d", before, c.writes-before)
	}
}

// Over a year of renewals no API server ever sees a certificate that it does not trust,
// also one that hears of changes 20 seconds late.
func TestRenewal(t *testing.T) {
	c := newCluster(t, nil)
	a, b := c.replica("a"), c.replica("b")
	c.settle(a, b)
	type seen struct {
		at     time.Time
		bundle []*x509.Certificate
	}
	var known []seen // the newest last
	served := map[*x509.Certificate]bool{}
	for c.clock.Now().Before(start.Add(365 * 24 * time.Hour)) {
		wait := lookInterval
		for _, k := range []*Keeper{a, b} {
			wait = min(wait, k.look(c.Context(), c.object()))
		}
		known = append(known, seen{c.clock.Now(), c.bundle()})
		for len(known) > 1 && c.clock.Now().Sub(known[1].at) >= 20*time.Second {
			known = known[1:]
		}
		for _, k := range []*Keeper{a, b} {
			p := k.served.Load()
			served[p.leaf] = true
			if !contains(known[0].bundle, p.leaf) || !p.validAt(c.clock.Now()) {
				t.Fatalf("after %s %s serves what an API server does not trust", c.clock.Now().Sub(start), k.Replica)
			}
		}
		if wait == lookInterval { // a minute at a time would take long
			wait = 6 * time.Hour
			for _, k := range []*Keeper{a, b} {
				wait = min(wait, max(time.Second, k.served.Load().renewAt().Sub(c.clock.Now())))
			}
		}
		c.clock.Step(wait)
	}
	if n := len(c.bundle()); n > 4 {
		t.Errorf("%d certificates are left", n)
	}
	if len(served) < 2*18 || c.writes > 4*20 {
		t.Errorf("%d certificates were served, after %d writes", len(served), c.writes)
	}
}

// A machine that slept for a year, or whose clock was wrong, serves a new one at once.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{365 * 24 * time.Hour, -48 * time.Hour} {
		c := newCluster(t, nil)
		a := c.replica("a")
		c.settle(a)
		c.clock.SetTime(start.Add(jump))
		c.settle(a)
		c.trust(a)
		if n := len(c.bundle()); n != 1 {
			t.Errorf("%s: %d certificates", jump, n)
		}
	}
}

// Another Service or URL gets a certificate for its name at once.
func TestAnotherName(t *testing.T) {
	c := newCluster(t, nil)
	a := c.replica("a")
	c.settle(a)
	o := c.object()
	o.Webhooks[1].ClientConfig.URL = nil
	o.Webhooks[1].ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "hook"}
	if _, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.settle(a)
	if p := a.served.Load(); !p.covers(service) || len(c.bundle()) != 1 || !contains(c.bundle(), p.leaf) {
		t.Errorf("served for %q, %d certificates", p.leaf.DNSNames, len(c.bundle()))
	}
}

// What fails is tried again, later each time; a conflict soon.
func TestFailedWrites(t *testing.T) {
	c := newCluster(t, nil)
	a := c.replica("a")
	want := firstRetry
	for range 10 {
		c.fail = errors.New("no")
		if wait := a.look(t.Context(), c.object()); wait != want {
			t.Fatalf("tried again after %s, want %s", wait, want)
		}
		c.clock.Step(want)
		want = min(2*want, lastRetry)
	}
	c.fail = apierrors.NewConflict(schema.GroupResource{}, ConfigurationName, nil)
	if wait := a.look(t.Context(), c.object()); wait != writeInterval {
		t.Errorf("after a conflict tried again after %s", wait)
	}
	c.settle(a)
	c.trust(a)
}

// Without a ValidatingWebhookConfiguration, and without our webhook in it, nothing is
// served and nothing written.
func TestNoWebhook(t *testing.T) {
	c := newCluster(t, nil)
	a := c.replica("a")
	without := c.object()
	without.Webhooks = without.Webhooks[:1]
	going := c.object()
	going.DeletionTimestamp = &metav1.Time{Time: start}
	for _, o := range []*admissionregistrationv1.ValidatingWebhookConfiguration{nil, without, going} {
		if wait := a.look(t.Context(), o); wait != lookInterval || c.writes != 0 {
			t.Errorf("looks again after %s, %d writes", wait, c.writes)
		}
	}
	if _, err := a.GetCertificate(nil); err == nil {
		t.Error("a certificate is served")
	}
}

// patched keeps what was sent.
func TestWriteIsOfOneFieldAndOneVersion(t *testing.T) {
	c := newCluster(t, nil)
	a := c.replica("a")
	var sent []byte
	c.client.PrependReactor("patch", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		sent = action.(k8stesting.PatchAction).GetPatch()
		return false, nil, nil
	})
	c.settle(a)
	var patch map[string]any
	if err := json.Unmarshal(sent, &patch); err != nil {
		t.Fatal(err)
	}
	hook := patch["webhooks"].([]any)[0].(map[string]any)
	metadata := patch["metadata"].(map[string]any)
	if len(patch) != 2 || len(hook) != 2 || hook["name"] != Name || len(hook["clientConfig"].(map[string]any)) != 1 || metadata["resourceVersion"] != "1" || metadata["uid"] != "u" {
		t.Errorf("patch %s", sent)
	}
}

// Start follows the object, and a client that knows the caBundle alone is served.
func TestStart(t *testing.T) {
	c := newCluster(t, nil)
	k := c.replica("a")
	k.Clock = clocktesting.NewFakeClock(time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := k.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	hook, err := New(handler(t))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(hook)
	server.TLS = &tls.Config{GetCertificate: k.GetCertificate}
	server.StartTLS()
	defer server.Close()
	server.TLS.Certificates = nil

	await.That(t, "the certificate to be in the caBundle", func() bool { return len(c.bundle()) > 0 })
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.object().Webhooks[1].ClientConfig.CABundle)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}}}
	answer, err := client.Post(server.URL+Path, "application/json", bytes.NewReader([]byte(
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":{"spec":{"discoveryHandler":{"name":"x"},"brokerSpec":{"brokerPodSpec":{"nodeNam":"x"}}}}}}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var body struct {
		Kind     string
		Response struct {
			UID     string
			Allowed bool
			Status  metav1.Status
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || body.Kind != "AdmissionReview" || body.Response.UID != "u" || body.Response.Allowed || body.Response.Status.Reason != metav1.StatusReasonInvalid {
		t.Errorf("answer %+v, %v", body, err)
	}
}

// Whoever takes the caBundle away again and again gets one write a second in return.
func TestWritesAreFew(t *testing.T) {
	c := newCluster(t, nil)
	a := c.replica("a")
	for range 200 { // 10 s
		a.look(t.Context(), c.object())
		o := c.object()
		o.Webhooks[1].ClientConfig.CABundle = nil
		if _, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.clock.Step(50 * time.Millisecond)
	}
	if c.writes < 9 || c.writes > 11 {
		t.Errorf("%d writes in 10 s", c.writes)
	}
}

package webhook

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	informers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubeslot/kubeslot/wake"
)

const (
	// ConfigurationName is the ValidatingWebhookConfiguration of deploy/webhook.yaml.
	ConfigurationName = "kubeslot-configurations"
	// Name is the webhook's in it.
	Name = "configurations.kubeslot.io"

	// writeInterval is the least time between two writes, whoever else writes.
	writeInterval = time.Second
	// What fails is tried again after the first, at last after the second.
	firstRetry, lastRetry = time.Second, time.Minute
)

// Keeper makes the certificate of this process's webhook, renews it, and keeps it in the
// caBundle of the ValidatingWebhookConfiguration, beside those of the other replicas. No
// key is ever stored: a replica that starts makes a certificate of its own. A successor is
// in the caBundle for a while before it is served, so that no API server sees one that it
// does not trust. The name in the certificate is that by which the
// ValidatingWebhookConfiguration leads to the webhook. While there is none, nothing is
// done.
type Keeper struct {
	Client kubernetes.Interface
	Clock  clock.Clock
	// Replica tells this replica's certificates from others', also after a restart.
	Replica string
	// Duration is how long a certificate is valid. It is renewed when a third is left.
	Duration time.Duration

	served atomic.Pointer[pair]

	// Of the one goroutine of Start:
	certificates
	started   bool // the certificates of the process before this one are removed
	retired   []*x509.Certificate
	lastWrite time.Time
	retry     time.Duration
	missing   bool // it was logged that there is no ValidatingWebhookConfiguration
}

var (
	_ manager.Runnable               = &Keeper{}
	_ manager.LeaderElectionRunnable = &Keeper{}
)

// ReplicaName makes a replica's name of where it serves: a host, or a pod, and an address.
func ReplicaName(host, address string) string {
	name := host + " " + address
	if len(name) > 64 { // the most that an organizational unit may have
		sum := sha256.Sum256([]byte(name))
		name = name[:47] + "-" + hex.EncodeToString(sum[:8])
	}
	return name
}

// NeedLeaderElection has it work in all replicas.
func (*Keeper) NeedLeaderElection() bool { return false }

// GetCertificate is for tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p := k.served.Load(); p != nil {
		return p.tls, nil
	}
	return nil, fmt.Errorf("there is no certificate yet: is there a ValidatingWebhookConfiguration %s?", ConfigurationName)
}

// Start works until ctx is done.
func (k *Keeper) Start(ctx context.Context) error {
	changed := wake.New()
	informer := informers.NewFilteredValidatingWebhookConfigurationInformer(k.Client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, ConfigurationName).String()
	})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed.Send() }, UpdateFunc: func(any, any) { changed.Send() },
		DeleteFunc: func(any) { changed.Send() },
	}); err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil // ctx is done
	}
	for {
		var c *admissionregistrationv1.ValidatingWebhookConfiguration
		if o, ok, _ := informer.GetStore().GetByKey(ConfigurationName); ok {
			c = o.(*admissionregistrationv1.ValidatingWebhookConfiguration)
		}
		timer := k.Clock.NewTimer(k.look(ctx, c))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// look does what is due, given the ValidatingWebhookConfiguration as it is, nil for none,
// and returns when to look again if it does not change.
func (k *Keeper) look(ctx context.Context, c *admissionregistrationv1.ValidatingWebhookConfiguration) time.Duration {
	logger := klog.FromContext(ctx)
	now := k.Clock.Now()
	hook := webhookOf(c)
	name := nameOf(hook)
	if name == "" {
		if !k.missing {
			logger.Info("No webhook leads here: wrong Configurations are not refused; their status says what is wrong", "validatingWebhookConfiguration", ConfigurationName, "webhook", Name)
		}
		k.missing = true
		trusted.Set(0)
		return lookInterval
	}
	k.missing = false
	if k.isDue(now, name) {
		p, err := newPair(now, name, k.Replica, k.Duration)
		if err != nil {
			logger.Error(err, "Could not make a certificate for the webhook", "name", name)
			return k.failed()
		}
		if k.next != nil {
			k.retired = append(k.retired, k.next.leaf)
		}
		k.next, k.trustedSince = p, time.Time{}
		logger.Info("Made a certificate for the webhook", "name", name, "until", p.leaf.NotAfter)
	}
	is := readBundle(hook.ClientConfig.CABundle)
	before := k.serving
	k.promote(now, name, is)
	if k.serving != before {
		k.served.Store(k.serving)
		expiry.Set(float64(k.serving.leaf.NotAfter.Unix()))
		if before != nil {
			k.retired = append(k.retired, before.leaf)
		}
	}
	if contains(is, k.serving.leaf) {
		trusted.Set(1)
	} else {
		trusted.Set(0)
	}
	want := k.bundle(now, is, func(c *x509.Certificate) bool {
		return contains(k.retired, c) || !k.started && madeBy(c, k.Replica)
	})
	if sameSet(want, is) {
		k.started, k.retry, k.retired = true, 0, nil
		return k.again(now)
	}
	if wait := k.lastWrite.Add(writeInterval).Sub(now); wait > 0 && wait <= writeInterval {
		return wait
	}
	k.lastWrite = now
	if err := k.write(ctx, c, want); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // what changed is on its way
			return writeInterval
		}
		logger.Error(err, "Could not add the webhook's certificate to its caBundle: API servers do not call the webhook", "validatingWebhookConfiguration", ConfigurationName)
		return k.failed()
	}
	k.started, k.retry = true, 0
	logger.V(2).Info("Wrote the webhook's caBundle", "validatingWebhookConfiguration", ConfigurationName, "certificates", len(want))
	return k.again(now)
}

// failed returns how long to wait after another failure.
func (k *Keeper) failed() time.Duration {
	k.retry = min(max(2*k.retry, firstRetry), lastRetry)
	return k.retry
}

// write sets the caBundle, if nobody has written meanwhile: another replica may be adding
// its certificate.
func (k *Keeper) write(ctx context.Context, c *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []*x509.Certificate) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": c.ResourceVersion, "uid": c.UID},
		"webhooks": []any{map[string]any{ // merged by name
			"name":         Name,
			"clientConfig": map[string]any{"caBundle": writeBundle(bundle)},
		}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = k.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(ctx, c.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubeslot-controller"})
	return err
}

// webhookOf returns our webhook, or nil.
func webhookOf(c *admissionregistrationv1.ValidatingWebhookConfiguration) *admissionregistrationv1.ValidatingWebhook {
	if c == nil || c.DeletionTimestamp != nil {
		return nil
	}
	for i := range c.Webhooks {
		if c.Webhooks[i].Name == Name {
			return &c.Webhooks[i]
		}
	}
	return nil
}

// nameOf returns the name by which API servers know the webhook: that of its Service, or
// the host of its URL; "" when there is none.
func nameOf(hook *admissionregistrationv1.ValidatingWebhook) string {
	if hook == nil {
		return ""
	}
	if s := hook.ClientConfig.Service; s != nil {
		return s.Name + "." + s.Namespace + ".svc"
	}
	if hook.ClientConfig.URL == nil {
		return ""
	}
	u, err := url.Parse(*hook.ClientConfig.URL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

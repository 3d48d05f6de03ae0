package binding

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/types/assignment/signing"
	"github.com/kubeslot/kubeslot/types/assignment/signing/signingtest"
)

// A scheduler with a key signs what it binds, for the pod and its node.
func TestTheAssignmentIsSigned(t *testing.T) {
	dir := t.TempDir()
	private, public := signingtest.Pair(t)
	for name, key := range map[string][]byte{"key": private, "pub": public} {
		if err := os.WriteFile(filepath.Join(dir, name), key, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{SigningKeyFile: filepath.Join(dir, "key")}
	signer, err := o.Signer()
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := signing.NewVerifier(filepath.Join(dir, "pub"))
	if err != nil {
		t.Fatal(err)
	}
	client, pod := answering(nil), newPod("")
	if status := binder(client, signer).Bind(t.Context(), contributed(t, pod), pod, "a"); !status.IsSuccess() {
		t.Fatal(status)
	}
	sent := client.Actions()[0].(clienttesting.CreateAction).GetObject().(*v1.Binding)
	if err := verifier.Verify(sent.Annotations, string(pod.UID), "a"); err != nil {
		t.Errorf("%v; annotations %v", err, sent.Annotations)
	}
	if none, err := (&Options{}).Signer(); none != nil || err != nil {
		t.Errorf("without a key: %v, %v", none, err)
	}
	if _, err := (&Options{SigningKeyFile: filepath.Join(dir, "pub")}).Signer(); err == nil {
		t.Error("a public key is taken for one to sign with")
	}
}

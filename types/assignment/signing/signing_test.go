package signing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/assignment/signing/signingtest"
)

const (
	uid  = "7d9b0d0e-9b1f-4f0c-8a51-0f4b3c0f8a11"
	node = "node-a"
)

func file(t testing.TB, text ...[]byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "key.pem")
	write(t, name, text...)
	return name
}

func write(t testing.TB, name string, text ...[]byte) {
	t.Helper()
	var all []byte
	for _, part := range text {
		all = append(all, part...)
	}
	if err := os.WriteFile(name, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

func signer(t testing.TB, private []byte) *Signer {
	t.Helper()
	s, err := NewSigner(file(t, private))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signed(s *Signer) map[string]string {
	a := map[string]string{
		assignment.Annotation:       `{"podname":"viewer","nodename":"node-a","runningcontainer":{"main":{"allocatefrom":{"akri.sh/cameras/0":"cameras-8120fe-0"}}}}`,
		assignment.HolderAnnotation: uid,
	}
	s.Sign(a, uid, node)
	return a
}

func TestWhatIsSigned(t *testing.T) {
	private, public := signingtest.Pair(t)
	s := signer(t, private)
	v, err := NewVerifier(file(t, public))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Verify(signed(s), uid, node); err != nil {
		t.Errorf("signed by the scheduler: %v", err)
	}
	other, _ := signingtest.Pair(t)
	for _, test := range []struct {
		name      string
		forge     func(map[string]string)
		uid, node string
		want      string
	}{
		{name: "no signature", forge: func(a map[string]string) { delete(a, assignment.SignatureAnnotation) }, want: "is missing"},
		{name: "another slot", forge: func(a map[string]string) {
			a[assignment.Annotation] = strings.Replace(a[assignment.Annotation], "8120fe-0", "8120fe-1", 1)
		}, want: "is not of this assignment"},
		{name: "another pod", uid: "another-uid", want: "is not of this assignment"},
		{name: "another node", node: "node-b", want: "is not of this assignment"},
		{name: "no base64", forge: func(a map[string]string) { a[assignment.SignatureAnnotation] = s.id + ".!" },
			want: "is not a signature"},
		{name: "short", forge: func(a map[string]string) { a[assignment.SignatureAnnotation] = s.id + ".AAAA" },
			want: "is not a signature"},
		{name: "no key", forge: func(a map[string]string) { a[assignment.SignatureAnnotation] = "x" }, want: "is not a signature"},
		{name: "another key", forge: func(a map[string]string) { signer(t, other).Sign(a, uid, node) }, want: "does not trust"},
		{name: "another key under this one's name", forge: func(a map[string]string) {
			o := signer(t, other)
			o.id = s.id
			o.Sign(a, uid, node)
		}, want: "is not of this assignment"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, forUID, onNode := signed(s), uid, node
			if test.forge != nil {
				test.forge(a)
			}
			if test.uid != "" {
				forUID = test.uid
			}
			if test.node != "" {
				onNode = test.node
			}
			if err := v.Verify(a, forUID, onNode); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

// A zero byte parts UID, node and assignment: what is moved from one to the other is
// another message.
func TestPartsDoNotRunTogether(t *testing.T) {
	private, public := signingtest.Pair(t)
	s := signer(t, private)
	v, err := NewVerifier(file(t, public))
	if err != nil {
		t.Fatal(err)
	}
	a := map[string]string{assignment.Annotation: "x"}
	s.Sign(a, "ab", "c")
	if v.Verify(a, "a", "bc") == nil {
		t.Error("the signature for pod ab on node c counts for pod a on node bc")
	}
}

func TestKeysAreReadAgain(t *testing.T) {
	private, public := signingtest.Pair(t)
	oldPrivate, oldPublic := signingtest.Pair(t)
	name := file(t, oldPublic)
	now := testingclock.NewFakeClock(time.Now())
	v, err := newVerifier(name, now)
	if err != nil {
		t.Fatal(err)
	}
	s := signer(t, private)
	write(t, name, oldPublic, public)
	if err := v.Verify(signed(s), uid, node); !errors.Is(err, errUnknownKey) {
		t.Errorf("within a second of the last reading: %v, want an unknown key", err)
	}
	now.Step(rereadInterval)
	if err := v.Verify(signed(s), uid, node); err != nil {
		t.Errorf("with the new key in the file: %v", err)
	}
	if err := v.Verify(signed(signer(t, oldPrivate)), uid, node); err != nil {
		t.Errorf("with the old key in the file still: %v", err)
	}

	write(t, name, public)
	now.Step(revokedWithin)
	if err := v.Verify(signed(signer(t, oldPrivate)), uid, node); !errors.Is(err, errUnknownKey) {
		t.Errorf("a minute after the old key was taken out: %v, want an unknown key", err)
	}

	write(t, name, []byte("half a ke"))
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	klog.SetLogger(logger)
	defer klog.ClearLogger()
	for range 3 {
		now.Step(revokedWithin)
		if err := v.Verify(signed(s), uid, node); err != nil {
			t.Errorf("the keys read before a broken file do not count any more: %v", err)
		}
	}
	log := logger.GetSink().(ktesting.Underlier).GetBuffer().Data()
	if len(log) != 1 || !strings.Contains(log[0].Err.Error(), name) {
		t.Errorf("the log says of the broken file %v, want one line", log)
	}
	now.Step(rereadInterval)
	another, _ := signingtest.Pair(t)
	if err := v.Verify(signed(signer(t, another)), uid, node); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("a broken file: %v, want it told", err)
	}
}

func TestBadKeyFiles(t *testing.T) {
	private, public := signingtest.Pair(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"empty": nil, "no PEM": []byte("hello"), "public": public, "two": append(append([]byte{}, private...), private...),
		"another kind of key": signingtest.PEM(t, "PRIVATE KEY", ec), "broken": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}),
	} {
		if _, err := NewSigner(file(t, text)); err == nil {
			t.Errorf("a scheduler starts with a key file that is %s", name)
		}
	}
	for name, text := range map[string][]byte{
		"empty": nil, "no PEM": []byte("hello"), "private": private, "trailing text": append(append([]byte{}, public...), "x"...),
		"another kind of key": signingtest.PEM(t, "PUBLIC KEY", &ec.PublicKey), "broken": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}),
	} {
		if _, err := NewVerifier(file(t, text)); err == nil {
			t.Errorf("a node starts with a key file that is %s", name)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := NewSigner(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := NewVerifier(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestWithoutKeys(t *testing.T) {
	var s *Signer
	a := signed(s)
	if _, ok := a[assignment.SignatureAnnotation]; ok {
		t.Error("signed without a key")
	}
	var v *Verifier
	if err := v.Verify(a, uid, node); err != nil {
		t.Errorf("a node without keys refuses: %v", err)
	}
}

func BenchmarkSign(b *testing.B) {
	private, _ := signingtest.Pair(b)
	s := signer(b, private)
	for b.Loop() {
		signed(s)
	}
}

func BenchmarkVerify(b *testing.B) {
	private, public := signingtest.Pair(b)
	a := signed(signer(b, private))
	v, err := NewVerifier(file(b, public))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := v.Verify(a, uid, node); err != nil {
			b.Fatal(err)
		}
	}
}

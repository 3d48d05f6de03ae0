// Package signing proves that an assignment was made by a scheduler: the scheduler
// signs it with an Ed25519 key of its own, and a node that has the public key
// refuses all others. The API server's policies keep strangers from writing
// assignments; a signature holds also where these policies are missing, or where
// somebody can write to etcd.
//
// Keys are PEM files as `openssl genpkey -algorithm ed25519` and `openssl pkey
// -pubout` write them.
package signing

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// Signer signs assignments. Safe for concurrent use; a nil one signs nothing.
type Signer struct {
	key ed25519.PrivateKey
	id  string // of the public key that verifies what it signs
}

// NewSigner reads the private key in a PEM file (PKCS #8, Ed25519).
func NewSigner(file string) (*Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the key that signs assignments: %w", err)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" || strings.TrimSpace(string(rest)) != "" {
		return nil, fmt.Errorf("%s: want one PEM block PRIVATE KEY, as `openssl genpkey -algorithm ed25519` writes it", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: the key is a %T: want an Ed25519 key", file, parsed)
	}
	return &Signer{key: key, id: keyID(key.Public().(ed25519.PublicKey))}, nil
}

// Sign adds the signature to the annotations of an assignment, which is for the pod
// with the UID on the node.
func (s *Signer) Sign(annotations map[string]string, podUID, node string) {
	if s == nil {
		return
	}
	signature := ed25519.Sign(s.key, message(annotations, podUID, node))
	annotations[assignment.SignatureAnnotation] = s.id + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// message is what is signed: the pod, the node, and the whole assignment, so slots,
// devices of plugins and containers. Neither a UID nor a node's name has a zero byte.
func message(annotations map[string]string, podUID, node string) []byte {
	return []byte(strings.Join([]string{"kubeslot.io/assignment/v1", podUID, node, annotations[assignment.Annotation]}, "\x00"))
}

// keyID names a key: 8 hex digits.
func keyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

// Keys are the public keys of the schedulers that are trusted, by their id.
type Keys map[string]ed25519.PublicKey

// ParseKeys reads PEM blocks PUBLIC KEY, one or more.
func ParseKeys(text []byte) (Keys, error) {
	keys := Keys{}
	for len(strings.TrimSpace(string(text))) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil || block.Type != "PUBLIC KEY" {
			return nil, errors.New("want PEM blocks PUBLIC KEY alone, as `openssl pkey -pubout` writes them")
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		key, ok := parsed.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("a key is a %T: want Ed25519 keys", parsed)
		}
		keys[keyID(key)] = key
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no key in it")
	}
	return keys, nil
}

// errUnknownKey is of a signature by a key that is not among those that are trusted.
var errUnknownKey = errors.New("is by a key that this node does not trust")

// verify says whether the annotations have a signature of one of the keys over the
// assignment to the pod with the UID on the node.
func (k Keys) verify(annotations map[string]string, podUID, node string) error {
	text := annotations[assignment.SignatureAnnotation]
	if text == "" {
		return fmt.Errorf("annotation %s is missing", assignment.SignatureAnnotation)
	}
	id, encoded, _ := strings.Cut(text, ".")
	signature, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(signature) != ed25519.SignatureSize {
		return fmt.Errorf("annotation %s is not a signature", assignment.SignatureAnnotation)
	}
	key, ok := k[id]
	if !ok {
		return fmt.Errorf("annotation %s %w (%q)", assignment.SignatureAnnotation, errUnknownKey, id)
	}
	if !ed25519.Verify(key, message(annotations, podUID, node), signature) {
		return fmt.Errorf("annotation %s is not of this assignment", assignment.SignatureAnnotation)
	}
	return nil
}

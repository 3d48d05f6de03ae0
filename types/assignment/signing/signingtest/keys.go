// Package signingtest makes keys for tests of signed assignments.
package signingtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"
)

// Pair makes a scheduler's keys, in PEM.
func Pair(t testing.TB) (private, public []byte) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return PEM(t, "PRIVATE KEY", key), PEM(t, "PUBLIC KEY", pub)
}

// PEM encodes a key of any algorithm: a "PRIVATE KEY" or a "PUBLIC KEY".
func PEM(t testing.TB, kind string, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if kind == "PRIVATE KEY" {
		der, err = x509.MarshalPKCS8PrivateKey(key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

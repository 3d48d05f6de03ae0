package release

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"
)

// key is the releaser's, ECDSA on P-256. sigstore's own library would need a newer Go than
// ours; its format for a blob is short, and has been the same since cosign 1.
type key struct {
	private *ecdsa.PrivateKey
	public  []byte // as PEM
	hint    string // of the public half, for bundles
}

// readKey reads a key that `cosign generate-key-pair` or `openssl ecparam -genkey` made.
func readKey(file string, password []byte) (*key, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the releaser's key: %w", err)
	}
	private, err := parseKey(text, password)
	if err != nil {
		return nil, fmt.Errorf("the releaser's key %s: %w", file, err)
	}
	if private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("the releaser's key %s is on curve %s, want P-256", file, private.Curve.Params().Name)
	}
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		return nil, err
	}
	hint := sha256.Sum256(public)
	text = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	return &key{private, text, base64.StdEncoding.EncodeToString(hint[:])}, nil
}

func parseKey(text, password []byte) (*ecdsa.PrivateKey, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		der := block.Bytes
		switch block.Type {
		case "EC PARAMETERS":
			continue
		case "EC PRIVATE KEY":
			if block.Headers["DEK-Info"] != "" {
				return nil, errEncrypted
			}
			return x509.ParseECPrivateKey(der)
		case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
			var err error
			if der, err = decrypt(der, password); err != nil {
				return nil, err
			}
		case "PRIVATE KEY":
		case "ENCRYPTED PRIVATE KEY":
			return nil, errEncrypted
		default:
			return nil, fmt.Errorf("has %q, want a private key", block.Type)
		}
		parsed, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return nil, err
		}
		private, ok := parsed.(*ecdsa.PrivateKey)
		if !ok {
			return nil, fmt.Errorf("is a %T, want one of ECDSA", parsed)
		}
		return private, nil
	}
	return nil, errors.New("is no PEM")
}

var errEncrypted = errors.New("is encrypted by openssl: encrypt it with `cosign import-key-pair` instead")

// decrypt reads cosign's encrypted keys: scrypt and NaCl's secretbox, as JSON.
func decrypt(text, password []byte) ([]byte, error) {
	var sealed struct {
		KDF struct {
			Name   string
			Params struct{ N, R, P int }
			Salt   []byte
		}
		Cipher struct {
			Name  string
			Nonce []byte
		}
		Ciphertext []byte
	}
	if err := json.Unmarshal(text, &sealed); err != nil {
		return nil, err
	}
	kdf, cipher := sealed.KDF.Name, sealed.Cipher.Name
	if kdf != "scrypt" || cipher != "nacl/secretbox" || len(sealed.Cipher.Nonce) != 24 {
		return nil, fmt.Errorf("is encrypted with %s and %s, want scrypt and nacl/secretbox", kdf, cipher)
	}
	p := sealed.KDF.Params
	secret, err := scrypt.Key(password, sealed.KDF.Salt, p.N, p.R, p.P, 32)
	if err != nil {
		return nil, err
	}
	der, ok := secretbox.Open(nil, sealed.Ciphertext, (*[24]byte)(sealed.Cipher.Nonce), (*[32]byte)(secret))
	if !ok {
		return nil, errors.New("has another password than COSIGN_PASSWORD")
	}
	return der, nil
}

// sign returns the signature as cosign writes it, base64 of ASN.1 over SHA-256, and the same as
// sigstore's bundle. Equal data has equal signatures (RFC 6979).
func (k *key) sign(data []byte) (signature, bundle []byte, err error) {
	digest := sha256.Sum256(data)
	raw, err := k.private.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return nil, nil, fmt.Errorf("sign: %w", err)
	}
	type m = map[string]any
	bundle, err = json.Marshal(m{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": m{"publicKey": m{"hint": k.hint}},
		"messageSignature":     m{"messageDigest": m{"algorithm": "SHA2_256", "digest": digest[:]}, "signature": raw},
	})
	return []byte(base64.StdEncoding.EncodeToString(raw)), bundle, err
}

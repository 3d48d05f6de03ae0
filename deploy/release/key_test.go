package release

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKey(t *testing.T) {
	dir := t.TempDir()
	run(
		t,
		dir,
		`openssl ecparam -name prime256v1 -genkey -out sec1.key && openssl pkcs8 -topk8 -nocrypt -in sec1.key -out pkcs8.key
openssl pkcs8 -topk8 -passout pass:x -in sec1.key -out encrypted.key; openssl ec -aes256 -passout pass:x -in sec1.key -out old.key 2>/dev/null
openssl ecparam -name secp384r1 -genkey -noout -out p384.key; openssl genrsa -out rsa.key 2048 2>/dev/null; openssl ec -in sec1.key -pubout -out public.key 2>/dev/null; echo x > text.key`,
	)
	cosign, err := os.ReadFile("testdata/cosign.key")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "cosign.key"), string(cosign))
	for name, want := range map[string]string{
		"sec1": "", "pkcs8": "", "cosign": "", "cosign other": "has another password than COSIGN_PASSWORD",
		"encrypted": "is encrypted by openssl", "old": "is encrypted by openssl", "p384": "is on curve P-384, want P-256",
		"rsa": "is a *rsa.PrivateKey, want one of ECDSA", "public": `has "PUBLIC KEY", want a private key`, "text": "is no PEM",
	} {
		file, password, found := strings.Cut(name, " ")
		if !found {
			password = "password"
		}
		k, err := readKey(filepath.Join(dir, file+".key"), []byte(password))
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		signature, _, err := k.sign([]byte("data"))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(string(signature))
		digest := sha256.Sum256([]byte("data"))
		if err != nil || !ecdsa.VerifyASN1(&k.private.PublicKey, digest[:], raw) {
			t.Errorf("%s: the signature %s is not valid: %v", name, signature, err)
		}
		if again, _, _ := k.sign([]byte("data")); string(again) != string(signature) {
			t.Errorf("%s: it signs otherwise each time", name)
		}
	}
}

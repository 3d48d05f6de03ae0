package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	sumsFile       = "SHA256SUMS"
	provenanceFile = "provenance.intoto.json"
)

// attest adds checksums, provenance and, with a key, signatures of both.
func (r *release) attest(context.Context) error {
	slices.SortFunc(r.files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	var sums bytes.Buffer
	for _, f := range r.files {
		sums.WriteString(f.SHA256 + "  " + f.Name + "\n")
	}
	provenance, err := r.provenance()
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{sumsFile: sums.Bytes(), provenanceFile: provenance} {
		if err := r.write(name, data); err != nil {
			return err
		}
		if r.key == nil {
			continue
		}
		signature, bundle, err := r.key.sign(data)
		if err != nil {
			return err
		}
		if err := r.write(name+".sig", signature); err != nil {
			return err
		}
		if err := r.write(name+".sigstore.json", bundle); err != nil {
			return err
		}
	}
	return nil
}

// sumOf is the file's SHA-256 in hex.
func sumOf(file string) (string, error) {
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

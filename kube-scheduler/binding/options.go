package binding

import (
	"sync"

	"github.com/spf13/pflag"

	"github.com/kubeslot/kubeslot/types/assignment/signing"
)

// Options say how Bindings are made. All plugins of a scheduler share them.
type Options struct {
	// SigningKeyFile is the private key that signs assignments; "" is for none.
	SigningKeyFile string

	once   sync.Once
	signer *signing.Signer
	err    error
}

// AddFlags adds the flags of the options.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.SigningKeyFile, "assignment-signing-key-file", o.SigningKeyFile,
		"Ed25519 private key, in PEM, to sign the device assignments of pods with. Nodes that have the public key (kubecri --assignment-public-keys-file) refuse others. Read at start.")
}

// Signer returns what signs assignments, nil where there is no key. The key is read
// once. Safe for concurrent use.
func (o *Options) Signer() (*signing.Signer, error) {
	o.once.Do(func() {
		if o.SigningKeyFile != "" {
			o.signer, o.err = signing.NewSigner(o.SigningKeyFile)
		}
	})
	return o.signer, o.err
}

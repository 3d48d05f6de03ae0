package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"
)

// MayPush asks the registry whether it would take the images, before minutes are spent on
// building them: it has to answer, know who asks, and have the repositories or make them.
func MayPush(ctx context.Context, refs []string, insecure bool) error {
	var checks errgroup.Group
	for _, r := range refs {
		ref, err := Reference(r, insecure)
		if err != nil {
			return err
		}
		checks.Go(func() error {
			err := remote.CheckPushPermission(ref, authn.DefaultKeychain, withContext{ctx})
			var refused *transport.Error
			if errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden) {
				return fmt.Errorf("the registry does not let you push %s: log in with \"docker login %s\", as somebody who may: %w", ref, ref.Context().RegistryStr(), err)
			}
			if err != nil {
				return fmt.Errorf("the registry does not take %s: %w", ref, err)
			}
			return nil
		})
	}
	return checks.Wait()
}

// withContext ends requests with the context.
type withContext struct{ ctx context.Context }

func (t withContext) RoundTrip(r *http.Request) (*http.Response, error) {
	return remote.DefaultTransport.RoundTrip(r.WithContext(t.ctx))
}

// Reference reads the name of an image in a registry, which has no TLS if it is insecure.
func Reference(ref string, insecure bool) (name.Reference, error) {
	var options []name.Option
	if insecure {
		options = append(options, name.Insecure)
	}
	return name.ParseReference(ref, options...)
}

// Push sends an index to a registry, with the credentials of docker login.
func Push(ctx context.Context, ref string, insecure bool, index v1.ImageIndex) error {
	to, err := Reference(ref, insecure)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(to, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	return nil
}

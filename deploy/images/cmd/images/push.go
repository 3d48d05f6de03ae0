package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"
)

// mayPush asks the registry whether it would take the images, before minutes are spent on
// building them: it has to answer, know who asks, and have the repositories or make them.
func mayPush(ctx context.Context, refs []string, insecure bool) error {
	var checks errgroup.Group
	for _, r := range refs {
		ref, err := reference(r, insecure)
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

func reference(ref string, insecure bool) (name.Reference, error) {
	var options []name.Option
	if insecure {
		options = append(options, name.Insecure)
	}
	return name.ParseReference(ref, options...)
}

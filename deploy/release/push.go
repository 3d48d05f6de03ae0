package release

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kubeslot/kubeslot/deploy/images"
)

// listImages adds images.txt: each image, and the chart, with its digest.
func (r *release) listImages(context.Context) error {
	chart, err := r.chart.digest()
	if err != nil {
		return err
	}
	list := ""
	for _, i := range r.images {
		list += i.ref + "@" + i.digest.String() + "\n"
	}
	return r.write("images.txt", []byte(list+r.chartRef()+"@"+chart.String()+"\n"))
}

// push sends images and chart to the registry, unless it has others of this version. What it
// has already is not sent again.
func (r *release) push(ctx context.Context) error {
	if r.Registry == "" || !r.Push {
		return nil
	}
	chart, err := r.chart.digest()
	if err != nil {
		return err
	}
	for _, i := range r.images {
		if err := r.mayReplace(ctx, i.ref, i.digest); err != nil {
			return err
		}
	}
	if err := r.mayReplace(ctx, r.chartRef(), chart); err != nil {
		return err
	}
	for _, i := range r.images {
		if err := images.Push(ctx, i.ref, r.Insecure, i.index); err != nil {
			return err
		}
		r.say("pushed %s@%s", i.ref, i.digest)
	}
	if err := r.pushChart(ctx); err != nil {
		return fmt.Errorf("push %s: %w", r.chartRef(), err)
	}
	r.say("pushed %s@%s", r.chartRef(), chart)
	return nil
}

// mayReplace refuses to give a version that the registry has another content.
func (r *release) mayReplace(ctx context.Context, ref string, digest v1.Hash) error {
	at, err := images.Reference(ref, r.Insecure)
	if err != nil {
		return err
	}
	there, err := remote.Head(at, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	var refused *transport.Error
	if errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for %s: %w", ref, err)
	}
	if there.Digest != digest {
		const once = "the registry has another %s, %s, and this is %s: a version is released once"
		return fmt.Errorf(once, ref, there.Digest, digest)
	}
	return nil
}

func (r *release) pushChart(ctx context.Context) error {
	to, err := images.Reference(r.chartRef(), r.Insecure)
	if err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, l := range r.chart.layers {
		if err := remote.WriteLayer(to.Context(), l, options...); err != nil {
			return err
		}
	}
	return remote.Put(to, r.chart, options...)
}

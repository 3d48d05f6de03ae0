package watch

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads an object, and returns nil when there is none.
func Get[T client.Object](ctx context.Context, from client.Reader, key types.NamespacedName, into T) (T, error) {
	var none T
	if err := from.Get(ctx, key, into); apierrors.IsNotFound(err) {
		return none, nil
	} else if err != nil {
		return none, err
	}
	return into, nil
}
